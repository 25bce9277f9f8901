"""From counts to a model, and how wrong that model can be.

What enters: counted transitions, from a log that `cmdpkit.io.logs` has read or from a learner. What leaves: an
estimated model, limits for its totals, the models that remain possible, tests of the assumptions behind it, and
certified policies. Nothing here touches files.

In the order of the imports:

    counts        the one store: transitions that were seen and moments of what each step earned; the model they suggest
    boxes         models within intervals, and the best policy and the best model of them under constraints
    radii         the intervals of boxes: radii of papers, bonuses made of them, and intervals that hold at all times
    continuing    weights of transitions; models, boxes and draws from the counts of one unbroken run
    model         the estimated model as a `CMDP`, the best policy in it, standard errors, and plans with a margin
    intervals     simultaneous intervals for the totals of one policy, by betting; the certificate for a user
    changes       whether steps behave alike; whether, where and by how much a process changed, of logs and of runs
    certificate   what counts prove about any policy, and what logs do

Of logs alone:

    log           recorded transitions with the bounds that were asked for, whole or in parts, and notes on them
    fitted        the model that a log suggests, and the standard errors of totals in it
    promise       a policy chosen on one part of the log and tested on the other
    from_log      `from_log` and `Estimate`, which offer all of this to the user, and what a log covers

Of the modules for logs, other rooms may import what `from_log` and `promise` have. Dense kernels are
P[T, S, A, S] with T = H, or T = 1 where all steps share their transitions. Whatever has a step axis may have 1 or H
steps; step h is read at h % length. The last step has no transition.
"""
