"""What was asked of a run and what came out: `Run` and `RunRecord`, their identity, and how they are kept on disk.

What enters: a request, and the finished result of a learner. What leaves: one npz file per run, and the same objects
when these files are read again, equal to the bit; files of version 0.2 are read too.
Objects of this room never change after they were made, and a finished record on disk is never replaced.

Other rooms may import `record` (the two classes), `store` (saving and reading) and `code` (the identity of a learner's
sources, versions, commit).
"""
