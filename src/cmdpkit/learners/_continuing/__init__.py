"""What learners in worlds without episodes share: counts, plans in the model that they suggest, and playing a plan.

`counting` holds the counts and the compiled loop, `models` makes a model of the counts (their mean, or a draw from what
is plausible), `planning` finds the best stationary policy in such a model, and `player` is the learner that plays a
plan until it is time for the next one.
"""
