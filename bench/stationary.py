"""Models without a horizon: CPU time of `solve` against QuantEcon and Storm, and between criteria, in one run.

Random models have 4 actions with 5 random successors each; the board has 71 x 71 cells, and a step goes as meant with
0.8 and otherwise in one of four directions. Totals are the same problems with an end after 5 % of the steps. Bounds lie
halfway between the unconstrained optimum and the best policy for the utilities alone. Times are the least of several
passes. QuantEcon's is that of modified policy iteration to 1e-8. Storm's is that of checking a model which it has read;
its value iteration stops when values change little, which guarantees nothing, and "sound" is Storm with guaranteed
precision. Values are compared, too. The line at the end says how many of the goals were reached.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import cmdpkit as ck

DISCOUNT = 0.95
PASSES = 3
LARGE, MEDIUM, SIDE = 50_000, 5_000, 71


def cpu(run: Callable[[], Any], passes: int = PASSES) -> tuple[float, Any]:
    """The least CPU time of several passes, and the result of the last one."""
    least, found = np.inf, None
    for _ in range(passes):
        began = time.process_time()
        found = run()
        least = min(least, time.process_time() - began)
    return least, found


def random_rows(S: int, seed: int = 1, A: int = 4, k: int = 5) -> tuple[Any, np.ndarray]:
    """Transitions [S*A, S] and signals [4, S, A]."""
    rng = np.random.default_rng(seed)
    indptr = np.arange(0, S * A * k + 1, k)
    P = sparse.csr_array((rng.dirichlet(np.ones(k), S * A).ravel(), rng.integers(0, S, S * A * k), indptr), (S * A, S))
    P.sum_duplicates()
    return P, rng.random((4, S, A))


def board_rows(n: int, seed: int = 1) -> tuple[Any, np.ndarray]:
    """The same for a slippery board of n x n cells."""
    rng = np.random.default_rng(seed)
    s = np.arange(n * n)
    near = [
        np.clip(s // n + a, 0, n - 1) * n + np.clip(s % n + b, 0, n - 1) for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0))
    ]
    rows, columns, prob = [], [], []
    for a in range(4):
        for b in range(4):
            rows.append(s * 4 + a)
            columns.append(near[b])
            prob.append(np.full(n * n, 0.85 if a == b else 0.05))
    entries = (np.concatenate(prob), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(sparse.coo_array(entries, (4 * n * n, n * n))), rng.random((4, n * n, 4))


def model(P: Any, x: np.ndarray, N: int, kind: str) -> ck.CMDP:
    """The model of one criterion with N bounds, halfway between the free optimum and the best for the utilities."""
    S, A = x.shape[1:]
    if kind == "total":  # one more state, which ends everything
        inside = sparse.hstack((DISCOUNT * P, np.full((S * A, 1), 1 - DISCOUNT)))
        P = sparse.csr_array(sparse.vstack((inside, sparse.csr_array((np.ones(A), (range(A), [S] * A)), (A, S + 1)))))
        x = np.concatenate((x, np.zeros((len(x), 1, A))), axis=1)
        S += 1
    entries = P.tocoo()
    kernel = ck.Kernel.from_entries((1, S, A), *entries.coords, entries.data)
    how: dict[str, Any] = {"discount": DISCOUNT} if kind == "discount" else {"criterion": kind}
    constraints = [ck.at_least(f"u{n}", 0.0, x[1 + n]) for n in range(N)]
    cmdp = ck.CMDP(kernel, x[0], mu=0, constraints=constraints, **how)
    if not N:
        return cmdp
    both = [ck.solve(ck.CMDP(kernel, signal, mu=0, **how)).policy for signal in (x[0], x[1 : 1 + N].sum(axis=0))]
    halfway = sum(ck.evaluate(cmdp, policy).w for policy in both) / 2
    return cmdp.with_bounds(**{f"u{n}": float(w) for n, w in enumerate(halfway)})


def quantecon_seconds(P: Any, r: np.ndarray) -> tuple[float, float]:
    """Time and value of the first state."""
    from quantecon.markov import DiscreteDP

    S, A = r.shape
    pairs = np.repeat(np.arange(S), A), np.tile(np.arange(A), S)
    problem = DiscreteDP(r.ravel(), sparse.csr_matrix(P), DISCOUNT, *pairs)
    run = lambda: problem.solve(method="modified_policy_iteration", epsilon=1e-8)  # noqa: E731
    run()
    seconds, found = cpu(run, 2 * PASSES)
    return seconds, float(found.v[0])


def storm_model(cmdp: ck.CMDP) -> Any:
    """A stationary model as Storm's own, with the reward and what the constraints count; the bounds are not in it."""
    import stormpy

    allowed, names = cmdp.actions[0], ["reward", *(c.name for c in cmdp.constraints)]
    signals = np.stack([cmdp.r[0], *(c.sign * g[0] for c, g in zip(cmdp.constraints, cmdp.g, strict=True))], axis=-1)
    sizes = ["@nr_states", str(cmdp.S), "@nr_choices", str(int(allowed.sum()))]
    lines = ["@type: MDP", "@parameters", "", "@reward_models", " ".join(names), *sizes, "@model"]
    for s in range(cmdp.S):
        lines.append(f"state {s} {[0] * len(names)}{' init' * bool(cmdp.mu[s])}")
        for k, a in enumerate(np.flatnonzero(allowed[s]).tolist()):
            entries = cmdp.kernel.entries(0, s, a)
            reached = zip(cmdp.kernel.successors[entries].tolist(), cmdp.kernel.prob[entries].tolist(), strict=True)
            lines += [f"\taction {k} {signals[s, a].tolist()}", *(f"\t\t{x} : {p!r}" for x, p in reached)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.drn")
        file.write_text("\n".join(lines))
        return stormpy.build_model_from_drn(str(file))


def storm_seconds(cmdp: ck.CMDP, path: str, precision: str, sound: bool) -> tuple[float, float]:
    """Time and value of a check with all bounds of the model."""
    import stormpy
    import stormpy.developer

    built = storm_model(cmdp)
    bounds = "".join(
        f', R{{"{c.name}"}}>={float(x)!r} [{path}]' for c, x in zip(cmdp.constraints, cmdp.rho, strict=True)
    )
    (formula,) = stormpy.parse_properties(f'multi(R{{"reward"}}max=? [{path}]{bounds})')
    environment = stormpy.developer.get_sound_environment() if sound else stormpy.Environment()
    environment.modelchecker().multi().precision = stormpy.Rational(f"1/{round(1 / float(precision))}")
    run = lambda: stormpy.model_checking(built, formula, environment=environment)  # noqa: E731
    seconds, found = cpu(run, 2)
    return seconds, float(found.get_value(built.initial_states[0]))


class Table:
    """Rows of the comparison as they are measured."""

    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}
        self.reached: list[bool] = []
        print(f"{'case':46} {'solve':>7} {'other':>7} {'ratio':>6} {'goal':14} {'':7} gap, difference (relative)")

    def add(self, name: str, ours: float, other: float, ratio: float, goal: str, note: str) -> None:
        """Print a row; a goal is "at most" or "at least" a ratio, or empty."""
        self.ratios[f"stationary: {name}"] = ratio
        verdict = ""
        if goal:
            limit = float(goal.split()[-1])
            self.reached.append(ratio <= limit if goal.startswith("at most") else ratio >= limit)
            verdict = "reached" if self.reached[-1] else "MISSED"
        row = f"{name:46} {ours:7.3f} {other:7.3f} {ratio:6.2f} {goal:14} {verdict:7} {note}"
        print(row, flush=True)


def told(solution: ck.Solution, other: float) -> str:
    size = abs(solution.value)
    return f"{solution.gap / size:.0e}, {abs(solution.value - other) / size:.0e}"


def free(table: Table, name: str, P: Any, x: np.ndarray) -> float:
    """One row without bounds; QuantEcon's time."""
    seconds, value = quantecon_seconds(P, x[0])
    cmdp = model(P, x, 0, "discount")
    ours, found = cpu(lambda: ck.solve(cmdp), 2 * PASSES)
    table.add(f"no bound, {name}, QuantEcon", ours, seconds, ours / seconds, "at most 1.5", told(found, value))
    return seconds


def criteria(table: Table, name: str, P: Any, x: np.ndarray) -> None:
    """The same problem as a total and as a discounted one."""
    one, other = (model(P, x, 1, kind) for kind in ("total", "discount"))
    total, found = cpu(lambda: ck.solve(one))
    discounted, second = cpu(lambda: ck.solve(other))
    name = f"one bound, {name}, total / discount"
    table.add(name, total, discounted, total / discounted, "at most 1.2", told(found, second.value))


def against_storm(table: Table, name: str, cmdp: ck.CMDP, kind: str, goals: dict[str, str]) -> None:
    """One row for every precision: how many times as fast as Storm."""
    ours, found = cpu(lambda: ck.solve(cmdp))
    for how, goal in goals.items():
        precision, _, sound = how.partition(" ")
        seconds, value = storm_seconds(cmdp, {"total": "C", "average": "LRA"}[kind], precision, bool(sound))
        table.add(f"{name}, {kind}, Storm {how}", ours, seconds, seconds / ours, goal, told(found, value))


def main() -> dict[str, float]:
    for kind in ("discount", "total", "average"):  # loads and compiles everything
        ck.solve(model(*random_rows(300), 1, kind))
        ck.solve(model(*board_rows(20), 0, kind))
    table = Table()
    large, medium, small, board = random_rows(LARGE), random_rows(MEDIUM), random_rows(MEDIUM // 5), board_rows(SIDE)
    base = free(table, f"S = {LARGE:,}", *large)
    free(table, f"S = {MEDIUM:,}", *medium)
    free(table, f"board {SIDE} x {SIDE}", *board)
    cmdp = model(*large, 1, "discount")
    ours, found = cpu(lambda: ck.solve(cmdp))
    name = f"one bound, S = {LARGE:,}, QuantEcon without"
    table.add(name, ours, base, ours / base, "at most 12", f"{found.gap / abs(found.value):.0e}")
    criteria(table, f"S = {MEDIUM:,}", *medium)
    criteria(table, f"board {SIDE} x {SIDE}", *board)
    goals = {"1e-4": "", "1e-6": "at least 1.5", "1e-6 sound": ""}
    against_storm(table, "one bound, board", model(*board, 1, "total"), "total", goals)
    name = f"three bounds, S = {MEDIUM:,}"
    against_storm(table, name, model(*medium, 3, "total"), "total", {"1e-4": "at least 1.97"})
    for N, word, goal in ((1, "one bound", 1.46), (3, "three bounds", 9.54)):
        name = f"{word}, S = {MEDIUM // 5:,}"
        against_storm(table, name, model(*small, N, "average"), "average", {"1e-4": f"at least {goal}"})
    print(f"{sum(table.reached)} of {len(table.reached)} goals reached")
    return table.ratios
