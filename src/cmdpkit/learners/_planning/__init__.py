"""What model-based learners share: estimate a model, bound its errors, and plan in the models that remain possible.

    empirical     counts of what was seen, and the estimates they give
    confidence    radii around the estimates, the box of kernels they leave, bonuses
    belief        estimates, radii and box together, kept up to date row by row
    cadence       when a new plan is due
    induction     extended value iteration: the best policy and the best kernel of a box for one objective
    extended      the extended LP: the best policy and kernel of a box under constraints
    evaluation    values of a policy in an estimated model, truncated or not

Kernels are dense here, P[T, S, A, S] with T = H, or T = 1 where all steps share their transitions: a learner cannot
know which transitions are impossible. Everything that has a step axis may have 1 or H steps; step h is read at
h % length. The last step has no transition.
"""
