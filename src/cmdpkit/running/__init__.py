"""A learner put into a world, watched, stopped and resumed.

What enters: a model, an environment or the name of either, and the name or class of a learner. What leaves: a
`RunRecord`. `learning` carries out one run, `worlds` is where learners act (`gym/` for Gymnasium environments),
`baselines` finds safe policies, and `evaluation` plays a final policy where there is no model. Other rooms use `learn`,
`learn_in` and `request` of `learning`, `world_of` and `ModelWorld` of `worlds`, and the public names of `gym`.
"""
