"""Algorithms that learn a constrained MDP by acting in it.

What enters is a `Spec` (sizes, thresholds, allowed actions) and what an environment answers; what leaves is a policy.
One file or folder is one algorithm, and the folder is the registry: there is nothing else to edit. `contract` says what
a learner is and how it is saved, `params` what it is given, `registry` how a name becomes a class. What begins with an
underscore is shared by several algorithms.

>>> "triple-q" in names()
True
>>> facts("triple-q").title
'Triple-Q: model-free learning with a virtual queue per constraint.'
"""

from __future__ import annotations

from cmdpkit.learners.contract import Episodic, Learner, State
from cmdpkit.learners.params import Params, Returns, Source, Spec
from cmdpkit.learners.registry import Facts, facts, installed, load, name_of, names, names_for, resolve
from cmdpkit.simulate.random import Stream, stream, uniform
from cmdpkit.simulate.random import generator as numpy_generator

__all__ = [
    "Episodic",
    "Facts",
    "Learner",
    "Params",
    "Returns",
    "Source",
    "Spec",
    "State",
    "Stream",
    "facts",
    "installed",
    "load",
    "name_of",
    "names",
    "names_for",
    "numpy_generator",
    "resolve",
    "stream",
    "uniform",
]
