"""What model-free learners share: tables of action values, and prices that move once a frame.

The tables `cells` hold action values of reward and utilities and their visits. Step H is a row of zeros, so that the
last step needs no case of its own. Actions maximise the values at the prices, Q + sum_n `weight`_n C_n; `best` holds
these actions. All of this is shared with Triple-Q, which moves its prices by queues.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners.params import Params, Spec
from cmdpkit.model.compiled import ZERO, compiled, per_signal
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import uniform

NOTHING = -0.0  # x + -0.0 is x for every x, also for -0.0, so the compiler can leave the addition out


def greedy_policy(spec: Spec, best: Any) -> FloatArray:
    """pi [H, S, A] that takes the actions best [(H+1)*S]."""
    return one_hot(best[: spec.H * spec.S].reshape(spec.H, spec.S), spec.A)


def played_policy(spec: Spec, best: Any, explore: float) -> FloatArray:
    """pi [H, S, A] that takes the actions best [(H+1)*S], and a random one with probability `explore`."""
    usable = spec.allowed
    mixed: FloatArray = (1 - explore) * greedy_policy(spec, best) + explore * (
        usable / usable.sum(axis=-1, keepdims=True)
    )
    return mixed


def numbers_of(kind: type[Params]) -> Any:
    """A NamedTuple with the fields of a dataclass of parameters, because compiled code reads no dataclass.

    It has to be kept under its name, such as TripleQNumbers, in the module of TripleQParams.
    """
    name, names = kind.__name__.replace("Params", "Numbers"), [field.name for field in fields(kind)]
    return namedtuple(name, names, module=kind.__module__)


def sizes(spec: Spec) -> dict[str, Any]:
    """What all constants of compiled code begin with: sizes, usable actions [H*S, A] and thresholds [N]."""
    usable = np.array(spec.allowed, order="C").reshape(-1, spec.A)
    return {"H": np.uint64(spec.H), "S": np.uint64(spec.S), "A": np.uint64(spec.A), "usable": usable, "rho": spec.rho}


def new_cells(spec: Spec, values: FloatArray) -> FloatArray:
    """[(H+1)*S*A, N+2]: values [H, 1+N] of untried actions, without visits; an action that is not usable is at -inf."""
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = np.zeros((H + 1, S, A, N + 2))
    cells[:H, :, :, :-1] = values[:, None, None]
    cells[:H, :, :, 0][~spec.allowed] = -np.inf
    return cells.reshape(-1, N + 2)


# -- Prices that follow what the bounds miss, in Dual-Q and in the warm-up of MF-PRI.


class PriceConstants(NamedTuple):
    """What compiled code needs of spec and parameters. For `zero` see `per_signal`."""

    H: np.uint64  # number of steps
    S: np.uint64  # number of states
    A: np.uint64  # number of actions
    usable: BoolArray  # [H*S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    zero: tuple[float, ...] | FloatArray  # [1+N]: zeros; only its length is used
    chi: float  # H: the learning rate at the t-th visit is (chi + 1) / (chi + t)
    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_start: float  # price of every constraint before the first step
    lam_max: float  # largest price
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)
    average_from: float  # episodes after which the average of the prices begins

    @classmethod
    def of(cls, spec: Spec, **settings: Any) -> PriceConstants:
        """For a problem, with the fields from `frame` on."""
        return cls(**sizes(spec), zero=per_signal([0.0] * (1 + spec.N)), chi=float(spec.H), **settings)


class PricedTables(NamedTuple):
    """What one run has learned."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N and the number of visits of every (h, s, a)
    best: NDArray[np.uint64]  # [(H+1)*S]: the action that is worth most at the prices
    second: FloatArray  # [(H+1)*S]: the largest worth of the other actions
    weight: FloatArray  # [N]: the prices lam
    drive: FloatArray  # [N]: shortfall of each utility, summed over the episodes of the running frame
    lam_sum: FloatArray  # [1+N]: number of frames from `average_from` on, and the sums of their prices
    explore: FloatArray  # [1]: probability of a random action
    episodes: NDArray[np.int64]  # [1]: how many episodes were played
    changed: NDArray[np.bool_]  # [1]: whether the policy has changed since the last episode began

    @classmethod
    def of(cls, spec: Spec, c: PriceConstants) -> PricedTables:
        """Before the first episode, when all values are the largest possible ones."""
        H, S, N = spec.H, spec.S, spec.N
        learned = cls(
            cells=new_cells(spec, np.arange(H, 0, -1.0)[:, None]),
            best=np.zeros((H + 1) * S, dtype=np.uint64),
            second=np.zeros((H + 1) * S),
            weight=np.full(N, c.lam_start),
            drive=np.zeros(N),
            lam_sum=np.zeros(1 + N),
            explore=np.array([c.explore]),
            episodes=np.zeros(1, dtype=np.int64),
            changed=np.ones(1, dtype=bool),
        )
        find_best_everywhere(learned, c)
        return learned


@compiled(inline=True)
def learn_cell(learned, c, j, j_next, outcomes, x, bonus, offset):
    """Learn from outcomes[x], received in cell j = (h*S + s)*A + a on the way to cell j_next; returns what j is worth.

    The t-th visit adds bonus [1+N] / sqrt(offset + t) to what was received, unless `bonus` is None.
    """
    t = learned.cells[j, len(c.zero)] + 1.0
    learned.cells[j, len(c.zero)] = t
    rate = (c.chi + 1.0) / (c.chi + t)
    value = NOTHING
    for n in range(len(c.zero)):
        old = learned.cells[j, n]
        seen = outcomes[x, n] + learned.cells[j_next, n]
        if bonus is not None:
            seen += bonus[n] / np.sqrt(offset + t)
        new = old + rate * (seen - old)
        learned.cells[j, n] = new
        value += new if n == 0 else learned.weight[n - 1] * new
    return value


@compiled(inline=True)
def move_prices(learned, c, totals):
    """Note the totals [1+N] of an episode; at the end of a frame, move the prices and fade the exploration."""
    for n in range(len(learned.drive)):
        learned.drive[n] += c.rho[n] - totals[n + 1]
    learned.episodes[0] += 1
    k = learned.episodes[0]
    if k % c.frame != 0:
        return
    for n in range(len(learned.drive)):
        learned.weight[n] = min(max(learned.weight[n] + c.eta * learned.drive[n], 0.0), c.lam_max)
        learned.drive[n] = 0.0
    if k >= c.average_from:
        learned.lam_sum[0] += 1.0
        for n in range(len(learned.drive)):
            learned.lam_sum[n + 1] += learned.weight[n]
    learned.explore[0] = c.explore * min(1.0, np.sqrt(c.explore_for / k))
    learned.changed[0] = True
    find_best_everywhere(learned, c)


@compiled
def find_best_everywhere(learned, c):
    """Find the best action of every step and state."""
    for i in range(c.H * c.S):
        find_best(learned, c, np.uint64(i))


@compiled(inline=True)
def find_best(learned, c, i):
    """Find the best action of row i = h*S + s and the worth of the runner-up; ties go to the lower action.

    Written without branches: a processor cannot predict which action is best, and a wrong prediction costs time.
    """
    best, top, second = ZERO, -np.inf, -np.inf
    for a in range(c.A):
        value = worth_of(learned, c, i, a)
        second = max(second, min(value, top))
        best = np.uint64(a) if value > top else best
        top = max(top, value)
    learned.second[i] = second
    if learned.best[i] != best:
        learned.best[i] = best
        learned.changed[0] = True


@compiled(inline=True)
def worth_of(learned, c, i, a):
    """Q + sum_n lam_n C_n of action a in row i = h*S + s."""
    j = i * c.A + np.uint64(a)
    value = learned.cells[j, 0]
    for n in range(1, len(c.zero)):
        value += learned.weight[n - 1] * learned.cells[j, n]
    return value


@compiled(inline=True)
def random_action(usable, i, rng):
    """One of the usable [H*S, A] actions of row i = h*S + s, each equally likely."""
    A, left = np.uint64(usable.shape[1]), 0
    for a in range(A):
        left += usable[i, a]
    draw = np.int64(uniform(rng) * left)
    for a in range(A):
        if usable[i, a]:
            if draw == 0:
                return a
            draw -= 1
    return ZERO
