"""A learner put into a world, watched, stopped and resumed.

What enters: a model, an environment or the name of either, and the name or class of a learner. What leaves: a
`RunRecord`. A world and a learner are changed only by the run that they belong to. Files are written only if the caller
asks for a checkpoint.

There is one way through this room. `learning` has the functions that users call (one run, several seeds, a run that
goes on, and one that was made elsewhere). Each states a `Request`, which checks what is asked and makes the `Run`
(`request`), and has it played (`playing`), alone or side by side: in pieces of an active run, with curves and
checkpoints (`active`). `worlds` is where learners act (`gym/` for Gymnasium environments).

Other rooms may import the functions of `learning`, `request`, `playing` and `worlds`, `Progress` of `active`,
`GymRecipe`, and the public names of `gym`.
"""
