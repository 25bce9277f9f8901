"""A learner put into a world, watched, stopped and resumed.

What enters: a model, an environment or the name of either, and the name or class of a learner. What leaves: a
`RunRecord`. A world and a learner are changed only by the run that they belong to. Files are written only if the caller
asks for a checkpoint.

`learning` carries out one run (`active`), reads its `curves` and ends it by a rule (`stopping`); `continuing` goes on
with a run that has ended, and `importing` takes over one that was made elsewhere. `worlds` is where learners act
(`steps` for models without a horizon, `gym/` for Gymnasium environments), `baselines` finds safe policies, and
`evaluation` plays a final policy where there is no model.

Other rooms may import `learn`, `learn_in`, `request` and `stop_rule` of `learning`, `Progress` of `active`, the names
of `stopping`, `worlds`, `baselines`, `threads` and `parameters`, `GymRecipe`, and the public names of `gym`.
"""
