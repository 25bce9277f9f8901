"""Discounted, long-run average and total problems: sources of columns for which one stationary policy is the answer.

`problem` cuts a model to the states that matter, with actions as rows. `engine` finds the best policy for one objective
and evaluates policies, with bounds that hold whatever the rounding; `kernels` has its compiled passes, and `multichain`
does the same for several end components. `sources` turns policies into columns and, with `vertex`, mixtures of columns
into policies. `actions` says what single actions are worth.
"""
