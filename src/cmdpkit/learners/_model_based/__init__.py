"""What learners share that estimate the model: play a policy, count what happens, and find the next policy from that.

    counting        the base class of all of them: play and count, save and restore
    planner         those that plan in the estimated model now and then
    safe_planner    planners that play a known safe policy until they can prove another one safe
    doubly_planner  of these, what OPSRL and DOPE have in common
    iterating       those that move policy and prices a little after every episode
    settings        parameters that several of them have
    baseline        what some must be told about the problem
    notes           what a user is told where the constants of a theory are vacuous

Estimates, confidence boxes and planning itself are in `cmdpkit.learners._planning`.
"""
