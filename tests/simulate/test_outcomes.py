"""What single episodes bring: drawn from outcomes, against formulas, all paths, and simulations that know no model."""

import math
import re
from itertools import product

import numpy as np
import pytest
from scipy import stats

import cmdpkit as ck
from cmdpkit import envs
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator, reset, step


def failing(**more):
    """A machine that fails in each of ten steps with 10 %, and counts its failures by the next state."""
    return ck.CMDP.from_function(
        start="ok",
        horizon=10,
        actions=["run"],
        step=lambda s, a: {"ok": 0.9, "fail": 0.1},
        reward=lambda s, a: 1.0,
        constraints=[ck.at_most("failures", 2.0, lambda s, a, s_next: float(s_next == "fail"))],
        **more,
    )


def claims(**more):
    """The same failures without a state that shows them."""
    return ck.CMDP.from_function(
        start="on",
        horizon=10,
        actions=["run"],
        outcome=lambda s, a: [(0.9, "on", 1.0, {"failures": 0}), (0.1, "on", 1.0, {"failures": 1})],
        constraints=[ck.at_most("failures", 2.0)],
        **more,
    )


# -- by formula --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [failing, claims])
def test_failures_are_binomial(build):
    cmdp, truth = build(), stats.binom(10, 0.1)
    policy = ck.Policy.uniform(cmdp)
    found = ck.exact_distribution(cmdp, policy, "failures")
    assert found.above(0.5) == pytest.approx(0.6513, abs=5e-5)
    assert found.above(2.0) == pytest.approx(0.0702, abs=5e-5)
    assert found.totals.tolist() == list(range(11))
    assert found.probabilities == pytest.approx(truth.pmf(range(11)), abs=1e-14)
    share = ck.simulate_policy(cmdp, policy, 20_000).above("failures", 2.0)
    assert abs(share.estimate - truth.sf(2)) < 4 * math.sqrt(truth.sf(2) * truth.cdf(2) / 20_000)  # wrong 1 in 15,000
    course = ck.time_course(cmdp, policy, "failures", share=0.85)  # from 7.5 % to 92.5 %, which 10 % of failures reach
    assert course.mean == pytest.approx(0.1) and set(course.low) == {0.0} and set(course.high) == {1.0}


def test_demands_are_poisson():
    demand = stats.poisson(3.0)
    cmdp = ck.CMDP.from_function(
        start="open",
        horizon=4,
        actions=["sell"],
        outcome=lambda s, a: [(demand.pmf(d), "open", float(d)) for d in range(60)],
    )
    found = ck.exact_distribution(cmdp, ck.Policy.uniform(cmdp))
    assert found.probabilities[:40] == pytest.approx(stats.poisson(12.0).pmf(range(40)), abs=1e-12)
    played = ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 50_000, seed=2).totals["reward"]
    counts = np.bincount(np.minimum(np.rint(played).astype(int), 25), minlength=26)
    odds = np.append(stats.poisson(12.0).pmf(range(25)), stats.poisson(12.0).sf(24))
    assert stats.chisquare(counts[2:], odds[2:] / odds[2:].sum() * counts[2:].sum()).pvalue > 1e-4


def test_means_are_those_of_the_outcomes_and_nothing_else_changes():
    drawn = ck.CMDP.from_function(
        start=0,
        horizon=6,
        actions=["slow", "fast"],
        outcome=lambda s, a, h: [
            (0.5, min(s + 1, 3), 1.0 + h, {"wear": 2.0 if a == "fast" else 0.5}),
            (0.25, min(s + 1, 3), 3.0, {"wear": 0.0}),
            (0.25, 0, -1.0, {"wear": float(s)}),
        ],
        constraints=[ck.at_most("wear", 4.0)],
    )
    means = ck.CMDP.from_function(
        start=0,
        horizon=6,
        actions=["slow", "fast"],
        step=lambda s, a: {min(s + 1, 3): 0.75, 0: 0.25},
        reward=lambda s, a, h: 0.5 * (1.0 + h) + 0.75 - 0.25,
        constraints=[ck.at_most("wear", 4.0, lambda s, a: (1.0 if a == "fast" else 0.25) + 0.25 * s)],
    )
    assert drawn.kernel.T == 1 and np.array_equal(drawn.P, means.P)
    assert drawn.r == pytest.approx(means.r, abs=1e-14) and drawn.g == pytest.approx(means.g, abs=1e-14)
    assert ck.solve(drawn).value == pytest.approx(ck.solve(means).value, abs=1e-12)
    uniform = ck.Policy.uniform(means)
    assert ck.evaluate(drawn, uniform).v == pytest.approx(ck.evaluate(means, uniform).v, abs=1e-12)
    assert ck.evaluate(drawn, uniform).w == pytest.approx(ck.evaluate(means, uniform).w, abs=1e-12)
    assert drawn != means and drawn.fingerprint() != means.fingerprint()


# -- all paths ---------------------------------------------------------------------------------------------------------


def random_outcomes(seed, *, timed):
    """A model with three states, two actions and three outcomes for each, whole signals; and its table."""
    rng = np.random.default_rng(seed)
    table = {
        (h, s, a): [
            (p, int(rng.integers(3)), float(rng.integers(3)), float(rng.integers(-1, 3)))
            for p in rng.dirichlet(np.ones(3))
        ]
        for h, s, a in product(range(4 if timed else 1), range(3), range(2))
    }

    def at(h, s, a):
        return table[h if timed else 0, s, a]

    def named(h, s, a):
        return [(p, s_next, r, {"use": x}) for p, s_next, r, x in at(h, s, a)]

    by_step = {"outcome": lambda s, a, h: named(h, s, a)} if timed else {"outcome": lambda s, a: named(0, s, a)}
    bounds = [ck.at_least("use", 1.0)]
    cmdp = ck.CMDP.from_function(start=0, horizon=4, actions=[0, 1], states=range(3), constraints=bounds, **by_step)
    return cmdp, at


def random_policy(cmdp, seed):
    pi = np.random.default_rng(seed).dirichlet(np.ones(cmdp.A), (cmdp.H, cmdp.S))
    return ck.Policy(pi, cmdp.states, cmdp.action_names)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_distribution_and_course_are_those_of_all_paths(seed, timed):
    cmdp, at = random_outcomes(seed, timed=timed)
    policy = random_policy(cmdp, seed)
    totals, at_step = {}, [{} for _ in range(4)]
    paths = [(1.0, 0, 0.0)]
    for h in range(4):
        later = []
        for q, s, total in paths:
            for a in range(2):
                for p, s_next, _, use in at(h, s, a):
                    odds = q * policy.pi[h, s, a] * p
                    later.append((odds, s_next, total + use))
                    at_step[h][use] = at_step[h].get(use, 0.0) + odds
        paths = later
    for q, _, total in paths:
        totals[total] = totals.get(total, 0.0) + q
    found = ck.exact_distribution(cmdp, policy, "use")
    assert found.totals.tolist() == sorted(totals)
    assert found.probabilities == pytest.approx([totals[x] for x in sorted(totals)], abs=1e-13)
    course = ck.time_course(cmdp, policy, "use", share=0.8)
    for h, odds in enumerate(at_step):
        assert course.mean[h] == pytest.approx(sum(x * p for x, p in odds.items()), abs=1e-13)
        below = np.cumsum([odds[x] for x in sorted(odds)])
        assert course.low[h] == sorted(odds)[int(np.searchsorted(below, 0.1))]
        assert course.high[h] == sorted(odds)[int(np.searchsorted(below, 0.9))]


# -- independent simulations -------------------------------------------------------------------------------------------
# Each world is played by a function that knows no model, and described to cmdpkit; both have the same totals.

N = 40_000


def bursts():
    """A line with batches: what leaves is counted, and cannot be told from the length of the line."""

    def play(rng):
        length, left = np.zeros(N, dtype=int), np.zeros(N)
        for _ in range(12):
            served = np.minimum(rng.binomial(2, 0.6, N), length)
            left += served
            length = np.minimum(length - served + rng.binomial(3, 0.3, N), 6)
        return left

    def outcome(length, a):
        found = []
        for k, j in product(range(3), range(4)):
            served, p = min(k, length), stats.binom(2, 0.6).pmf(k) * stats.binom(3, 0.3).pmf(j)
            found.append((p, min(length - served + j, 6), 0.0, {"count": float(served)}))
        return found

    return {"start": 0, "horizon": 12, "actions": ["go"], "outcome": outcome}, play


def rare_claims():
    """Claims of 40 once in 250 and of 1 otherwise, twice as often in the second half of the year."""

    def play(rng):
        total = np.zeros(N)
        for h in range(24):
            total += np.where(rng.random(N) < (1 + (h >= 12)) / 250, 40.0, 1.0)
        return total

    def outcome(s, a, h):
        p = (1 + (h >= 12)) / 250
        return [(p, s, 0.0, {"count": 40.0}), (1 - p, s, 0.0, {"count": 1.0})]

    return {"start": "on", "horizon": 24, "actions": ["insure"], "outcome": outcome}, play


def ageing():
    """Failures that grow likelier with the step and cost more after a good step: next state and step together."""

    def play(rng):
        down, cost = np.zeros(N, dtype=bool), np.zeros(N)
        for h in range(8):
            fails = rng.random(N) < 0.05 * (h + 1)
            cost += np.where(fails & ~down, 3.0 + h, 0.0)
            down = fails
        return cost

    return {
        "start": "up",
        "horizon": 8,
        "actions": ["run"],
        "step": lambda s, a, h: {"down": 0.05 * (h + 1), "up": 1 - 0.05 * (h + 1)},
        "reward": lambda s, a: 1.0,
        "signal": lambda s, a, s_next, h: 3.0 + h if s_next == "down" and s == "up" else 0.0,
    }, play


def slippery():
    """The holes of a frozen lake of two by three, under a fixed direction."""

    def go(cell, way):
        row, column = divmod(cell, 3)
        return min(row + 1, 1) * 3 + column if way else row * 3 + min(column + 1, 2)

    def play(rng):
        cell, falls = np.zeros(N, dtype=int), np.zeros(N)
        for _ in range(6):
            way = rng.random(N) < 0.5
            there = np.array([[go(c, w) for w in (0, 1)] for c in range(6)])[cell, way.astype(int)]
            there = np.where(np.isin(cell, (4, 5)), cell, there)
            falls += (there == 4) & (cell != 4)
            cell = there
        return falls

    return {
        "start": 0,
        "horizon": 6,
        "actions": ["slide"],
        "step": lambda s, a: [(1.0, s)] if s in (4, 5) else [(0.5, go(s, 0)), (0.5, go(s, 1))],
        "reward": lambda s, a: 0.0,
        "signal": lambda s, a, s_next: float(s_next == 4 and s != 4),
    }, play


@pytest.mark.parametrize("world", [bursts, rare_claims, ageing, slippery])
def test_single_episodes_are_those_of_a_simulation_that_knows_no_model(world):
    described, play = world()
    cmdp = ck.CMDP.from_function(constraints=[ck.at_most("count", 5.0, described.pop("signal", None))], **described)
    policy, truth = ck.Policy.uniform(cmdp), play(np.random.default_rng(11))
    played = ck.simulate_policy(cmdp, policy, N, seed=3)
    exact = ck.exact_distribution(cmdp, policy, "count")
    assert played.of_means == (() if "outcome" in described else ("reward",))
    values, counts = np.unique(truth, return_counts=True)
    common = counts >= 25
    odds = [exact.probabilities[exact.totals == x].sum() for x in values[common]]
    observed = np.append(counts[common], N - counts[common].sum())
    expected = np.append(odds, max(1 - sum(odds), 1e-12)) * N
    used = expected > 5
    scale = observed[used].sum() / expected[used].sum()
    assert stats.chisquare(observed[used], expected[used] * scale).pvalue > 1e-4
    for limit in np.quantile(truth, [0.1, 0.5, 0.9, 0.99]):
        ours, theirs = played.above("count", float(limit)).estimate, float((truth > limit + 1e-9).mean())
        assert abs(ours - theirs) < 4 * math.sqrt((theirs * (1 - theirs) + 1 / N) * 2 / N)
        assert abs(exact.above(float(limit)) - theirs) < 4 * math.sqrt((theirs * (1 - theirs) + 1 / N) / N)
    assert ck.evaluate(cmdp, policy).w[0] == pytest.approx(truth.mean(), abs=4 * truth.std() / math.sqrt(N))


def test_discounted_and_average_runs_are_drawn_from_outcomes():
    described = {"start": "on", "actions": ["run"], "outcome": lambda s, a: [(0.75, s, 0.0), (0.25, s, 4.0)]}
    discounted = ck.CMDP.from_function(discount=0.8, **described)
    played = ck.simulate_policy(discounted, ck.Policy.uniform(discounted), 20_000)
    assert played.totals["reward"].mean() == pytest.approx(5.0, abs=4 * 2.9 / math.sqrt(20_000))
    assert played.totals["reward"].var() == pytest.approx(3.0 / (1 - 0.64), rel=0.05)  # sum of 0.64^t times 3
    average = ck.CMDP.from_function(criterion="average", **described)
    means = ck.simulate_policy(average, ck.Policy.uniform(average), 20_000, steps=50).totals["reward"]
    assert means.var() == pytest.approx(3.0 / 50, rel=0.05)


# -- joint draws -------------------------------------------------------------------------------------------------------


def joint():
    """Next state, reward and signal that go together: 0.1 .. 0.4 of four combinations."""
    listed = [(0.1, 0, 0.0, 1.0), (0.2, 0, 2.0, 0.0), (0.3, 1, 0.0, 0.0), (0.4, 1, 2.0, 1.0)]
    bounds = [ck.at_most("cost", 1.0)]
    outcome = [(p, s, r, {"cost": c}) for p, s, r, c in listed]
    cmdp = ck.CMDP.from_function(
        start=0, horizon=2, actions=["go"], states=[0, 1], outcome=lambda s, a: outcome, constraints=bounds
    )
    return cmdp, listed


@pytest.mark.parametrize("h", [0, 1])
def test_state_and_signals_are_drawn_together(h):
    cmdp, listed = joint()
    sim, rng, n = Simulator.of(cmdp), stream(5), 8_000
    counts = dict.fromkeys([(s if h == 0 else 0, r / 2, 1.0 - c) for _, s, r, c in listed], 0)  # utilities are 1 - cost
    for _ in range(n):
        s_next, x = step(sim, h, reset(sim, rng), 0, rng)
        counts[int(s_next), *sim.outcomes[x].tolist()] += 1
    assert stats.chisquare(list(counts.values()), [n * p for p, *_ in listed]).pvalue > 1e-4


def test_gymnasium_draws_the_same():
    cmdp, listed = joint()
    env, n = cmdp.to_gym(), 8_000
    counts = {(s, r, c): 0 for _, s, r, c in listed}
    env.reset(seed=3)
    for _ in range(n):
        env.reset()
        s, reward, _, _, info = env.step(0)
        counts[s, reward, info["cost"]] += 1
    assert stats.chisquare(list(counts.values()), [n * p for p, *_ in listed]).pvalue > 1e-4
    assert env.metadata["reward_range"] == (0.0, 2.0)


def test_coins_are_tossed_for_the_outcome_that_was_drawn():
    cmdp, _ = joint()
    sim, rng, n = Simulator.of(cmdp, "bernoulli"), stream(6), 4_000
    seen = [sim.outcomes[step(sim, 0, 0, 0, rng)[1]].tolist() for _ in range(n)]
    assert {x for row in seen for x in row} == {0.0, 1.0}
    assert np.mean(seen, axis=0) == pytest.approx([0.6, 0.5], abs=4 * 0.5 / math.sqrt(n))
    assert ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 100, noise="bernoulli").of_means == ()


def test_a_learner_is_not_told_that_such_a_world_is_noiseless_and_earns_what_is_drawn():
    from cmdpkit.running.worlds import ModelWorld

    assert not ModelWorld(claims()).spec(10).noiseless and ModelWorld(envs.build("paper/grid")).spec(10).noiseless
    cmdp = claims()
    record = ck.learn(cmdp, "opt-cmdp", episodes=300, seed=1)
    realised = record.curves["realised_violation"].reshape(-1)[-1]
    assert realised == pytest.approx(300 * (1.0 - 2.0), abs=4 * math.sqrt(300 * 0.9))
    assert realised != pytest.approx(-300.0, abs=1e-6)  # as it would be if means were earned


# -- what is known by means alone --------------------------------------------------------------------------------------


def by_means(**more):
    return ck.CMDP([[[1.0]]], [[0.5]], constraints=[ck.at_most("failures", 2.0, [[0.1]])], horizon=10, **more)


def test_a_model_that_has_only_means_says_so(tmp_path):
    cmdp = by_means()
    policy = ck.Policy.uniform(cmdp)
    assert cmdp.of_means == ("reward", "failures") and cmdp.exact == ()
    with pytest.raises(ck.CmdpkitError, match=r"'failures' is not known: the model has only its means.*of_means=True"):
        ck.exact_distribution(cmdp, policy, "failures")
    assert ck.exact_distribution(cmdp, policy, "failures", of_means=True).above(0.5) == 1.0
    played = ck.simulate_policy(cmdp, policy, 20)
    assert played.of_means == ("reward", "failures")
    assert "reward, failures: of the means; outcomes vary more" in re.sub(r"\s+", " ", str(played))
    assert ck.time_course(cmdp, policy, "failures").of_means
    page = ck.plan_report(cmdp, tmp_path / "page.html", policy, episodes=100)
    assert "of the means; outcomes vary more" in page.read_text()


@pytest.mark.parametrize(
    ("exact", "known"), [(True, ("reward", "failures")), (["failures"], ("failures",)), (("reward",), ("reward",))]
)
def test_signals_are_declared_exact_all_or_by_name(exact, known):
    cmdp = by_means(exact=exact)
    assert cmdp.exact == known and cmdp == by_means()
    assert ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 5).of_means == cmdp.of_means
    if "failures" in known:
        assert ck.exact_distribution(cmdp, ck.Policy.uniform(cmdp), "failures").totals == pytest.approx([1.0])


def test_functions_of_the_next_state_are_exact_and_others_are_if_declared():
    assert failing().exact == ("failures",) and failing(exact=["reward"]).of_means == ()
    assert claims().of_means == ()
    assert envs.build("queue").of_means == ("reward",)
    assert "of the means" not in str(ck.simulate_policy(failing(exact=True), ck.Policy.uniform(failing()), 20))


def test_signals_that_do_not_vary_cost_nothing():
    sure = ck.CMDP.from_function(
        start=0,
        horizon=3,
        actions=["go"],
        step=lambda s, a: {s + 1: 1.0},
        reward=lambda s, a, s_next: float(s_next),
    )
    assert sure.outcomes is None and sure.exact == ("reward",) and sure.r[0, :3, 0].tolist() == [1.0, 2.0, 3.0]


def test_the_same_problem_changed_keeps_its_outcomes():
    per_step = ck.CMDP.from_function(
        start=0,
        horizon=5,
        actions=["a", "b"],
        outcome=lambda s, a: [(0.5, s, 1.0, {"cost": 2.0}), (0.5, s, 0.0, {"cost": float(a == "b")})],
        constraints=[ck.at_most("cost", 1.5, per_step=True)],
    )
    for changed in (
        per_step.with_bounds(cost=1.0),
        per_step.restrict([[True, False]]),
        per_step.with_criterion(discount=0.5),
        per_step.with_criterion(horizon=3),
    ):
        assert changed.outcomes is not None and changed.exact == ("reward", "cost")
    only = per_step.restrict([[True, False]])
    assert ck.exact_distribution(only, ck.Policy.uniform(only), "cost").totals.tolist() == [0, 2, 4, 6, 8, 10]
    assert only.utility_scales[0].span == 2.0  # of what may be earned, not of means


def test_a_declared_range_holds_every_outcome():
    with pytest.raises(ck.CmdpkitError, match=r"signal of 'cost' is 3 .* outside of its declared range 0 to 2"):
        ck.CMDP.from_function(
            start=0,
            horizon=2,
            actions=["a"],
            outcome=lambda s, a: [(0.5, s, 0.0, {"cost": 3.0}), (0.5, s, 0.0, {"cost": 0.0})],
            constraints=[ck.at_most("cost", 2.0, range=(0, 2))],
        )


# -- files -------------------------------------------------------------------------------------------------------------


def all_sorts():
    timed, _ = random_outcomes(7, timed=True)
    plain, _ = random_outcomes(8, timed=False)
    seasonal = ck.CMDP.from_function(
        start="up",
        horizon=4,
        actions=["run", "rest"],
        step=lambda s, a: {"up": 0.25, "down": 0.75} if a == "run" else {"up": 1.0},
        reward=lambda s, a, s_next, h: float(h) * (s_next == "up"),
        constraints=[ck.at_most("falls", 3.0, lambda s, a, s_next: float(s_next == "down"))],
    )
    at_times = np.array([[[True, h % 2 == 0]] * 2 for h in range(4)])
    return {
        "by step": timed,
        "plain": plain,
        "seasonal": ck.CMDP(
            seasonal.outcomes,
            actions=at_times,
            constraints=seasonal.constraints,
            horizon=4,
            states=seasonal.states,
            action_names=seasonal.action_names,
        ),
        "one name exact": failing(),
        "declared": by_means(exact=["failures"]),
        "discounted": ck.CMDP.from_function(
            start=0, discount=0.9, actions=["a"], outcome=lambda s, a: [(1 / 3, 1, 0.1), (2 / 3, 1 - s, -7.25)]
        ),
        "lake": envs.build("gym/frozen-lake"),
    }


@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv", ".npz"])
@pytest.mark.parametrize("sort", list(all_sorts()))
def test_files_carry_outcomes_to_the_last_bit(sort, suffix, tmp_path):
    cmdp = all_sorts()[sort]
    again = ck.read_model(ck.write_model(cmdp, tmp_path / f"model{suffix}"))
    assert again == cmdp and again.exact == cmdp.exact
    assert (again.outcomes is None) == (cmdp.outcomes is None)
    if cmdp.outcomes is not None:
        assert np.array_equal(again.outcomes.signals, cmdp.outcomes.signals)
        assert np.array_equal(again.outcomes.entries.prob, cmdp.outcomes.entries.prob)
    assert np.array_equal(again.r, cmdp.r) and np.array_equal(again.g, cmdp.g)


def test_tables_hold_outcomes_as_lines(tmp_path):
    text = (
        '# horizon = 10\n# start = "on"\n# constraint failures <= 2\n'
        "state,action,next_state,probability,reward,failures\non,run,on,0.9,1,0\non,run,on,0.1,1,1\n"
    )
    path = tmp_path / "model.csv"
    path.write_text(text)
    cmdp = ck.read_model(path)
    assert cmdp.exact == ("failures",)
    assert ck.exact_distribution(cmdp, ck.Policy.uniform(cmdp), "failures").above(2) == pytest.approx(0.0702, abs=5e-5)
    path.write_text(text + "on,run,on,0.1,1,1\n")
    with pytest.raises(ck.CmdpkitError, match=r":7: .*are those of line 6"):
        ck.read_model(path)
    path.write_text(text.replace("0.1", "0.2"))
    with pytest.raises(ck.CmdpkitError, match=r"the probabilities sum to 1\.1"):
        ck.read_model(path)


def test_data_frames_hold_outcomes_as_rows():
    import polars

    names = ["state", "action", "next_state", "probability", "reward", "failures"]
    frame = polars.DataFrame(
        [("on", "run", "on", 0.9, 1, 0), ("on", "run", "on", 0.1, 1, 1)], schema=names, orient="row"
    )
    cmdp = ck.read_model(frame, horizon=10, start="on", constraints=[ck.at_most("failures", 2)])
    assert cmdp.outcomes is not None and np.array_equal(cmdp.outcomes.signals, claims().outcomes.signals)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("probability = 0.1", "probability = 0.2", r"the probabilities sum to 1\.1"),
        ("probability = 0.1", "probability = -0.1", r"expected at least 0"),
        ('next = "on", probability = 0.1', 'next = "no", probability = 0.1', r"unknown state 'no'"),
        ("failures = 1.0}", "fails = 1.0}", r"unknown key 'fails'"),
        (", failures = 1.0}", "}", r"'failures' is missing"),
        ("exact = true", 'exact = ["fails"]', r"exact names 'fails'; did you mean 'failures'"),
        ("exact = true", "exact = 3", r"exact is 3, expected True, or a list"),
    ],
)
def test_mistakes_in_outcomes_of_a_file_are_located(old, new, told, tmp_path):
    path = ck.write_model(claims(), tmp_path / "model.toml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ck.CmdpkitError, match=rf"model\.toml:\d+: .*{told}"):
        ck.read_model(path)


def test_files_for_prism_say_that_only_means_are_written(tmp_path):
    with pytest.warns(ck.InputWarning, match="only means are written"):
        path = ck.write_explicit(failing(), tmp_path / "model.tra")
    bounds = [ck.at_most("failures", 2.0)]
    assert ck.read_explicit(path, reward="reward", constraints=bounds, horizon=10).of_means == ("reward", "failures")


def test_damaged_outcomes_of_an_npz_file_are_refused(tmp_path):
    path = ck.write_model(claims(), tmp_path / "model.npz")
    arrays = dict(np.load(path))
    for name, x, told in (
        ("indptr", np.array([0, 5]), "indptr must rise"),
        ("successors", np.array([0, 9], dtype=np.int32), "expected a state in 0..0"),
        ("outcomes", np.zeros((2, 3)), "g has 2 signals for 1 bounds"),
        ("outcomes", np.array([[np.nan, 0.0], [1.0, 1.0]]), "expected a finite number"),
        ("prob", np.array([0.5, 0.2]), "sums to 0.7"),
    ):
        damaged = tmp_path / f"{name}-{told[:4]}.npz"
        np.savez(damaged, **(arrays | {name: x}))
        with pytest.raises(ck.CmdpkitError, match=re.escape(told)):
            ck.read_model(damaged)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (lambda s, a: {"on": 1.0}, r"outcome\('on', 'run'\) returned {'on': 1.0}, expected \[\(probability, next"),
        (lambda s, a: [(1.0, "on", 1.0, 2.0)], r"outcome\('on', 'run'\) returned .*expected \[\(probability, next"),
        (lambda s, a: [(1.0, "on", 1.0)], r"outcome\('on', 'run'\): an outcome has no value of the signal 'cost'"),
        (lambda s, a: [(1.0, "on", 1.0, {})], r"an outcome has no value of the signal 'cost'"),
        (lambda s, a: [(1.0, "on", 1.0, {"cots": 1.0, "cost": 0})], r"signal 'cots'; did you mean 'cost'"),
        (lambda s, a: [(1.0, "on", "much", {"cost": 0})], r"reward is 'much', expected a number"),
        (lambda s, a: [(1.0, "on", 1.0, {"cost": math.nan})], r"'cost' is nan, expected a finite number"),
        (lambda s, a: [(0.7, "on", 1.0, {"cost": 0})], r"probabilities of outcome\('on', 'run'\) sum to 0\.7"),
        (lambda s, a: [(-1.0, "on", 1.0, {"cost": 0})], r"probability -1\.0, expected a number between 0 and 1"),
        (lambda s, a, s_next: [], r"but the next state is what it has to return"),
    ],
)
def test_what_an_outcome_function_may_not_return(outcome, told):
    with pytest.raises(ck.CmdpkitError, match=told):
        ck.CMDP.from_function(
            start="on", horizon=2, actions=["run"], outcome=outcome, constraints=[ck.at_most("cost", 1.0)]
        )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"outcome": lambda s, a: [(1.0, s, 0.0)], "reward": lambda s, a: 0.0}, "given together with outcome"),
        ({"step": lambda s, a: {s: 1.0}}, "reward is missing: give step and reward, or outcome"),
        ({"reward": lambda s, a: 0.0}, "step is missing"),
    ],
)
def test_either_step_and_reward_or_outcome(given, told):
    with pytest.raises(ck.CmdpkitError, match=told):
        ck.CMDP.from_function(start="on", horizon=2, actions=["run"], **given)


def test_a_constraint_has_no_signal_of_its_own_beside_outcome():
    with pytest.raises(
        ck.CmdpkitError, match="constraint 'cost' has a signal of its own, which outcome returns already"
    ):
        ck.CMDP.from_function(
            start="on",
            horizon=2,
            actions=["run"],
            outcome=lambda s, a: [(1.0, s, 0.0, {"cost": 1.0})],
            constraints=[ck.at_most("cost", 1.0, lambda s, a: 0.0)],
        )
