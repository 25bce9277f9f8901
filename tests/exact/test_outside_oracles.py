"""Two other programs, Storm and QuantEcon, solve the same models: values agree wherever they can express a problem.

Storm checks long-run averages, totals and a horizon, alone and with bounds, and discounted totals without bounds; it
reads the model in its own format. QuantEcon solves discounted problems. A discounted problem with bounds is given to
Storm as the total of the model that ends with probability 1 - discount after every step.
"""

import importlib
import os

import numpy as np
import pytest
from bench.stationary import storm_model

import cmdpkit as ck

STORM_AGREES = 1e-6  # relative; Storm iterates to 1e-8 with several objectives


def oracle(module: str):
    """The other program, which may be missing where no wheel exists, but not in continuous integration."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = f"{module} is not installed ({error}): results are not compared with it"
        (pytest.fail if os.environ.get("CMDPKIT_NEEDS_ORACLES") else pytest.skip)(missing)


@pytest.fixture(scope="module")
def storm():
    """A function that checks a property of a model in the start state."""
    stormpy = oracle("stormpy")
    developer = importlib.import_module("stormpy.developer")

    def check(cmdp: ck.CMDP, formula: str) -> float:
        model = storm_model(cmdp)
        (parsed,) = stormpy.parse_properties(formula)
        environment = developer.get_sound_environment()
        environment.solver().min_max().precision = stormpy.Rational("1/10000000000")
        environment.modelchecker().multi().precision = stormpy.Rational("1/100000000")
        return stormpy.model_checking(model, parsed, environment=environment).get_value(model.initial_states[0])

    return check


def arrays(rng: np.random.Generator, N: int, *, apart: bool = False):
    """P [S, A, S], r [S, A], g [N, S, A]; with `apart`, the last two states are never left."""
    S, A = int(rng.integers(3, 9)), int(rng.integers(2, 4))
    P = rng.dirichlet(np.full(S, 0.5), (S, A))
    if apart:
        P[-2:] = np.eye(S)[-2:, None]
    return P, rng.random((S, A)), rng.random((N, S, A))


def ending(P, r, g, exits):
    """The same with an absorbing last state that is entered with probability `exits` after every step."""
    wider = np.pad(P * (1 - exits), ((0, 1), (0, 0), (0, 1)))
    wider[:-1, :, -1], wider[-1, :, -1] = exits, 1
    return wider, np.pad(r, ((0, 1), (0, 0))), np.pad(g, ((0, 0), (0, 1), (0, 0)))


def bounded(rng: np.random.Generator, P, r, g, **criterion) -> ck.CMDP:
    """Bounds that the best of some random policies meets exactly."""
    cmdp = ck.CMDP(P, r, mu=0, constraints=[ck.at_least(f"u{n}", 0.0, x) for n, x in enumerate(g)], **criterion)
    policies = [ck.Policy.of(cmdp, rng.dirichlet(np.full(cmdp.A, 0.2), cmdp.S)) for _ in range(20)]
    best = max((ck.evaluate(cmdp, policy).w for policy in policies), key=lambda w: float(w.sum()))
    return cmdp.with_bounds(**{f"u{n}": float(x) for n, x in enumerate(best)})


def formula(cmdp: ck.CMDP, path: str) -> str:
    bounds = ", ".join(
        f'R{{"{c.name}"}}>={float(rho)!r} [{path}]' for c, rho in zip(cmdp.constraints, cmdp.rho, strict=True)
    )
    return f'multi(R{{"reward"}}max=? [{path}], {bounds})' if bounds else f'R{{"reward"}}max=? [{path}]'


@pytest.mark.parametrize("seed", range(14))
def test_storm_and_quantecon_agree_on_discounted_values(storm, seed):
    dp = oracle("quantecon.markov")
    rng = np.random.default_rng([1, seed])
    P, r, _ = arrays(rng, 0)
    discount = (0.5, 0.9, 0.99, 0.999)[seed % 4]
    ours = ck.solve(ck.CMDP(P, r, mu=0, discount=discount))
    assert storm(ours.cmdp, f'R{{"reward"}}max=? [Cdiscount={discount}]') == pytest.approx(ours.value, rel=1e-7)
    theirs = dp.DiscreteDP(r, P, discount).solve(method="policy_iteration")
    assert theirs.v[0] == pytest.approx(ours.value, rel=1e-10)
    assert ck.evaluate(ours.cmdp, ck.Policy.of(ours.cmdp, np.eye(r.shape[1])[theirs.sigma])).v == pytest.approx(
        ours.value
    )


@pytest.mark.parametrize("seed", range(8))
def test_storm_agrees_on_discounted_values_with_bounds(storm, seed):
    rng = np.random.default_rng([2, seed])
    P, r, g = arrays(rng, 1 + seed % 2)
    discount = (0.8, 0.95)[seed % 2]
    ours = ck.solve(bounded(rng, P, r, g, discount=discount))
    wider = ending(P, r, g, 1 - discount)
    bounds = [ck.at_least(f"u{n}", float(x), y) for n, (x, y) in enumerate(zip(ours.cmdp.rho, wider[2], strict=True))]
    total = ck.CMDP(*wider[:2], mu=0, criterion="total", constraints=bounds)
    assert storm(total, formula(total, "C")) == pytest.approx(ours.value, rel=STORM_AGREES)


@pytest.mark.parametrize("seed", range(14))
def test_storm_agrees_on_totals(storm, seed):
    rng = np.random.default_rng([3, seed])
    P, r, g = ending(*arrays(rng, seed % 3), (0.02, 0.2)[seed % 2])
    ours = ck.solve(bounded(rng, P, r, g, criterion="total"))
    assert storm(ours.cmdp, formula(ours.cmdp, "C")) == pytest.approx(ours.value, rel=STORM_AGREES)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("apart", [False, True])
def test_storm_agrees_on_long_run_averages(storm, seed, apart):
    """Where some states are never left, the optimum depends on the start, and several policies may be mixed."""
    rng = np.random.default_rng([4, apart, seed])
    P, r, g = arrays(rng, seed % 3, apart=apart)
    ours = ck.solve(bounded(rng, P, r, g, criterion="average"))
    assert storm(ours.cmdp, formula(ours.cmdp, "LRA")) == pytest.approx(ours.value + ours.gap, rel=STORM_AGREES)
    assert ours.gap <= (1e-9 if ours.attained else 1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_storm_agrees_with_a_horizon(storm, seed):
    rng = np.random.default_rng([5, seed])
    P, r, g = arrays(rng, seed % 3)
    ours = ck.solve(bounded(rng, P, r, g, horizon=7))
    assert storm(ours.cmdp, formula(ours.cmdp, "C<=7")) == pytest.approx(ours.value, rel=STORM_AGREES)


def test_storm_agrees_on_a_shipped_environment(storm):
    cmdp = ck.load("treatment")
    bounds = 'R{"toxicity"}<=6 [C<=12], R{"spending"}<=20 [C<=12]'
    found = storm(cmdp, f'multi(R{{"reward"}}max=? [C<=12], {bounds})')
    assert found == pytest.approx(ck.solve(cmdp).value, rel=STORM_AGREES)
