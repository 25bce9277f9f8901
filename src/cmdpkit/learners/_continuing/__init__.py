"""What learners in worlds without episodes share.

`planning` finds the best stationary policy in an estimated model, and `player` is the learner that plays a plan, in a
compiled loop, until it is time for the next one. Counts, models made of them, boxes and errors are in
`cmdpkit.estimate`.
"""
