"""The verbs of Markov decision processes, each written once.

A model and a policy enter; values, greedy choices and occupancies leave. Nothing here draws random numbers, and models
and policies are never changed. The functions listed here are public, as `cmdpkit.operators`, and take a model and NumPy
arrays. In the order of the imports:

    rows              transition rows in several forms, and what can be done with one row: `expect`, `push`, ...
    row_lists         rows selected, joined, searched, and turned into SciPy matrices and back
    steps             operators on one step: `bellman`, `lookahead`, `backup`, `occupy`, `sweep`; and over many steps:
                      `induction`, `flow`, `sweeps`, and their threads
    chain_systems, chains   Markov chains: shares of time, relative values, expected visits
    policies          values, occupancies and courses of policies; mixtures turned into Markov policies and back
    calculus          the public functions

No other room adds up a transition row by hand, except where it says why. Other rooms import the compiled operators from
the modules where they are defined, and the functions of `policies` and `chains`.
"""

from __future__ import annotations

from cmdpkit.operators.calculus import bellman, evaluate, greedy, occupancy, push_forward, resolvent

__all__ = ["bellman", "evaluate", "greedy", "occupancy", "push_forward", "resolvent"]
