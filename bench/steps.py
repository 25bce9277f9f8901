"""Nanoseconds per step of Triple-Q: our kernel, a NumPy loop, plain C++ and tuned C++, in one run on one machine.

    python bench/steps.py [repetitions]

Every variant plays the first episodes of the same run (preset "practical", K = 1e6) from scratch. Repetitions are
interleaved and the smallest thread CPU time counts, so that other work on the machine disturbs as little as possible.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cmdpkit import CMDP, envs
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.triple_q import TripleQ
from cmdpkit.simulate.meter import Meter
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator

K = 1_000_000
STEPS = 600_000  # per repetition
FIELDS = ("frame", "eta", "chi", "keep", "reward_lift", "eps_high", "margin", "window")

Timer = Callable[[int], tuple[float, np.ndarray]]  # seed -> seconds per step, mean reward and utilities


def instances() -> dict[str, CMDP]:
    return {
        "paper/synthetic": envs.build("paper/synthetic"),
        "paper/grid": envs.build("paper/grid"),
        "random 100x10x20": envs.build("random", S=100, A=10, H=20, successors=10, concentration=1.0),
    }


def ours(cmdp: CMDP, metered: bool = False) -> Timer:
    n = STEPS // cmdp.H
    meter = Meter.of(cmdp) if metered else Meter.blind(cmdp.H, cmdp.rho, (cmdp.reward_scale, *cmdp.utility_scales))
    sim = Simulator.of(cmdp)

    def timed(seed: int) -> tuple[float, np.ndarray]:
        learner, rng = TripleQ(Spec.of(cmdp, K)), stream(seed)
        begin = time.thread_time()
        returns = learner.run(Source(sim, meter), rng, n)
        seconds = time.thread_time() - begin
        return seconds / (n * cmdp.H), np.array([returns.reward.mean(), *returns.utilities.mean(axis=1)])

    return timed


def numpy_loop(cmdp: CMDP) -> Timer:
    """The algorithm as one would write it with NumPy, for a hundredth of the steps."""
    n = STEPS // cmdp.H // 100
    H, S, A, N = cmdp.H, cmdp.S, cmdp.A, cmdp.N
    p = TripleQ(Spec.of(cmdp, K)).params
    rho = Spec.of(cmdp, K).rho
    cdf, start = cmdp.P.cumsum(axis=-1), cmdp.mu.cumsum()
    signals = np.array(
        [cmdp.reward_scale.to_unit(cmdp.r)]
        + [scale.to_unit(x) for scale, x in zip(cmdp.utility_scales, cmdp.g, strict=True)]
    )

    def timed(seed: int) -> tuple[float, np.ndarray]:
        rng = np.random.default_rng(seed)
        room = (H - np.arange(H))[:, None, None]
        tables = np.broadcast_to(room, (1 + N, H, S, A)).astype(float)
        tables[0][~cmdp.actions] = -np.inf
        visits, weight, queue, debt = np.zeros((H, S, A)), np.ones(1 + N), np.zeros(N), np.zeros(N)
        weight[1:] = 0
        used, earned = np.zeros(1 + N), np.zeros(1 + N)
        begin = time.thread_time()
        for k in range(1, n + 1):
            s = int(np.searchsorted(start, rng.random()))
            a = int(np.argmax(weight @ tables[:, 0, s]))
            for h in range(H):
                ahead, s_next, a_next = np.zeros(1 + N), s, 0
                if h + 1 < H:
                    s_next = min(int(np.searchsorted(cdf[h, s, a], rng.random())), S - 1)
                    a_next = int(np.argmax(weight @ tables[:, h + 1, s_next]))
                    ahead = tables[:, h + 1, s_next, a_next]
                visits[h, s, a] += 1
                rate = (p.chi + 1) / (p.chi + visits[h, s, a])
                tables[:, h, s, a] += rate * (signals[:, h, s, a] + ahead - tables[:, h, s, a])
                used += signals[:, h, s, a]
                s, a = s_next, a_next
            if k % p.frame == 0:
                debt += p.frame * rho - used[1:]
                horizon = min(p.window, max(K - k, p.frame))
                eps = np.clip((debt + p.margin) / horizon, p.eps_low, p.eps_high)
                queue = np.maximum(queue + rho + eps - used[1:] / p.frame, 0)
                weight[1:] = queue / p.eta
                earned, used = earned + used, np.zeros(1 + N)
                visits *= p.keep
                tables = np.minimum(tables + p.reward_lift * (math.sqrt(k / K) - math.sqrt((k - p.frame) / K)), room)
        seconds = time.thread_time() - begin
        return seconds / (n * H), (earned + used) / n

    return timed


class Problem(ctypes.Structure):
    _fields_ = [(x, ctypes.c_long) for x in ("H", "S", "A", "N", "K", "n")] + [
        (x, ctypes.c_void_p) for x in ("P", "r", "g", "mu", "rho", "fresh")
    ]


def compiled_cpp(folder: Path) -> ctypes.CDLL | None:
    if shutil.which("g++") is None:
        print("no g++ here: the C++ columns are skipped")
        return None
    target = folder / "triple_q.so"
    source = Path(__file__).with_name("triple_q.cpp")
    command = ["g++", "-O3", "-march=native", "-std=c++20", "-shared", "-fPIC", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(target))
    library.plain.restype = library.tuned.restype = ctypes.c_double
    return library


def cpp(library: ctypes.CDLL, name: str, cmdp: CMDP) -> Timer:
    n = STEPS // cmdp.H
    learner = TripleQ(Spec.of(cmdp, K))
    params = (ctypes.c_double * len(FIELDS))(*(float(getattr(learner.params, x)) for x in FIELDS))
    fresh = np.where(cmdp.actions, (cmdp.H - np.arange(cmdp.H))[:, None, None], -np.inf)
    arrays = [
        np.ascontiguousarray(x, dtype=float)
        for x in (
            cmdp.P,
            cmdp.reward_scale.to_unit(cmdp.r),
            [scale.to_unit(x) for scale, x in zip(cmdp.utility_scales, cmdp.g, strict=True)],
            cmdp.mu,
            learner.spec.rho,
            fresh,
        )
    ]
    problem = Problem(cmdp.H, cmdp.S, cmdp.A, cmdp.N, K, n, *(x.ctypes.data for x in arrays))
    run = getattr(library, name)

    def timed(seed: int) -> tuple[float, np.ndarray]:
        out, words = np.zeros(1 + cmdp.N), stream(seed)
        state = ctypes.c_uint64(seed) if name == "plain" else words.ctypes.data_as(ctypes.c_void_p)
        seconds = run(ctypes.byref(problem), ctypes.byref(params), state, out.ctypes.data_as(ctypes.c_void_p))
        assert arrays  # the arrays must outlive the call
        return seconds / (n * cmdp.H), out

    return timed


def best_of(timers: dict[str, Timer], repetitions: int) -> dict[str, tuple[float, np.ndarray]]:
    """Smallest nanoseconds per step of every timer, repetitions interleaved, and the means of the last."""
    best = dict.fromkeys(timers, math.inf)
    means: dict[str, np.ndarray] = {}
    for repetition in range(repetitions):
        for name, timed in timers.items():
            if name == "numpy" and repetition >= 3:
                continue
            seconds, means[name] = timed(repetition)
            best[name] = min(best[name], 1e9 * seconds)
    return {name: (best[name], means[name]) for name in timers}


def table(repetitions: int) -> dict[str, float]:
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_cpp(Path(folder))
        columns = ("metered", "numpy", "plain", "tuned", "/plain", "/tuned")
        print(f"{'ns per step':<18}{'ours':>8}" + "".join(f"{column:>9}" for column in columns))
        for name, cmdp in instances().items():
            timers = {"ours": ours(cmdp), "metered": ours(cmdp, metered=True), "numpy": numpy_loop(cmdp)}
            if library is not None:
                timers |= {"plain": cpp(library, "plain", cmdp), "tuned": cpp(library, "tuned", cmdp)}
            found = best_of(timers, repetitions)
            ns = {kind: best for kind, (best, _) in found.items()}
            line = f"{name:<18}{ns['ours']:>8.1f}{ns['metered']:>9.1f}{ns['numpy']:>9.0f}"
            if library is not None:
                line += f"{ns['plain']:>9.1f}{ns['tuned']:>9.1f}"
                line += f"{ns['ours'] / ns['plain']:>9.2f}{ns['ours'] / ns['tuned']:>9.2f}"
            print(line)
            for other in ("plain", "tuned"):
                if other in found:
                    assert np.allclose(found["ours"][1], found[other][1], rtol=0.02), (name, other, found)
                    ratios[f"time of a step over {other} C++, {name}"] = ns["ours"] / ns[other]
    return ratios


def main(repetitions: int = 12) -> dict[str, float]:
    return table(repetitions)


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:]))
