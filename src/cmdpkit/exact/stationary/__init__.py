"""Discounted, long-run average and total problems: sources of columns for which one stationary policy is the answer.

`problem` cuts a model to the states that matter, with actions as rows. `parts` has the problem in units of its own and
the values of a policy. `pricing` finds the best policy for one objective and evaluates policies, with bounds that hold
whatever the rounding; `careful` does the same with proved errors where numbers of very different size meet, and has the
choice between the two. `multichain` puts several end components together. `sources` turns policies into columns, and
`plans`, with `vertex`, mixtures of columns into policies. `actions` says what single actions are worth.
"""
