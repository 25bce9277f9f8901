"""Simple policies: what they cost on 100 random problems, whether they keep every bound, and how long it takes.

A quarter of the problems are random ones without any order among their states, the others are machines that wear: the
more worn, the less they earn. Bounds are checked by evaluating the simple policy again from its table of probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import cmdpkit as ck

WITHIN = 0.01
PROBLEMS = 100


def wearing(seed: int, **criterion: object) -> ck.CMDP:
    """A machine with some levels of wear that is run, run gently or serviced, with a bound on the spending."""
    rng = np.random.default_rng(seed)
    S = int(rng.integers(4, 13))
    P, r, cost = np.zeros((S, 3, S)), np.zeros((S, 3)), np.zeros((S, 3))
    for a, wear in enumerate(rng.uniform((0.3, 0.1, 0.0), (0.6, 0.3, 0.0))):
        for s in range(S):
            P[s, a, min(s + 1, S - 1)] += wear
            P[s, a, s] += 1 - wear
    P[:, 2] = np.eye(S)[np.maximum(np.arange(S) - int(rng.integers(1, S)), 0)]
    r[:, 0] = np.linspace(1.0, rng.uniform(0.0, 0.3), S)
    r[:, 1] = rng.uniform(0.5, 0.8) * r[:, 0]
    cost[:, 2] = 1.0 + 0.1 * rng.random(S)
    built = ck.CMDP(P, r, constraints=[ck.at_most("spending", 1e6, cost)], **criterion)
    free = ck.solve(built).utilities[0]
    return built.with_bounds(spending=float(rng.uniform(0.3, 0.9) * free))


def problems() -> Iterator[tuple[str, ck.CMDP]]:
    """100 problems: with a horizon, discounted, and on average; one, two or three bounds."""
    for i in range(PROBLEMS // 4):
        sizes = f"S={5 + i % 6},A={2 + i % 3},H={6 + 2 * (i % 8)},N={1 + i % 3}"
        yield "random, horizon", ck.load(f"random:{sizes},slack=0.05,seed={i},stationary=True")
        yield "wear, horizon", wearing(i, horizon=12 + 4 * (i % 11))
        yield "wear, discounted", wearing(100 + i, discount=0.95)
        yield "wear, average", wearing(200 + i, criterion="average")


def checked(cmdp: ck.CMDP, found: ck.Simplified) -> bool:
    """Whether the policy, evaluated again from its table, keeps all bounds and loses no more than is allowed."""
    v, w = ck.evaluate(cmdp, ck.Policy.of(cmdp, found.policy.pi if found.policy.shape[0] > 1 else found.policy.pi[0]))
    kept = (cmdp.signs * w - cmdp.rho >= -found.tolerance).all()
    return bool(kept and v >= found.optimum.value - WITHIN * abs(found.optimum.value) - 1e-9)


def main() -> None:
    rows: dict[str, list[tuple[float, ...]]] = {}
    broken = 0
    for kind, cmdp in problems():
        solution, began = ck.solve(cmdp), time.process_time()
        found = ck.simplify(solution, WITHIN)
        seconds = time.process_time() - began
        broken += not checked(cmdp, found)
        rows.setdefault(kind, []).append((found.share, seconds, *found.before, *found.after))
    print(f"{PROBLEMS} random problems, within {WITHIN:.0%}: {broken} policies break a bound or lose too much")
    for kind, each in rows.items():
        share, seconds, *shapes = np.array(each).T
        before, after = np.array(shapes[:4]).mean(axis=1), np.array(shapes[4:]).mean(axis=1)
        counts = ", ".join(
            f"{name} {x:.1f} -> {y:.1f}"
            for name, x, y in zip(("phases", "draws", "over states", "over steps"), before, after, strict=True)
        )
        print(
            f"{kind} ({len(each)}): {counts}; value paid {share.mean():.2%} "
            f"(most {share.max():.2%}), {seconds.mean():.2f} s of processor time (most {seconds.max():.2f} s)",
            flush=True,
        )
    sizes()


def sizes() -> None:
    """How long it takes where there are many states."""
    for S in (100, 1_000):
        cmdp = ck.load(f"random:S={S},A=5,H=50,successors=10,slack=0.05,stationary=True")
        solution = ck.solve(cmdp)
        began = time.process_time()
        found = ck.simplify(solution, WITHIN)
        print(
            f"S={S:,}, A=5, H=50: {time.process_time() - began:.1f} s of processor time (solving took "
            f"{solution.seconds:.1f} s), phases {found.before.phases} -> {found.after.phases}, changes over states "
            f"{found.before.over_states:,} -> {found.after.over_states:,}, value paid {found.share:.2%}",
            flush=True,
        )
