"""What the problem is, and what answers it.

Enters: what a user has, as arrays or as functions (`from_functions`). Leaves: a `CMDP` that has been checked and does
not change any more, and its possible answers: `Policy`, `Mixture`, and their exact totals and occupancies (`evaluate`).

Nothing here is ever changed after it was made: arrays are copied in and read-only. Inside, every constraint is "utility
at least rho"; `Constraint` keeps the user's words, and `Scale` maps signals to the unit interval and back. Transitions
have one form, the sparse rows of `Kernel`.

Other rooms may import the classes and functions of `cmdp`, `constraints`, `transitions`, `policy`, `mixture` and
`evaluate`, the checks of `validate` (names, whole numbers, shapes), and from `compiled` the decorators that all
compiled code uses. This room imports `errors` alone, and `running` only when `CMDP.to_gym` is called.
"""
