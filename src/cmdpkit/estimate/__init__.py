"""From counts to a model, and how wrong that model can be.

What enters: counted transitions, from a log that `cmdpkit.io.logs` has read or from a learner. What leaves: an
estimated model, limits for its totals, tests of the assumptions behind it, and policies that can be promised. Nothing
here draws random numbers of its own or touches files. In the order of the imports:

    log           recorded transitions with the bounds that were asked for, whole or in halves
    fitted        the model that a log suggests, exact totals in it, and their standard errors
    alike         whether data contradict that all steps, or all times, behave alike
    coverage      which actions were never tried, and which visits the best policy rests on
    promise       a policy chosen on one half of the log and tested on the other
    from_log      `from_log` and `Estimate`, which offer all of this to the user

Other rooms may import `from_log`, `Estimate`, `OffPolicyEvaluation`, `Promise`, `NoPromise`, the rows of `Coverage`,
and everything in `alike`.
"""
