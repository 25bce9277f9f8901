"""Files in and out.

Enters: paths, texts and names that a user gives. Leaves: a `CMDP` or a `Policy`, the same as was written to the last
bit; or an error that names the file, the line and the rule. `load` takes a file or the name of an environment.

Reading never runs code: nothing is unpickled or evaluated, and what is read is checked before it is used. Writing
(`atomic`) makes a file appear whole or not at all, and replaces one that exists only if that was asked for.

Other rooms may import `load`, `read_model`, `write_model`, `read_policy`, `write_policy`, everything in `atomic`, and
of `formats` the plain text of JSON and TOML. Formats beyond these are this room's own business.
"""
