"""Given policies: beside the optimum, in single episodes, and one decision at a time."""

import itertools
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.exact.comparison import priced_values
from cmdpkit.results.policies import spread_table


def two_jobs(bound=1.5):
    """Two steps, one state, "work" earns 1 and "rest" gives 1 rest, of which 1.5 are asked for.

    By hand: the optimum rests 1.5 times and earns 0.5; one unit of rest less would earn 1 more, so its price is 1.
    """
    rest = [ck.at_least("rest", bound, [[0.0, 1.0]])]
    return ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], horizon=2, constraints=rest, action_names=["work", "rest"])


def costly(horizon=4):
    """Three states, two actions, a cost of 0, 1 or 3."""
    P = np.random.default_rng(8).dirichlet(np.ones(3), size=(3, 2))
    cost = [ck.at_most("cost", 3.0, [[0, 1], [1, 3], [3, 0]])]
    return ck.CMDP(
        P, [[0.1, 0.9], [0.5, 0.7], [0.3, 0.2]], mu=[0.6, 0.4, 0], horizon=horizon, constraints=cost, exact=True
    )


def random_policy(cmdp, seed):
    return ck.Policy.of(cmdp, np.random.default_rng(seed).dirichlet(np.ones(cmdp.A), size=(cmdp.H, cmdp.S)))


# -- compare -----------------------------------------------------------------------------------------------------------


def test_a_policy_is_compared_with_the_optimum_by_numbers_found_by_hand():
    always = {name: ck.Policy([[row]] * 2) for name, row in (("rest", [0, 1]), ("work", [1, 0]))}
    rest, work = ck.compare_policies(two_jobs(), always).policies
    assert (rest.value, rest.utilities.tolist(), rest.met, rest.below) == (0.0, [2.0], (True,), pytest.approx(0.5))
    assert (work.value, work.utilities.tolist(), work.met, work.below) == (2.0, [0.0], (False,), pytest.approx(-1.5))
    assert rest.priced == pytest.approx(0.0, abs=1e-9)  # at the price of 1, half a unit too much rest makes up for it
    assert work.priced == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_costs_of_all_decisions_add_up_to_what_the_policy_loses_at_the_prices(seed):
    cmdp = costly()
    found = ck.compare_policies(cmdp, {"mine": random_policy(cmdp, seed)})
    assert sum(x.cost for x in found.differences) == pytest.approx(found.policies[0].priced, rel=1e-6)
    assert [x.cost for x in found.differences] == sorted((x.cost for x in found.differences), reverse=True)


def test_one_changed_decision_is_the_only_difference_and_costs_what_it_costs():
    cmdp = costly()
    best = ck.solve(cmdp)
    pi = best.policy.pi.copy()
    pi[2, 1] = 1 - pi[2, 1]
    (found,) = ck.compare_policies(cmdp, {"mine": ck.Policy.of(cmdp, pi)}).differences
    changed = ck.evaluate(cmdp, ck.Policy.of(cmdp, pi))
    lost = best.value - changed.v + best.shadow_prices[0] * (changed.w[0] - best.utilities[0])
    assert (found.steps, found.state, found.does != found.optimum) == ((3,), 2, True)
    assert found.cost == pytest.approx(lost) and found.visits == pytest.approx(best.occupancy[2, 1].sum())


def test_differences_are_summed_over_the_steps_at_which_the_same_actions_are_taken():
    cmdp = costly()
    best = ck.solve(cmdp)
    for seed in range(4):
        policy = random_policy(cmdp, seed)
        q, lost = ck.occupancy(cmdp, policy), np.zeros((cmdp.H, cmdp.S))
        Q, V = priced_values(cmdp, best.shadow_prices)
        lost = (q * (V[:-1, :, None] - Q)).sum(axis=-1)
        found = ck.compare_policies(cmdp, policy).differences
        places = [(x.state, tuple(x.does), tuple(x.optimum)) for x in found]
        assert len(set(places)) == len(places)  # one row for each
        for x in found:
            s, h = cmdp.state_index(x.state), [step - 1 for step in x.steps]
            assert x.cost == pytest.approx(lost[h, s].sum()) and x.costs == pytest.approx(lost[h, s].tolist())
            assert x.visits == pytest.approx(q[h, s].sum())
            does = q[h, s].sum(axis=0) / q[h, s].sum()
            assert [x.does.get(a, 0.0) for a in cmdp.action_names] == pytest.approx(does.tolist())
        assert {(x.state, step) for x in found for step in x.steps} == {
            (cmdp.states[s], h + 1) for h, s in np.argwhere(lost > 1e-9 * max(1.0, abs(best.value))).tolist()
        }


def test_whatever_policy_of_takes_is_compared_with_a_name_or_without():
    cmdp = costly()
    policy = ck.Policy.of(cmdp, lambda s: 2 if s > 1 else 1)

    def mine(s):
        return 2 if s > 1 else 1

    forms = [
        mine,
        {s: mine(s) for s in cmdp.states},
        np.eye(cmdp.A)[[mine(s) - 1 for s in cmdp.states]],
        policy,
        policy.pi,
    ]
    for form in forms:
        (judged,) = ck.compare_policies(cmdp, {"mine": form}).policies
        assert judged.name == "mine" and judged.value == ck.evaluate(cmdp, policy).v
    assert [x.name for x in ck.compare_policies(cmdp, mine).policies] == ["mine"]
    assert [x.name for x in ck.compare_policies(cmdp, lambda s: 1).policies] == ["policy"]
    with pytest.raises(ck.CmdpkitError, match=r"policies\['bad'\]: rule\(1\) is 'nothing', expected the name of an"):
        ck.compare_policies(cmdp, {"good": mine, "bad": lambda s: "nothing"})


def test_the_optimum_has_no_differences():
    cmdp = costly()
    assert ck.compare_policies(cmdp, {"same": ck.solve(cmdp).policy}).differences == ()


def test_a_mixture_is_compared_by_the_decisions_of_the_policy_that_goes_where_it_goes():
    cmdp = costly()
    parts = (random_policy(cmdp, 1), random_policy(cmdp, 2))
    found = ck.compare_policies(cmdp, {"drawn": ck.Mixture(parts, np.array([0.3, 0.7]))})
    one, other = (ck.evaluate(cmdp, part) for part in parts)
    assert found.policies[0].value == pytest.approx(0.3 * one.v + 0.7 * other.v)
    assert found.policies[0].utilities == pytest.approx(0.3 * one.w + 0.7 * other.w)
    assert sum(x.cost for x in found.differences) == pytest.approx(found.policies[0].priced, rel=1e-6)


def test_priced_values_are_the_best_over_all_deterministic_policies():
    cmdp, price = costly(2), np.array([0.4])
    best = -math.inf
    for choice in itertools.product(range(2), repeat=6):
        v, w = ck.evaluate(cmdp, ck.Policy.deterministic(np.reshape(choice, (2, 3)), 2))
        best = max(best, v - price[0] * w[0])
    assert float(cmdp.mu @ priced_values(cmdp, price)[1][0]) == pytest.approx(best, abs=1e-12)


# -- explain -----------------------------------------------------------------------------------------------------------


def test_an_explanation_names_what_every_action_is_worth_from_here_on():
    """With one step left, the action values are the signals, and the price of rest is 1."""
    found = ck.explain(two_jobs(), state=1, step=2)
    worth = {x.action: (x.value, x.utilities.tolist(), x.priced) for x in found.options}
    assert worth == {"work": (1.0, [0.0], pytest.approx(1.0)), "rest": (0.0, [1.0], pytest.approx(1.0))}
    assert found.reach == 1.0 and found.prices.tolist() == pytest.approx([1.0])
    drawn = [s for s in (1, 2) if sum(x.probability > 0 for x in ck.explain(two_jobs(), 1, s).options) == 2]
    assert len(drawn) == 1 and "equally good" in ck.explain(two_jobs(), 1, drawn[0]).why


def test_what_an_action_loses_is_what_taking_it_once_would_cost():
    cmdp = costly()
    best = ck.solve(cmdp)
    for option in ck.explain(cmdp, state=1, step=1).options:
        pi = best.policy.pi.copy()
        pi[0, 0] = np.eye(2)[cmdp.action_index(option.action)]
        v, w = ck.evaluate(cmdp, ck.Policy.of(cmdp, pi))
        lost = best.value - v + best.shadow_prices[0] * (w[0] - best.utilities[0])
        assert lost == pytest.approx(cmdp.mu[0] * option.loses, abs=1e-9)


def test_a_policy_that_is_not_the_best_is_told_so():
    cmdp = costly()
    worst = ck.explain(cmdp, 1, 1).options[-1]
    pi = np.tile(np.eye(2)[cmdp.action_index(worst.action)], (4, 3, 1))
    assert f"it loses {worst.loses:.6g}" in ck.explain(cmdp, 1, 1, ck.Policy.of(cmdp, pi)).why
    # The same action is the reason where a policy draws it beside the best one.
    assert f"it loses {worst.loses:.6g}" in ck.explain(cmdp, 1, 1, ck.Policy.uniform(cmdp)).why
    with pytest.raises(ck.CmdpkitError, match="step is 5, expected a whole number from 1 to 4"):
        ck.explain(cmdp, 1, 5)


def test_a_discounted_explanation_by_hand():
    """Work earns 1, rest gives 1 rest, at least 1.2 of 2 discounted units: V = 0.8, W = 1.2, price 1.

    So working is worth 1 + 0.8 / 2 with 1.2 / 2 of rest, resting 0.8 / 2 with 1 + 1.2 / 2.
    """
    rest = [ck.at_least("rest", 1.2, [[0.0, 1.0]])]
    cmdp = ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], discount=0.5, constraints=rest, action_names=["work", "rest"])
    found = ck.explain(cmdp, state=1)
    worth = {x.action: [x.value, *x.utilities.tolist(), x.priced] for x in found.options}
    assert worth == {"work": pytest.approx([1.4, 0.6, 2.0]), "rest": pytest.approx([0.4, 1.6, 2.0])}
    assert found.step is None and found.reach == pytest.approx(1.0) and "equally good" in found.why
    with pytest.raises(ck.CmdpkitError, match=r"step is 1, but the model is judged by totals discounted by 0\.5"):
        ck.explain(cmdp, 1, 1)
    with pytest.raises(ck.CmdpkitError, match="step is None, expected a whole number from 1 to 4"):
        ck.explain(costly(), 1)


@pytest.mark.parametrize("criterion", [{"discount": 0.8}, {"criterion": "average"}], ids=["discounted", "average"])
def test_without_a_horizon_an_action_loses_what_taking_it_now_and_then_costs(criterion):
    """If an action replaces the decision of a state with a small probability e, reward less priced cost falls by e
    times how often one is there times what the action loses; how often comes from evaluating an indicator."""
    P = np.random.default_rng(8).dirichlet(np.ones(3), size=(3, 2))
    r, g = np.array([[0.1, 0.9], [0.5, 0.7], [0.3, 0.2]]), [[0, 1], [1, 3], [3, 0]]
    bound = 0.9 * (5 if "discount" in criterion else 1)
    cmdp = ck.CMDP(P, r, mu=[0.6, 0.4, 0], constraints=[ck.at_most("cost", bound, g)], **criterion)
    best, e = ck.solve(cmdp), 1e-6
    for s in range(3):
        there = ck.CMDP(P, np.eye(3)[s][:, None] * np.ones((3, 2)), mu=[0.6, 0.4, 0], **criterion)
        visits = ck.evaluate(there, ck.Policy.of(there, best.policy.pi[0])).v
        for option in ck.explain(cmdp, state=s + 1).options:
            pi = best.policy.pi[0].copy()
            pi[s] = (1 - e) * pi[s] + e * np.eye(2)[cmdp.action_index(option.action)]
            v, w = ck.evaluate(cmdp, ck.Policy.of(cmdp, pi))
            lost = best.value - v - best.shadow_prices[0] * (best.utilities[0] - w[0])
            assert lost / e == pytest.approx(visits * option.loses, abs=1e-4)


# -- simulate ----------------------------------------------------------------------------------------------------------


def enumerated(cmdp, policy, n):
    """Probabilities of all totals, by listing every path."""
    found = {}
    for path in itertools.product(range(cmdp.S), range(cmdp.A), repeat=cmdp.H):
        p, total = cmdp.mu[path[0]], 0.0
        for h in range(cmdp.H):
            s, a = path[2 * h], path[2 * h + 1]
            p *= policy.pi[h, s, a] * (cmdp.P[h, s, a, path[2 * h + 2]] if h + 1 < cmdp.H else 1.0)
            total += cmdp.r[h, s, a] if n is None else -cmdp.g[n, h, s, a]
        found[round(total, 9)] = found.get(round(total, 9), 0.0) + p
    return {total: p for total, p in found.items() if p > 1e-15}


@pytest.mark.parametrize(("name", "n"), [("reward", None), ("cost", 0)])
def test_the_exact_distribution_is_that_of_all_paths(name, n):
    cmdp = costly(3)
    policy = random_policy(cmdp, 1)
    found = ck.exact_distribution(cmdp, policy, name)
    expected = enumerated(cmdp, policy, n)
    assert found.totals.round(9).tolist() == sorted(expected)
    assert found.probabilities == pytest.approx([expected[x] for x in sorted(expected)])
    assert found.above(found.totals[2]) == pytest.approx(
        sum(p for x, p in expected.items() if x > found.totals[2] + 1e-9)
    )
    assert found.below(found.totals[2]) == pytest.approx(found.probabilities[:2].sum())


def test_a_constraint_may_be_called_reward():
    """How often it misses its bound was computed from the reward itself. By hand: 2 of 2 steps count, in a quarter."""
    P = np.full((2, 2, 2), 0.5)
    bound = [ck.at_most("reward", 1, [[1.0, 0.0], [1.0, 0.0]])]
    cmdp = ck.CMDP(P, [[5.0, 0.0], [5.0, 0.0]], constraints=bound, horizon=2, exact=True)
    shown = spread_table({"": ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 200)}).data()
    assert [row["name"] for row in shown] == ["reward", "reward (constraint)"] and shown[1]["exact"] == 0.25


def test_a_run_that_may_never_be_over_is_refused_and_not_played_for_ever():
    stays_or_ends = ck.CMDP([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]], [[1.0, 0], [0, 0]], criterion="total")
    with pytest.raises(ck.CmdpkitError, match="stays forever in state 1"):
        ck.simulate_policy(stays_or_ends, ck.Policy.stationary([[1.0, 0], [1, 0]]), 10)
    assert ck.simulate_policy(stays_or_ends, ck.Policy.stationary([[0.5, 0.5], [1, 0]]), 10).steps == 20  # 2^-20 < 1e-6


def test_signals_without_a_common_unit_have_no_exact_distribution():
    cmdp = ck.CMDP([[[1.0], [1.0], [1.0]]], [[0.0, 1.0, math.pi]], horizon=2, exact=True)
    assert ck.exact_distribution(cmdp, ck.Policy.uniform(cmdp)) is None


@pytest.mark.compiled
def test_simulated_episodes_have_the_exact_distribution():
    """Chi-squared over the totals of 20,000 episodes; the limit is exceeded with probability 0.1 %."""
    from scipy.stats import chi2

    cmdp = costly()
    policy = random_policy(cmdp, 2)
    played, exact = ck.simulate_policy(cmdp, policy, 20_000, seed=4), ck.exact_distribution(cmdp, policy, "cost")
    counts = np.array([np.isclose(played.totals["cost"], x).sum() for x in exact.totals])
    expected = 20_000 * exact.probabilities
    assert counts.sum() == 20_000
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, len(expected) - 1)
    share = played.above("cost", 5.0)
    assert share.low < exact.above(5.0) < share.high and played.below("cost", 5.0).estimate < 1 - share.estimate
    mean = ck.evaluate(cmdp, policy)
    assert abs(played.totals["reward"].mean() - mean.v) < 4 * played.totals["reward"].std() / math.sqrt(20_000)


def coin(**criterion):
    """Two states, each drawn with probability 1/2 at every step; the second one earns 1 and has a cost of 1 as well."""
    cost = [ck.at_most("cost", 1e3, [[0.0], [1.0]])]
    return ck.CMDP(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], mu=[0.5, 0.5], constraints=cost, **criterion)


@pytest.mark.compiled
def test_discounted_totals_have_the_mean_and_the_variance_of_a_discounted_sum_of_coins():
    """Mean 0.5 / (1 - 0.9) and variance 0.25 / (1 - 0.81); each limit is exceeded with a probability below 1e-4."""
    cmdp, n = coin(discount=0.9), 20_000
    played = ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), n, seed=2)
    x, deviation = played.totals["reward"], math.sqrt(0.25 / 0.19)
    assert 0.9**played.steps == pytest.approx(played.left_out) and played.left_out <= 1e-6
    assert abs(x.mean() - 5.0) < 4 * deviation / math.sqrt(n)
    assert abs(x.var() / deviation**2 - 1) < 4 * math.sqrt(2 / n)
    assert played.totals["cost"] == pytest.approx(x)
    assert ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 5, steps=1).totals["reward"].max() <= 1.0


@pytest.mark.compiled
def test_averages_are_means_of_runs_of_the_length_that_is_asked_for():
    """The mean of 16 coins is k / 16 with binomial probabilities; the limit is exceeded with probability 0.1 %."""
    from scipy.stats import binom, chi2

    cmdp = coin(criterion="average")
    played = ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 20_000, seed=3, steps=16)
    counts = np.bincount(np.rint(16 * played.totals["reward"]).astype(int), minlength=17)[2:15]
    expected = 20_000 * binom.pmf(np.arange(2, 15), 16, 0.5)
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, 13)
    assert ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 2).steps == 1000


@pytest.mark.compiled
def test_totals_until_absorption_end_when_almost_every_run_has_ended():
    """Each step earns 1 and is the last one with probability 1/2, so more than 3 are earned with probability 1/8."""
    cmdp = ck.CMDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], criterion="total")
    played = ck.simulate_policy(cmdp, ck.Policy.uniform(cmdp), 20_000, seed=4)
    share = played.above("reward", 3)
    assert share.low < 1 / 8 < share.high and played.steps == 20 and played.left_out == 2.0**-20


def test_the_length_of_a_run_is_the_horizon_where_there_is_one():
    with pytest.raises(ck.CmdpkitError, match="steps is 9, expected none: the model has 4 steps"):
        ck.simulate_policy(costly(), random_policy(costly(), 1), 5, steps=9)
    with pytest.raises(ck.CmdpkitError, match="steps is 0, expected a whole number"):
        ck.simulate_policy(coin(discount=0.9), ck.Policy.uniform(coin(discount=0.9)), 5, steps=0)


@pytest.mark.compiled
def test_the_figure_of_a_simulation_has_a_bar_for_every_total_its_mean_and_its_bound():
    pytest.importorskip("matplotlib")
    cmdp = costly()
    played = ck.simulate_policy(cmdp, random_policy(cmdp, 2), 2_000, seed=1)
    reward, cost = played.plot().axes
    assert len(reward.lines) == 1 and [float(x.get_xdata()[0]) for x in cost.lines][1] == 3.0
    shares = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in cost.patches if bar.get_height()}
    totals, counts = np.unique(played.totals["cost"].round(6), return_counts=True)
    assert shares == pytest.approx({int(x): n / 2_000 for x, n in zip(totals, counts, strict=True)})


# -- the commands ------------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(app, [str(x) for x in words])


@pytest.mark.compiled
def test_the_commands_take_a_spreadsheet_with_a_line_for_each_state(tmp_path):
    """Semicolons, no steps and no probabilities: the rule holds at every step."""
    cmdp = costly()
    model = ck.write_model(cmdp, tmp_path / "m.json")
    path = tmp_path / "rule.csv"
    path.write_text("state;action\n" + "".join(f"{s};{cmdp.action_names[0]}\n" for s in cmdp.states), encoding="utf-8")
    expected = ck.evaluate(cmdp, ck.Policy.of(cmdp, lambda s: cmdp.action_names[0]))
    told = json.loads(run("evaluate", model, path, "--json").output)["policies"][0]
    assert told["value"] == pytest.approx(expected.v) and told["total_1"] == pytest.approx(expected.w[0])
    played = json.loads(run("simulate", model, "--policy", path, "--episodes", 50, "--json").output)
    assert played["episodes"] == 50
    why = json.loads(run("explain", model, cmdp.states[0], "--step", 1, "--policy", path, "--json").output)
    assert {x["action"]: x["probability"] for x in why["actions"]}[cmdp.action_names[0]] == 1.0
    with pytest.raises(ck.CmdpkitError, match=r"rule\.csv: head: there are no lines .*give the model too"):
        ck.read_policy(path)


def test_the_commands_say_what_the_functions_find(tmp_path):
    cmdp = costly()
    ck.write_model(cmdp, tmp_path / "m.json")
    for name, policy in (("best", ck.solve(cmdp).policy), ("mine", random_policy(cmdp, 3))):
        ck.write_policy(policy, tmp_path / f"{name}.csv")
    model, best, mine = (tmp_path / x for x in ("m.json", "best.csv", "mine.csv"))
    told = json.loads(run("compare", model, best, mine, "--json").output)
    assert [x["name"] for x in told["policies"]] == ["best", "mine", "optimum"]
    assert told["policies"][1]["value"] == pytest.approx(ck.evaluate(cmdp, random_policy(cmdp, 3)).v)
    assert sum(x["cost"] for x in told["differences"]) == pytest.approx(told["policies"][1]["priced"])
    assert "No decision costs anything" in run("evaluate", model, best).output
    why = json.loads(run("explain", model, "1", "--step", "2", "--json").output)
    assert why["why"] == ck.explain(cmdp, 1, 2).why and why["actions"][0]["loses"] == pytest.approx(0.0, abs=1e-9)
    totals = json.loads(run("simulate", model, "--policy", mine, "--episodes", 5000, "--json").output)["totals"]
    assert totals[1]["exact"] == pytest.approx(ck.exact_distribution(cmdp, random_policy(cmdp, 3), "cost").above(3.0))
    assert totals[1]["missed"]["low"] < totals[1]["exact"] < totals[1]["missed"]["high"]
    shown = run("simulate", model, "--episodes", 2000).output
    assert "episodes beyond it" in shown
    assert run("evaluate", model, tmp_path / "none.csv").exit_code == 1
