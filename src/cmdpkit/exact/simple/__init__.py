"""The simplest policy that is nearly as good as the optimum.

A solution and an allowance enter, a `Simplified` leaves. In the order of the imports:

    shape       what simple means: phases, stochastic decisions, changes over states and over steps
    judge       candidates, evaluated exactly: which of them are good, what changes would cost, the simplest so far
    segments    steps and states divided into few runs at the least cost
    repairs     small changes that make a candidate good
    phases      candidates with few phases
    states      candidates with few changes from state to state
    polish      beginnings of phases and runs moved to where the value is largest
    simplified  `simplify`, and what the user sees
"""
