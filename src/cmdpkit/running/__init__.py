"""A learner put into a world, watched, stopped and resumed.

What enters: a model, an environment or the name of either, and the name or class of a learner. What leaves: a
`RunRecord`. A world and a learner are changed only by the run that they belong to. Files are written only if the caller
asks for a checkpoint.

`learning` carries out one run, `worlds` is where learners act (`gym/` for Gymnasium environments), `baselines` finds
safe policies, and `evaluation` plays a final policy where there is no model. Other rooms may import `learn`,
`learn_in`, `request` and `Progress` of `learning`, the names of `worlds`, `baselines`, `threads` and `parameters`,
`GymRecipe`, and the public names of `gym`.
"""
