"""Settings that several model-based learners have in common: when they plan, what some need to know, notes.

A new plan is due before every episode, as in most papers; or whenever the visits of some (step, state, action) have
doubled since the last plan, the customary rule, under which guarantees keep their order; or by need. In a large model
something is always seen for the first or second time, so that doubling asks for a plan after almost every episode in
the beginning. Mostly that is irrelevant for the plan. By need, a plan is made when the present one would be noticeably
surer of itself. With q its expected visits of every cell in an episode, in the estimated model, and n the visits a cell
had,

    error = sum over cells of q / sqrt(n),    2 in place of 1 / sqrt(n) where nothing was seen,

is proportional to the error of the plan's prediction. A plan is due when counting has brought the error down by the
share `progress`, and at the latest when the number of episodes has doubled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.boxes import Known, visits
from cmdpkit.estimate.counts import Counts
from cmdpkit.estimate.radii import bernstein, hoeffding, kernel_log, mean_log
from cmdpkit.learners import Params, Spec
from cmdpkit.learners.params import at_least_one, below_one, not_negative, positive, probability
from cmdpkit.model.compiled import compiled
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import UTILITY_EXCESS
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import index_of, numbers

CADENCES = ("need", "doubling", "episode")
NEED, DOUBLING = (CADENCES.index(name) for name in ("need", "doubling"))
UNSEEN = 2.0  # takes the place of 1 / sqrt(n) where nothing was seen, as in the definition above


@dataclass(frozen=True)
class PlannerSettings(Params):
    """Numbers that do not change during a run; the defaults are the theory's."""

    delta: float = probability(0.1)  # probability with which the guarantee may fail


@dataclass(frozen=True)
class RadiusSettings(PlannerSettings):
    """Settings of learners that have a radius or a bonus."""

    c: float = not_negative(1.0)  # multiplies the logarithm inside every radius: 1 is the theory, less is bolder


@dataclass(frozen=True)
class Radii(RadiusSettings):
    """Settings of learners that have separate radii for signals and for transitions."""

    deterministic: bool = False  # one visit tells rewards and utilities: they have no radius after it


@dataclass(frozen=True)
class Planning(PlannerSettings):
    """Settings of learners that solve a planning problem now and then."""

    replan: str = "doubling"  # plan when a visit count has doubled, by "need", or before every "episode"
    progress: float = below_one(0.02)  # by need: share by which the error of a plan must have fallen (`cadence`); ours

    def __post_init__(self) -> None:
        super().__post_init__()
        index_of("replan", CADENCES, self.replan)


@dataclass(frozen=True)
class WithMargin(Planning):
    """Settings of planners that return a policy with a margin for its own error."""

    margin: float = not_negative(1.0)  # of the returned policy: times what the error of its own prediction asks for
    tried: int = at_least_one(3)  # it uses no action with fewer observations, if it can do without; ours


@dataclass(frozen=True)
class SafePlanning(Radii, Planning):
    """Settings of planners that play a safe policy until they can prove another one safe."""

    bonus: float = not_negative(1.0)  # times the theory's bonus on the reward


@dataclass(frozen=True)
class MarginWithRadii(Radii, WithMargin):
    """Settings of planners that have separate radii and return a policy with a margin."""


@dataclass(frozen=True)
class StepSettings(RadiusSettings):
    """Settings of learners that move policy and prices by small steps."""

    policy_step: float = positive(1.0)  # times the theory's step of the policy
    dual_step: float = positive(1.0)  # times the theory's step of the prices


def logs(spec: Spec, p: Radii) -> tuple[float, float]:
    """The logarithms of radii: of transitions, and of signals (0 where one visit tells them)."""
    sizes = spec.S, spec.A, spec.H
    signals = 0.0 if p.deterministic else mean_log(*sizes, spec.N, spec.K, p.delta, p.c)
    return kernel_log(*sizes, spec.K, p.delta, p.c), signals


# -- When a plan is due.


class Cadence(NamedTuple):
    """When a plan is due: the last one, and what was seen since."""

    planned: IntArray  # [T, S, A]: visits at the time of the plan
    noted: IntArray  # [T, S, A]: visits that `error` takes into account
    reach: FloatArray  # [T, S, A]: visits that an episode of the plan is expected to make
    error: FloatArray  # [2]: the error of the plan when it was made, and by now
    episodes: IntArray  # [2]: episodes before the plan, and since
    due: BoolArray  # [1]: whether a plan is due
    kind: int  # the place of its name in CADENCES
    progress: float  # by need: the share by which the error of the plan must have fallen


def new_cadence(T: int, S: int, A: int, name: str, progress: float = 0.0) -> Cadence:
    """Before the first plan, which is due. T is 1 where all steps share their counts, else H."""
    return Cadence(
        planned=np.zeros((T, S, A), dtype=np.int64),
        noted=np.zeros((T, S, A), dtype=np.int64),
        reach=np.zeros((T, S, A)),
        error=np.zeros(2),
        episodes=np.zeros(2, dtype=np.int64),
        due=np.ones(1, dtype=np.bool_),
        kind=CADENCES.index(name),
        progress=float(progress),
    )


def mark_planned(cadence: Cadence, counts: Counts, model: Known, pi: FloatArray) -> None:
    """The plan pi [H, S, A] was made from these counts, which suggest `model`."""
    visited, q = counts.visits.reshape(cadence.planned.shape), visits(model, pi)
    cadence.reach[...] = q.reshape(-1, *cadence.reach.shape).sum(axis=0)
    cadence.planned[...], cadence.noted[...] = visited, visited
    cadence.error[...] = (cadence.reach * error_of(visited)).sum()
    cadence.episodes[...] = counts.starts.sum(), 0
    cadence.due[0] = False


def error_of(n: IntArray) -> FloatArray:
    """1 / sqrt(n) for every number of visits, `UNSEEN` where nothing was seen."""
    return np.where(n == 0, UNSEEN, 1.0 / np.sqrt(np.maximum(n, 1)))


@compiled
def note_episode(cadence, visits, path, actions):
    """Decide whether a plan is due after an episode through the states `path` [H] with `actions` [H].

    Visits [T * S * A] are those of the counts.
    """
    cadence.episodes[1] += 1
    kind = cadence.kind
    if kind != NEED and kind != DOUBLING:
        cadence.due[0] = True
        return
    T, S, A = cadence.planned.shape
    for h in range(len(path)):
        t, s, a = h % T, path[h], actions[h]
        n = visits[(t * S + s) * A + a]
        if kind == DOUBLING and n >= 2 * cadence.planned[t, s, a]:
            cadence.due[0] = True
        noted = cadence.noted[t, s, a]
        before = UNSEEN if noted == 0 else 1.0 / math.sqrt(noted)
        cadence.error[1] -= cadence.reach[t, s, a] * (before - 1.0 / math.sqrt(n))
        cadence.noted[t, s, a] = n
    if kind == NEED and cadence.error[1] <= (1.0 - cadence.progress) * cadence.error[0]:
        cadence.due[0] = True
    if kind == NEED and cadence.episodes[1] >= max(cadence.episodes[0], 1):
        cadence.due[0] = True


# -- What some learners need to know, in unit scale: by the user, or from the model by `cmdpkit.running.request`.


def slack_of(spec: Spec, slack: float | None) -> float:
    """Slater's constant: by how much some policy exceeds all thresholds at once; infinite without constraints."""
    if spec.N == 0:
        return np.inf
    if slack is None:
        raise CmdpkitError(
            "slack is missing: by how much a policy can exceed all bounds at once (an episode, unit scale)"
        )
    if not 0 < slack <= spec.H + UTILITY_EXCESS:
        raise CmdpkitError(f"slack is {slack!r}, expected more than 0 and at most H = {spec.H}")
    return float(slack)


def utilities_of(spec: Spec, baseline_utility: Any) -> FloatArray:
    """Utilities [N] of a policy that is strictly safe."""
    if spec.N == 0:
        return np.zeros(0)
    if baseline_utility is None:
        raise CmdpkitError("baseline_utility is missing: the utilities [N] of a safe policy (an episode, unit scale)")
    w = np.atleast_1d(numbers("baseline_utility", baseline_utility))
    if w.shape != spec.rho.shape:
        raise CmdpkitError(f"baseline_utility has shape {w.shape}, expected {spec.rho.shape}")
    for n, (x, rho) in enumerate(zip(w, spec.rho, strict=True)):
        if not rho < x <= spec.H + UTILITY_EXCESS:
            raise CmdpkitError(f"baseline_utility[{n}] is {x}, expected more than rho = {rho} and at most H = {spec.H}")
    return w


def policy_of(spec: Spec, baseline: Any) -> FloatArray:
    """A safe policy pi [H, S, A]."""
    if baseline is None:
        raise CmdpkitError("baseline is missing: a policy pi [H, S, A] that is known to be safe")
    pi = Policy(baseline).pi
    if pi.shape != spec.allowed.shape:
        raise CmdpkitError(f"baseline has shape {pi.shape}, expected {spec.allowed.shape}")
    outside = np.argwhere((pi > 0) & ~spec.allowed)
    if len(outside):
        h, s, a = (int(i) for i in outside[0])
        raise CmdpkitError(f"baseline[h={h}, s={s}, a={a}] is {pi[h, s, a]}, expected 0: the action is not allowed")
    return pi


# -- Notes for the user where the constants of a theory are so large that they say nothing at this number of episodes.


def even_visits(spec: Spec) -> int:
    """Visits that a count rests on when K episodes are spread evenly; in a stationary world the steps share them."""
    cells = int(spec.allowed.any(axis=0).sum() if spec.stationary else spec.allowed.sum())
    return max(1, spec.K * spec.H // cells)


def on_bonus(spec: Spec, bonus: float, noticeable: float = 1.0) -> tuple[str, ...]:
    """A note where optimism after `even_visits` is at least `noticeable`, as a share of all that a step can earn."""
    if bonus < noticeable:
        return ()
    meaning = "the bounds will be missed by about as much in every step" if bonus < 1 else "values say nothing"
    return (
        f"K = {spec.K} episodes spread evenly are {even_visits(spec)} visits a pair, after which optimism about it is "
        f"still {bonus:.3g} times what a step can earn at most: {meaning}",
    )


def on_bernstein_bonus(spec: Spec, kernel_log: float, mean_log: float) -> tuple[str, ...]:
    """`on_bonus` of beta_l + H sum beta_p, if all next states are equally likely."""
    n = even_visits(spec)
    per_state = bernstein(1 / spec.S, n, kernel_log) if spec.H > 1 else 0.0
    return on_bonus(spec, float(hoeffding(n, mean_log) + spec.H * spec.S * per_state))
