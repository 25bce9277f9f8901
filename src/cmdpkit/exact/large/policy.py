"""Policies of models by functions: one deterministic policy with a few draws, or a mixture drawn at the start."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.large.source import Draws, FunctionSource, source_of
from cmdpkit.exact.large.storage import Folder, safely
from cmdpkit.exact.large.sweeps import Draw, Sweeps
from cmdpkit.exact.master import INFINITY, answer, configured, program, run
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.user_functions import State
from cmdpkit.model.validate import Name, is_int

EXACT = 0.05  # share of the gap that errors of a policy's values may take, in units
ROUNDED = 1 / 16  # share of a tolerance by which rounding may let one policy miss a threshold that the mixture meets
MOST_MISSED = 0.4  # the same share if no program comes closer; the mixture itself may miss by the rest
ROUNDS = 16  # most linear programs in a search for one policy
SHARPER = 0.1  # from one program to the next, errors shrink to this share
MAGNIFICATION = 1e3  # factor of the rows of a program, because HiGHS takes no tolerance below 1e-10
FAR_ENOUGH = 1e-3  # share of discounted visits that may be left out
MOST_PASSES = 2_000  # most passes for discounted visits
EVALUATED = 1e-9  # accuracy of `evaluate`, as a share of the largest value


@dataclass(frozen=True, eq=False)
class LargePart:
    """One policy: an action for each step and state, one byte each, and the few decisions that draw.

    With a horizon it may be given by its prices alone; then the actions are found in one backward pass when they are
    first asked for.
    """

    model: FunctionModel
    stored: NDArray[Any] | None = None  # [T, S], the number A where there is a draw
    draws: Draws = field(default_factory=dict)  # by step and state
    prices: FloatArray | None = None  # [K], weights of the signals
    folder: Folder | None = None  # of the solve, where actions that are found are kept

    @cached_property
    def choice(self) -> NDArray[Any]:
        """The action of each step and state, [T, S]."""
        if self.stored is not None:
            return self.stored
        source = source_of(Sweeps(self.model), self.folder)
        source.kept.append(self.prices)
        with safely(source.folder.path):
            return np.asarray(source.order("actions", len(source.kept) - 1))

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

    def totals(self, model: FunctionModel) -> tuple[FloatArray, FloatArray]:
        """Expected totals in a model of these sizes, [1 + N] in the user's units, and the errors of each."""
        source = source_of(Sweeps(model))
        facts, steps = source.sweeps.facts, model.criterion.steps_in_value or 1.0
        accuracy = EVALUATED * steps * np.where(facts.size > 0, facts.size, 1.0)
        none = np.zeros((0, 3), dtype=np.int64)
        found = [source.valued(part.choice, part.draws, accuracy, none)[:2] for part in self.parts]
        values, errors = np.tensordot(self.weights, np.array(found), 1)
        return values, errors

    def stochastic_decisions(self) -> list[tuple[int, State, list[tuple[Name, float]]]]:
        """Where a single policy randomises: the step (from 0), the state, and its actions; none for a mixture."""
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


# -- one policy with at most N draws ----------------------------------------------------------------------------------


def single(
    source: FunctionSource, mixed: LargePolicy, aim: FloatArray, tolerance: FloatArray, bound: float, goal: float
) -> tuple[LargePart, FloatArray, FloatArray] | None:
    """A policy with at most N draws, its totals and errors [K]; None if none is found that proves its worth.

    The parts of a mixture are all nearly optimal at the same prices, so any policy that takes an action of some part in
    every state is nearly optimal too; it only has to meet the bounds. Around a policy pi, the totals of another one are

        w(pi') = w(pi) + sum_s d'(s) sum_a pi'(a | s) (Q(s, a) - V(s)) ,

    with the visits d' of pi', in whose place those of pi are taken. This is a linear program in the visits to pairs,
    with one row for each state in which parts differ and one for each bound, and at an extreme point at most N states
    draw. The policy found is evaluated, and the program is made again around it.

    Utilities [N] aim at thresholds ``aim``. They may miss them by a share of the ``tolerance`` [N] because of rounding,
    and by more only if all programs do. The policy's value has to be proved within ``goal`` of ``bound``.
    """
    model, units, parts = source.sweeps.model, source.units, mixed.parts
    signs, choice = model.signs, np.array(parts[int(mixed.weights.argmax())].choice)
    t, s = np.nonzero(np.any([part.choice != choice for part in parts], axis=0))
    options = [sorted({int(part.choice[i, j]) for part in parts}) for i, j in zip(t, s, strict=True)]
    of = np.repeat(np.arange(len(t)), [len(x) for x in options])  # the decision of each pair
    pairs = np.column_stack((t[of], s[of], [a for x in options for a in x])).astype(np.int64).reshape(-1, 3)
    draws, kept = dict[tuple[int, int], Draw](), None
    accuracy = EXACT * goal / units[0] * units
    for i in range(ROUNDS):
        values, half, gains = source.order("valued", choice, draws, accuracy, pairs)
        own = signs * values
        missed = (aim - (own - half)[1:]) / tolerance
        if own[0] - half[0] >= bound - goal and (missed <= MOST_MISSED).all():
            kept = LargePart(model, choice, draws), values, half
            if (missed <= ROUNDED).all():
                return kept
        visits = _visits(source.sweeps, choice, draws, pairs)
        found = _program(of, visits, gains * signs / units, (aim - own[1:] + 2 * half[1:]) / units[1:])
        if found is None:
            return kept
        choice, draws = _rounded(choice, pairs, of, found, model.A)
        if len(draws) > model.N:
            return kept
        accuracy = accuracy * (SHARPER if i else 1.0)
    return kept


def _program(of: IntArray, visits: FloatArray, gains: FloatArray, short: FloatArray) -> FloatArray | None:
    """Visits to the pairs at an extreme point: the largest reward that makes up for what is short [N], if possible.

    ``visits`` [n] are those of `_visits`, ``gains`` [n, 1 + N] what a visit to a pair gains.
    """
    n, N, first = len(of), len(short), np.diff(of, prepend=-1) > 0
    rows = int(first.sum())
    flow = sparse.csc_array((np.ones(n), (of, np.arange(n))), shape=(rows, n))
    left = np.append(np.zeros(rows), np.ones(N))[:, None]  # what stays short of every bound
    matrix = sparse.csc_array(sparse.hstack((sparse.vstack((flow, gains[:, 1:].T)), left)))
    low = np.append(visits[first], short) * MAGNIFICATION
    high = np.append(low[:rows], np.full(N, INFINITY))
    entries = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data * MAGNIFICATION
    most = 0.0
    for costs in (-np.eye(1, n + 1, n)[0], np.append(gains[:, 0], 0.0)):
        highs = configured()
        columns = np.zeros(n + 1), np.append(np.full(n, INFINITY), INFINITY if costs[n] else most)
        highs.passModel(program(costs, columns, (low, high), entries, maximise=True))
        if run(highs) != "optimal":
            return None
        found = answer(highs)[0]
        most = 2 * float(found[n]) + NEGLIGIBLE
    return np.maximum(found[:n], 0.0)


def _rounded(
    choice: NDArray[Any], pairs: IntArray, of: IntArray, q: FloatArray, A: int
) -> tuple[NDArray[Any], dict[tuple[int, int], Draw]]:
    """The policy with these visits: choices, and the decisions with more than one action."""
    made, draws = choice.copy(), {}
    for i in range(int(of.max(initial=-1)) + 1):
        mine = np.flatnonzero(of == i)
        total = q[mine].sum()
        taken = mine[q[mine] > NEGLIGIBLE * total]
        t, s = (int(x) for x in pairs[mine[0], :2])
        if len(taken) == 1:
            made[t, s] = pairs[taken[0], 2]
        elif len(taken):
            made[t, s] = A
            draws[t, s] = tuple((int(pairs[j, 2]), float(q[j] / q[taken].sum())) for j in taken)
        elif made[t, s] == A:  # it is not visited any more
            made[t, s] = pairs[mine[0], 2]
    return made, draws


def _visits(sweeps: Sweeps, choice: NDArray[Any], draws: Draws, pairs: IntArray) -> FloatArray:
    """Expected discounted visits [n] of a policy to the state of each pair, by one transposed pass."""
    model, found, d, weight = sweeps.model, np.zeros(len(pairs)), np.zeros(sweeps.model.S), 1.0
    for x, p in model.start.items():
        d[model.state_index(x)] = p
    for h in range(model.criterion.horizon or MOST_PASSES):
        if weight <= FAR_ENOUGH:
            break
        t, then = h if model.criterion.has_horizon else 0, np.zeros(model.S)
        here = pairs[:, 0] == t
        found[here] += weight * d[pairs[here, 1]]
        sweeps.kernels.carry(d, choice[t], then)
        for (step, s), options in draws.items():
            for a, p in options if step == t else ():
                for y, q in sweeps.leads(s, a):
                    then[y] += q * (p * d[s])
        for i, part in enumerate(model.noise):
            shape = math.prod(model.space[:i]), model.space[i], math.prod(model.space[i + 1 :])
            blocks = then.reshape(shape).swapaxes(0, 1)
            then = (part.matrix.T @ blocks.reshape(shape[1], -1)).reshape(blocks.shape).swapaxes(0, 1).reshape(-1)
        d, weight = then, weight * (model.criterion.discount or 1.0)
    return found
