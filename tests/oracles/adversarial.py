"""Problems made to break a solver, and what must be true of every answer.

Mixed units, near-constant signals, huge numbers where nobody goes or hardly ever, tiny probabilities, duplicated and
nearly parallel constraints, bounds exactly at the edge of the possible and just beyond it. Every instance is small
enough for the exact oracle in `rational`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import rational

import cmdpkit as ck

HALF = rational.Fraction(1, 2)  # of a tolerance: what the evaluation of a policy may not see
SIZES = ((1, 1, 2), (1, 1, 4), (1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 2, 2), (2, 2, 3), (3, 2, 2), (2, 3, 2), (4, 1, 2))


def instance(rng: np.random.Generator) -> ck.CMDP:
    H, S, A = SIZES[rng.integers(len(SIZES))]
    P, mu = _kernel(rng, H, S, A), np.eye(S)[0]
    if rng.random() < 0.4:
        mu = probabilities(rng, S)
    actions = np.ones((H, S, A), dtype=bool)
    if rng.random() < 0.3:
        actions = rng.random((H, S, A)) < 0.7
        actions[..., rng.integers(A)] = True
    N = int(rng.choice([0, 1, 1, 1, 2, 2, 3, 3, 4, 6, 8]))
    r, g = signal(rng, (H, S, A)), [signal(rng, (H, S, A)) for _ in range(N)]
    for n in range(1, N):
        if rng.random() < 0.4:
            g[n] = _relative(rng, g[rng.integers(n)])
    if S > 1 and rng.random() < 0.4:  # nobody reaches the last state
        P[..., -1] = 0.0
        P[..., 0] += (P.sum(axis=-1) == 0) + 0.0
        P /= P.sum(axis=-1, keepdims=True)
        mu = np.eye(S)[0]
        for x in (r, *g):
            x[:, -1] = rng.choice([1.0, -1.0]) * 10.0 ** rng.uniform(6, 14)
    senses = rng.choice([-1.0, 1.0], N)
    made = [ck.at_least if sign > 0 else ck.at_most for sign in senses]
    constraints = [made[n](f"c{n}", 0.0, senses[n] * x) for n, x in enumerate(g)]
    cmdp = ck.CMDP(P, r, mu=mu, actions=actions, constraints=constraints, horizon=H)
    bounds = senses * _thresholds(rng, cmdp)
    return cmdp.with_bounds(**{f"c{n}": float(x) for n, x in enumerate(bounds)})


def probabilities(rng: np.random.Generator, S: int) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0 or S == 1:
        return np.eye(S)[rng.integers(S)]
    if kind == 1:
        return rng.multinomial(4, np.ones(S) / S) / 4
    p = rng.dirichlet(np.ones(S))
    if kind == 2:
        p[rng.integers(S)] *= 10.0 ** -rng.uniform(3, 12)
    return p / p.sum()


def _kernel(rng: np.random.Generator, H: int, S: int, A: int) -> np.ndarray:
    return np.array([[[probabilities(rng, S) for _ in range(A)] for _ in range(S)] for _ in range(H)])


def signal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    kind = rng.integers(5)
    x = rng.integers(0, 3, shape) / 2 if kind == 0 else rng.normal(size=shape)
    if kind == 1:  # nearly constant
        x = 1 + 10.0 ** -rng.uniform(3, 12) * x
    if kind == 2:  # a penalty
        x[tuple(rng.integers(n) for n in shape)] -= 10.0 ** rng.uniform(2, 10)
    if rng.random() < 0.05:
        x = np.full(shape, float(rng.integers(0, 2)))
    return x * 10.0 ** (rng.uniform(-8, 8) if rng.random() < 0.5 else 0.0)


def _relative(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A signal that is the same as another, up to scale, sign or a little noise."""
    kind = rng.integers(4)
    noise = 10.0 ** -rng.uniform(5, 14) * rng.normal(size=x.shape) * np.abs(x).max()
    return (x.copy(), x + noise, -x, 10.0 ** rng.uniform(-6, 6) * x + noise)[kind]


def _thresholds(rng: np.random.Generator, cmdp: ck.CMDP) -> np.ndarray:
    """Utilities of some policy, and bounds inside, at or beyond them."""
    if cmdp.N == 0:
        return np.zeros(0)
    kind = rng.integers(5)
    if kind == 0:
        w = _values(cmdp, ck.Policy.uniform(cmdp))
    else:
        w = _values(cmdp, _greedy(rng, cmdp))
        if rng.random() < 0.3:
            share = rng.random()
            w = share * w + (1 - share) * _values(cmdp, _greedy(rng, cmdp))
    spans = np.array([np.ptp([_values(cmdp, _greedy(rng, cmdp))[n] for _ in range(4)]) for n in range(cmdp.N)])
    beyond = {0: -0.1 * rng.random(), 1: 0.0, 2: 10.0 ** -rng.uniform(6, 11), 3: -(10.0 ** -rng.uniform(6, 11))}
    return w + beyond.get(int(kind), 0.3 * rng.random()) * spans


def _values(cmdp: ck.CMDP, policy: ck.Policy) -> np.ndarray:
    return cmdp.signs * ck.evaluate(cmdp, policy).w


def _greedy(rng: np.random.Generator, cmdp: ck.CMDP) -> ck.Policy:
    """The best policy for a random weighting of the utilities: a corner of what can be had."""
    sizes = np.abs(cmdp.g).max(axis=(1, 2, 3)) + 1e-300
    x = np.tensordot(rng.dirichlet(np.full(cmdp.N, 0.5)) / sizes, cmdp.g, 1)
    V, choice = np.zeros(cmdp.S), np.zeros((cmdp.H, cmdp.S), dtype=int)
    for h in reversed(range(cmdp.H)):
        Q = np.where(cmdp.actions[h], x[h] + cmdp.P[h] @ V, -np.inf)
        choice[h], V = Q.argmax(axis=-1), Q.max(axis=-1)
    return ck.Policy.of(cmdp, np.eye(cmdp.A)[choice])


class Report(NamedTuple):
    """What one instance showed; every list of faults should be empty."""

    faults: list[str]
    miss: float  # the largest miss of a bound, in tolerances
    borderline: str  # "", or how a problem within the tolerance of infeasibility was reported


def examine(cmdp: ck.CMDP, *, wide: bool) -> Report:
    """Solve, and hold everything that comes back against the exact truth; `wide` includes diagnose and tradeoff."""
    tolerances = [rational.tolerance(cmdp, n) for n in range(cmdp.N)]
    truth = rational.Exact(cmdp, cmdp.r, cmdp.g, [float(x) for x in cmdp.rho], tolerances)
    return judged(
        cmdp,
        truth.slack if cmdp.N else None,
        lambda solution: _check(cmdp, solution, truth, tolerances),
        lambda solution, _: _wide(cmdp, tolerances, solution) if wide else [],
    )


def judged(
    cmdp: ck.CMDP,
    slack: rational.Fraction | None,  # in tolerances: from 0 on a problem is feasible, below -1 infeasible
    check: Callable[[ck.Solution], tuple[float, list[str]]],  # the largest miss of a bound, and faults of a solution
    more: Callable[[ck.Solution | None, ck.Infeasible | None], list[str]],  # faults of other answers, or of the error
) -> Report:
    """Whether a problem is called feasible and solved as it should be."""
    verdict = "feasible" if slack is None or slack >= 0 else "infeasible" if slack < -1 else "borderline"
    faults: list[str] = []
    try:
        solution = ck.solve(cmdp)
    except ck.Infeasible as error:
        if verdict == "feasible":
            faults.append(f"a feasible problem is called infeasible (slack {float(slack):.3g} tolerances): {error}")
        return Report(faults + more(None, error), 0.0, "infeasible" if verdict == "borderline" else "")
    except Exception as error:
        return Report([f"crash ({verdict}): {type(error).__name__}: {error}"], 0.0, "")
    if verdict == "infeasible":
        faults.append(f"an infeasible problem is called solved (slack {float(slack):.3g} tolerances)")
    miss, found = check(solution)
    return Report(faults + found + more(solution, None), miss, "solved" if verdict == "borderline" else "")


def _check(cmdp: ck.CMDP, solution: ck.Solution, truth: rational.Exact, tolerances: list) -> tuple[float, list[str]]:
    faults, miss = [], 0.0
    for n, allowed in enumerate(tolerances):
        short = float(
            (rational.Fraction(float(cmdp.rho[n])) - rational.value(cmdp, solution.policy.pi, cmdp.g[n])) / allowed
        )
        miss = max(miss, short)
        if short > 1:
            faults.append(f"bound {n} is missed by {short:.3g} tolerances")
        if not abs(float(solution.tolerance[n] / allowed) - 1) < 1e-6:
            faults.append(f"the tolerance is {solution.tolerance[n]}, documented as {float(allowed)}")
    best = truth.best(0)
    if best is not None and best - rational.Fraction(solution.value) > rational.Fraction(solution.gap):
        faults.append(f"the gap is {solution.gap:.3g}, truly {float(best - rational.Fraction(solution.value)):.3g}")
    relaxed = truth.best(-1)
    exact = rational.value(cmdp, solution.policy.pi, cmdp.r)
    size = rational.ranges(cmdp, cmdp.r)[2]
    if abs(float(exact) - solution.value) > 1e-13 * float(size):
        faults.append(f"the value is {solution.value}, exactly evaluated {float(exact)}")
    if relaxed is not None and exact > relaxed + rational.Fraction(1e-14) * size:
        faults.append("the value is larger than any policy within the tolerances has")
    tightened = truth.best(HALF)
    if tightened is not None and exact < tightened - rational.Fraction(1e-11) * size:
        faults.append(f"the value is {float(exact)}, even with tighter bounds {float(tightened)} can be had")
    if sum(len(d.probabilities) - 1 for d in solution.stochastic_decisions()) > cmdp.N:
        faults.append("too many stochastic decisions")
    if not (solution.shadow_prices >= 0).all():
        faults.append(f"prices {solution.shadow_prices}")
    return miss, faults


def _wide(cmdp: ck.CMDP, tolerances: list, solution: ck.Solution | None) -> list[str]:
    """diagnose and tradeoff: no crash, the same verdict, and ranges between the truth with and without tolerance."""
    faults = []
    try:
        found = ck.diagnose(cmdp)
    except Exception as error:
        return [f"diagnose: crash: {type(error).__name__}: {error}"]
    if found.feasible != (solution is not None):
        faults.append("diagnose and solve disagree on feasibility")
    if cmdp.N:
        exact = rational.Exact(cmdp, cmdp.r, cmdp.g, [float(x) for x in cmdp.rho], [1] * cmdp.N).slack
        if abs(exact - rational.Fraction(found.slater_slack)) > 2 * max(tolerances):
            faults.append(f"Slater slack is {found.slater_slack}, truly {float(exact)}")
    for n, x in enumerate(found.ranges):
        sign = cmdp.constraints[n].sign
        others = [m for m in range(cmdp.N) if m != n]
        rest = rational.Exact(
            cmdp,
            cmdp.g[n],
            [cmdp.g[m] for m in others],
            [float(cmdp.rho[m]) for m in others],
            [tolerances[m] for m in others],
        )
        if others and rest.slack < 0 and x.strictest == x.best_alone:
            continue  # the other bounds exclude each other, as far as one can tell
        least, most = rest.best(HALF), rest.best(-1)
        reported = sign * rational.Fraction(x.strictest)
        if most is not None and reported > most + tolerances[n]:
            faults.append(f"strictest bound {n} is {x.strictest}, no policy has more than {float(sign * most)}")
        if least is not None and reported < least - tolerances[n]:
            faults.append(f"strictest bound {n} is {x.strictest}, although {float(sign * least)} can be had")
    return faults + _curves(cmdp, tolerances)


def _curves(cmdp: ck.CMDP, tolerances: list) -> list[str]:
    faults = []
    for n, c in enumerate(cmdp.constraints[:2]):
        try:
            curve = ck.tradeoff(cmdp, c.name, 3)
        except ck.Infeasible:  # the other bounds exclude each other, which is the answer
            continue
        except Exception as error:
            faults.append(f"tradeoff: crash: {type(error).__name__}: {error}")
            continue
        if len(curve.infeasible):
            faults.append(f"tradeoff {n}: {curve.infeasible} of its own range is infeasible")
        for row in curve.rows():
            moved = cmdp.with_bounds(**{c.name: row["bound"]})
            truth = rational.Exact(moved, moved.r, moved.g, [float(x) for x in moved.rho], tolerances)
            most = truth.best(-1)
            size = rational.ranges(cmdp, cmdp.r)[2]
            if most is None or row["value"] > most + rational.Fraction(1e-13) * size:
                faults.append(f"tradeoff {n}: value {row['value']} at {row['bound']} is too large")
    return faults
