"""A run: what was asked (`Run`), and everything that came out (`RunRecord`).

A record can be analysed without the model: it carries the optimum, the bounds, curves at checkpoints and the policy.
Curves are sums up to and including an episode, or a step where there are no episodes. "regret" and "violation" are
exact expectations under the policies that were played; the "strong" ones add up positive parts only (without episodes,
the strong violation is the largest at any time), and the "realised" ones what was observed. "gaps_paid" adds up what
the actions of a run without episodes lose against the optimum at its prices. "unsafe_episodes" counts the episodes
whose policy misses a bound in expectation. Worlds without a model have "realised_reward" and "realised_utility"
instead. "certified_gap" is no sum: it is how far below the optimum the policy to return was at most, as the counts
proved at the end, and before it at the last of the `readings` that were asked for; until something is proved, it is the
range that values can have. All figures are in the user's units. Positive regret is bad, and a positive violation means
that a bound was missed, whether it is an "at least" or an "at most".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.intervals import Certificate as Certificate
from cmdpkit.model.constraints import Constraint, Scale
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Renamed, written_name
from cmdpkit.records.code import Checkout

if TYPE_CHECKING:
    from cmdpkit.estimate.counts import Counts
    from cmdpkit.model.cmdp import CMDP

Scalar = float | int | bool | str
OVER = "(episode over)"  # the state in which a learner waits where episodes may end early


def plain(value: Any, where: str) -> Any:
    """Nested values as JSON can hold them; other values raise a CmdpkitError that says where they are."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise CmdpkitError(f"{where} is NaN, which is no result")
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{where}[{key!r}]") for key, inner in value.items()}
    if isinstance(value, (Sequence, np.ndarray)):
        return [plain(inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    raise CmdpkitError(f"{where} is {value!r}, expected a number, a text, a truth value, or lists and tables of those")


def unit_of(criterion: str) -> str:
    """What the length of a run counts: an "episode" where totals over the "horizon" are judged, else a "step"."""
    return "episode" if criterion == "horizon" else "step"


@dataclass(frozen=True)
class Run:
    """What was asked. Two equal runs have the same result to the bit."""

    env: str  # environment with its parameters, as `cmdpkit.load` reads it, or a file
    algo: str  # name of the algorithm, or "package.module:Class"
    length: int  # of the run, in episodes or, where there are none, in steps; see `unit`
    seed: int  # of all random numbers of the run
    preset: str  # name of the preset of the algorithm's parameters
    params: Mapping[str, Scalar] = field(default_factory=dict)  # parameters that differ from the preset
    fingerprint: str = ""  # digest of the model, or of all that is known about a world without one
    bounds: Mapping[str, float] = field(default_factory=dict)  # the bounds that were changed, by constraint
    noise: str = "none"  # how rewards and utilities of a model are drawn
    baseline: str = ""  # digest of the safe policy that the user gave, if one was given
    code: str = ""  # digest of the learner's sources, see `cmdpkit.records.code`; empty where it is not known
    readings: tuple[int, ...] = ()  # episodes after which curves are read, in addition to the usual ones
    anytime: bool = False  # whether the algorithm did not know the length of the run, which can then be continued
    unit: str = "episode"  # what `length` counts: "step" in worlds without episodes

    @property
    def episodes(self) -> int:
        """The length of a run that has episodes."""
        if self.unit != "episode":
            raise AttributeError("this run has steps and no episodes: Run.length is their number")
        return self.length

    @property
    def problem(self) -> str:
        """The environment and the bounds that were changed, in words.

        >>> Run("queue", "pri", 10, 0, "practical", bounds={"energy": 20.0}).problem
        'queue with energy = 20'
        """
        changed = (f"{name} = {str(float(bound)).removesuffix('.0')}" for name, bound in self.bounds.items())
        return " with ".join((self.env, ", ".join(changed))) if self.bounds else self.env

    @property
    def key(self) -> str:
        """The address of the run: a digest of all its fields."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:20]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        asked = {**vars(self), "params": dict(self.params), "bounds": dict(self.bounds)}
        asked["episodes"] = asked.pop("length")  # the key of all versions, of which `key` is a digest
        del asked["readings"], asked["anytime"], asked["unit"]
        asked |= {"unit": self.unit} if self.unit != "episode" else {}
        asked |= {"readings": list(self.readings)} if self.readings else {}
        return asked | ({"anytime": True} if self.anytime else {})


@dataclass(frozen=True)
class Evaluation:
    """The results of fresh episodes of the final policy in a world without a model; nothing is learned from them.

    The intervals come from the spread of the episodes' totals, by the normal approximation, each on its own. An event
    that is rarer than about 3 in ``episodes`` may not have occurred at all, and then no interval shows it.
    """

    episodes: int  # how many were played
    level: float  # confidence level of each interval
    value: float  # mean total reward
    value_interval: tuple[float, float]  # (low, high)
    utilities: tuple[float, ...]  # [N], mean totals, in the user's sense
    utility_intervals: tuple[tuple[float, float], ...]  # [N], (low, high)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: np.asarray(x).tolist() for name, x in vars(self).items()}


class Counted(NamedTuple):
    """The counts of a run, and what turns them into a model."""

    counts: Counts  # in unit scale
    allowed: BoolArray  # [H, S, A]: actions that the learner could use
    scales: tuple[Scale, ...]  # [1 + N]: of reward and utilities


@dataclass(frozen=True, eq=False)
class RunRecord(Shown):
    """The result of a run."""

    run: Run  # the request
    constraints: tuple[Constraint, ...]  # [N], the bounds that the run was judged by
    optimum: float | None  # the best value under the bounds; None without a model or if the problem is infeasible
    curves: Mapping[str, FloatArray]  # by name; "episode" or "step" [C] is where all were read, see the module
    policy: Policy  # that the learner recommends at the end
    policy_value: float | None  # its exact value; None without a model
    policy_utilities: FloatArray | None  # [N], its exact totals in the user's sense; None without a model
    decisions: tuple[Decision, ...]  # its stochastic decisions; with a model, only those in states that it reaches
    certificate: Certificate | None  # intervals for the values of the policy, if the learner can prove any
    phases: tuple[tuple[str, int], ...]  # name and first episode, counting from 0, of each phase of the learner
    internals: Mapping[str, Any]  # the state of the learner at the end, as plain values, see `Learner.internals`
    notes: tuple[str, ...]  # remarks for the reader, for example that a constant is vacuous here
    seconds: float  # how long the run took
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python and packages
    finished: str = ""  # when it ended, in UTC, as in "2026-11-18T09:12:40Z"; empty where that is not known
    checkout: Checkout | None = None  # commit of the learner's code, if it is in a Git checkout
    evaluation: Evaluation | None = None  # estimated values of the policy in a world without a model
    saved: Mapping[str, Any] | None = field(default=None, repr=False)  # how an anytime run ended, for `continue_run`
    counted: Counted | None = field(default=None, repr=False)  # what a learner that counts has seen, for `belief`

    explain = Renamed("internals_text")
    explanation = Renamed("internals")

    def __post_init__(self) -> None:
        wrong = next(_impossible(self), None)
        if wrong is not None:
            raise CmdpkitError(f"a record of {self.run.algo} on {self.run.problem}, seed {self.run.seed}: {wrong}")

    @property
    def read_at(self) -> FloatArray:
        """The episodes or steps [C] at which the curves were read."""
        return self.curves[self.run.unit]

    def curve(self, name: str) -> FloatArray:
        """A curve by its name; a CmdpkitError says which ones there are if there is none of this name."""
        if name not in self.curves:
            why = "; without an optimum there is no regret" if name.endswith("regret") and self.optimum is None else ""
            known = ", ".join(sorted(self.curves))
            raise CmdpkitError(f"{self.run.algo} on {self.run.problem} has no curve {name!r}{why}; there are {known}")
        return self.curves[name]

    def final(self, name: str) -> Any:
        """The last value of a curve: a number, or an array with one number per constraint."""
        last = self.curve(name)[..., -1]
        return float(last) if np.ndim(last) == 0 else np.asarray(last)

    @property
    def regret(self) -> float:
        """Sum over episodes of v* - v(policy played), exact; without a model, of v* less the realised returns."""
        return float(self.final("regret" if "regret" in self.curves else "realised_regret"))

    @property
    def violation(self) -> FloatArray:
        """Sum over episodes of how much each bound was missed, [N], negative if it was exceeded; exact with a model."""
        name = "violation" if "violation" in self.curves else "realised_violation"
        return np.atleast_1d(np.asarray(self.final(name)))

    def internals_text(self) -> str:
        """The phases of the learner, its internals and the notes, as text."""
        lines = [f"{self.run.algo} ({self.run.preset}) on {self.run.problem}, seed {self.run.seed}"]
        for name, start in self.phases:
            lines.append(f"from {self.run.unit} {start + 1:,}: {name}")
        lines += _listed(self.internals, "")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def belief(self) -> CMDP:
        """The estimated model of a learner that counts, for `cmdpkit.solve`, `explain`, `evaluate` or a file.

        These are the learners that count transitions in episodes (`cl-pri`, `ps-cmdp`, `opt-cmdp` and all others that
        are called model-based). Actions that were never taken are left out wherever another one was taken. Records
        that were read from a folder hold no counts; a run with the same seed makes them again.

        >>> import cmdpkit as ck
        >>> belief = ck.learn("paper/synthetic", "cl-pri", episodes=5000).belief()
        >>> belief
        CMDP(H=3, S=3, A=3, N=1: utility ≥ 2)
        >>> print(ck.explain(belief, state=1, step=2).why)  # in the estimated model
        1 is worth 0.347067 more than 3, the next best
        """
        if self.counted is None:
            raise CmdpkitError(
                f"this record of {self.run.algo} holds no counts: the algorithm does not count transitions in "
                "episodes, or the record was read from a folder, and then learning again with the same seed makes them"
            )
        from cmdpkit.estimate.counts import estimated  # compiled code, not needed to read
        from cmdpkit.model.cmdp import CMDP

        counts, allowed, scales = self.counted
        H, S, A = allowed.shape
        found = estimated(counts, A)
        tried = allowed & np.broadcast_to(counts.visits.reshape(found.kernel.shape) > 0, allowed.shape)
        seen = np.asarray(tried.any(axis=-1, keepdims=True))
        signed = [
            replace(c, signal=c.sign * (found.signals[1 + n] * scale.span + scale.low), steps_in_value=None, range=None)
            for n, (c, scale) in enumerate(zip(self.constraints, scales[1:], strict=True))
        ]
        return CMDP(
            found.kernel,
            found.signals[0] * scales[0].span + scales[0].low,
            mu=found.mu,
            horizon=H,
            actions=np.where(seen, tried, allowed),
            constraints=signed,
            states=[*self.policy.states, *[OVER] * (S - len(self.policy.states))],
            action_names=self.policy.action_names,
            renormalise=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """The entry of this run in `cmdpkit learn --json`."""
        out: dict[str, Any] = {"seed": self.run.seed}
        out |= {f"{self.run.unit}s": self.run.length} if self.run.anytime else {}
        sums = [f"{prefix}{name}" for prefix in ("", "strong_", "realised_") for name in ("regret", "violation")]
        for name in (*sums, "realised_reward", "realised_utility", "gaps_paid"):
            if name in self.curves:
                out[name] = np.asarray(self.final(name)).tolist()
        if "unsafe_episodes" in self.curves:
            out["unsafe_episodes"] = int(self.final("unsafe_episodes"))
        if "certified_gap" in self.curves:
            out["certified_gap"] = None if self.certificate is None else self.certificate.gap
        out["policy_value"] = self.policy_value
        out["policy_utilities"] = None if self.policy_utilities is None else self.policy_utilities.tolist()
        out["stochastic_decisions"] = [
            {
                "step": d.step,
                "state": written_name(d.state),
                "probabilities": {str(a): p for a, p in d.probabilities.items()},
            }
            for d in self.decisions
        ]
        if self.evaluation is not None:
            out["evaluation"] = self.evaluation.to_dict()
        out["certificate"] = {} if self.certificate is None else self.certificate.to_dict()
        out["notes"] = list(self.notes)
        out["seconds"] = self.seconds
        return out


def _impossible(record: RunRecord) -> Iterator[str]:
    """What no run can have had as a result, whatever its curves, which the store checks."""
    N = len(record.constraints)
    if record.policy_utilities is not None and np.shape(record.policy_utilities) != (N,):
        yield f"it has {np.size(record.policy_utilities)} totals of the policy for {N} bounds"
    if not (math.isfinite(record.seconds) and record.seconds >= 0):
        yield f"it took {record.seconds} seconds"
    for name in ("optimum", "policy_value"):
        value = getattr(record, name)
        if not (value is None or isinstance(value, (int, float))):
            yield f"its {name} is {value!r}, expected a number"
    for name in ("params", "bounds"):
        if not isinstance(getattr(record.run, name), Mapping):
            yield f"the {name} of its run are {getattr(record.run, name)!r}, expected a table"
    if not all(isinstance(note, str) for note in record.notes):
        yield "one of its notes is not a text"
    if not all(isinstance(p, (int, float)) for decision in record.decisions for p in decision.probabilities.values()):
        yield "a probability of one of its stochastic decisions is not a number"
    proved, tried = record.certificate, record.evaluation
    if proved is not None:
        yield from _wrong_intervals("certificate", proved.level, (proved.value, *proved.utilities), N)
        if len(proved.safe) != N or not {*proved.safe} <= {True, False, None}:
            yield f"its certificate judges {len(proved.safe)} of {N} bounds, or not by true, false and null"
        if proved.gap is not None and not (math.isfinite(proved.gap) and proved.gap >= 0):
            yield f"its certificate has the gap {proved.gap}, expected a number of at least 0"
        if not (proved.since is None or isinstance(proved.since, (int, np.integer))):
            yield f"its certificate is for what came since {proved.since!r}, expected the number of an episode"
        if not all(isinstance(part, Sequence) and len(part) == 5 for part in proved.least_known):
            yield "what its certificate knows least are not lists of step, state, action, times taken and share"
    if tried is not None:
        yield from _wrong_intervals("evaluation", tried.level, (tried.value_interval, *tried.utility_intervals), N)


def _wrong_intervals(what: str, level: float, intervals: Sequence[tuple[float, float]], N: int) -> Iterator[str]:
    if not 0 < level < 1:
        yield f"the level of its {what} is {level}, expected a probability"
    if len(intervals) != 1 + N or not all(len(ends) == 2 and ends[0] <= ends[1] for ends in intervals):
        yield f"its {what} does not have an interval, from low to high, for the value and each of {N} bounds"


def _listed(value: Any, indent: str) -> list[str]:
    """Nested plain values as indented lines; a list entry that holds only single values is one line."""
    if isinstance(value, Mapping):
        lines = []
        for key, inner in value.items():
            nested = isinstance(inner, (Mapping, list, tuple)) and len(inner) > 0
            lines.append(f"{indent}{key}:" if nested else f"{indent}{key}: {_word(inner)}")
            lines += _listed(inner, indent + "  ") if nested else []
        return lines
    if isinstance(value, (list, tuple)):
        return [line for inner in value for line in _entry(inner, indent)]
    return [f"{indent}{_word(value)}"]


def _entry(value: Any, indent: str) -> list[str]:
    if isinstance(value, Mapping) and not any(isinstance(inner, Mapping) for inner in value.values()):
        return [indent + ", ".join(f"{key} {_word(inner)}" for key, inner in value.items())]
    return _listed(value, indent) if isinstance(value, (Mapping, list)) else [f"{indent}{_word(value)}"]


def _word(value: Any) -> str:
    """A value as text, numbers with six digits."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_word(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_word(x) for x in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
