"""What a request may not say.

An algorithm that cannot learn the problem, parameters with names of settings of the whole run, readings of curves
outside of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, name_of, names_for
from cmdpkit.model.validate import is_int
from cmdpkit.records.record import Scalar

# These are settings of `learn`, of experiment files or of the command line, or facts that the world tells an algorithm.
# fmt: off
RESERVED = frozenset({
    "algo", "baseline", "baseline_utility", "bound", "bounds", "checkpoint", "constraints", "env", "episodes",
    "first_seed", "kind", "model", "more", "noise", "out", "preset", "progress", "readings", "renormalise", "seed",
    "seeds", "slack", "spec", "steps", "stop", "threads",
})
# fmt: on


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


def with_certified(kind: type[Learner], preset: str | None, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The parameters, with ``certified=True`` unless they say otherwise, for an algorithm that has this parameter."""
    chosen = kind.presets.get(preset or kind.default_preset())
    return {"certified": True, **params} if hasattr(chosen, "certified") else dict(params)


def check_readings(readings: Iterable[int], episodes: int | None) -> None:
    """Refuse readings of the curves outside of the run, whose length in episodes or steps may be unknown."""
    for k in readings:
        if not is_int(k) or k < 1 or (episodes is not None and k > episodes):
            most = "" if episodes is None else f" and at most {episodes:,}, the length of the run"
            raise CmdpkitError(f"readings has {k!r}, expected whole numbers of episodes or steps, at least 1{most}")
