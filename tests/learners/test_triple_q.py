"""Triple-Q against an independent implementation that keeps plain arrays and searches them in every step."""

import hashlib
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cmdpkit import CMDP, Policy, envs, evaluate, solve
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.random import stream, uniform
from cmdpkit.simulate.simulator import reset, step

pytestmark = pytest.mark.compiled

TripleQ = load("triple-q")


def small(N=1, **changes):
    return envs.build("random", **{"S": 6, "A": 3, "H": 4, "N": N, "conflict": 0.3, "seed": 1, **changes})


def reference(spec, p, sim, rng, n):
    """The algorithm as documented: Q [H, S, A], C [N, H, S, A] and Z after n episodes, and the returns [1+N, n]."""
    H, S, A, N, K = spec.H, spec.S, spec.A, spec.N, spec.K
    room = np.array([H - h if p.stepwise else H for h in range(H)], dtype=float)[:, None, None]
    Q = np.where(spec.allowed, p.reward_start * room, -np.inf)
    C = np.array([np.broadcast_to(room, (H, S, A)) for _ in range(N)]).reshape(N, H, S, A)
    visits, Z, debt, returns = np.zeros((H, S, A)), np.zeros(N), np.zeros(N), np.zeros((1 + N, n))
    drive, fading = np.zeros(N), p.explore_start
    short, swing = np.zeros(N), np.zeros(N)

    def weighted():
        value = Q.copy()
        for m in range(N):
            value += Z[m] / p.eta * C[m]
        return value

    best = weighted().argmax(axis=-1)

    def choose(h, s):
        explore = 1.0 - (1.0 - p.explore) * (1.0 - fading)
        if explore > 0 and uniform(rng) < explore:
            usable = np.flatnonzero(spec.allowed[h, s])
            return int(usable[int(uniform(rng) * len(usable))])
        return int(best[h, s])

    for k in range(1, n + 1):
        s = int(reset(sim, rng))
        a = choose(0, s)
        for h in range(H):
            s_next, x = step(sim, h, s, a, rng)
            signals = sim.outcomes[int(x)]
            a_next = choose(h + 1, int(s_next)) if h + 1 < H else 0
            if h == 0:
                drive += C[:, 0, s, a]
            visits[h, s, a] += 1
            t = visits[h, s, a]
            rate = (p.chi + 1) / (p.chi + t)
            for table, y, bonus in zip((Q, *C), signals, (p.reward_bonus, *N * [p.utility_bonus]), strict=True):
                seen = y + (table[h + 1, s_next, a_next] if h + 1 < H else 0.0)
                if bonus > 0:
                    seen += bonus / math.sqrt(p.bonus_offset + t)
                table[h, s, a] += rate * (seen - table[h, s, a])
            value = weighted()[h, s]
            if value.max() > value[best[h, s]] or a != best[h, s]:
                best[h, s] = value.argmax()
            returns[:, k - 1] += signals
            s, a = int(s_next), a_next
        fading *= p.explore_decay
        if k % p.frame == 0:
            earned = returns[1:, k - p.frame : k].sum(axis=1)
            debt += p.frame * spec.rho - earned
            eps = np.clip((debt + p.margin) / min(p.window, max(K - k, p.frame)), p.eps_low, p.eps_high)
            short, before = spec.rho + eps - (earned if p.realised else drive) / p.frame, short
            turned = np.where(np.sign(short) == -np.sign(before), np.abs(short - before) / 2, 0.0)
            swing = np.maximum(turned, swing * max(1 - p.frame / p.window, 0))
            Z = np.maximum(Z + short / np.maximum(1, swing / p.steady), 0.0)
            drive, visits = np.zeros(N), visits * p.keep
            share = (k / K) ** p.lift_power - ((k - p.frame) / K) ** p.lift_power
            ceilings = (p.reward_ceiling * room, *N * [room])
            starts = (p.reward_start * room, *N * [room])
            for table, lift, top, fresh in zip(
                (Q, *C), (p.reward_lift, *N * [p.utility_lift]), ceilings, starts, strict=True
            ):
                here = spec.allowed
                lifted = table[here] + (lift * share if lift > 0 else 0.0)
                table[here] = np.where(
                    lifted > np.broadcast_to(top, here.shape)[here], np.broadcast_to(fresh, here.shape)[here], lifted
                )
            best = weighted().argmax(axis=-1)
            for h, s in np.ndindex(H, S) if p.random_ties else ():
                tied = np.flatnonzero(weighted()[h, s] == weighted()[h, s].max())
                if len(tied) > 1:
                    best[h, s] = tied[int(uniform(rng) * len(tied))]
    return Q, C, Z, returns


# Every preset and every number of constraints is compiled anew, so that not all pairs are tried.
PAIRS = [pytest.param("practical", 0, marks=pytest.mark.long), ("practical", 2), *((x, 1) for x in TripleQ.presets)]


@pytest.mark.parametrize(("preset", "N"), PAIRS)
def test_tables_queues_and_returns_are_those_of_a_plain_implementation(preset, N):
    cmdp = small(N)
    allowed = cmdp.actions.copy()
    allowed[1, 2, 0] = allowed[2, 3, 1:] = False
    n = 400
    learner = TripleQ(Spec.of(cmdp, n, allowed), preset=preset)
    source, rng, same = Source.of(cmdp), stream(4), stream(4)
    returns = learner.run(source, rng, n)
    Q, C, Z, expected = reference(learner.spec, learner.params, source.simulator, same, n)
    np.testing.assert_array_equal(rng, same)
    np.testing.assert_allclose(np.stack([returns.reward, *returns.utilities]), expected, rtol=0, atol=1e-12)
    cells = learner.learned.cells[: Q.size, :-1].reshape(*Q.shape, 1 + N)
    for m, table in enumerate((Q, *C)):
        np.testing.assert_allclose(cells[allowed, m], table[allowed], rtol=1e-12, atol=0)
    np.testing.assert_allclose(learner.learned.queue, Z, rtol=1e-11, atol=1e-11)


def test_a_damped_queue_is_that_of_the_plain_implementation():
    cmdp, n = envs.build("streaming"), 400
    learner = TripleQ(Spec.of(cmdp, n), frame=8)
    source, rng, same = Source.of(cmdp), stream(4), stream(4)
    learner.run(source, rng, n)
    assert learner.learned.swing[0] > 2 * learner.params.steady  # the damping is at work
    *_, Z, _ = reference(learner.spec, learner.params, source.simulator, same, n)
    np.testing.assert_array_equal(rng, same)
    np.testing.assert_allclose(learner.learned.queue, Z, rtol=1e-11)


@pytest.mark.long
def test_a_queue_that_swings_between_two_extremes_is_damped_until_it_settles():
    """Fast always or never differs by ten: undamped, one frame pushes the price far beyond the right one.

    Seeds 0 to 2; the regrets of an episode are 0.8 to 0.9 without damping and below 0.06 with it.
    """
    cmdp, K = envs.build("streaming"), 300_000
    optimum = solve(cmdp).value

    def regret(seed, **changes):
        source = Source.of(cmdp, optimum)
        TripleQ(Spec.of(cmdp, K), **changes).run(source, stream(seed), K)
        return source.meter.tally().weak.regret / K

    assert max(regret(seed) for seed in range(3)) < 0.1
    assert min(regret(seed, steady=math.inf) for seed in range(3)) > 0.5


def test_two_frames_by_hand():
    """One state, one step: action 1 earns reward 1, action 2 utility 1, and the utility must average 0.5.

    Frame 1: both look worth 1, so action 1 is taken, and shown to earn 1, four times. Short by 4 * 0.5 = 2; repaying
    that over 8 episodes would be 0.25 each, but the tightening may be 0.1 at most: Z = 0.5 + 0.1 = 0.6, Z / eta = 0.3.
    Frame 2: action 2, untried, looks worth 1 + 0.3 * 1. It earns reward 0 and utility 1, hence 0.3 < 1: action 1 again,
    three times. Short by 2 + 4 * 0.5 - 1 = 3; Z = 0.6 + 0.5 + 0.1 - 0.25 = 0.95.
    """
    cmdp = CMDP(np.ones((1, 2, 1)), [[1.0, 0.0]], [[[0.0, 1.0]]], [0.5], horizon=1)
    settings = {
        "frame": 4,
        "eta": 2.0,
        "chi": 1.0,
        "keep": 0.5,
        "margin": 0.0,
        "window": 8.0,
        "eps_high": 0.1,
        "eps_low": 0.0,
    }
    learner = TripleQ(Spec.of(cmdp, 16), reward_lift=0.0, utility_lift=0.0, **settings)
    source, rng = Source.of(cmdp), stream(1)
    assert learner.run(source, rng, 4).reward.tolist() == [1, 1, 1, 1]
    assert learner.learned.queue.tolist() == [0.6]
    assert learner.multipliers.tolist() == [0.3]
    assert learner.learned.debt.tolist() == [2.0]
    assert learner.learned.cells[0].tolist() == [1.0, 0.0, 2.0]  # Q, C, and half of four visits
    assert learner.learned.cells[1].tolist() == [1.0, 1.0, 0.0]
    second = learner.run(source, rng, 4)
    assert second.reward.tolist() == [0, 1, 1, 1]
    assert second.utilities.tolist() == [[1, 0, 0, 0]]
    assert learner.learned.queue[0] == pytest.approx(0.95, abs=1e-15)
    assert learner.learned.debt.tolist() == [3.0]
    assert learner.usage().ravel().tolist() == [3, 1]  # of the last half


def digest(learner):
    joined = b"".join(array.tobytes() for array in learner.state().values())
    return hashlib.sha256(joined).hexdigest()


SHORT_RUN = """
import sys
sys.path[:0] = {folders!r}
from test_triple_q import Source, Spec, TripleQ, digest, small, stream
for preset in ("practical", "theory", "authors"):
    cmdp = small(1)
    learner = TripleQ(Spec.of(cmdp, 120), preset=preset)
    learner.run(Source.of(cmdp, 1.0, "bernoulli"), stream(6), 120)
    print(digest(learner))
"""


@pytest.mark.long
def test_compiled_and_interpreted_python_agree_to_the_bit(tmp_path):
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    command = [sys.executable, "-W", "ignore", "-c", SHORT_RUN.format(folders=folders)]
    slow = {**os.environ, "NUMBA_DISABLE_JIT": "1"}  # for the other process alone
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=slow)
    interpreted = done.stdout.split()
    compiled = []
    for preset in ("practical", "theory", "authors"):
        cmdp = small(1)
        learner = TripleQ(Spec.of(cmdp, 120), preset=preset)
        learner.run(Source.of(cmdp, 1.0, "bernoulli"), stream(6), 120)
        compiled.append(digest(learner))
    assert compiled == interpreted


@pytest.mark.long
def test_runs_on_threads_do_not_disturb_each_other():
    cmdp = small()
    sim = Source.of(cmdp).simulator

    def one(seed):
        learner = TripleQ(Spec.of(cmdp, 20_000))
        learner.run(Source.of(cmdp)._replace(simulator=sim), stream(seed), 20_000)
        return digest(learner)

    alone = [one(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == alone


@pytest.mark.long
@pytest.mark.parametrize("name", ["paper/synthetic", "paper/grid"])
def test_the_practical_preset_violates_nothing_on_average_and_loses_little(name):
    cmdp, K = envs.build(name), 100_000
    best = solve(cmdp).value
    tallies = []
    for seed in range(4):
        source = Source.of(cmdp, best)
        TripleQ(Spec.of(cmdp, K)).run(source, stream(seed), K)
        tallies.append(source.meter.tally().weak)
    assert np.mean([x.violation[0] for x in tallies]) <= 0
    assert np.mean([x.regret for x in tallies]) <= 0.02 * K * cmdp.H


@pytest.mark.long
def test_the_recommended_policy_is_nearly_optimal_and_uses_the_optimal_actions():
    cmdp = envs.build("paper/synthetic")
    learner = TripleQ(Spec.of(cmdp, 300_000))
    learner.run(Source.of(cmdp), stream(1), 300_000)
    v, w = evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
    assert v == pytest.approx(1.5731, abs=0.01)
    assert w[0] == pytest.approx(2.0, abs=0.01)
    needed = solve(cmdp).occupancy > 0
    assert np.all(learner.recommend()[needed] > 0.1)
    assert learner.multipliers[0] == pytest.approx(0.739, abs=0.1)


@pytest.mark.long
def test_without_constraints_it_finds_the_unconstrained_optimum():
    cmdp = small(0)
    learner = TripleQ(Spec.of(cmdp, 100_000))
    learner.run(Source.of(cmdp), stream(1), 100_000)
    assert evaluate(cmdp, Policy(learner.behaviour())).v == pytest.approx(solve(cmdp).value, abs=0.02)


def test_usage_counts_the_last_half_to_three_quarters_of_the_run():
    cmdp = small()
    learner, rng, source = TripleQ(Spec.of(cmdp, 10_000)), stream(1), Source.of(cmdp)  # frames of 100
    for episodes, counted in ((50, 50), (350, 200), (400, 400), (1100, 1100), (100, 1200), (4500, 3300)):
        learner.run(source, rng, episodes)
        assert learner.usage()[0].sum() == counted
        assert learner.usage().sum() == cmdp.H * counted


@pytest.mark.long
def test_an_impossible_bound_is_noticed():
    cmdp = small(slack=-0.2)
    learner = TripleQ(Spec.of(cmdp, 100_000))
    assert learner.warnings() == ()
    learner.run(Source.of(cmdp), stream(1), 100_000)
    (said,) = map(str, learner.warnings())
    short = float(said.partition("missed by ")[2].partition(" ")[0])
    assert short == pytest.approx(0.2 * cmdp.H, rel=0.1)
    assert "may be impossible" in said


@pytest.mark.long
def test_a_bound_that_is_met_is_not_warned_about():
    cmdp = small()
    learner = TripleQ(Spec.of(cmdp, 100_000))
    learner.run(Source.of(cmdp), stream(1), 100_000)
    assert learner.warnings() == ()


def test_the_theory_s_constants_are_said_to_be_vacuous_and_the_others_are_not():
    spec = Spec.of(envs.build("paper/synthetic"), 7_000_000)
    said = TripleQ(spec, preset="theory").notes
    assert len(said) == 3
    assert "eps is 1e+06 times the largest total" in said[0]  # by hand: eps = 3e6 and a bonus of 35.8, where H = 3
    assert "first visit is 11.9 times the largest total reward" in said[1]
    assert TripleQ(spec).notes == ()
    assert "more than 32% of the largest total reward" in TripleQ(spec, preset="authors").notes[0]


def test_the_theory_s_constants_are_the_paper_s():
    spec = Spec.of(envs.build("paper/synthetic"), 7_000_000)
    p = TripleQ(spec, preset="theory").params
    iota = 128 * math.log(math.sqrt(2 * 27) * 7e6)
    assert iota == pytest.approx(2273, abs=1)
    assert (p.frame, p.eta, p.chi) == (math.ceil(7e6**0.6), 7e6**0.2, 7e6**0.2)
    chi = p.chi
    for t in (1, 10, 1000):
        bonus = p.reward_bonus / math.sqrt(p.bonus_offset + t)
        assert bonus == pytest.approx(0.25 * math.sqrt(9 * iota * (chi + 1) / (chi + t)))
    assert p.eps_low == p.eps_high == pytest.approx(8 * math.sqrt(9 * 3**6 * iota**3) / 7e6**0.2)


def test_authors_explore_at_random_at_first_and_three_percent_for_ever():
    cmdp = small()
    learner = TripleQ(Spec.of(cmdp, 20_000), preset="authors")
    np.testing.assert_allclose(learner.behaviour(), Policy.uniform(cmdp).pi)
    learner.run(Source.of(cmdp), stream(1), 20_000)
    assert learner.behaviour().min() == pytest.approx(0.01)
