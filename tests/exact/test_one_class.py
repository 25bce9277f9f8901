"""`solve(..., one_class=True)`: one recurrent class, bounds kept, and a proved limit.

The oracles share no code with the package: end components by trying all sets of actions, certainty by trying all
deterministic policies, limits by SciPy's linear programs, and averages by dense linear algebra.
"""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import cmdpkit as ck
from cmdpkit import CmdpkitError

BRIDGE = 1e-3


def averages(P, signals, start):
    """Long-run averages [K] of a chain P [S, S] from a start [S], by its limit matrix; None with several classes."""
    lazy = (P + np.eye(len(P))) / 2
    for _ in range(60):  # squared so often, the chain has forgotten where it was but for its class
        lazy = lazy @ lazy
        lazy /= lazy.sum(axis=1, keepdims=True)
    rows = lazy[start > 0]
    settled = np.vstack((rows, lazy[(rows > 1e-13).any(axis=0)]))  # also from where it may be by then
    return signals @ rows[0] if np.abs(settled - rows[0]).max() < 1e-9 else None


def reachable_for_certain(P, allowed, mu, target):
    """Whether some deterministic policy reaches the target states with probability 1."""
    S = len(P)
    for choice in product(*(np.flatnonzero(row) for row in allowed)):
        chain = P[np.arange(S), choice].copy()
        chain[target] = np.eye(S)[target]
        where = np.linalg.matrix_power(chain, 2**20)
        if (mu @ where)[target].sum() > 1 - 1e-9:
            return True
    return False


def strongly_connected(graph):
    reach = np.linalg.matrix_power(np.eye(len(graph)) + (graph > 0), len(graph)) > 0
    return bool(reach.all())


def limit_by_hand(P, r, g, rho, allowed, mu):
    """The largest value of a linear program over an end component that is reached for certain; None if infeasible."""
    S, A = allowed.shape
    best, components = None, []
    for size in sorted(range(1, 2**S), key=lambda x: -x.bit_count()):
        states = [s for s in range(S) if size >> s & 1]
        if any(set(states) <= larger for larger in components):  # all that it can do, the larger one can do too
            continue
        outside = [s for s in range(S) if s not in states]
        pairs = [(s, a) for s in states for a in range(A) if allowed[s, a] and not P[s, a, outside].any()]
        if len({s for s, _ in pairs}) < len(states):
            continue
        graph = np.zeros((S, S))
        for s, a in pairs:
            graph[s] += P[s, a]
        if not strongly_connected(graph[np.ix_(states, states)]):
            continue
        components.append(set(states))
        balance = np.array([[float(s == t) - P[s, a, t] for s, a in pairs] for t in states])
        found = linprog(
            [-r[s, a] for s, a in pairs],
            A_ub=[[-x[s, a] for s, a in pairs] for x in g],
            b_ub=-rho,
            A_eq=np.vstack((balance, np.ones(len(pairs)))),
            b_eq=np.append(np.zeros(len(states)), 1.0),
        )
        if found.status or (best is not None and -found.fun <= best):
            continue
        if reachable_for_certain(P, allowed, mu, np.array(states)):
            best = -found.fun
    return best


def small_model(rng):
    """A model of 3 to 5 states with few transitions, so that classes are kept apart."""
    S, A, N = int(rng.integers(3, 6)), 2, int(rng.integers(1, 3))
    P = np.zeros((S, A, S))
    for s, a in product(range(S), range(A)):
        # Staying is likely to be possible, and moves go to one or two states.
        to = np.array([s]) if a == 0 and rng.random() < 0.7 else rng.choice(S, size=rng.integers(1, 3), replace=False)
        P[s, a, to] = rng.dirichlet(np.ones(len(to)))
    r, g = rng.random((S, A)), rng.random((N, S, A))
    return P, r, g, rng.uniform(0.3, 0.7, N)


@pytest.mark.parametrize(("models", "least"), [(45, 2), pytest.param(300, 10, marks=pytest.mark.long)])
def test_one_class_within_bounds_and_near_its_proved_limit(models, least):
    rng = np.random.default_rng(24)
    several = settled = 0
    for _ in range(models):
        P, r, g, rho = small_model(rng)
        S, A = r.shape
        allowed, mu = np.ones((S, A), dtype=bool), np.eye(S)[0]
        cmdp = ck.CMDP(P, r, g, rho, criterion="average")
        limit = limit_by_hand(P, r, g, rho, allowed, mu)
        try:
            found = ck.solve(cmdp, one_class=True, bridge=BRIDGE)
        except ck.Infeasible:
            assert limit is None
            continue
        except CmdpkitError:  # bounds that only mixtures meet
            assert limit is None
            continue
        cost = found.one_class
        proved = max(0.0, found.gap - cost.lost)  # how well the optimum of all policies is known
        assert limit is not None and limit - 1e-9 <= cost.limit <= limit + proved + 1e-8
        pi = found.policy.table(0)
        chain = np.einsum("sa,sat->st", pi, P)
        signals = np.array([(pi * x).sum(axis=1) for x in (r, *g)])
        values = averages(chain, signals, mu)
        assert values is not None, "several classes"
        assert found.value == pytest.approx(values[0], abs=1e-8)
        assert (values[1:] >= rho - 1e-8).all()
        assert found.value <= limit + 1e-9
        assert cost.lost == pytest.approx(cost.optimum - found.value, abs=1e-9)
        assert cost.optimum <= found.value + found.gap + 1e-12
        prices = 1 + found.shadow_prices.sum()
        if cost.stay is not None:
            several += 1
            assert limit - found.value <= 3 * BRIDGE * prices  # signals lie between 0 and 1
        else:
            assert found.value == pytest.approx(limit, abs=1e-8)
        settled += limit < cost.optimum - 1e-6
    assert min(several, settled) >= least  # both kinds occurred


@pytest.mark.parametrize("bridge", [0.1, 0.01, 1e-4, 1e-8])
def test_two_rooms_loses_twice_the_share_of_its_time(bridge):
    """By hand: a share b of the time is moves, 1/2 is needed in room 2, so 1/2 - b is left for room 1."""
    found = ck.solve(ck.load("two-rooms"), one_class=True, bridge=bridge)
    assert found.value == pytest.approx(0.5 - bridge, abs=1e-9)
    assert found.utilities[0] == pytest.approx(0.5, abs=1e-9)
    assert found.one_class.stay == pytest.approx(1 / bridge, rel=1e-6)


def chain_of_rooms(rooms, length, size, rng):
    """Rooms of some states in a row, joined by corridors where nothing is earned; each room is good for one signal."""
    S, A = rooms * size + (rooms - 1) * length, 3
    P, r, g = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((rooms - 1, S, A))
    for k in range(rooms):
        inside = np.arange(k * (size + length), k * (size + length) + size)
        for s, a in product(inside, range(A)):
            P[s, a, rng.choice(inside, 2, replace=False)] = rng.dirichlet(np.ones(2))
        (r if k == 0 else g[k - 1])[inside] = rng.uniform(0.5, 1.0, (size, A))
        if k:
            P[inside[0], 2] = np.eye(S)[inside[0] - 1]
        if k < rooms - 1:
            P[inside[-1], 2] = np.eye(S)[inside[-1] + 1]
            for s in range(inside[-1] + 1, inside[-1] + 1 + length):
                P[s, 0], P[s, 1], P[s, 2] = np.eye(S)[s - 1], np.eye(S)[s + 1], np.eye(S)[s]
    return ck.CMDP(P, r, g, np.full(rooms - 1, 0.2), criterion="average")


@pytest.mark.long
def test_hundreds_of_states_draw_in_few():
    rng = np.random.default_rng(5)
    cmdp = chain_of_rooms(3, 2, 80, rng)
    plain = ck.solve(cmdp)
    found = ck.solve(cmdp, one_class=True)
    assert not plain.attained and len(plain.stochastic_decisions()) > 200
    assert found.one_class.draws == len(found.stochastic_decisions()) <= 12
    assert found.one_class.share < 1e-3
    assert (found.utilities >= 0.2 - found.tolerance).all()


def test_an_optimum_with_one_class_is_returned():
    cmdp = ck.load("machine-two")
    plain, found = ck.solve(cmdp), ck.solve(cmdp, one_class=True)
    assert found.value == plain.value and found.one_class.lost == 0 and found.one_class.stay is None
    assert (found.policy.table(0) == plain.policy.table(0)).all()


def test_one_class_is_for_averages_only():
    with pytest.raises(CmdpkitError, match="one_class is True, but the model has a horizon"):
        ck.solve(ck.load("queue"), one_class=True)


def test_simplify_refuses_what_might_get_several_classes():
    with pytest.raises(CmdpkitError, match="a simpler policy may have several"):
        ck.simplify(ck.solve(ck.load("two-rooms"), one_class=True))
