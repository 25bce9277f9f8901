"""Files in and out.

What enters: paths, texts and names that a user gives. What leaves: a `CMDP` or a `Policy`, equal to the last bit to
the original; a log as arrays of indices; or an error that names the file, the line and the rule.
`load` takes a file or an environment's name.

Reading never runs code: nothing is unpickled or evaluated, and all input is checked before it is used. Writing
(`atomic`) makes a file appear as a whole or not at all, and replaces an existing one only if the caller asks for it.

Other rooms may import `load`, `read_model`, `write_model`, `read_policy`, `write_policy`, everything in `atomic` and
`loading`, and from `formats` what reads and writes plain JSON, TOML, npz, cells of CSV and names.
"""
