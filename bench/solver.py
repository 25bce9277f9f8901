"""Exact solving: column generation against the best HiGHS run that ends at a vertex, and how far it scales.

`python -c "from bench.solver import growth; growth()"` prints only how time and memory grow with the size of the model,
and `functions(100)` in place of `growth()` what a sweep over a million states takes by functions and from arrays.
Large models are solved in a process of their own, so that the peak memory is theirs. Besides seconds on the clock, the
seconds of processor time (CPU) are printed: on a machine that does other work too, they are what can be compared.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import highspy
import numpy as np

import cmdpkit as ck
from bench._suite import halfway
from cmdpkit.exact.large.sweeps import Sweeps
from cmdpkit.exact.master import build_lp
from cmdpkit.exact.sources import Induction, columns_of
from cmdpkit.model.compiled import njit
from cmdpkit.model.transitions import Rows
from cmdpkit.operators.steps import bellman

READINGS = 5  # of all arrays, of which the fastest counts


def sparse_model(S: int, A: int, H: int, successors: int, N: int, seed: int = 0) -> ck.CMDP:
    """Random successors; bounds halfway."""
    rng = np.random.default_rng(seed)
    if S * A * successors <= 1_000_000:
        rows, nexts = np.repeat(np.arange(S * A), successors), rng.integers(0, S, S * A * successors)
        prob = rng.dirichlet(np.ones(successors), S * A).reshape(-1)
        kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, prob)
    else:
        kernel = large_kernel(rng, S, A, successors)
    cmdp = ck.CMDP(kernel, rng.random((S, A)), rng.random((N, S, A)), np.zeros(N), 0, horizon=H)
    return halfway(cmdp, own_units=True)


def large_kernel(rng: np.random.Generator, S: int, A: int, successors: int) -> ck.Kernel:
    """Random rows with different successors, made without copies of arrays that fill the memory."""
    nexts = rng.integers(0, S, (S * A, successors), dtype=np.int32)
    nexts.sort(axis=1)
    while len(twice := np.flatnonzero((np.diff(nexts, axis=1) == 0).any(axis=1))):
        nexts[twice] = np.sort(rng.integers(0, S, (len(twice), successors), dtype=np.int32), axis=1)
    prob = rng.standard_exponential((S * A, successors))
    prob /= prob.sum(axis=1, keepdims=True)
    indptr = np.arange(S * A + 1, dtype=np.int64) * successors
    return ck.Kernel(1, S, A, indptr, nexts.reshape(-1), prob.reshape(-1))


def queue(H: int, places: int = 63) -> ck.CMDP:
    """Jobs arrive one at a time, and faster service takes more power; on average two may wait."""
    rates, power = np.array([0.0, 0.3, 0.5, 0.7, 0.9]), np.array([0.0, 0.2, 0.5, 1.1, 2.0])
    P, cost, waiting = np.zeros((places, 5, places)), np.zeros((places, 5)), np.zeros((places, 5))
    for s in range(places):
        arrival, service = 0.4 * (s < places - 1), rates * (s > 0)
        P[s, :, min(s + 1, places - 1)] += arrival * (1 - service)
        P[s, :, max(s - 1, 0)] += service * (1 - arrival)
        P[s, :, s] += arrival * service + (1 - arrival) * (1 - service)
        cost[s], waiting[s] = power * (s > 0), s
    return ck.CMDP(P, -cost, constraints=[ck.at_most("backlog", 2.0 * H, waiting)], horizon=H)


# -- against HiGHS -----------------------------------------------------------------------------------------------------


def highs_seconds(cmdp: ck.CMDP, solver: str, limit: float) -> tuple[float, float]:
    """Processor time (model building excluded) and objective of one HiGHS method that ends at a vertex."""
    units = columns_of(cmdp).units
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("run_crossover", "on")
    highs.setOptionValue("time_limit", limit)
    highs.passModel(build_lp(cmdp, cmdp.rho, units, np.flatnonzero(cmdp.actions.reshape(-1))))
    began = time.process_time()
    highs.run()
    done = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return (time.process_time() - began if done else np.inf), highs.getObjectiveValue() * units[0]


def compare(N: int) -> dict[str, float]:
    cmdp = sparse_model(500, 5, 20, 5, N)
    ours, seconds = ck.solve(cmdp, "columns"), fastest(lambda: ck.solve(cmdp, "columns"), times=20)[0]
    ipm, objective = highs_seconds(cmdp, "ipm", 600.0)
    simplex, _ = highs_seconds(cmdp, "simplex", 2 * ipm)
    best = min(ipm, simplex)
    shown = f"{simplex:.2f} s" if np.isfinite(simplex) else "stopped at twice that time"
    print(
        f"S=500 A=5 H=20, 5 successors, N={N}, CPU: columns {1000 * seconds:.1f} ms, HiGHS interior point + crossover "
        f"{ipm:.2f} s, simplex {shown}; ratio {best / seconds:.0f}x, objectives differ by "
        f"{abs(ours.value - objective):.1e}, relative gap {ours.gap / ours.value:.1e}",
        flush=True,
    )
    return {f"time of HiGHS over ours, exact optimum, N={N}": best / seconds}


# -- large models, each in a process of its own ------------------------------------------------------------------------


def apart(call: str) -> None:
    """Call a function of this module in another process, which prints what it finds."""
    subprocess.run([sys.executable, "-c", f"from bench import solver; solver.{call}"], check=True)


def report_large(S: int, N: int = 1, A: int = 5, H: int = 20, successors: int = 5, details: bool = False) -> None:
    ck.solve(sparse_model(10, A, H, min(successors, 5), N))  # compile
    cmdp = sparse_model(S, A, H, successors, N)
    before, rounds = _peak(), [0]
    cpu = time.process_time()
    solution = ck.solve(cmdp, "columns", progress=lambda at: rounds.append(at.number))
    cpu = time.process_time() - cpu
    draws = len(solution.policy.stochastic_decisions())
    print(
        f"S={S:,} A={A} H={H}, {cmdp.kernel.nonzeros:,} nonzeros, N={N}: {solution.seconds:.2f} s (CPU {cpu:.2f} s), "
        f"{rounds[-1]} rounds, peak memory {_peak():.2f} GB ({before:.2f} GB before solving), relative gap "
        f"{solution.gap / abs(solution.value):.1e}, stochastic decisions: {draws}",
        flush=True,
    )
    if details:
        report_threads(cmdp, solution)
        report_reading(cmdp)


def _peak() -> float:
    """The largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def report_threads(cmdp: ck.CMDP, reference: ck.Solution) -> None:
    """Seconds with one thread and with two (the faster of two runs each), and whether the bits are the same."""
    runs = [(threads, ck.solve(cmdp, "columns", threads=threads)) for threads in (1, 2, 1, 2, 4)]
    same = all(s.policy == reference.policy and (s.value, s.gap) == (reference.value, reference.gap) for _, s in runs)
    one, two = (min(s.seconds for k, s in runs if k == threads) for threads in (1, 2))
    print(
        f"  one thread {one:.2f} s, two {two:.2f} s: {one / two:.2f} times as fast; with 1, 2 and 4 threads the bits "
        f"are {'the same' if same else 'DIFFERENT'}",
        flush=True,
    )


@njit
def _read(indptr, successors, prob, objective):
    """Add up everything that a backward induction reads, once."""
    total, count = 0.0, 0
    for i in range(len(prob)):
        total += prob[i]
        count += successors[i]
    for i in range(len(indptr)):
        count += indptr[i]
    for x in objective.flat:
        total += x
    return total + count


def fastest(*runs: Callable[[], object], times: int) -> list[float]:
    """The processor time of the fastest of several runs of each; they take turns, so that all meet the same machine."""
    for run in runs:
        run()  # the first one does not count
    seconds = [[0.0] * times for _ in runs]
    for i in range(times):
        for run, mine in zip(runs, seconds, strict=True):
            began = time.process_time()
            run()
            mine[i] = time.process_time() - began
    return [min(mine) for mine in seconds]


def report_reading(cmdp: ck.CMDP) -> None:
    """Nanoseconds per nonzero and step of an induction on one thread, beside reading its arrays once."""
    c, kernel, induction = cmdp.compact, cmdp.kernel, Induction(cmdp, threads=1)
    objective = c.r + c.g[0]
    seconds = fastest(
        lambda: induction.best(objective),
        lambda: _read(kernel.indptr, kernel.successors, kernel.prob, objective),
        times=READINGS,
    )
    steps = np.array([cmdp.H - 1, 1])  # nothing follows the last step
    best, read = 1e9 * np.array(seconds) / (kernel.nonzeros * steps)
    print(
        f"  one thread, per nonzero and step: choosing and evaluating {best:.2f} ns, reading all arrays once "
        f"{read:.2f} ns: {best / read:.1f} times reading",
        flush=True,
    )


def report_queue(H: int) -> None:
    ck.solve(queue(10))
    cmdp = queue(H)
    cpu = time.process_time()
    solution = ck.solve(cmdp)
    print(
        f"queue of 63 states, 5 actions, H={H:,}: {solution.seconds:.2f} s (CPU {time.process_time() - cpu:.2f} "
        f"s), relative gap {solution.gap / abs(solution.value):.1e}",
        flush=True,
    )


# -- growth -----------------------------------------------------------------------------------------------------------

BASE = {"S": 20_000, "A": 5, "H": 20, "successors": 5, "N": 1}
CHANGES = (
    {},
    {"S": 2_000},
    {"S": 200_000},
    {"A": 2},
    {"A": 20},
    {"H": 5},
    {"H": 80},
    {"successors": 2},
    {"successors": 20},
    {"N": 2},
    {"N": 4},
    {"N": 8},
)
COLUMNS = ("S", "A", "H", "successors", "N", "nonzeros", "rounds", "CPU s", "ns per round", "MB added", "relative gap")


def report_growth(case: dict[str, int]) -> None:
    ck.solve(sparse_model(10, 2, 3, 2, case["N"]))  # compile
    cmdp, rounds = sparse_model(**case), [0]
    tracemalloc.start()
    cpu = time.process_time()
    solution = ck.solve(cmdp, "columns", threads=1, progress=lambda at: rounds.append(at.number))
    cpu, added = time.process_time() - cpu, tracemalloc.get_traced_memory()[1] / 1e6
    work = cmdp.kernel.nonzeros * (cmdp.H - 1)  # nothing follows the last step
    row = [f"{case[x]:,}" for x in BASE]
    row += [f"{cmdp.kernel.nonzeros:,}", f"{rounds[-1]}", f"{cpu:.2f}", f"{1e9 * cpu / work / rounds[-1]:.1f}"]
    print("|", " | ".join([*row, f"{added:.0f}", f"{solution.gap / abs(solution.value):.0e}"]), "|", flush=True)


def growth() -> None:
    """How time and memory grow: one number of a base case is changed at a time, each case on one thread.

    The memory is what solving allocates at most, policies found on the way included.
    """
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS) + "|", flush=True)
    for change in CHANGES:
        apart(f"report_growth({BASE | change!r})")


# -- models by functions ----------------------------------------------------------------------------------------------

LOTS = (16, 8, 4)  # an order brings so many times less than an item has places
CHANCES = np.array([[0.3, 0.5, 0.2], [0.4, 0.4, 0.2], [0.5, 0.3, 0.2]])  # of the three demands for each item


def inventories(M: int) -> tuple[ck.FactoredModel, ck.EventModel, Rows, np.ndarray]:
    """Three items of M places, one order a period, bounded lost sales: in both forms, and as rows with a reward."""
    lot, demand = np.array([max(1, M // x) for x in LOTS]), np.array([0, max(1, M // 32), max(2, M // 16)])
    sold = np.minimum(np.arange(M)[:, None], demand)
    profit = np.array([(sold * price) @ p for price, p in zip((1.0, 1.5, 2.0), CHANCES, strict=True)])
    lost = np.array([(demand - sold) @ p for p in CHANCES])
    events = np.array([(i, j, k) for i in demand for j in demand for k in demand])
    odds = np.array([p * q * r for p in CHANCES[0] for q in CHANCES[1] for r in CHANCES[2]])

    @njit
    def move(x, a):
        i, q = (a - 1) // 3, lot[(a - 1) % 3] if a > 0 else 0
        return (
            min(x[0] + q, M - 1) if i == 0 else x[0],
            min(x[1] + q, M - 1) if i == 1 else x[1],
            min(x[2] + q, M - 1) if i == 2 else x[2],
        )

    @njit
    def paid(x, a):
        return -0.4 - 0.5 * lot[(a - 1) % 3] if a > 0 else 0.0, 0.0

    @njit
    def after(y):
        return profit[0, y[0]] + profit[1, y[1]] + profit[2, y[2]], lost[0, y[0]] + lost[1, y[1]] + lost[2, y[2]]

    @njit
    def step(x, a, e):
        y = move(x, a)
        return (max(y[0] - events[e, 0], 0), max(y[1] - events[e, 1], 0), max(y[2] - events[e, 2], 0)), odds[e]

    @njit
    def collect(x, a):
        own, more = paid(x, a), after(move(x, a))
        return own[0] + more[0], own[1] + more[1]

    @njit
    def write(to, p, reward):
        for i in range(M):
            for j in range(M):
                for k in range(M):
                    s = (i * M + j) * M + k
                    for a in range(10):
                        reward[s, a] = collect((i, j, k), a)[0]
                        for e in range(len(events)):
                            y, p[s, a, e] = step((i, j, k), a, e)
                            to[s, a, e] = (y[0] * M + y[1]) * M + y[2]

    judged = {"start": (M // 4,) * 3, "constraints": [ck.at_most("lost", 1.0)], "discount": 0.95}
    parts = [ck.Part.demand(M, demand, p) for p in CHANCES]
    factored = ck.FactoredModel((M, M, M), 10, move, parts, paid, after, **judged)
    by_events = ck.EventModel((M, M, M), 10, len(events), step, collect, **judged)
    to, p = np.empty((M**3, 10, len(events)), np.int32), np.empty((M**3, 10, len(events)))
    reward = np.empty((M**3, 10))
    write(to, p, reward)
    indptr = np.arange(M**3 * 10 + 1, dtype=np.int64) * len(events)
    return factored, by_events, Rows.of(indptr, to.reshape(-1), p.reshape(-1), M**3, 10), reward


def functions(M: int = 60) -> dict[str, float]:
    """Nanoseconds per state of one sweep over M^3 states, 10 actions and 27 events, for arrays and both forms.

    One thread, processor time, the fastest of several sweeps that take turns. Arrays need 3.6 GB for M = 100.
    """
    factored, by_events, rows, reward = inventories(M)
    S, weights, none = M**3, np.array([1.0, 0.0]), np.zeros(2)
    V = np.random.default_rng(0).normal(size=S)
    best, choice, exists = np.empty(S), np.zeros(S, np.int16), np.ones((1, S, 10), dtype=bool)
    runs = [lambda: bellman(rows, reward[None], exists, 0, 0, S, V, best, choice)]
    found = []
    for model in (factored, by_events):
        sweeps = Sweeps(model, 1)
        Y, actions = sweeps.table(2), sweeps.choices()
        Y[0] = V
        found.append((sweeps, Y, actions))
        runs.append(lambda at=found[-1]: at[0].improve(at[1], weights, 0.0, at[2]))
    chosen = 1e9 * np.array(fastest(*runs, times=READINGS)) / S
    evaluated = (
        1e9 * np.array(fastest(*(lambda at=at: at[0].sweep(at[1], at[2], 1.0, none) for at in found), times=3)) / S
    )
    print(
        f"S={S:,}, 10 actions, 27 events, ns per state: choosing actions from arrays {chosen[0]:.1f}, factored "
        f"{chosen[1]:.1f} ({chosen[1] / chosen[0]:.2f} of arrays), events {chosen[2]:.1f} "
        f"({chosen[2] / chosen[0]:.2f}); evaluating all signals factored {evaluated[0]:.1f}, events {evaluated[1]:.1f}",
        flush=True,
    )
    return {
        f"time of choosing, {name} over arrays, S={S:,}": float(x / chosen[0])
        for name, x in zip(("factored", "events"), chosen[1:], strict=True)
    }


def main() -> dict[str, float]:
    ck.solve(sparse_model(10, 2, 3, 2, 1))  # compile
    ratios = compare(1) | compare(3)
    apart("report_queue(1_000)")
    apart("report_queue(5_000)")
    apart("report_large(5_000, N=8)")
    apart("report_large(20_000)")
    apart("report_large(200_000, details=True)")
    apart("report_large(2_000_000)")
    ratios |= functions()
    growth()
    return ratios
