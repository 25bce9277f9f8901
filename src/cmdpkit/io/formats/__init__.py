"""The file formats behind `cmdpkit.io.models` and `cmdpkit.io.policies`, one module each."""
