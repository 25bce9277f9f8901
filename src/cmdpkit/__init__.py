"""Constrained Markov decision processes: solve them exactly, or learn to act in them, and return one policy.

Names are imported on first use, so that ``cmdpkit --help`` answers at once. They are listed once, as imports that only
type checkers carry out, and read from there.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from cmdpkit.model import showing as _showing

__version__ = "0.2.0"

if TYPE_CHECKING:
    from cmdpkit import envs as envs
    from cmdpkit import learners as learners
    from cmdpkit import operators as operators
    from cmdpkit import testing as testing
    from cmdpkit.errors import CmdpkitError as CmdpkitError
    from cmdpkit.errors import InputWarning as InputWarning
    from cmdpkit.errors import RoundingWarning as RoundingWarning
    from cmdpkit.errors import RunFailed as RunFailed
    from cmdpkit.estimate.from_log import Estimate as Estimate
    from cmdpkit.estimate.from_log import from_log as from_log
    from cmdpkit.estimate.promise import NoPromise as NoPromise
    from cmdpkit.estimate.promise import Promise as Promise
    from cmdpkit.exact.comparison import compare_policies as compare_policies
    from cmdpkit.exact.comparison import explain as explain
    from cmdpkit.exact.diagnosis import diagnose as diagnose
    from cmdpkit.exact.diagnosis import tradeoff as tradeoff
    from cmdpkit.exact.large import check as check
    from cmdpkit.exact.large.policy import LargeSolution as LargeSolution
    from cmdpkit.exact.solution import Infeasible as Infeasible
    from cmdpkit.exact.solver import Solution as Solution
    from cmdpkit.exact.solver import solve as solve
    from cmdpkit.experiments.execute import bench as bench
    from cmdpkit.experiments.execute import execute as execute
    from cmdpkit.experiments.experiment import Experiment as Experiment
    from cmdpkit.io.formats.prism import read_explicit as read_explicit
    from cmdpkit.io.formats.prism import write_explicit as write_explicit
    from cmdpkit.io.loading import load as load
    from cmdpkit.io.models import read_model as read_model
    from cmdpkit.io.models import write_model as write_model
    from cmdpkit.io.policies import read_policy as read_policy
    from cmdpkit.io.policies import write_policy as write_policy
    from cmdpkit.learners.contract import Learner as Learner
    from cmdpkit.model.cmdp import CMDP as CMDP
    from cmdpkit.model.cmdp import Grid as Grid
    from cmdpkit.model.constraints import Constraint as Constraint
    from cmdpkit.model.constraints import at_least as at_least
    from cmdpkit.model.constraints import at_most as at_most
    from cmdpkit.model.functions import EventModel as EventModel
    from cmdpkit.model.functions import FactoredModel as FactoredModel
    from cmdpkit.model.functions import Part as Part
    from cmdpkit.model.outcomes import Outcomes as Outcomes
    from cmdpkit.model.policy import Mixture as Mixture
    from cmdpkit.model.policy import Policy as Policy
    from cmdpkit.model.transitions import Kernel as Kernel
    from cmdpkit.operators.policies import Values as Values
    from cmdpkit.operators.policies import decompose as decompose
    from cmdpkit.operators.policies import evaluate as evaluate
    from cmdpkit.operators.policies import markov as markov
    from cmdpkit.operators.policies import occupancy as occupancy
    from cmdpkit.operators.policies import time_course as time_course
    from cmdpkit.records.record import Certificate as Certificate
    from cmdpkit.records.record import Run as Run
    from cmdpkit.records.record import RunRecord as RunRecord
    from cmdpkit.records.store import load_record as load_record
    from cmdpkit.records.store import load_records as load_records
    from cmdpkit.records.store import save_record as save_record
    from cmdpkit.results.groups import curve as curve
    from cmdpkit.results.groups import seed_mean as seed_mean
    from cmdpkit.results.groups import slope as slope
    from cmdpkit.results.report.plan import plan_report as plan_report
    from cmdpkit.results.simplify import Simplified as Simplified
    from cmdpkit.results.simplify import simplify as simplify
    from cmdpkit.results.study import Study as Study
    from cmdpkit.running import gym as gym
    from cmdpkit.running.active import Progress as Progress
    from cmdpkit.running.learning import continue_run as continue_run
    from cmdpkit.running.learning import import_run as import_run
    from cmdpkit.running.learning import learn as learn
    from cmdpkit.simulate.distribution import exact_distribution as exact_distribution
    from cmdpkit.simulate.distribution import simulate_policy as simulate_policy

# Where the work is done that methods of earlier rooms ask of later ones.
_showing.render.module = "cmdpkit.results.showing"
_showing.draw.module = "cmdpkit.results.figures"
_showing.to_gym.module = "cmdpkit.running.gym"

_HOME = {  # the module of every public name
    alias.name: str(node.module)
    for block in ast.parse(Path(__file__).read_bytes()).body
    if isinstance(block, ast.If)
    for node in block.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
_REMOVED = {
    "compare": "give the last values of the curves of two groups to SciPy, such as to scipy.stats.ttest_rel",
    "gradient_plan": "the page 'The calculus of cmdpkit' writes such methods in ten lines each, and ck.solve is exact",
    "reload_plan": "the page 'The calculus of cmdpkit' writes it in ten lines, and ck.solve is exact",
    "published": "the rules of judgement are in reproduction/judging.py of a clone, and ck.seed_mean has the intervals",
}  # names of earlier versions, and what replaces them

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> object:
    if name in _REMOVED:
        raise AttributeError(f"cmdpkit.{name} was removed: {_REMOVED[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'cmdpkit' has no attribute {name!r}")
    home = vars(importlib.import_module(_HOME[name]))
    return home[name] if name in home else importlib.import_module(f"{_HOME[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
