"""Certificates of optimality: how often they are true, how tight they are, when they stop a run, and what they cost.

    python -m bench optimality

1. `truth`: 200 runs on each of four problems, by three learners that adapt to what they see, with drawn signals and
   delta = 5 %. At six sizes of the same run and at 30 times besides, everything is checked that a certificate states:
   the bound on the optimum, the totals of the optimal policy, of the uniform one and of the one returned, and every
   interval of the box. A run counts as true only if all of this is true at all these times. With pooled counts the same
   in worlds that are stationary, and in worlds that are only declared to be: there, what is said before the
   contradiction is noticed.
2. `tightness`: the certified and the true gap of the policy that can be proved safe, at 3,000 to 100,000 episodes.
3. `stopping`: runs with stop="gap=0.05" on paper/synthetic, 20 seeds each of cl-pri and pac, beside the number of
   episodes by Statement 12.
4. `cost`: the share of a run's time that 50 certificates take.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from cmdpkit import CMDP, Policy, envs
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.changes import steps_warning
from cmdpkit.estimate.counts import Counts
from cmdpkit.learners import Source, Spec, load
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import stream

DELTA, RUNS = 0.05, 200
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000)
LOOKS = sorted({*SIZES, *(int(k) for k in np.geomspace(1, SIZES[-1], 30))})
LEARNERS = ("pac",) * 8 + ("opt-cmdp", "cl-pri")  # who makes the runs, in turns
GOAL = 0.05


def problems() -> Iterator[tuple[str, CMDP]]:
    """Problems whose steps have counts of their own."""
    yield "paper/synthetic", envs.build("paper/synthetic")
    yield "H,S,A,N = 4,5,3,2", envs.build("random", H=4, S=5, A=3, N=2, conflict=0.5, seed=1)
    yield "5,8,2,1", envs.build("random", H=5, S=8, A=2, N=1, conflict=0.5, seed=1)
    yield "6,3,2,1", envs.build("random", H=6, S=3, A=2, N=1, conflict=0.5, seed=2)


def stationary() -> Iterator[tuple[str, CMDP]]:
    """Problems whose steps share their counts."""
    yield "6,4,3,1", envs.build("random", H=6, S=4, A=3, N=1, conflict=0.5, stationary=True, seed=1)
    yield "4,6,3,2", envs.build("random", H=4, S=6, A=3, N=2, conflict=0.5, stationary=True, seed=2)
    yield "8,10,2,1", envs.build("random", H=8, S=10, A=2, N=1, conflict=0.5, stationary=True, seed=3)


class Truth(NamedTuple):
    """A problem in unit scale: what a certificate would have to say if it knew everything."""

    cmdp: CMDP
    spec: Spec
    optimum: float
    policies: tuple[FloatArray, ...]  # the optimal and the uniform one

    @classmethod
    def of(cls, cmdp: CMDP, *, pooled: bool) -> Truth:
        best = ck.solve(cmdp)
        spec = replace(Spec.of(cmdp, SIZES[-1]), stationary=pooled)
        uniform = cmdp.actions / cmdp.actions.sum(axis=-1, keepdims=True)
        optimum = float(cmdp.reward_scale.total_to_unit(best.value, cmdp.H))
        return cls(cmdp, spec, optimum, (best.policy.pi, uniform))

    def totals(self, pi: FloatArray) -> FloatArray:
        """[1 + N]: value and utilities of a policy."""
        v, w = ck.evaluate(self.cmdp, Policy.of(self.cmdp, pi))
        scales = (self.cmdp.reward_scale, *self.cmdp.utility_scales)
        found = zip(scales, [v, *w * self.cmdp.signs], strict=True)
        return np.array([scale.total_to_unit(x, self.cmdp.H) for scale, x in found])


def statements(certifier: Certifier, truth: Truth, pis: Iterable[FloatArray]) -> bool:
    """Whether all that is stated about the optimum and about policies is true, up to rounding."""
    if certifier.bound().value < truth.optimum - 1e-9:
        return False
    for pi in pis:
        ends, exact = certifier.totals(pi), truth.totals(pi)
        if np.any(ends[:, 0] > exact + 1e-9) or np.any(ends[:, 1] < exact - 1e-9):
            return False
    return True


def intervals(certifier: Certifier, truth: Truth, counts: Counts) -> bool:
    """Whether every interval of the box holds, where the world is what it was declared to be."""
    cmdp, box, ranges = truth.cmdp, certifier.box, certifier.ranges
    H, S, A, T = cmdp.H, cmdp.S, cmdp.A, certifier.T
    P = cmdp.kernel.dense(H)[:T].reshape(T * S * A, S)
    lo, up = np.zeros(P.shape), np.repeat(box.rows.unseen[:, None], S, axis=1)
    for cell in range(len(P)):
        j = counts.head[cell]
        while j >= 0:
            lo[cell, counts.state[j]], up[cell, counts.state[j]] = box.rows.lo[j], box.rows.up[j]
            j = counts.link[j]
    rows = slice(None) if T < H else slice((H - 1) * S * A)
    kept = np.all(lo[rows] <= P[rows]) and np.all(P[rows] <= up[rows])
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    for m, (scale, x) in enumerate(zip(scales, (cmdp.r, *cmdp.g), strict=True)):
        mean = np.broadcast_to(scale.to_unit(np.asarray(x)), (H, S, A))[:T].reshape(-1)
        there = np.broadcast_to(cmdp.actions, (H, S, A)).any(axis=0) if T < H else cmdp.actions
        there = np.broadcast_to(there, (T, S, A)).reshape(-1)
        kept &= np.all((ranges.least[m] <= mean + 1e-12) & (mean <= ranges.most[m] + 1e-12) | ~there)
    return bool(kept and np.all(box.start.lo <= cmdp.mu) and np.all(cmdp.mu <= box.start.up))


class Checked(NamedTuple):
    """What the looks at one run found."""

    sizes: bool  # all statements true at the six sizes
    always: bool  # and at all other looks
    box: bool  # all intervals true at all looks
    noticed: bool  # whether the data contradicted the declaration that the world is stationary
    before: bool  # all statements true at looks before that


def checked(truth: Truth, seed: int, *, declared: bool = False) -> Checked:
    """One run, looked at often; `declared` says that the world is only declared to be stationary."""
    learner = load(LEARNERS[seed % len(LEARNERS)])(truth.spec)
    source, rng = Source.of(truth.cmdp, noise="bernoulli"), stream(seed)
    certifier = Certifier(np.asarray(truth.spec.allowed), truth.spec.rho, learner.T, DELTA)
    found, done = Checked(True, True, True, False, True), 0
    for k in LOOKS:
        learner.run(source, rng, k - done)
        done = k
        counts = learner.counts
        certifier.look(counts)
        pis = list(truth.policies)
        if k in SIZES[2:]:
            safe = certifier.safe_policy()
            pis += [] if safe is None else [safe[0]]
            if safe is not None and np.any(truth.totals(safe[0])[1:] < truth.spec.rho - 1e-9):
                found = found._replace(sizes=False, always=False)
        right = statements(certifier, truth, pis)
        noticed = found.noticed or bool(declared and steps_warning(counts.parts, counts.part_moves))
        found = Checked(
            sizes=found.sizes and (right or k not in SIZES),
            always=found.always and right,
            box=found.box and (declared or intervals(certifier, truth, counts)),
            noticed=noticed,
            before=found.before and (right or noticed),
        )
    return found


def truth(runs: int = RUNS) -> None:
    """How often everything that certificates state is true."""
    print(f"delta = {DELTA}, {runs} runs per problem, up to {SIZES[-1]:,} episodes, Bernoulli signals")
    print(f"{'problem':32} {'six sizes':>9} {'all looks':>9} {'whole box':>9}")
    for pooled, there in ((False, problems), (True, stationary)):
        for name, cmdp in there():
            found = [checked(Truth.of(cmdp, pooled=pooled), seed) for seed in range(runs)]
            sums = [sum(getattr(x, part) for x in found) for part in ("sizes", "always", "box")]
            print(f"{name + (', pooled' if pooled else ''):32} " + " ".join(f"{n:>9}" for n in sums), flush=True)
    print(f"declared stationary, but not: {'noticed':>9} {'true before':>11} {'true always':>11}")
    for name, cmdp in list(problems())[1:]:
        found = [checked(Truth.of(cmdp, pooled=True), seed, declared=True) for seed in range(runs // 4)]
        sums = [sum(getattr(x, part) for x in found) for part in ("noticed", "before", "always")]
        print(f"{name:32} " + " ".join(f"{n:>9}" for n in sums) + f" of {len(found)}", flush=True)


def tightness(seeds: int = 10) -> None:
    """Certified and true gap of the policy that can be proved safe: means over seeds, less [n] in which none can."""
    sizes = (3_000, 10_000, 30_000, 100_000)
    print(
        f"certified gap (true gap), {seeds} seeds; opt-cmdp with drawn signals: preset theory, which tries everything"
    )
    cases = [(name, cmdp, noise) for name, cmdp in list(problems())[:3] for noise in ("none", "bernoulli")]
    cases += [(f"{name}, pooled", cmdp, "none") for name, cmdp in stationary()]
    for (name, cmdp, noise), algo in product(cases, ("opt-cmdp", "pac")):
        best, cells = ck.solve(cmdp).value, []
        found: dict[int, list[tuple[float, float]]] = {k: [] for k in sizes}
        for seed in range(seeds):
            spec = replace(Spec.of(cmdp, sizes[-1]), noiseless=noise == "none")
            settings = {"preset": "theory"} if algo == "opt-cmdp" and noise != "none" else {}
            learner, done = load(algo)(spec, **settings), 0
            source, rng = Source.of(cmdp, noise=noise), stream(seed)
            certifier = Certifier(np.asarray(spec.allowed), spec.rho, learner.T, DELTA, noiseless=spec.noiseless)
            for k in sizes:
                learner.run(source, rng, k - done)
                done = k
                certifier.look(learner.counts)
                safe = certifier.safe_policy()
                if safe is not None:
                    gap = (certifier.bound().value - safe[1]) * cmdp.reward_scale.span
                    found[k].append((gap, best - float(ck.evaluate(cmdp, Policy.of(cmdp, safe[0]))[0])))
        for k in sizes:
            means = np.mean(found[k], axis=0) if found[k] else None
            missing = f" [{seeds - len(found[k])}]" if 0 < len(found[k]) < seeds else ""
            cells.append("-" if means is None else f"{means[0]:.3f} ({means[1]:.3f}){missing}")
        print(f"{name + ', ' + noise:32} {algo:9}" + "  ".join(f"{x:>18}" for x in cells), flush=True)


def enough(cmdp: CMDP, eps: float, delta: float) -> float:
    """The number of episodes by Statement 12, for plans that are made when counts double."""
    H, S, A, best = cmdp.H, cmdp.S, cmdp.A, ck.solve(cmdp)
    slack = float(ck.diagnose(cmdp).slater_slack)
    accuracy = min(eps / (3 * (1 + float(np.sum(best.shadow_prices)))), slack / 2)
    intervals, T = (H - 1) * S * S * A + S, 1e6
    for _ in range(50):  # T is on both sides, inside of logarithms
        beta = math.log(2 * math.sqrt(T) * intervals / delta)
        first = 162 * H**2 * (H + 1) ** 2 * S * S * A * beta / accuracy**2
        rest = (H * S * A + 1) * (1 + 8 / 3 * S * beta * (1 + math.log(T))) + (H + 1) * math.log(1 / delta)
        T = first + 6.4 * H * rest / accuracy
    return T


def stopping(seeds: int = 20, algos: tuple[str, ...] = ("cl-pri", "pac")) -> None:
    """Runs that end when they are proved to be within GOAL of the optimum."""
    cmdp = envs.build("paper/synthetic")
    print(f"stop=gap={GOAL} on paper/synthetic; Statement 12 allows {enough(cmdp, GOAL, DELTA):.1e} episodes")
    for algo in algos:
        runs = [ck.learn("paper/synthetic", algo, stop=f"gap={GOAL}", seed=seed) for seed in range(seeds)]
        gaps = [run.optimum - run.policy_value for run in runs]
        right = sum(gap <= GOAL and run.policy_utilities[0] >= 2 for gap, run in zip(gaps, runs, strict=True))
        lengths = [run.run.episodes for run in runs]
        print(
            f"{algo}: episodes {min(lengths):,} to {max(lengths):,}, median {np.median(lengths):,.0f}; certified gap "
            f"up to {max(run.certificate.gap for run in runs):.4f}, true gap {min(gaps):.4f} to {max(gaps):.4f}; "
            f"within {GOAL} and within bounds: {right} of {seeds}",
            flush=True,
        )


def cost(sizes: Iterable[tuple[int, int, int, int]] = ((3, 3, 3, 100_000), (5, 20, 3, 100_000), (8, 50, 4, 100_000),
                                                       (20, 100, 5, 100_000))) -> None:  # fmt: skip
    """CPU time of 50 certificates of the policy that would be returned, beside that of the run of cl-pri."""
    print(f"{'H,S,A':>12} {'episodes':>9} {'run s':>8} {'50 certificates s':>18} {'share':>7} {'each ms':>8}")
    for H, S, A, K in sizes:
        cmdp = envs.build("random", H=H, S=S, A=A, N=1, conflict=0.5, successors=min(S, 10), seed=1)
        for timed in (False, True):  # the first pass compiles
            learner, source, rng, done = load("cl-pri")(Spec.of(cmdp, K)), Source.of(cmdp), stream(1), 0
            began, spent = time.process_time(), 0.0
            for k in np.unique(np.geomspace(min(100, K), K if timed else 200, 50 if timed else 2).astype(int)):
                learner.run(source, rng, int(k) - done)
                done = int(k)
                pi, at = learner.recommend(), time.process_time()
                learner.certifier.look(learner.counts)
                learner.certifier.prove(pi)
                spent += time.process_time() - at
        run = time.process_time() - began - spent
        name = f"{H},{S},{A}"
        print(f"{name:>12} {K:>9,} {run:>8.2f} {spent:>18.3f} {spent / run:>7.1%} {20 * spent:>8.1f}", flush=True)


def main() -> None:
    """All four measurements."""
    for part in (truth, tightness, stopping, cost):
        print(f"\n-- {part.__name__} --")
        part()
