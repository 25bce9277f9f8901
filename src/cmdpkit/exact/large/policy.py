"""Policies of models by functions: one deterministic policy with a few draws, or a mixture drawn at the start."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.large.folder import Folder
from cmdpkit.exact.large.source import BackwardSource, SweepSource
from cmdpkit.exact.large.sweeps import Sweeps
from cmdpkit.model.functions import FunctionModel, State
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import Name, is_int
from cmdpkit.operators.steps import Threads

EVALUATED = 1e-9  # accuracy of `evaluate`, as a share of the largest value
Draw = tuple[tuple[int, float], ...]  # actions and their probabilities


@dataclass(frozen=True, eq=False)
class LargePart:
    """One policy: an action for each step and state, one byte each, and the few decisions that draw.

    With a horizon it may be given by its prices alone; then the actions are found in one backward pass when they are
    first asked for.
    """

    model: FunctionModel
    stored: NDArray[Any] | None = None  # [T, S], the number A where there is a draw
    draws: Mapping[tuple[int, int], Draw] = field(default_factory=dict)  # by step and state
    prices: FloatArray | None = None  # [K], weights of the signals
    folder: str | None = None  # where actions that are found later are kept

    @cached_property
    def choice(self) -> NDArray[Any]:
        """The action of each step and state, [T, S]."""
        if self.stored is not None:
            return self.stored
        assert self.prices is not None
        sweeps = Sweeps(self.model)
        source = BackwardSource(sweeps, Folder(None, sweeps, 0.0), lambda sweeps: None)
        if self.folder is None:
            found = np.zeros((source.H, self.model.S), sweeps.type)
            source.backward(self.prices, lambda h, choice: found.__setitem__(h, choice))
            return found
        path = Path(self.folder, f"policy-{np.abs(self.prices).tobytes().hex()[:24]}.bin")
        with open(path, "w+b") as file:

            def keep(h: int, choice: NDArray[Any]) -> None:
                file.seek(h * choice.nbytes)
                file.write(choice.data)

            source.backward(self.prices, keep)
        return np.memmap(path, sweeps.type, "r", shape=(source.H, self.model.S))

    def drawn(self) -> tuple[IntArray, FloatArray]:
        """The decisions that draw, as rows of step, state and action [n, 3], and their probabilities [n]."""
        rows = [(t, s, a, p) for (t, s), options in self.draws.items() for a, p in options]
        places = np.array([row[:3] for row in rows], dtype=np.int64).reshape(-1, 3)
        return places, np.array([row[3] for row in rows], dtype=float)

    def decision(self, t: int, s: int) -> Draw:
        """Actions and their probabilities."""
        return self.draws.get((t, s)) or ((int(self.choice[t, s]), 1.0),)


@dataclass(frozen=True, eq=False)
class LargePolicy:
    """A policy of a model by functions: ``policy(x, h=0)`` lists actions with their probabilities.

    Of a mixture, one part is drawn at the start and followed; ``policy(x, h)`` then has the probability that the drawn
    part takes an action there.
    """

    model: FunctionModel
    weights: FloatArray  # [M], the probability of each part
    parts: tuple[LargePart, ...]  # [M]

    def __call__(self, x: State, h: int = 0) -> list[tuple[Name, float]]:
        """The names of the actions taken in state x at step h (from 0), and their probabilities."""
        steps = self.model.criterion.horizon or 1
        if not is_int(h) or not 0 <= h < steps:
            raise CmdpkitError(f"h is {quoted(h)}, expected a step from 0 to {steps - 1}")
        s, odds = self.model.state_index(x), dict[int, float]()
        for weight, part in zip(self.weights, self.parts, strict=True):
            for a, p in part.decision(h, s):
                odds[a] = odds.get(a, 0.0) + float(weight) * p
        return [(self.model.action_names[a], p) for a, p in sorted(odds.items())]

    def totals(self, model: FunctionModel, threads: Threads = None) -> tuple[FloatArray, FloatArray]:
        """Expected totals in a model of these sizes, [1 + N] in the user's units, and the errors of each."""
        sweeps = Sweeps(model, threads)
        facts, steps = sweeps.facts, model.criterion.steps_in_value or 1.0
        accuracy = EVALUATED * steps * np.maximum(np.maximum(-facts.lowest, facts.highest), 1e-300)
        found = [values_of(sweeps, part.choice, part.draws, accuracy)[:2] for part in self.parts]
        values, errors = np.tensordot(self.weights, np.array(found), 1)
        return values, errors

    def stochastic_decisions(self) -> list[tuple[int, State, list[tuple[Name, float]]]]:
        """Where a single policy draws: the step (from 0), the state, and its actions; none for a mixture."""
        if len(self.parts) > 1:
            return []
        listed = [(h, self.model.state(s)) for h, s in sorted(self.parts[0].draws)]
        return [(h, x, self(x, h)) for h, x in listed]


@dataclass(frozen=True, eq=False)
class LargeSolution(Shown):
    """The optimum of a model by functions, in the user's units and sense.

    >>> import cmdpkit as ck
    >>> model = ck.FactoredModel((4,), ["wait", "order"], lambda x, a: (min(x[0] + 2 * a, 3),),
    ...                          [ck.Part.demand(4, [0, 1, 2], [0.3, 0.4, 0.3])], lambda x, a: (-1.0 * a, 0.0),
    ...                          lambda y: (1.0 * min(y[0], 1), 1.0 * (y[0] == 0)), start=(0,), discount=0.9,
    ...                          constraints=[ck.at_most("empty", 1.0)])
    >>> sol = ck.solve(model, policy="one")
    >>> sol.policy((0,)), len(sol.policy.stochastic_decisions()) <= 1, round(float(sol.utilities[0]), 3)
    ([('order', 1.0)], True, 0.0)
    """

    model: FunctionModel  # the model that was solved
    policy: LargePolicy  # one policy, or a mixture of at most N + 1
    value: float  # expected total reward of the policy, to within ``errors``
    utilities: FloatArray  # [N], expected totals of the constraints' signals
    shadow_prices: FloatArray  # [N], value gained per unit by which a bound is relaxed
    gap: float  # proved, with errors of values and rounding: no feasible policy has a value above value + gap
    errors: FloatArray  # [1 + N], the value and the totals are known to this much
    tolerance: FloatArray  # [N], no total misses its bound by more than this, with its error counted
    binds: BoolArray  # [N], whether the bound has a price above 0
    columns: int  # policies found on the way
    sweeps: int  # passes over all states
    seconds: float  # how long solving took
    ended: Literal["optimal", "gap", "interrupted"] = "gap"
    notes: tuple[str, ...] = ()  # what a user should know about the answer

    @property
    def cmdp(self) -> FunctionModel:
        """The model, as solutions of models with arrays call it."""
        return self.model

    @property
    def complete(self) -> bool:
        """False if Ctrl-C ended the search: then policy and gap are the best that had been found."""
        return self.ended != "interrupted"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the policy to a new folder: its numbers, one file of actions per part, and ``controller.py``.

        The module needs nothing but NumPy: ``python controller.py 3 4`` or ``controller.act((3, 4))``.
        """
        path = Path(folder)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise CmdpkitError(f"{quoted(str(path))} exists; give a new folder") from None
        model, parts = self.model, self.policy.parts
        for m, part in enumerate(parts):
            np.save(path / f"actions-{m}.npy", part.choice)
        about = {
            "space": model.space,
            "coordinates": [str(x) for x in model.coordinates],
            "actions": [x if isinstance(x, int) else str(x) for x in model.action_names],
            "criterion": str(model.criterion),
            "bounds": [str(c) for c in model.constraints],
            "value": self.value,
            "utilities": self.utilities.tolist(),
            "gap": self.gap,
            "weights": self.policy.weights.tolist(),
            "draws": [[[t, s, list(map(list, p))] for (t, s), p in part.draws.items()] for part in parts],
        }
        (path / "policy.json").write_text(json.dumps(about, indent=1), "utf-8")
        (path / "controller.py").write_text(CONTROLLER, "utf-8")
        return path


CONTROLLER = '''"""A policy: `python controller.py X ... [STEP]`, or `act(x, h, part)`; it needs NumPy alone."""

import json
import random
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ABOUT = json.loads((HERE / "policy.json").read_text("utf-8"))
ACTIONS = [np.load(HERE / f"actions-{m}.npy", mmap_mode="r") for m in range(len(ABOUT["weights"]))]
DRAWS = [{(t, s): p for t, s, p in part} for part in ABOUT["draws"]]


def begin():
    """Draw the part that is followed from now on; call it once per run."""
    return random.choices(range(len(ACTIONS)), ABOUT["weights"])[0]


def act(x, h=0, part=0):
    """The name of the action in state x at step h, counted from 0."""
    if len(x) != len(ABOUT["space"]) or not all(0 <= i < n for i, n in zip(x, ABOUT["space"])):
        raise ValueError(f"{x!r} is no state of the space {ABOUT['space']}")
    s = int(np.ravel_multi_index(x, ABOUT["space"]))
    t = h if len(ACTIONS[part]) > 1 else 0
    drawn = DRAWS[part].get((t, s))
    a = random.choices([a for a, _ in drawn], [p for _, p in drawn])[0] if drawn else int(ACTIONS[part][t, s])
    return ABOUT["actions"][a]


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:]]
    d = len(ABOUT["space"])
    print(act(tuple(given[:d]), given[d] if len(given) > d else 0, begin()))
'''


def values_of(
    sweeps: Sweeps,
    choice: NDArray[Any],
    draws: Mapping[tuple[int, int], Draw],
    accuracy: FloatArray,
    wanted: IntArray | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Totals and errors [K] of one policy, and Q - V [n, K] of the wanted (step, state, action) triples."""
    quiet = lambda sweeps: None  # noqa: E731
    folder, K = Folder(None, sweeps, 0.0), sweeps.K
    by_step: dict[int, list[tuple[int, Draw]]] = {}
    for (t, s), p in draws.items():
        by_step.setdefault(t, []).append((s, p))
    wanted = np.zeros((0, 3), dtype=np.int64) if wanted is None else wanted
    gains = np.zeros((len(wanted), K))

    def compare(t: int, Y: FloatArray) -> None:
        for i in np.flatnonzero(wanted[:, 0] == t):
            gains[i] = sweeps.once(int(wanted[i, 1]), int(wanted[i, 2])) - Y[:, wanted[i, 1]]

    if not sweeps.model.criterion.has_horizon:
        source = SweepSource(sweeps, folder, quiet)
        source.evaluate(1.0, 1 / accuracy, choice[0], by_step.get(0, ()))
        compare(0, source.Y)
        return source.values, source.half, gains
    Y, half, size = sweeps.table(K), np.zeros(K), np.zeros(K)
    for h in range(len(choice) - 1, -1, -1):
        half += sweeps.rounding(np.eye(K), size)
        size = sweeps.sweep(Y, choice[h], 1.0, np.zeros(K), by_step.get(h, ()))[2]
        compare(h, Y)
    return sweeps.at_start(Y), half, gains
