"""Chains that are rarely left: elimination without subtraction and its large substitute, against fractions."""

from fractions import Fraction

import numpy as np
import pytest
import stationary_rational as rational
from scipy import sparse
from stationary_adversarial import instance

import cmdpkit as ck
from cmdpkit.exact.stationary.careful import elimination_error
from cmdpkit.operators import chain_systems, chains
from cmdpkit.operators.chain_systems import FULL
from cmdpkit.operators.chains import Chain


def leaky(rng: np.random.Generator, S: int) -> tuple[np.ndarray, np.ndarray]:
    """Transitions without the diagonal [S, S] and exits [S]; most states are left once in 10^3 to 10^18 steps."""
    P = rng.dirichlet(np.full(S, 0.5), S) * (1 - np.eye(S)) * 10.0 ** -rng.uniform(0, 18, (S, 1))
    return P, np.where(rng.random(S) < 0.5, 10.0 ** -rng.uniform(1, 18, S), 0.0) + 1e-18 * (np.arange(S) == 0)


@pytest.mark.compiled
def test_every_visit_and_value_has_all_digits_however_rarely_one_leaves():
    for seed in range(40):
        rng = np.random.default_rng([1, seed])
        S = int(rng.integers(1, 7))
        P, exits = leaky(rng, S)
        x, inflow = rng.random(S), rng.dirichlet(np.ones(S))
        F, E = [[Fraction(y) for y in row] for row in P], [Fraction(y) for y in exits]
        M = [[(E[i] + sum(F[i])) * (i == j) - F[i][j] for j in range(S)] for i in range(S)]
        y = rational.solve(M, [[Fraction(v)] for v in x])
        d = rational.solve([list(column) for column in zip(*M, strict=True)], [[Fraction(v)] for v in inflow])
        found = Chain(sparse.csr_array(P), bordered=False, exits=exits)
        for computed, exact in ((found.values(x[:, None])[1][:, 0], y), (found.flow(inflow), d)):
            for a, (b,) in zip(computed, exact, strict=True):
                assert abs(Fraction(float(a)) / b - 1) < Fraction(2e-15), seed


@pytest.mark.parametrize("S", [1, FULL, FULL + 1, 400])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_chains_keep_their_definitions_below_and_above_the_size_of_full_matrices(S, gamma):
    """Shares d = gamma P^T d + (1 - gamma) mu of mass 1, relative values h = x - c + gamma P h with h zero at 0."""
    rng = np.random.default_rng(S)
    P = np.zeros((S, S))
    for s in range(S):  # a random walk with a few long jumps
        for t in (s - 1, s + 1, s + 7):
            P[s, t % S] += rng.random() + 0.01
    P /= P.sum(axis=1, keepdims=True)
    x, mu = rng.random((S, 2)), rng.dirichlet(np.ones(S))
    chain = Chain(sparse.csr_array(P), gamma, work=0.0)
    d, (c, h) = chain.flow((1 - gamma) * mu, 1.0), chain.values(x)
    assert d == pytest.approx(gamma * P.T @ d + (1 - gamma) * mu, abs=1e-15)
    assert d.sum() == pytest.approx(1.0, abs=1e-14)
    scale = max(1.0, np.abs(h).max())
    assert h == pytest.approx(x - c + gamma * P @ h, abs=1e-13 * scale)
    assert (h[0] == 0).all()


@pytest.mark.parametrize("gamma", [1.0, 0.99999999])
def test_a_signal_that_is_nearly_constant_keeps_its_differences(gamma):
    """x = 1 + 1e-9 z has relative values 1e-9 times those of z, to seven digits and not to none."""
    rng = np.random.default_rng(5)
    P, z = sparse.csr_array(rng.dirichlet(np.ones(6), 6)), np.array([[0.0], [0.5], [0.25], [1.0], [0.125], [0.75]])
    tiny = 2.0**-30
    c, h = Chain(P, gamma).values(z)
    c2, h2 = Chain(P, gamma).values(1 + tiny * z)
    assert h2 / tiny == pytest.approx(h, rel=1e-12)
    assert (c2 - 1) / tiny == pytest.approx(c, rel=1e-6)


@pytest.mark.parametrize("exit", [0.02, 1e-6, 1e-12])
def test_large_chains_that_elimination_cannot_take_agree_with_it(exit, monkeypatch):
    """The same chain by the Krylov method: a random graph, left evenly or not, and one that keeps its mass."""
    rng = np.random.default_rng(7)
    S = 300
    P = sparse.csr_array((rng.dirichlet(np.ones(4), S).ravel(), rng.integers(0, S, 4 * S), 4 * np.arange(S + 1)))
    exits = exit * rng.uniform(0.5, 1.5, S)
    Q, x, mu = sparse.csr_array(sparse.diags_array(1 - exits) @ P), rng.random((S, 2)), rng.dirichlet(np.ones(S))
    direct = Chain(Q, bordered=False, exits=exits, work=0.0)
    exact = direct.values(x)[1], direct.flow(mu)
    kept = {gamma: Chain(P, gamma, work=0.0) for gamma in (1.0, 1 - exit)}
    wanted = {gamma: (chain.values(x), chain.flow((1 - gamma) * mu, 1.0)) for gamma, chain in kept.items()}
    monkeypatch.setattr(chains, "SWEEPS", 1)
    other = Chain(Q, bordered=False, exits=exits, work=np.inf)
    assert other.values(x)[1] == pytest.approx(exact[0], rel=1e-12)
    assert other.flow(mu) == pytest.approx(exact[1], rel=1e-10, abs=1e-15 * exact[1].sum())
    for gamma, ((c, h), d) in wanted.items():
        slow = Chain(P, gamma, work=np.inf)
        c2, h2 = slow.values(x)
        assert c2 == pytest.approx(c, rel=1e-13)
        assert h2 == pytest.approx(h, abs=1e-12)
        assert slow.flow((1 - gamma) * mu, 1.0) == pytest.approx(d, rel=1e-10, abs=1e-15)


def test_a_chain_that_cannot_be_evaluated_is_an_error_and_not_a_number(monkeypatch):
    """A walk of 400 states that steps back two times in three needs 2^400 steps to its end."""
    S = 400
    P = sparse.diags_array([np.full(S - 1, 2 / 3), np.full(S - 1, 1 / 3)], offsets=[-1, 1])
    exits = np.append(np.zeros(S - 1), 1 / 3)
    monkeypatch.setattr(chains, "SWEEPS", 1)
    with pytest.raises(ck.CmdpkitError, match="left too rarely to be evaluated"):
        Chain(P, bordered=False, exits=exits, work=np.inf).values(np.ones((S, 1)))
    direct = Chain(P, bordered=False, exits=exits)
    assert direct.values(np.ones((S, 1)))[1][0, 0] == pytest.approx(3 * 2.0 ** (S + 1), rel=1e-2)


def two_rooms(leave: float, back: float, **criterion) -> ck.CMDP:
    P = np.array([[[1 - leave, leave, 0]], [[back, 1 - back, 0]], [[0, 0, 1.0]]])
    return ck.CMDP(P, [[1.0], [0.0], [0.0]], mu=0, **criterion)


@pytest.mark.parametrize("tiny", [1e-6, 1e-14, 1e-18, 1e-100])
def test_rooms_that_are_rarely_left_are_evaluated_to_the_last_digit(tiny):
    """Leaving with p and coming back with 3 p: three quarters of the time are spent in the first room."""
    cmdp = two_rooms(tiny, 3 * tiny, criterion="average")
    assert ck.evaluate(cmdp, ck.Policy.uniform(cmdp)).v == pytest.approx(0.75, rel=1e-15)
    P = np.array([[[1 - tiny, tiny]], [[0, 1.0]]])
    left = ck.CMDP(P, [[1.0], [0.0]], mu=0, criterion="total")
    assert ck.evaluate(left, ck.Policy.uniform(left)).v == pytest.approx(1 / tiny, rel=1e-15)
    discounted = two_rooms(tiny, 3 * tiny, discount=1 - 2.0**-50)
    e = 2.0**-50
    share = (e + 3 * tiny) / (e + 4 * tiny)  # of the first room, up to the discount's factor on the transitions
    assert ck.evaluate(discounted, ck.Policy.uniform(discounted)).v * e == pytest.approx(share, rel=1e-13)


def test_any_policy_of_a_hostile_model_is_evaluated_as_fractions_say():
    """Draws with probabilities down to 1e-14 in the models of the generator: within ten roundings of the total."""
    for k in range(150):
        rng = np.random.default_rng([9, k])
        made = instance(rng)
        cmdp, exact = made.cmdp, made.model
        pi = rng.dirichlet(np.full(cmdp.A, 0.3), cmdp.S) * 10.0 ** -rng.uniform(0, 14, (cmdp.S, cmdp.A))
        pi = np.where(cmdp.actions[0], pi + 1e-300, 0.0)
        policy = ck.Policy.of(cmdp, pi / pi.sum(axis=1, keepdims=True))
        values, sizes = (exact.values(rational.shown(policy), absolute=x) for x in (False, True))
        if values is None:
            with pytest.raises(ck.CmdpkitError, match="stays forever"):
                ck.evaluate(cmdp, policy)
            continue
        found = ck.evaluate(cmdp, policy)
        for a, b, size in zip((found.v, *(cmdp.signs * found.w)), values, sizes, strict=True):
            assert abs(Fraction(float(a)) - b) <= Fraction(10, 2**53) * size, k


@pytest.mark.parametrize("bordered", [False, True])
def test_values_of_a_band_are_within_their_proved_error_of_fractions(bordered, monkeypatch):
    """Walks that are rarely left, whose states are at most two apart in the order of elimination, in tiny steps."""
    monkeypatch.setattr(chain_systems, "FULL", 1)
    for seed in range(30):
        rng = np.random.default_rng([2, seed])
        S = int(rng.integers(6, 11))
        near = np.abs(np.subtract.outer(np.arange(S), np.arange(S)))
        P = np.where((near > 0) & (near < 3), 10.0 ** -rng.uniform(0, 12, (S, S)), 0.0)
        exits, x = np.where(rng.random(S) < 0.3, 10.0 ** -rng.uniform(1, 12, S), 0.0), rng.random(S)
        exits[0] = 1e-10
        chain = Chain(sparse.csr_array(P), bordered=bordered, exits=exits * 0.0 if bordered else exits, work=0.0)
        assert chain.width < S - 1
        E = [Fraction(0) if bordered else Fraction(float(y)) for y in exits]
        F = [[Fraction(float(y)) for y in row] for row in P]
        M = [[(E[i] + sum(F[i])) * (i == j) - F[i][j] for j in range(S)] for i in range(S)]
        if bordered:  # the constant takes the place of the value of the first state
            M = [[Fraction(1), *row[1:]] for row in M]
        exact = [y for (y,) in rational.solve(M, [[Fraction(float(v))] for v in x])]
        level, h = chain.values(x[:, None])
        share = Fraction(elimination_error(S, chain.width))
        if bordered:
            assert abs(Fraction(float(level[0])) - exact[0]) <= 3 * share * exact[0]
        else:
            assert all(abs(Fraction(float(a)) - b) <= share * b for a, b in zip(h[:, 0], exact, strict=True))


def test_a_band_that_is_the_whole_matrix_has_the_error_of_one():
    for S, width in ((3, 2), (7, 6), (7, 1), (50, 4)):
        k = sum((2 * min(n, width + 1) + 2) * (min(n, width + 1) + 3) for n in range(1, S + 1))
        k += 2 * (S + 3) if width + 1 < S else 0
        assert elimination_error(S, width) == k * 2.0**-53 / (1 - 2 * k * 2.0**-53)
