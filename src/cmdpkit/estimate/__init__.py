"""From counts to a model, and how wrong that model can be.

What enters: counted transitions, from a log that `cmdpkit.io.logs` has read or from a learner. What leaves: an
estimated model, limits for its totals, the models that remain possible, tests of the assumptions behind it, and
policies that can be promised. Nothing here touches files.

Of learners, in the order of the imports:

    alike           whether data contradict that all steps, or all times, behave alike; of logs and runs too
    counts          the one store: transitions that were seen, as lists, and moments of what each step earned
    indifference    utilities that are the same whatever is done
    model           the model that the counts suggest, and the best policy in it
    errors          standard errors of an action's value and of a policy's totals, by the delta method
    continuing      models, boxes and draws from the counts of one unbroken run
    margins         the policy to hand over, with a margin for the error of its own prediction
    means           dense estimates, as planners over boxes need them
    boxes           radii around the estimates, the box of kernels they leave, bonuses
    belief          estimates, radii and box together, kept up to date row by row
    induction       extended value iteration: the best policy and the best kernel of a box for one objective
    extended        the extended LP: the best policy and kernel of a box under constraints
    betting         intervals by betting for the mean of returns
    intervals       simultaneous intervals for the totals of one policy

Of logs:

    log           recorded transitions with the bounds that were asked for, whole or in halves
    fitted        the model that a log suggests, exact totals in it, and their standard errors
    changes       whether, when, where and by how much a process changed, of logs and of runs in environments
    doubts        what a log says against the assumptions of a promise
    coverage      which actions were never tried, and which visits the best policy rests on
    promise       a policy chosen on one half of the log and tested on the other
    from_log      `from_log` and `Estimate`, which offer all of this to the user

Of the modules for logs, other rooms may import `from_log`, `Estimate`, `OffPolicyEvaluation`, `Promise`, `NoPromise`,
the rows of `Coverage`, and everything in `alike` and `changes`. Dense kernels are P[T, S, A, S] with T = H, or T = 1
where all steps share their transitions. Whatever has a step axis may have 1 or H steps; step h is read at h % length.
The last step has no transition.
"""
