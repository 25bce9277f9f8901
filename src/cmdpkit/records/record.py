"""A run: what was asked (`Run`), and everything that came out (`RunRecord`).

A record can be analysed without the model: it carries the optimum, the bounds, curves at checkpoints and the policy.
Curves are totals up to and including an episode. "regret" and "violation" are expectations under the policies played
(exact, where a model exists), the "strong" ones add up positive parts only, the "realised" ones what was observed;
"unsafe_episodes" counts the episodes whose policy misses a bound in expectation. Worlds without a model have what was
earned instead, "realised_reward" and "realised_utility".
Regret and violation are positive when bad. All figures are in the user's units; violations are oriented so that a
positive number means a bound was missed, whether it is an "at least" or an "at most".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.origin import Checkout

Scalar = float | int | bool | str


@dataclass(frozen=True)
class Run:
    """What was asked. Two equal runs have the same result to the bit."""

    env: str  # environment with its parameters, as `cmdpkit.load` reads it, or a file
    algo: str
    episodes: int
    seed: int
    preset: str
    params: Mapping[str, Scalar] = field(default_factory=dict)  # what was set beside the preset
    fingerprint: str = ""  # of the model, or of what else is known of the world
    bounds: Mapping[str, float] = field(default_factory=dict)  # those that were changed, by constraint
    noise: str = "none"  # how rewards and utilities of a model are drawn
    baseline: str = ""  # digest of the safe policy that the user gave, if one was given
    code: str = ""  # digest of the learner's sources, see `cmdpkit.records.code`; empty where it is not known
    readings: tuple[int, ...] = ()  # episodes after which curves are read, beside the usual ones

    @property
    def problem(self) -> str:
        """The environment with the bounds that were changed, for people.

        >>> Run("queue", "pri", 10, 0, "practical", bounds={"energy": 20.0}).problem
        'queue with energy = 20'
        """
        changed = (f"{name} = {str(float(bound)).removesuffix('.0')}" for name, bound in self.bounds.items())
        return " with ".join((self.env, ", ".join(changed))) if self.bounds else self.env

    @property
    def key(self) -> str:
        """Address of the run: a digest of all of the above."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:20]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        asked = {**vars(self), "params": dict(self.params), "bounds": dict(self.bounds)}
        del asked["readings"]
        return asked | ({"readings": list(self.readings)} if self.readings else {})


@dataclass(frozen=True)
class Certificate:
    """What the data alone say of the handed-over policy, at a simultaneous confidence level."""

    level: float
    episodes: int  # episodes of this very policy (or of its parts) the bounds rest on
    value: tuple[float, float]  # low, high
    utilities: tuple[tuple[float, float], ...]  # [N], in the user's sense
    safe: tuple[bool | None, ...]  # [N]: True certainly meets the bound, False certainly misses it, None undecided

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; "undecided" for None."""
        words = {True: True, False: False, None: "undecided"}
        return {
            "level": self.level,
            "episodes": self.episodes,
            "value": list(self.value),
            "utilities": [list(x) for x in self.utilities],
            "safe": [words[x] for x in self.safe],
        }


@dataclass(frozen=True)
class Evaluation:
    """What fresh episodes of the final policy gave, in a world without a model; they are not part of the learning.

    The intervals come from the spread of the episodes' totals (normal approximation, each on its own). An event that is
    rarer than about 3 in ``episodes`` may not have occurred at all, and then no interval shows it.
    """

    episodes: int
    level: float  # of each interval
    value: float
    value_interval: tuple[float, float]  # low, high
    utilities: tuple[float, ...]  # [N], in the user's sense
    utility_intervals: tuple[tuple[float, float], ...]  # [N]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        intervals = [list(pair) for pair in self.utility_intervals]
        lists = {"value_interval": list(self.value_interval), "utilities": list(self.utilities)}
        return {**vars(self), **lists, "utility_intervals": intervals}


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What came out of a run."""

    run: Run
    constraints: tuple[Constraint, ...]
    optimum: float | None  # of the model, where there is one and it is feasible
    curves: Mapping[
        str, FloatArray
    ]  # "episode" [C]; "regret", ... [C]; "violation", ... [N, C]; learners add their own
    policy: Policy
    policy_value: float | None  # exact, where a model exists
    policy_utilities: FloatArray | None  # [N]
    decisions: tuple[Decision, ...]  # stochastic, and reached
    certificate: Certificate | None
    phases: tuple[tuple[str, int], ...]  # (name, first episode), counting from 0
    explanation: Mapping[str, Any]  # the learner's own account, plain values
    notes: tuple[str, ...]  # what a reader must know, e.g. that a constant is vacuous here
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    checkout: Checkout | None = None  # of the learner's code, where it is in one
    evaluation: Evaluation | None = None  # of the final policy, where there is no model to compute its values from

    def final(self, name: str) -> Any:
        """The last value of a curve: a number, or one a constraint."""
        last = self.curves[name][..., -1]
        return float(last) if np.ndim(last) == 0 else np.asarray(last)

    @property
    def regret(self) -> float:
        """Sum over episodes of v* - v(policy played), exact; realised returns where there is no model."""
        return float(self.final("regret" if "regret" in self.curves else "realised_regret"))

    @property
    def violation(self) -> FloatArray:
        """[N]: sum over episodes of how much each bound was missed, signed; exact where there is a model."""
        name = "violation" if "violation" in self.curves else "realised_violation"
        return np.atleast_1d(np.asarray(self.final(name)))

    def explain(self) -> str:
        """The learner's account as text: phases, what was decided, on what evidence."""
        lines = [f"{self.run.algo} ({self.run.preset}) on {self.run.problem}, seed {self.run.seed}"]
        for name, start in self.phases:
            lines.append(f"from episode {start + 1:,}: {name}")
        lines += _listed(self.explanation, "")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The entry of this run in `cmdpkit learn --json`."""
        out: dict[str, Any] = {"seed": self.run.seed}
        for name in (
            "regret",
            "violation",
            "strong_regret",
            "strong_violation",
            "realised_regret",
            "realised_violation",
            "realised_reward",
            "realised_utility",
        ):
            if name in self.curves:
                out[name] = np.asarray(self.final(name)).tolist()
        if "unsafe_episodes" in self.curves:
            out["unsafe_episodes"] = int(self.final("unsafe_episodes"))
        out["policy_value"] = self.policy_value
        out["policy_utilities"] = None if self.policy_utilities is None else self.policy_utilities.tolist()
        out["stochastic_decisions"] = [
            {"step": d.step, "state": d.state, "probabilities": {str(a): p for a, p in d.probabilities.items()}}
            for d in self.decisions
        ]
        if self.evaluation is not None:
            out["evaluation"] = self.evaluation.to_dict()
        out["certificate"] = {} if self.certificate is None else self.certificate.to_dict()
        out["notes"] = list(self.notes)
        out["seconds"] = self.seconds
        return out


def _listed(value: Any, indent: str) -> list[str]:
    """Nested plain values as indented lines; an entry of a list that holds single values only takes one line."""
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
    """Numbers as people read them: six digits."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_word(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_word(x) for x in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
