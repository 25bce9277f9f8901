"""Problems without a horizon made to break a solver, and what must be true of every answer.

Discounts up to 0.999999, averages with several classes, periodic chains and rooms that are rarely left, totals with
tiny exits and with exits that a policy can avoid forever; mixed units, nearly constant signals, huge numbers where
nobody goes or almost never, duplicated and nearly parallel constraints, bounds at the edge of the possible and just
beyond it. Every instance is small enough for the exact oracle in `stationary_rational`.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import stationary_rational as rational

import cmdpkit as ck
from adversarial import HALF, Report, judged, probabilities, signal

SIZES = ((1, 2), (1, 4), (2, 2), (2, 2), (2, 3), (3, 2), (3, 2), (3, 3), (4, 2))
DISCOUNTS = (0.3, 0.5, 0.9, 0.99, 0.9999, 0.999999)
FAMILIES = ("discounted", "average", "rooms", "periodic", "total", "avoidable")
BRIDGE = Fraction(2e-4)  # twice the share of time that a policy between classes spends on moving, by default


class Made(NamedTuple):
    """An instance and where it comes from."""

    cmdp: ck.CMDP
    family: str
    model: rational.Model
    points: list  # exact values of all deterministic policies


def instance(rng: np.random.Generator, family: str | None = None) -> Made:
    family = family or FAMILIES[rng.integers(len(FAMILIES))]
    S, A = SIZES[rng.integers(len(SIZES))]
    N = int(rng.choice([0, 1, 1, 1, 2, 2, 3, 4, 5]))
    P = _kernel(rng, S, A, family)
    mu = np.eye(S)[0] if rng.random() < 0.6 else probabilities(rng, S)
    actions = np.ones((S, A), dtype=bool)
    if rng.random() < 0.3:
        actions = rng.random((S, A)) < 0.7
        actions[:, rng.integers(A)] = True
    r, g = signal(rng, (S, A)), [signal(rng, (S, A)) for _ in range(N)]
    for n in range(1, N):
        if rng.random() < 0.4:
            g[n] = _relative(rng, g[rng.integers(n)])
    if S > 1 and rng.random() < 0.25:  # nobody reaches the last state
        P[:-1, :, -1] = 0.0
        P[:-1, :, 0] += P[:-1].sum(axis=-1) == 0
        P /= P.sum(axis=-1, keepdims=True)
        mu = np.eye(S)[0]
        for x in (r, *g):
            x[-1] = rng.choice([1.0, -1.0]) * 10.0 ** rng.uniform(6, 14)
    if family == "avoidable":  # every step has a cost, so a policy that never leaves is worth minus infinity
        r = -np.abs(r) - 0.1 * np.abs(r).max() - 1e-3 * (not r.any())
        g = [-np.abs(x) for x in g]
    if family in ("total", "avoidable"):
        P, r, g, mu, actions = _with_exit(rng, P, r, g, mu, actions, avoidable=family == "avoidable")
    senses = rng.choice([-1.0, 1.0], N)
    if family == "avoidable":
        senses[:] = -1.0
    made = [ck.at_least if sign > 0 else ck.at_most for sign in senses]
    constraints = [made[n](f"c{n}", 0.0, senses[n] * x + 0.0) for n, x in enumerate(g)]
    how = {"criterion": "total"} if family in ("total", "avoidable") else {"criterion": "average"}
    if family == "discounted":
        how = {"discount": float(rng.choice(DISCOUNTS))}
    cmdp = ck.CMDP(P, r, mu=mu, actions=actions, constraints=constraints, **how)
    points = rational.Model(cmdp).points()
    bounds = senses * _thresholds(rng, points, N)
    cmdp = cmdp.with_bounds(**{f"c{n}": float(x) for n, x in enumerate(bounds)})
    return Made(cmdp, family, rational.Model(cmdp), points)


def made_of(cmdp: ck.CMDP) -> Made:
    """A model of one's own, as `examine` takes it."""
    model = rational.Model(cmdp)
    return Made(cmdp, "own", model, model.points())


def _kernel(rng: np.random.Generator, S: int, A: int, family: str) -> np.ndarray:
    if family == "periodic":  # every action moves on along a cycle, some of them by two states
        steps = np.where(rng.random((S, A)) < 0.7, 1, rng.integers(1, 4, (S, A)))
        return np.eye(S)[(np.arange(S)[:, None] + steps) % S]
    P = np.array([[probabilities(rng, S) for _ in range(A)] for _ in range(S)])
    if family == "rooms":  # states are left with tiny probabilities only
        leaving = 10.0 ** -rng.uniform(2, 12, (S, A, 1)) * (rng.random((S, A, 1)) < 0.8)
        P = leaving * P + (1 - leaving) * np.eye(S)[:, None]
        P /= P.sum(axis=-1, keepdims=True)
    return P


def _with_exit(rng, P, r, g, mu, actions, *, avoidable: bool):
    """The same with an absorbing state at the end, which every action, or some action of every state, may reach."""
    S, A = r.shape
    small = rng.random() < 0.4
    exits = 10.0 ** -rng.uniform(2, 10, (S, A)) if small else rng.uniform(0.01, 0.6, (S, A))
    if rng.random() < 0.3:
        exits[:] = exits[0, 0]
    if avoidable:
        exits *= rng.random((S, A)) < 0.5
        usual = actions.argmax(axis=1)
        exits[np.arange(S), usual] = np.maximum(exits[np.arange(S), usual], rng.choice([1e-3, 0.1, 1.0]))
    wider = np.zeros((S + 1, A, S + 1))
    wider[:S, :, :S] = P * (1 - exits[..., None])
    wider[:S, :, S] = exits
    wider[S, :, S] = 1.0
    wider /= wider.sum(axis=-1, keepdims=True)
    g = [np.vstack((x, np.zeros((1, A)))) for x in g]
    return wider, np.vstack((r, np.zeros((1, A)))), g, np.append(mu, 0.0), np.vstack((actions, np.ones((1, A), bool)))


def _relative(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A signal that is the same as another, up to scale, sign or a little noise."""
    noise = 10.0 ** -rng.uniform(5, 14) * rng.normal(size=x.shape) * np.abs(x).max()
    return (x.copy(), x + noise, -x, 10.0 ** rng.uniform(-6, 6) * x + noise)[rng.integers(4)]


def _thresholds(rng: np.random.Generator, points: list, N: int) -> np.ndarray:
    """Utilities of some policy, and bounds inside, at or beyond them."""
    if N == 0:
        return np.zeros(0)
    w = np.array([[float(x) for x in p[1:]] for p in points])
    kind = rng.integers(6)
    spans = np.ptp(w, axis=0)
    if kind == 5:  # where one utility is at its best
        n = rng.integers(N)
        target = w[w[:, n].argmax()]
    else:
        weights = rng.dirichlet(np.full(len(w), 0.1)) if rng.random() < 0.5 else np.eye(len(w))[rng.integers(len(w))]
        target = weights @ w
    beyond = {0: -0.1 * rng.random(), 1: 0.0, 2: 10.0 ** -rng.uniform(6, 11), 3: -(10.0 ** -rng.uniform(6, 11)), 5: 0.0}
    return target + beyond.get(int(kind), 0.3 * rng.random()) * spans


def tolerances(made: Made) -> list[Fraction]:
    """As documented: 1e-10 of the range of the totals of policies, plus a bound on the rounding of their evaluation.

    Where policies have nearly the same, the second term may be up to eight times as large.
    """
    sizes = made.model.points(absolute=True)
    found = []
    for n in range(1, 1 + made.model.N):
        totals = [p[n] for p in made.points]
        span, rounding = Fraction(1e-10) * (max(totals) - min(totals)), ROUNDING * max(p[n] for p in sizes)
        allowed = span + rounding * (8 if span < rounding else 1)
        found.append(allowed or Fraction(1e-10))
    return found


ROUNDING = Fraction(4 * 200, 2**53)  # of the largest total of the absolute signal


def examine(made: Made, *, wide: bool = False) -> Report:
    allowed = tolerances(made)
    truth = rational.Exact(made.points, made.model.rho, allowed)

    def more(solution: ck.Solution | None, error: ck.Infeasible | None) -> list[str]:
        told = [] if error is None else _explained(made, error, allowed)
        return told + (_wide(made, allowed, solution) if wide else [])

    return judged(made.cmdp, truth.slack, lambda solution: _check(made, solution, truth, allowed), more)


def _check(made: Made, solution: ck.Solution, truth: rational.Exact, allowed: list) -> tuple[float, list[str]]:
    model, faults, miss = made.model, [], 0.0
    exact = rational.values_of(model, solution.policy)
    if exact is None:
        return 0.0, ["the policy is never absorbed"]
    for n, tolerance in enumerate(allowed):
        short = float((model.rho[n] - exact[1 + n]) / tolerance)
        miss = max(miss, short)
        if short > 1:
            faults.append(f"bound {n} is missed by {short:.3g} tolerances")
        if abs(made.cmdp.constraints[n].sign * Fraction(float(solution.utilities[n])) - exact[1 + n]) > tolerance:
            faults.append(f"utility {n} is told as {solution.utilities[n]}, evaluated exactly {float(exact[1 + n])}")
        if solution.tolerance[n] > float(tolerance) * (1 + 1e-6):
            faults.append(f"the tolerance is {solution.tolerance[n]}, documented as {float(tolerance)}")
    value, gap = Fraction(solution.value), Fraction(solution.gap)
    size = max(p[0] for p in model.points(absolute=True))
    rounding = ROUNDING * size
    best, relaxed, tightened = truth.best(0), truth.best(-1), truth.best(HALF)
    if best is not None and best - value > gap:
        faults.append(f"the gap is {solution.gap:.3g}, truly {float(best - value):.3g}")
    if abs(exact[0] - value) > rounding:
        faults.append(f"the value is {solution.value}, exactly evaluated {float(exact[0])}")
    if relaxed is not None and exact[0] > relaxed + rounding:
        faults.append("the value is larger than any policy within the tolerances has")
    attained = getattr(solution, "attained", True)
    lost = Fraction(1e-11) * size
    if not attained and isinstance(solution.policy, ck.Policy):
        # A share of time costs that share of the value's range, and of those of the utilities at their prices.
        worth = (Fraction(1), *(Fraction(float(x)) for x in solution.shadow_prices))
        lost += BRIDGE * sum(
            (x * (max(y) - min(y)) for x, y in zip(worth, zip(*made.points, strict=True), strict=True))
        )
    if tightened is not None and exact[0] < tightened - lost - rounding:
        faults.append(f"the value is {float(exact[0])}, even with tighter bounds {float(tightened)} can be had")
    if attained and sum(len(d.probabilities) - 1 for d in solution.stochastic_decisions()) > made.cmdp.N:
        faults.append("too many stochastic decisions")
    if isinstance(solution.policy, ck.Mixture) and len(solution.policy.policies) > made.cmdp.N + 1:
        faults.append("too many policies in the mixture")
    prices = solution.shadow_prices
    if not (prices >= 0).all() or not np.isfinite(prices).all():
        faults.append(f"prices {prices}")
    else:
        proved = truth.bound(prices)
        slack = rounding + sum((Fraction(float(x)) * t for x, t in zip(prices, allowed, strict=True)), Fraction(0))
        if best is not None and proved > value + gap + slack:
            faults.append(f"prices {prices} prove {float(proved)} only, value + gap is {float(value + gap)}")
    return miss, faults


def _explained(made: Made, error: ck.Infeasible, allowed: list) -> list[str]:
    """The clash that is told is one, no bound of it can be left out, and each signal's best is what policies have."""
    faults = []
    clash = [n for n, c in enumerate(made.cmdp.constraints) if c.name in error.conflict]

    def slack(chosen: list[int]) -> Fraction:
        points = [(p[0], *(p[1 + n] for n in chosen)) for p in made.points]
        return rational.Exact(points, [made.model.rho[n] for n in chosen], [allowed[n] for n in chosen]).slack

    if not clash or slack(clash) >= 0:
        faults.append(f"the bounds {error.conflict} do not exclude each other")
    elif len(clash) > 1 and any(slack([m for m in clash if m != n]) < -1 for n in clash):
        faults.append(f"a bound of {error.conflict} can be left out of the clash")
    for n, c in enumerate(made.cmdp.constraints):
        most = max(p[1 + n] for p in made.points)
        if abs(c.sign * Fraction(float(error.best[n])) - most) > allowed[n]:
            faults.append(f"the best of {c.name} is told as {error.best[n]}, truly {c.sign * float(most)}")
    return faults


def _wide(made: Made, allowed: list, solution: ck.Solution | None) -> list[str]:
    """diagnose and tradeoff: no crash, the same verdict, and values that policies can have."""
    cmdp, faults = made.cmdp, []
    try:
        found = ck.diagnose(cmdp)
    except Exception as error:
        return [f"diagnose: crash: {type(error).__name__}: {error}"]
    if found.feasible != (solution is not None):
        faults.append("diagnose and solve disagree on feasibility")
    if cmdp.N:
        exact = rational.Exact(made.points, made.model.rho, [1] * cmdp.N).slack
        if found.slater_slack is not None and abs(exact - Fraction(found.slater_slack)) > 2 * max(allowed):
            faults.append(f"Slater slack is {found.slater_slack}, truly {float(exact)}")
    for n, c in enumerate(cmdp.constraints[:2]):
        try:
            curve = ck.tradeoff(cmdp, c.name, 3)
        except ck.Infeasible:  # the other bounds exclude each other, which is the answer
            continue
        except Exception as error:
            if made.family != "avoidable" or "Give low= and high=" not in str(error):  # its range may be infinite there
                faults.append(f"tradeoff: crash: {type(error).__name__}: {error}")
            continue
        for row in curve.rows():
            rho = list(made.model.rho)
            rho[n] = Fraction(float(c.sign * row["bound"]))
            most = rational.Exact(made.points, rho, allowed).best(-1)
            size = max(p[0] for p in made.model.points(absolute=True))
            if most is None or Fraction(float(row["value"])) > most + ROUNDING * size:
                faults.append(f"tradeoff {n}: value {row['value']} at {row['bound']} is too large")
    return faults
