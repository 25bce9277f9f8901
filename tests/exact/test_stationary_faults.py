"""Problems without a horizon that were once answered wrongly or refused, each with its answer by hand."""

from fractions import Fraction

import numpy as np
import pytest
import stationary_rational as rational
from scipy.sparse import csr_array
from stationary_adversarial import examine, instance, made_of
from stationary_oracle import optimum

import cmdpkit as ck

pytestmark = pytest.mark.compiled


def faults(cmdp: ck.CMDP) -> list[str]:
    return examine(made_of(cmdp)).faults


# A number that is almost never met does not switch a bound off.


def test_a_huge_cost_in_a_state_that_is_left_at_once_for_ever_has_no_influence():
    P = np.zeros((2, 2, 2))
    P[0, :, 1] = P[1, :, 1] = 1
    cost = ck.at_most("cost", 0.25, [[1e12, 1e12], [0, 1.0]])
    solution = ck.solve(ck.CMDP(P, [[0, 0], [0, 1.0]], mu=0, criterion="average", constraints=[cost]))
    assert solution.value == pytest.approx(0.25, abs=1e-9)
    assert solution.utilities[0] <= 0.25 + 1e-10
    assert solution.shadow_prices == pytest.approx([1.0])
    assert solution.tolerance[0] <= 1.1e-10


def test_a_huge_cost_after_sixty_discounted_steps_counts_with_its_weight():
    """0.5^60 of 1e12 is 8.7e-7, whatever is done; working at the first step earns 1 and costs 1."""
    S = 62
    P = np.zeros((S, 2, S))
    P[np.arange(S), :, np.minimum(np.arange(S) + 1, S - 1)] = 1
    r, cost = np.zeros((S, 2)), np.zeros((S, 2))
    r[0, 1] = cost[0, 1] = 1
    cost[60] = 1e12
    solution = ck.solve(ck.CMDP(P, r, mu=0, discount=0.5, constraints=[ck.at_most("cost", 0.25, cost)]))
    assert solution.value == pytest.approx(0.25 - 1e12 * 0.5**60, abs=1e-9)
    assert solution.utilities[0] <= 0.25 + 1e-9


def test_a_huge_cost_of_tiny_probability_counts_with_its_expectation():
    """An accident of 1e12 with probability 1e-12 costs 1, so half of the work fits into a bound of 1.5."""
    P = np.zeros((3, 2, 3))
    P[0, :, 1], P[0, :, 2], P[1, :, 2], P[2, :, 2] = 1e-12, 1 - 1e-12, 1, 1
    cost = ck.at_most("cost", 1.5, [[0, 1.0], [1e12, 1e12], [0, 0]])
    solution = ck.solve(ck.CMDP(P, [[0, 1.0], [0, 0], [0, 0]], mu=0, criterion="total", constraints=[cost]))
    assert solution.value == pytest.approx(0.5, abs=1e-8)
    assert solution.utilities[0] <= 1.5 + 1e-9


@pytest.mark.parametrize("how", [{"criterion": "average"}, {"discount": 0.9}])
def test_a_bound_on_what_happens_in_a_rare_state_is_kept_to_its_own_scale(how):
    """Once in 1e9 steps there is something to decide; a quarter of that is allowed, and nothing is too little."""
    P = np.zeros((2, 2, 2))
    P[0, :], P[1, :, 0] = [1 - 1e-9, 1e-9], 1
    work = np.array([[0.0, 0.0], [0.0, 1.0]])
    free = ck.solve(ck.CMDP(P, work, mu=0, **how))
    for share in (0.25, -1e-3):
        cost = ck.at_most("cost", share * free.value, work)
        cmdp = ck.CMDP(P, work, mu=0, constraints=[cost], **how)
        if share > 0:
            solution = ck.solve(cmdp)
            assert solution.value == pytest.approx(share * free.value, rel=1e-6)
            assert faults(cmdp) == []
        else:
            with pytest.raises(ck.Infeasible):
                ck.solve(cmdp)


# Rooms that are rarely left.


@pytest.mark.parametrize("leaving", [1e-4, 1e-5, 1e-6, 1e-7])
def test_rooms_that_are_rarely_left_are_solved_under_every_feasible_bound(leaving):
    for seed in range(15):
        rng = np.random.default_rng([17, seed])
        p = leaving * rng.uniform(0.5, 1.5, (2, 2))
        P = np.stack([np.stack([1 - p[0], p[0]], -1), np.stack([p[1], 1 - p[1]], -1)])
        r, g = rng.random((2, 2)), rng.random((2, 2))
        w = [float(x[1]) for x in rational.Model(ck.CMDP(P, r, g[None], [0.0], criterion="average")).points()]
        rho = min(w) + rng.uniform(0.05, 0.95) * (max(w) - min(w))
        assert faults(ck.CMDP(P, r, g[None], [rho], criterion="average")) == [], seed


# Feasible problems are solved.


def test_a_bridge_does_not_use_what_the_bounds_exclude():
    """Two rooms with doors, each with a fire that burns and may not be lit at all: half of the time in each room."""
    P, r = np.zeros((2, 3, 2)), np.zeros((2, 3))
    for s in (0, 1):
        P[s, 0, s] = P[s, 1, 1 - s] = P[s, 2, s] = 1  # stay, change rooms, light a fire
    r[0, 0], r[:, 2] = 1.0, 5.0
    stay, fire = np.zeros((2, 3)), np.zeros((2, 3))
    stay[1, 0], fire[:, 2] = 1.0, 1.0
    bounds = [ck.at_least("second room", 0.5, stay), ck.at_most("fire", 0.0, fire)]
    cmdp = ck.CMDP(P, r, mu=0, criterion="average", constraints=bounds)
    solution = ck.solve(cmdp)
    assert 0.5 - 1e-3 <= solution.value <= 0.5 + 1e-9
    assert faults(cmdp) == []


# Proofs.


@pytest.mark.parametrize("discount", [0.9, 0.9999, 0.999999])
def test_gaps_of_nearly_constant_signals_are_not_below_the_true_ones(discount):
    for seed in range(6):
        rng = np.random.default_rng([19, seed])
        P = rng.dirichlet(np.ones(2), (2, 2))
        r, g = rng.random((2, 2)), 1 + 1e-9 * rng.random((2, 2))
        model = rational.Model(ck.CMDP(P, r, g[None], [0.0], discount=discount))
        w = [float(x[1]) for x in model.points()]
        rho = min(w) + rng.uniform(0.1, 0.9) * (max(w) - min(w))
        assert faults(ck.CMDP(P, r, g[None], [rho], discount=discount)) == [], seed


# Shortest paths.


def grid(n: int, slips: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P [S, 4, S], costs and another cost [S, 4]: the goal is the far corner, steps slip with 0.2 (0.05 each way)."""
    rng = np.random.default_rng(seed)
    S, moves = n * n, ((0, 1), (1, 0), (0, -1), (-1, 0))
    to = [[min(max(s // n + a, 0), n - 1) * n + min(max(s % n + b, 0), n - 1) for a, b in moves] for s in range(S)]
    P = np.zeros((S, 4, S))
    for s in range(S - 1):
        for a in range(4):
            P[s, a, to[s][a]] += 0.8
            for b in range(4) if slips == "all" else ((a + 1) % 4, (a + 3) % 4) * 2:
                P[s, a, to[s][b]] += 0.05
    P[S - 1, :, S - 1] = 1
    cost, other = (rng.uniform(0.1, 1.0, (S, 4)) for _ in range(2))
    cost[-1] = other[-1] = 0
    return P, cost, other


def value_iteration(P: np.ndarray, cost: np.ndarray) -> float:
    """The least expected cost from the first state; every step costs something, so the iteration ends."""
    V = np.zeros(len(cost))
    for _ in range(100_000):
        new = (cost + P @ V).min(axis=1)
        if np.abs(new - V).max() < 1e-13:
            return float(new[0])
        V = new
    raise AssertionError("value iteration does not end")


@pytest.mark.parametrize("n", [5, 11, 15])
@pytest.mark.parametrize("slips", ["all", "sides"])
def test_the_textbook_shortest_path_is_solved(n, slips):
    P, cost, _ = grid(n, slips)
    least = value_iteration(P, cost)
    solution = ck.solve(ck.CMDP(P, -cost, mu=0, criterion="total"))
    assert solution.value == pytest.approx(-least, abs=1e-8)
    assert 0 <= solution.gap <= 1e-6 * least
    assert ck.evaluate(solution.cmdp, solution.policy).v == pytest.approx(solution.value, rel=1e-12)


@pytest.mark.parametrize("slips", ["all", "sides"])
def test_a_shortest_path_with_a_bound_meets_it_at_a_price_that_proves_it(slips):
    """The Lagrangian at the price is solved by value iteration: no policy does better."""
    P, cost, other = grid(9, slips)
    free = ck.solve(ck.CMDP(P, -cost, mu=0, criterion="total"))
    used = ck.evaluate(ck.CMDP(P, -other, mu=0, criterion="total"), free.policy).v
    bound = (-used + value_iteration(P, other)) / 2
    cmdp = ck.CMDP(P, -cost, mu=0, criterion="total", constraints=[ck.at_most("other", bound, other)])
    solution = ck.solve(cmdp)
    assert solution.utilities[0] <= bound + 1e-8
    assert len(solution.stochastic_decisions()) <= 1
    price = solution.shadow_prices[0]
    assert price > 0
    proved = -value_iteration(P, cost + price * other) + price * bound
    assert proved - 1e-9 <= solution.value + solution.gap
    assert solution.value == pytest.approx(proved, abs=1e-6)
    found = ck.evaluate(cmdp, solution.policy)
    assert found.v == pytest.approx(solution.value, rel=1e-12)
    assert found.w == pytest.approx(solution.utilities, rel=1e-12)


def test_exits_that_can_be_avoided_with_rewards_of_both_signs_are_refused_with_the_reason():
    P, cost, _ = grid(3, "sides")
    r = -cost
    r[0, 0] = 1.0
    with pytest.raises(ck.CmdpkitError, match="forever"):
        ck.solve(ck.CMDP(P, r, mu=0, criterion="total"))


def test_a_bound_that_only_an_endless_policy_meets_is_infeasible():
    """Reaching the goal costs at least 1 of toll, and whoever stays out pays for every step forever."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 1] = P[0, 1, 0] = P[1, :, 1] = 1
    toll = ck.at_most("toll", 0.5, [[1.0, 0.0], [0, 0]])
    cmdp = ck.CMDP(P, [[-1.0, -1.0], [0, 0]], mu=0, criterion="total", constraints=[toll])
    with pytest.raises(ck.Infeasible):
        ck.solve(cmdp)
    assert ck.solve(cmdp.with_bounds(toll=1.0)).value == pytest.approx(-1.0)


# Trade-offs and prices.


@pytest.mark.parametrize("how", [{"criterion": "average"}, {"discount": 0.9}])
def test_a_trade_off_whose_other_bounds_clash_says_so(how):
    one = np.array([[0.0, 1.0]])
    bounds = [ck.at_most("a", 0.1, one), ck.at_least("b", 0.9, one), ck.at_most("c", 1.0, one)]
    scale = 1.0 if "criterion" in how else 10.0
    cmdp = ck.CMDP(np.ones((1, 2, 1)), one, constraints=bounds, **how)
    cmdp = cmdp.with_bounds(a=0.1 * scale, b=0.9 * scale, c=scale)
    with pytest.raises(ck.Infeasible):
        ck.tradeoff(cmdp, "c", 3)


def test_a_bound_has_its_price_where_its_signal_is_huge_or_tiny():
    for unit in (1e-8, 1.0, 1e8):
        for how in ({"criterion": "average"}, {"discount": 0.99}):
            steps = 1.0 if "criterion" in how else 100.0
            cost = ck.at_most("cost", 0.25 * unit * steps, [[0.0, unit]])
            solution = ck.solve(ck.CMDP(np.ones((1, 2, 1)), [[0.0, 1.0]], constraints=[cost], **how))
            assert solution.shadow_prices == pytest.approx([1 / unit])
            assert solution.binds.all()


def test_a_discounted_problem_by_hand_in_fractions():
    """Two actions in one state: a share of the second meets the bound exactly, and the value follows from it."""
    low, bound, high = 1.00000000059, 1.00000000078, 1.00000000091
    cost = ck.at_most("cost", bound / (1 - 0.5), [[low, high]])
    solution = ck.solve(ck.CMDP(np.ones((1, 2, 1)), [[0.0, 1.0]], constraints=[cost], discount=0.5))
    share = (Fraction(bound) - Fraction(low)) / (Fraction(high) - Fraction(low))
    assert solution.value == pytest.approx(2 * float(share), abs=1e-5)
    assert Fraction(solution.value) + Fraction(solution.gap) >= 2 * share


def test_where_absorption_can_be_avoided_a_diagnosis_leaves_out_infinite_totals():
    """One state that is left at a cost, or stayed in for nothing but the reward of -1 per step."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 1], P[0, 1, 0], P[1, :, 1] = 1, 1, 1
    cost = ck.at_most("cost", 2.0, [[1.0, 0.0], [0.0, 0.0]])
    cmdp = ck.CMDP(P, [[-1.0, -1.0], [0.0, 0.0]], mu=0, criterion="total", constraints=[cost])
    found = ck.diagnose(cmdp, separation=True)
    assert found.solution.value == pytest.approx(-1.0) and found.solution.utilities == pytest.approx([1.0])
    assert all(row.state != cmdp.states[0] for row in found.separation), "without leaving, no total is finite"
    with pytest.raises(ck.CmdpkitError, match=r"range of bounds of 'cost' is not known.*Give low= and high="):
        ck.tradeoff(cmdp, "cost")
    curve = ck.tradeoff(cmdp, "cost", 2, low=0.5, high=1.5)
    assert curve.values == pytest.approx([-1.0]) and curve.infeasible == pytest.approx([0.5])


@pytest.mark.parametrize("k", [1309, 2149, 2270, 2489])
def test_the_value_that_is_told_is_the_exact_one_of_the_policy(k):
    """In these problems it was once off in the tenth to twelfth digit, where states are left very rarely."""
    assert not examine(instance(np.random.default_rng([8, k]))).faults


def test_a_start_that_is_partly_absorbed_counts_with_the_rest_of_its_probability():
    """Every step ends with 1/2, so 2 steps are expected from state 1, and the run is there with probability 1/2."""
    P = np.zeros((2, 2, 2))
    P[0, :, 0] = P[0, :, 1] = 0.5
    P[1, :, 1] = 1.0
    bound = [ck.at_most("cost", 0.25, [[1.0, 0.0], [0.0, 0.0]])]
    cmdp = ck.CMDP(P, [[3.0, 1.0], [0.0, 0.0]], mu=[0.5, 0.5], criterion="total", constraints=bound)
    found = ck.solve(cmdp)
    assert found.value == pytest.approx(1.5, abs=1e-12)  # a quarter of the steps take the first action
    assert found.utilities[0] == pytest.approx(0.25, abs=1e-9)
    assert ck.solve(cmdp.with_bounds(cost=1.0)).value == pytest.approx(3.0, abs=1e-12)


# A class that is left once in 1e13 steps.


@pytest.mark.parametrize("buffer", [40, 50, 60])
def test_a_full_buffer_is_emptied_as_rarely_as_the_bound_allows(buffer):
    """Without power a full buffer stays full and costs nothing; with full power it hardly ever fills up.

    Mixing these two is optimal (the hull of all policies, by the linear program), and the policy that attains it draws
    in the full buffer, with a probability that no occupancy shows.
    """
    cmdp = ck.load("wireless", buffer=buffer, low=0.0, high=1.0)
    P, r, g = cmdp.P[0], cmdp.r[0], cmdp.g[:, 0]
    found = ck.solve(cmdp)
    assert found.value == pytest.approx(optimum(P, r, g, cmdp.rho, cmdp.mu, "average"), abs=1e-7)
    rules = (lambda state: "low"), (lambda state: "high" if state else "low")
    idle, busy = (ck.evaluate(cmdp, ck.Policy.of(cmdp, rule)) for rule in rules)
    share = (busy.w[0] - 3) / (busy.w[0] - idle.w[0])
    assert found.value == pytest.approx(busy.v + share * (idle.v - busy.v), rel=1e-9)
    assert found.attained and found.gap <= 1e-9 * found.value
    again = ck.evaluate(cmdp, found.policy)
    assert again.v == found.value and again.w[0] <= 3 + found.tolerance[0]


def settling() -> ck.CMDP:
    """From the first state a run settles in the second or in the third; the second costs 1 at every step."""
    P = [[[0.0, 0.5, 0.5]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]]
    bound = ck.at_most("g", 0.0, [[1.0], [1.0], [0.0]])
    return ck.CMDP(P, [[0.0], [1.0], [2.0]], mu=[0.2, 0.0, 0.8], criterion="average", constraints=[bound])


def apart(discount: float) -> ck.CMDP:
    """Two of eight states follow each other, and one of them costs 9 a step; all others are never left."""
    P = np.eye(8)
    P[1, [1, 3]], P[3, [1, 3]] = [0.3, 0.7], [0.9, 0.1]
    bound = ck.at_most("g", 0.0, 9.0 * np.eye(8)[3][:, None])
    return ck.CMDP(P[:, None], np.zeros((8, 1)), mu=np.full(8, 1 / 8), discount=discount, constraints=[bound])


@pytest.mark.parametrize("model", [settling(), apart(0.9999), apart(0.999999)])
def test_the_only_policy_may_lie_exactly_on_its_bound(model):
    """Its total is known up to an error, for which a range of nothing leaves no room."""
    ((value, total),) = rational.Model(model).points()
    solution = ck.solve(model.with_bounds(g=float(-total)))
    assert solution.value == pytest.approx(float(value), rel=1e-12)
    assert solution.utilities == pytest.approx([float(-total)], rel=1e-12)
    assert solution.tolerance[0] < 1e-10 * float(-total)
    with pytest.raises(ck.Infeasible):
        ck.solve(model.with_bounds(g=float(-total) * (1 - 1e-9)))


# A board on which a policy may have two basins that it leaves once in 1e20 steps or more.

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


def board(side, slip, seed):
    """P [S, A, S], rewards and costs [S, A] of a walk that slips to either side, on a board with walls."""
    rng, places = np.random.default_rng(seed), np.argwhere(np.ones((side, side)))
    P = np.zeros((side * side, 4, side * side))
    for a in range(4):
        for b, share in ((a, 1 - slip), *((b, slip / 2) for b in range(4) if a // 2 != b // 2)):
            to = np.clip(places + MOVES[b], 0, side - 1)
            P[np.arange(side * side), a, to[:, 0] * side + to[:, 1]] += share
    return P, rng.random((side * side, 4)), rng.random((side * side, 4))


def averages(P, x, sweeps=4_000):
    """A lower and an upper bound on the best long-run average of x [S, A], by relative value iteration."""
    S, A = x.shape
    rows, h = csr_array(P.reshape(S * A, S)), np.zeros(S)
    for _ in range(sweeps):
        change = (x + (rows @ h).reshape(S, A)).max(axis=1) - h
        h = h + 0.9 * (change - change[0])
    return change.min(), change.max()


@pytest.mark.parametrize("seed", [0, 4])
def test_averages_on_a_board_are_those_of_relative_value_iteration(seed):
    """The values of seed 0 were -2.7e9 once, and those of seed 4 had a gap of 4e15."""
    P, r, _ = board(31, 0.15, seed)
    low, high = averages(P, r)
    found = ck.solve(ck.CMDP(P, r, criterion="average"))
    assert high - low < 1e-9 and low - 1e-9 <= found.value <= high + 1e-9
    assert found.gap <= 1e-9 and found.ended == "optimal"


def test_a_bound_on_a_board_is_met_at_the_value_that_its_price_proves():
    """The cost was -0.2 once, though no step costs less than 0."""
    P, r, cost = board(31, 0.15, 0)
    found = ck.solve(ck.CMDP(P, r, criterion="average", constraints=[ck.at_most("cost", 0.4, cost)]))
    low, high = averages(P, r + found.shadow_prices[0] * (0.4 - cost))
    assert found.shadow_prices[0] > 0 and low - 1e-9 <= found.value <= high + 1e-9
    assert found.gap <= 1e-9 and found.ended == "optimal" and found.utilities[0] <= 0.4 + found.tolerance[0]
    assert found.tolerance[0] <= 1e-9


def test_an_answer_with_a_gap_is_not_called_optimal(monkeypatch):
    monkeypatch.setattr("cmdpkit.exact.solver.MAX_OPTIMAL_GAP", 0.0)
    found = ck.solve(ck.load("machine-two"))
    assert found.gap > 0 and found.ended == "precision" and found.complete
    assert "Double precision proves no more" in str(found) and "optimal" not in str(found)
