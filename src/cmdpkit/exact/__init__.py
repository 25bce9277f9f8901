"""The optimum of a known model.

A `CMDP` enters; a `Solution`, a `Diagnosis` or a `Tradeoff` leaves, or `Infeasible` is raised. Nothing here draws
random numbers or touches files, and models are never changed. In the order of the imports:

    highs             linear programs in HiGHS, with the full one of a model
    master, columns   column generation over deterministic policies, whatever the criterion; units and tolerances
    stationary        columns of models without a horizon, and policies made of them
    sources           the same with a horizon, by backward induction; and `columns_of`, which knows both
    solution          what `solve` returns, or what it tells the user if no policy meets all bounds
    solver            `solve`, which puts all of these together, and what it reports on the way
    one_class         long-run averages by one policy that can be run forever
    diagnosis         how far bounds can be moved, and what each of them costs
    comparison        given policies next to the optimum, and why the optimum decides as it does
    large             models by functions, which are solved without storing them

Other rooms import `solve_fully` (`solve` is for users, because it catches Ctrl-C), `diagnose`, `tradeoff` and their
results; `Columns` for planning of their own; `highs` for linear programs of their own.
"""
