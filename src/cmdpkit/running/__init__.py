"""A learner put into a world, watched, stopped and resumed.

What enters: a model, an environment or the name of either, and the name or class of a learner. What leaves: a
`RunRecord`. A world and a learner are changed only by the run that they belong to. Files are written only if the caller
asks for a checkpoint.

There is one way through this room. `learning` has the functions that users call (one run, several seeds, a run that
goes on). Each states a `Request`, which checks what is asked and makes the `Run` (`request`), and has it played
(`playing`): in pieces of an active run (`active`), with `curves`, checkpoints (`checkpoint`) and rules to stop
(`stopping`). What a record adds for its reader comes from `account`. `worlds` is where learners act (`steps` for models
without a horizon, `gym/` for Gymnasium environments), `baselines` finds safe policies, and `importing` takes over runs
that were made elsewhere.

Other rooms may import the functions of `learning`, `request` and `playing`, `Progress` of `active`, the names of
`stopping`, `worlds`, `baselines` and `threads`, `GymRecipe`, and the public names of `gym`.
"""
