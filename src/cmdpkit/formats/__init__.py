"""The file formats behind `cmdpkit.files` and `cmdpkit.policy_files`, one module each."""
