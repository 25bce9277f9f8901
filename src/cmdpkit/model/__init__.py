"""What the problem is, and what answers it.

What enters: a user's arrays or functions (`from_functions`). What leaves: a `CMDP` that has been checked, and the
possible answers to it, `Policy` and `Mixture`.

Objects of this room never change after they were made: arrays are copied and made read-only. Internally, every
constraint has the form "utility at least rho"; `Constraint` keeps the user's words, and `Scale` maps signals to the
unit interval and back. All transitions are stored in one form, the sparse rows of `Kernel`.

Other rooms may import the classes and functions of `cmdp`, `constraints`, `transitions` and `policy`, the
checks of `validate` (names, whole numbers, shapes), the decorators of all compiled code (`compiled`), and the
tolerances that separate rounding from meaning (`tolerances`). This room imports `errors` alone. What a model or
a policy does through a later room (printing and plotting) is declared in
`showing`, where the later room registers itself.
"""
