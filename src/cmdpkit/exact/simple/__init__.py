"""The simplest policy that is nearly as good as the optimum.

A solution and an allowance enter, a `Simplified` leaves. `judge` says what simple means, and evaluates candidates;
`search` makes them, and `simplified` has `simplify` and what the user sees.
"""
