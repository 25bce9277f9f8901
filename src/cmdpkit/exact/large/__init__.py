"""Models by functions, solved by the same column generation: nothing of the size of a transition table is stored.

A model of `cmdpkit.model.functions` enters, a `LargeSolution` leaves. In the order of the imports:

    ranks     states divided among processes (MPI): planes of the first coordinate, and what is read of other planes
    sweeps    improvement, evaluation and inspection of all states, compiled for the user's functions
    folder    what is kept of a solve on disk, so that it continues after it was killed
    source    where columns come from: modified policy iteration, or one backward pass
    policy    choices, draws and mixtures; exact values, files, and one policy with few draws in place of a mixture
    solve     the search for the optimum under any bounds, and `check`
"""
