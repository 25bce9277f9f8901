"""Many runs from one description, on this machine or on a cluster.

What enters: an experiment, as a TOML file or in Python. What leaves: records in a folder, and a `Study` of them. This
room writes into that folder only, and never replaces a finished record.

`experiment` says which runs are asked for, `execute` carries out those that the folder does not hold yet, and
`backends` decides in which process. Other rooms may import `bench`, `execute`, `Observer` and `Outcome` of `execute`,
`Experiment`, and `Executor` of `backends`.
"""
