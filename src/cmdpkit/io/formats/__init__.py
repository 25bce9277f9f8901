"""The file formats that `cmdpkit.io.models` and `cmdpkit.io.policies` read and write, one module per format."""
