"""What the model-based learners share: they play a policy, count what happens, and find the next policy from that.

    learner     the base classes: play and count, save and restore, certificates; optimistic and safe planners
    iterating   for those that move policy and prices a little after every episode; values of a policy
    settings    parameters that several have, when a new plan is due, what some need to know, notes on vacuous constants

Counts, estimates, confidence boxes and planning in a box are in `cmdpkit.estimate`.

Departures of all from their papers: utilities instead of costs, N of them; rewards, utilities and the start
distribution are unknown too, the latter with a box or a bonus of its own. Planners do not plan before every episode, as
the papers do, but when a count has doubled, or by need in "practical" (`settings`). What optimistic planners return
is the best policy of the estimated model, without optimism and with a margin for its own error. The settings of
"practical" that a file names without a reason are the best of 12 by the common rule of choice
(docs/algorithms/model-based.md).

Effort, unless a file says otherwise: a plan is column generation, and each column or iteration takes at most O(H S^2
A). Memory O(H S^2 A), or O(S^2 A) where the world is declared stationary. Estimates p_hat, r_hat, g_hat are `model` and
`signals` of a `Belief`; beta_p, beta_l are the radii of `cmdpkit.estimate.radii`.
"""
