"""What was asked of a run and what came out: `Run` and `RunRecord`, their identity, and how they are kept on disk.

What enters: a request, and the finished result of a learner. What leaves: one Parquet file with curves and one manifest
per run, and the same read back to the bit, also those of earlier versions. Other rooms use `record` (the two classes),
`store` (saving and reading), `code` (the identity of a learner's sources) and `origin` (versions, commit).
"""
