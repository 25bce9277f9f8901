"""The request for a run, checked before anything is played.

A `Request` says where an algorithm acts, which algorithm it is, how long it acts and what it is told. Its `Run` is the
identity of the result: `learn`, `learn_many`, `continue_run` and experiments all make it here.

A run of unknown length has a `Stop` rule: after a number of episodes, steps or seconds, or when its certificate says
enough. Seconds are looked at several times a second. All other rules are looked at only where curves are read, so that
the same request stops at the same episode or step on every machine.

Some algorithms need to know a policy that is known to be safe, and its utilities (`Baseline`). A user may give the
policy, its utilities or both. If there is a model, whatever is missing is computed. If the user gives neither, the
policy that stays farthest from all bounds is taken.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.sources import columns_of
from cmdpkit.learners import Learner, name_of, names_for, resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.fits import check_policy
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import check_length, check_seed, is_int, numbers
from cmdpkit.operators.policies import markov
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run, Scalar, unit_of
from cmdpkit.running.active import Progress
from cmdpkit.running.worlds import World
from cmdpkit.simulate.simulator import Noise

# -- What some algorithms need to know before they begin: a policy that is known to be safe, and its utilities.


class Baseline(NamedTuple):
    """A safe policy in the learner's units."""

    pi: FloatArray | None  # [H, S, A]; None where only its utilities are known
    utility: FloatArray  # [N], its expected totals
    slack: float  # min_n (utility_n - rho_n)
    of: str  # where the policy comes from, in words for a note

    def digest(self) -> str:
        """A short digest of its numbers, which is part of the identity of a run."""
        parts = (b"" if self.pi is None else self.pi.tobytes(), self.utility.tobytes())
        return hashlib.sha256(b"|".join(parts)).hexdigest()[:12]

    def told(self, kind: type[Learner]) -> dict[str, Any]:
        """The parts that an algorithm needs, as parameters of its class."""
        offered = {"baseline": self.pi, "baseline_utility": self.utility, "slack": self.slack}
        return {name: offered[name] for name in kind.needs}


def known_safe(world: World, policy: Policy | None = None, utility: ArrayLike | None = None) -> Baseline:
    """The baseline of a world: the user's policy, its totals [N] in the user's units, or the model's safest policy."""
    of = "the policy that was given"
    if policy is None and utility is None:
        if world.cmdp is None:
            raise CmdpkitError(f"{world.name} has no model to find a safe policy in; give baseline=, baseline_utility=")
        policy, of = safest(world.cmdp), "the policy farthest from all bounds"
    if policy is not None:
        check_policy(policy)
    w = _utilities(world, policy, utility)
    spec = world.spec(1)
    signed = [c.sign * x for c, x in zip(world.constraints, w, strict=True)]
    unit = np.array([scale.total_to_unit(x, spec.H) for scale, x in zip(world.scales[1:], signed, strict=True)])
    pi = None if policy is None else world.table(policy)
    return Baseline(pi, unit, float((unit - spec.rho).min(initial=np.inf)), of)


def safest(cmdp: CMDP) -> Policy:
    """The policy that stays farthest from all bounds at once; with one bound, it maximises that utility."""
    if cmdp.N == 0:
        return Policy.uniform(cmdp)
    pool = columns_of(cmdp)
    spans = np.array([scale.span for scale in cmdp.utility_scales])
    _, weights, _ = pool.reach(pool.scaled(cmdp.rho), spans / pool.units[1:])
    parts = [(w, Policy.deterministic(c.choice, cmdp.A)) for w, c in zip(weights, pool.columns, strict=False) if w > 0]
    return markov(cmdp, Mixture(tuple(policy for _, policy in parts), np.array([w for w, _ in parts]) / weights.sum()))


def _utilities(world: World, policy: Policy | None, given: ArrayLike | None) -> FloatArray:
    """The totals [N] of the baseline, in the user's units and sense; refused unless all of them meet their bounds."""
    if given is not None:
        w = np.atleast_1d(numbers("baseline_utility", given))
        if w.shape != (len(world.constraints),):
            raise CmdpkitError(f"baseline_utility has shape {w.shape}, expected one number per constraint")
    else:
        exact = None if policy is None else world.values(policy)
        if exact is None:
            raise CmdpkitError(f"baseline_utility is missing: {world.name} has no model to compute the baseline's from")
        w = exact[0].w
    for c, x in zip(world.constraints, w, strict=True):
        if not c.sign * x > c.sign * c.bound_on_total:
            raise CmdpkitError(
                f"the baseline's {c.name} is {x / c.scale:g}{c.unit}, expected strictly within the bound, {c}"
            )
    return w


# -- When a run of unknown length stops: after a number of episodes, steps or seconds, or by its certificate.

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}  # units of time
RULE = re.compile(r"(gap ?= ?)?((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?) ?(s|min|h|%)?")
EXPECTED = (
    'a number of episodes or steps, a time such as "60s" or "2h", "certified", "gap=0.05" (or "gap=1%"), or a function'
)

Asked = int | str | Callable[[Progress], bool]  # the types that stop= accepts


@dataclass(frozen=True)
class Stop:
    """When to stop; exactly one of the three is given."""

    length: int | None = None  # of the whole run, in episodes or steps
    seconds: float | None = None  # seconds of learning
    rule: Callable[[Progress], bool] | None = None  # when this returns True
    certified: bool = False  # whether the rule needs a certificate that holds whenever it is looked at
    gap: tuple[float, bool] | None = None  # how close to the optimum it shall be; True: as a share of the range


def stop_of(asked: Asked) -> Stop:
    """The rule that a user asks for; see `cmdpkit.learn`."""
    if callable(asked):
        return Stop(rule=asked)
    if is_int(asked):
        return Stop(length=check_length("stop", asked))
    text = asked.strip() if isinstance(asked, str) else ""
    if text == "certified":
        return Stop(rule=is_certified, certified=True)
    found = RULE.fullmatch(text)
    gap, number, unit = found.groups() if found else (None, 0, None)
    x = float(number)
    if 0 < x < math.inf:
        if gap is not None and unit in (None, "%"):
            return Stop(rule=is_optimal, certified=True, gap=(x / 100, True) if unit else (x, False))
        if gap is None and unit in SECONDS:
            return Stop(seconds=x * SECONDS[unit])
        if gap is None and unit is None and x.is_integer():
            return Stop(length=check_length("stop", int(x)))
    raise CmdpkitError(f"stop is {asked!r}, expected {EXPECTED}; numbers are above 0, and whole where they count")


def is_certified(at: Progress) -> bool:
    """Whether the certificate proves that the policy meets every bound."""
    found = at.certificate()
    return found is not None and len(found.safe) > 0 and found.within_bounds


def is_optimal(at: Progress) -> bool:
    """Whether the policy is proved to meet every bound and to be no further below the optimum than the goal."""
    found = at.certificate()
    return found is not None and found.gap is not None and found.within_bounds and found.gap <= (at.goal or 0.0)


def outlook(at: Progress) -> str:
    """The proved gap of a run with a goal, next to this goal."""
    found, goal = at.latest, at.goal
    if goal is None or found is None or found.gap is None:
        return "" if goal is None else f"nothing is proved yet, goal {goal:.3g}"
    unproved = "" if found.within_bounds else ", bounds not proved yet"
    return f"gap at most {found.gap:.3g}, goal {goal:.3g}{unproved}"


# These are settings of `learn`, of experiment files or of the command line, or facts that the world tells an algorithm.
# fmt: off
RESERVED = frozenset({
    "algo", "baseline", "baseline_utility", "bound", "bounds", "checkpoint", "constraints", "env", "episodes",
    "first_seed", "kind", "model", "more", "noise", "out", "preset", "progress", "readings", "seed",
    "seeds", "slack", "spec", "steps", "stop", "threads",
})
# fmt: on


@dataclass(frozen=True, eq=False)
class Place:
    """What the identity of a run needs to know about where it is played; a `World` has it, too."""

    name: str  # its name in records
    criterion: str  # what is judged there: "horizon", "average", "discounted" or "total"
    fingerprint: str  # a digest of everything that defines it
    bounds: Mapping[str, float]  # the bounds that the user changed, by constraint
    noise: Noise  # how rewards and utilities are drawn


@dataclass(frozen=True)
class Request:
    """A run that can be played."""

    run: Run  # the identity of the result; the length of an anytime run is 0
    world: World  # where the algorithm acts
    kind: type[Learner]  # the algorithm
    baseline: Baseline | None = None  # the safe policy that the user gave
    stop: Stop | None = None  # the rule that ends an anytime run

    @classmethod
    def of(
        cls,
        world: World,
        algo: str | type,
        *,
        episodes: int | None = None,
        steps: int | None = None,
        stop: Asked | None = None,
        baseline: Policy | None = None,
        baseline_utility: ArrayLike | None = None,
        preset: str | None = None,
        params: Mapping[str, Scalar] | None = None,
        **of_run: Any,
    ) -> Request:
        """The request that a user states in the words of `cmdpkit.learn`; raises CmdpkitError if it makes no sense.

        What is not named here is an argument of `run_of`.
        """
        kind = resolve(algo, world.criterion)
        given = baseline is not None or baseline_utility is not None
        safe = known_safe(world, baseline, baseline_utility) if given else None
        length = length_of(world, episodes, steps)
        until = stop_rule(world, length, stop)
        if until is not None and until.gap is not None and not kind.certifies:
            raise CmdpkitError(
                f"stop is {stop!r}, but {name_of(kind)} does not count transitions, so nothing proves how far its "
                "policy is from the optimum: take an algorithm that counts, such as cl-pri"
            )
        settings = dict(params or {})
        if until is not None and until.certified:
            has = hasattr(kind.presets.get(preset or kind.default_preset()), "certified")
            settings = {"certified": True, **settings} if has else settings
        run = run_of(world, kind, length, baseline=safe, preset=preset, params=settings, **of_run)
        return cls(run, world, kind, safe, until)

    def with_seed(self, seed: int) -> Request:
        """The same request with another seed."""
        check_seed(seed)
        return replace(self, run=replace(self.run, seed=int(seed)))


def run_of(
    place: World | Place,
    kind: type[Learner],
    length: int | None,
    *,
    seed: int = 0,
    preset: str | None = None,
    baseline: Baseline | None = None,
    readings: Iterable[int] = (),
    params: Mapping[str, Scalar] | None = None,
) -> Run:
    """The identity of a run of a number of episodes or steps; without a number, of an anytime run."""
    if baseline is not None and not kind.needs:
        raise CmdpkitError(f"{name_of(kind)} needs no safe policy, so baseline and baseline_utility have no use")
    check_criterion(kind, place.name, place.criterion)
    unit = unit_of(place.criterion)
    if length is None and not kind.anytime:
        raise CmdpkitError(
            f"{name_of(kind)} must know the number of {unit}s in advance, so it cannot stop by a rule: give {unit}s=, "
            "or take an algorithm that can, such as cl-pri"
        )
    check_seed(seed)
    settings = dict(params or {})
    check_parameters(settings)
    readings = tuple(readings)
    for k in readings:
        if not is_int(k) or k < 1 or (length is not None and k > length):
            most = "" if length is None else f" and at most {length:,}, the length of the run"
            raise CmdpkitError(f"readings has {k!r}, expected whole numbers of episodes or steps, at least 1{most}")
    return Run(
        env=place.name,
        algo=name_of(kind),
        length=0 if length is None else int(length),
        seed=int(seed),
        preset=preset or kind.default_preset(),
        params=settings,
        fingerprint=place.fingerprint,
        bounds=dict(place.bounds),
        noise=place.noise,
        baseline="" if baseline is None else baseline.digest(),
        code=code_digest(kind),
        readings=readings,
        anytime=length is None,
        unit=unit,
    )


def length_of(world: World, episodes: int | None, steps: int | None) -> int | None:
    """The length of a run that is known in advance, in the unit of the world: episodes, or steps."""
    has_episodes = world.criterion == "horizon"
    if has_episodes and steps is not None:
        raise CmdpkitError(f"steps is given, but {world.name} has a horizon and is learned in episodes: give episodes=")
    if not has_episodes and episodes is not None:
        raise CmdpkitError(f"{world.name} has no horizon and so no episodes: give steps= (on the command line --steps)")
    length = episodes if has_episodes else steps
    return None if length is None else check_length("episodes" if has_episodes else "steps", length)


def stop_rule(world: World, length: int | None, stop: Asked | None) -> Stop | None:
    """The rule that ends a run of unknown length, or None for a run whose length is known in advance."""
    unit = unit_of(world.criterion)
    if (length is None) == (stop is None):
        many = "neither" if stop is None else "both"
        raise CmdpkitError(
            f"{many} of {unit}s and stop is given; give {unit}s= for a run whose length is known in advance, or "
            "stop= for one that ends by a rule and can be continued"
        )
    if stop is None:
        return None
    until = stop_of(stop)
    if until.certified and unit == "step":
        raise CmdpkitError(
            f"stop is {stop!r}, which needs a certificate that holds whenever the run is stopped; {world.name} has no "
            "episodes, and intervals without episodes are approximate: give a number of steps, a time or a function"
        )
    if until.certified and until.gap is None and not world.constraints:
        raise CmdpkitError(f'{world.name} has no constraints to certify; give for example stop="gap=0.1" instead')
    return until


def check_criterion(kind: type[Learner], problem: str, criterion: str) -> None:
    """Refuse an algorithm that cannot learn what a problem is judged by, and name those that can."""
    if criterion in kind.criteria:
        return
    judged = {
        "horizon": "has a horizon and is learned in episodes",
        "average": "is judged by long-run averages and is learned in one run of single steps",
        "discounted": "is judged by discounted totals and is learned in one run of single steps",
        "total": "is judged by totals until absorption",
    }
    able = ", ".join(names_for(criterion))
    advice = f"take one of {able}" if able else "no algorithm can; give it a discount or a horizon"
    raise CmdpkitError(f"{name_of(kind)} cannot learn {problem}, which {judged[criterion]}; {advice}")


def check_parameters(names: Iterable[str]) -> None:
    """Refuse parameters with a reserved name."""
    for name in names:
        if name in RESERVED:
            raise CmdpkitError(
                f"{name} is not a parameter of an algorithm, but a setting of the whole run; give it beside the "
                "parameters, not among them"
            )
