"""Many runs from one description, on this machine or on a cluster.

What enters: an experiment, as a TOML file or in Python. What leaves: records in a folder, and a `Study` of them.
`experiment` says which runs are asked for, `execute` carries out those that a folder lacks, `worker` does one run in
any process, and `backends/` says which process. Other rooms use `bench` and `execute` of `execute`, `Experiment`, and
`learn_many` of `worker`.
"""
