"""Models by functions, solved by the same column generation: nothing of the size of a transition table is stored.

A model of `cmdpkit.model.functions` enters, a `LargeSolution` leaves. In the order of the imports:

    ranks     states divided among processes (MPI): planes of the first coordinate, and what is read of other planes
    sweeps    improvement, evaluation and inspection of all states, compiled for the user's functions
    folder    what is kept on disk, so that a killed solve continues
    source    where columns come from: modified policy iteration, or one backward pass
    policy    policies of such models: choices, draws, mixtures; exact values, simulation, files
    one       one policy with at most N draws in place of a mixture
    solve     the verbs `solve` and `tradeoff`
"""
