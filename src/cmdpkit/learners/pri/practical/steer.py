"""The closed loop of practical PRI: stochastic decisions are shifted block by block to keep realised totals in bounds.

Inside the right support regret is minus the price times the violation (docs/theory/pri.md), whatever the probabilities
of the stochastic decisions are at the moment. So they are free to be used as controls: what is short by now is repaid
over the next blocks, and both regret and violation stay bounded instead of growing like the error of a fixed policy.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners.pri.practical.book import Book, Task, extra_actions
from cmdpkit.learners.pri.practical.master import allocate
from cmdpkit.learners.pri.practical.moments import PRICED
from cmdpkit.learners.pri.practical.plan import REPAY
from cmdpkit.learners.pri.practical.play import Tables
from cmdpkit.model.transitions import BoolArray, FloatArray

SMALL = 1e-6  # relative size of effects that are not steered by
SURPLUS = 0.01  # what a unit of surplus counts beside a unit of shortfall, when both cannot be avoided


def debt(task: Task, book: Book, tables: Tables, k: int) -> FloatArray:
    """[N]: realised violation after k episodes, plus the margin that keeps it negative to the end.

    The margin covers how far the loop lets the debt wander, 2 sd sqrt(episodes it takes to repay); what the last blocks
    may bring; and where controls are weak, what they could not make up for in the episodes that are left.
    """
    spec, table = task.spec, task.table
    late = min(1.0, 4 * k / table.K)
    wander = late * np.maximum(2 * book.sd * np.sqrt(REPAY * table.block(k)), _helpless(book, table.K - k))
    owed: FloatArray = k * spec.rho - tables.totals[1:] + wander + 8 * book.sd * np.sqrt(table.block(k))
    return owed


def _helpless(book: Book, left: int) -> FloatArray:
    """[N]: the most that noise of 3 sd exceeds what full control gains, over any number of episodes up to `left`.

    Full control raises utility n by x_n an episode; max over r of 3 sd sqrt(r) - x_n r is at r = (3 sd / (2 x_n))^2.
    """
    at_base = np.take_along_axis(book.pi, book.base[..., None], -1)
    gain = np.maximum(book.effect * at_base[..., None], -book.effect * book.pi[..., None]).sum(axis=(0, 1, 2))
    worst = np.minimum((1.5 * book.sd / np.maximum(gain, 1e-12)) ** 2, max(left, 0))
    most: FloatArray = np.maximum(3 * book.sd * np.sqrt(worst) - gain * worst, 0.0)
    return most


def steered(task: Task, book: Book, tables: Tables, k: int) -> FloatArray:
    """The policy of the epoch, shifted so that the debt is repaid over the next blocks as far as that is possible."""
    extras = np.argwhere(extra_actions(book))
    if not len(extras) or not task.spec.N:
        return book.pi
    blocks = REPAY if k < task.table.hand else REPAY // 2  # then every other block is the certificate's
    wanted = debt(task, book, tables, k) / (blocks * task.table.block(k))
    h, s, a = extras.T
    active = book.lam > PRICED
    active = active if active.any() else np.ones(len(book.lam), dtype=bool)
    shift = np.linalg.lstsq(book.effect[h, s, a][:, active].T, wanted[active], rcond=SMALL)[0]
    pi, base = book.pi.copy(), book.base[h, s]
    if len(shift) == task.spec.N == 1:
        shift = np.clip(shift, -pi[h, s, a], pi[h, s, base])
    np.add.at(pi, (h, s, a), shift)
    np.add.at(pi, (h, s, base), -shift)
    return pi if pi.min() >= 0 else _bounded(book, wanted, active)


def _bounded(book: Book, wanted: FloatArray, active: BoolArray) -> FloatArray:
    """The shift that leaves the least shortfall when what is wanted would need a probability outside [0, 1]."""
    open_ = np.asarray(extra_actions(book).any(axis=-1))
    h, s, a = np.nonzero((book.pi > 0) & open_[..., None])
    decision = np.cumsum(open_.ravel()).reshape(open_.shape)[h, s] - 1
    effect = book.effect[h, s, a]
    gap = wanted + book.pi[h, s, a] @ effect
    price = np.where(active, -SURPLUS, 0.0)
    q, _, _ = allocate(np.zeros(len(h)), effect, decision, gap, price, np.ones(len(gap)))
    pi = book.pi.copy()
    pi[h, s, a] = np.maximum(q, 0.0)
    pi /= pi.sum(axis=-1, keepdims=True)
    return pi
