"""The optimum of a model that is known.

Enters: a `CMDP`. Leaves: a `Solution` (policy, value, utilities, shadow prices and a gap that is proved), or the error
`Infeasible` with the bounds that exclude each other; a `Diagnosis` of how the problem is posed; a `Tradeoff` curve of
the best value against one bound. All of them are in the user's units and sense and do not change.

Inside, totals are divided by units of their own, so that tolerances mean the same for every model. A pool of columns
(`columns`) grows while it is used and belongs to whoever made it; the model is only read.

Other rooms may import `solve`, `Solution`, `Infeasible`, `diagnose`, `tradeoff` and what these return, and the abstract
`Columns`: planners of `learners` give it an induction of their own.
"""
