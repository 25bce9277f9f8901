"""Constrained Markov decision processes: solve them exactly, learn them online, hand over one policy.

Names are imported on first use, so that ``cmdpkit --help`` answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cmdpkit.analyse import Study as Study
    from cmdpkit.constraints import Constraint as Constraint
    from cmdpkit.constraints import at_least as at_least
    from cmdpkit.constraints import at_most as at_most
    from cmdpkit.diagnosis import diagnose as diagnose
    from cmdpkit.diagnosis import tradeoff as tradeoff
    from cmdpkit.execute import bench as bench
    from cmdpkit.experiment import Experiment as Experiment
    from cmdpkit.files import read_model as read_model
    from cmdpkit.files import write_model as write_model
    from cmdpkit.kernel import Kernel as Kernel
    from cmdpkit.learning import learn as learn
    from cmdpkit.model import CMDP as CMDP
    from cmdpkit.model import Grid as Grid
    from cmdpkit.policy import Mixture as Mixture
    from cmdpkit.policy import Policy as Policy
    from cmdpkit.policy import Values as Values
    from cmdpkit.policy import decompose as decompose
    from cmdpkit.policy import evaluate as evaluate
    from cmdpkit.policy import markov as markov
    from cmdpkit.policy import occupancy as occupancy
    from cmdpkit.policy_files import read_policy as read_policy
    from cmdpkit.policy_files import write_policy as write_policy
    from cmdpkit.record import Certificate as Certificate
    from cmdpkit.record import Run as Run
    from cmdpkit.record import RunRecord as RunRecord
    from cmdpkit.solver import Infeasible as Infeasible
    from cmdpkit.solver import Solution as Solution
    from cmdpkit.solver import solve as solve
    from cmdpkit.sources import load as load

_HOME = {
    "analyse": ("Study",),
    "constraints": ("Constraint", "at_least", "at_most"),
    "diagnosis": ("diagnose", "tradeoff"),
    "execute": ("bench",),
    "experiment": ("Experiment",),
    "files": ("read_model", "write_model"),
    "kernel": ("Kernel",),
    "learning": ("learn",),
    "model": ("CMDP", "Grid"),
    "policy": ("Mixture", "Policy", "Values", "decompose", "evaluate", "markov", "occupancy"),
    "record": ("Certificate", "Run", "RunRecord"),
    "policy_files": ("read_policy", "write_policy"),
    "solver": ("Infeasible", "Solution", "solve"),
    "sources": ("load",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'cmdpkit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cmdpkit.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
