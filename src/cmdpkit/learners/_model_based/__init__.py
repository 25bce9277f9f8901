"""What the learners share that estimate a model: they play a policy, count what they see, and reckon with the counts.

| module | what it is for |
|---|---|
| `counting` | the base class of all of them: play, count, save and restore |
| `planner` | those that plan in the estimated model now and then |
| `safe_planner` | those that play a known safe policy until they can prove another one safe |
| `doubly_planner` | what OPSRL and DOPE add to that |
| `iterating` | those that move policy and prices a little after every episode |
| `settings` | their settings, and how a preset and single changes become one |
| `baseline` | what some must be told about the problem, checked |
| `notes` | what a user is told where the constants of a theory are vacuous |

Estimates, confidence boxes and planning itself are in `cmdpkit.planning`.
"""
