"""The optimum of a known model.

A `CMDP` enters; a `Solution`, a `Diagnosis` or a `Tradeoff` leaves, or `Infeasible` is raised. Nothing here draws
random numbers or touches files, and models are never changed. In the order of the imports:

    highs, rational   linear programs: in HiGHS, and small ones in exact arithmetic
    units             what policies can collect: units, tolerances, rounding errors
    master, columns   column generation over deterministic policies
    drawn, vertex     policies with few stochastic decisions, and how to get there
    occupancy_lp      the full linear program
    solver            `solve`; infeasible: what to say if nothing can be done
    ranges, diagnosis, tradeoff   what the bounds do

Other rooms import `solve`, `diagnose`, `tradeoff` and their results; `Columns` and `Pool` for planning of their own;
`highs` for linear programs of their own.
"""
