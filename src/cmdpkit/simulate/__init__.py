"""A model as a world to act in, and what acting there costs.

Enters: a `CMDP`. Leaves: a `Simulator`, the arrays that the compiled functions `reset` and `step` read; a `Meter`,
which adds up exact regret and violation of the policies it is shown; and random numbers, as a stream that the caller
owns.

A `Simulator` is read-only and may be shared by threads. A `Meter` and a stream are changed by every call that is given
them, and belong to one run. Signals are in unit scale, between 0 and 1 per step; the meter's sums are in the user's
units.

Other rooms may import `Simulator`, `reset` and `step`; `Meter`, `watch`, `watch_policy` and `collect`, with `Tally` and
`Sums` for what it has counted; `stream`, `Stream` and `uniform`. A learner must not read the arrays of a simulator or a
meter.
"""
