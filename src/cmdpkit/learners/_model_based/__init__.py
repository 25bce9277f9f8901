"""What the model-based learners share: they play a policy, count what happens, and find the next policy from that.

    counting        the base class of all of them: play and count, save and restore
    planner         the learners that plan in the estimated model now and then
    optimistic_planner  planners that hand over a policy with a margin for their own error
    safe_planner    planners that play a known safe policy until they can prove another one safe
    iterating       the learners that move policy and prices a little after every episode; values of a policy
    cadence         when a new plan is due
    settings        parameters that several of these learners have, and notes where a theory's constants are too large
    baseline        what some of them must be told about the problem

Counts, estimates, confidence boxes and planning in a box are in `cmdpkit.estimate`.
"""
