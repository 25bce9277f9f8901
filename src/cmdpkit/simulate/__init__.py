"""A model as a world to act in, and what acting there costs.

What enters: a `CMDP`. What leaves: a `Simulator`, the arrays that the compiled functions `reset` and `step` read; a
`Meter`, which adds up exact regret and violation of the policies it is shown; and random numbers, as a stream that the
caller owns. `simulate_policy` and `exact_distribution` show the spread of the totals of single episodes.

A `Simulator` is read-only and may be shared by threads. A `Meter` and a stream are changed by every call that is given
them, and belong to one run. Signals are in unit scale, between 0 and 1 per step; the meter's sums and the totals of
single episodes are in the user's units.

Other rooms may import `Simulator`, `reset` and `step`; `Meter`, `watch` and `collect`, with `ExploringPolicy` and
`PolicyTable` for what a meter is told, and `Tally` and `Sums` for what it has counted; `stream`, `Stream` and
`uniform`; everything in `distribution`. A learner must not read the arrays of a simulator or a meter.
"""
