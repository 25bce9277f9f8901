"""From counts to a model, and how wrong that model can be.

What enters: counted transitions, from a log that `cmdpkit.io.logs` has read or from a learner. What leaves: an
estimated model, limits for its totals, the models that remain possible, tests of the assumptions behind it, and
certified policies. Nothing here touches files.

Of learners, in the order of the imports:

    alike         whether data contradict that all steps, or all times, behave alike; of logs and runs too
    counts        the one store: transitions that were seen, as lists and as rows, and moments of what each step earned
    model         the model that the counts suggest, the best policy in it, and bounds that nothing seems to change
    boxes         models within intervals, and the best policy and the best model of them under constraints
    radii         the intervals of boxes: radii of papers, bonuses made of them, and intervals that hold at all times
    continuing    weights of transitions; models, boxes and draws from the counts of one unbroken run
    errors        standard errors of values and totals by the delta method, and plans with a margin for them
    intervals     simultaneous intervals for the totals of one policy, by betting; the certificate for a user
    certificate   what counts prove about any policy

Of logs:

    log           recorded transitions with the bounds that were asked for, whole or in parts, and notes on them
    fitted        the model that a log suggests, exact totals in it, and their standard errors
    changes       whether, when, where and by how much a process changed, of logs and of runs in environments
    promise       a policy chosen on one part of the log and tested on the other
    log_certificate   the certificate for a log, with intervals that hold whatever states there are
    from_log      `from_log` and `Estimate`, which offer all of this to the user, and what a log covers

Of the modules for logs, other rooms may import what `from_log`, `promise` and `changes` have. Dense kernels are
P[T, S, A, S] with T = H, or T = 1 where all steps share their transitions. Whatever has a step axis may have 1 or H
steps; step h is read at h % length. The last step has no transition.
"""
