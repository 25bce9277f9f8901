"""Exact solutions of discounted, long-run average and total problems by one stationary policy.

`solving.Stationary` takes the arrays of a problem (`problem.Arrays`) and answers for any bounds. `components` finds the
states that can be reached and the parts that are never left, `pricing` the best policy for one objective with a bound
that holds whatever the rounding, `sources` and `multichain` turn such policies into columns, `pool` mixes them,
`vertex` makes one policy of the mixture, and `values` proves what it is worth.
"""
