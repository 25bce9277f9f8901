"""The simplest policy that is nearly as good as the optimum.

A solution and an allowance enter, a `Simplified` leaves. In the order of the imports:

    shape       what simple means, and steps and states divided into few runs at the least cost
    judge       candidates, evaluated exactly: which of them are good, what changes would cost, the simplest so far
    phases      candidates with few phases, and small changes that make a candidate good
    states      candidates with few changes from state to state, and the best of the same shape
    simplified  `simplify`, and what the user sees
"""
