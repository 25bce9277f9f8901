"""Simple policies: never beyond a bound, never below what was asked for, and as simple as enumeration can make them."""

import itertools
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.results.simplify import Shape, best_phases, phases_of, shape_of
from cmdpkit.results.solution import rule_table, shape_table
from cmdpkit.results.tables import joined

pytestmark = [pytest.mark.compiled, pytest.mark.long]


def pump(weeks: int = 52, service: float = 21.0, shift: float = 0.0) -> ck.CMDP:
    """Some weeks, of which 21 are for service. Running earns 1.001 in even weeks and 0.999 in odd ones.

    By hand: in 52 weeks the optimum serves in 21 odd weeks and earns 26 * 1.001 + 5 * 0.999 = 31.021; in 12 weeks with
    5 of service 6 * 1.001 + 0.999 = 7.005. Whatever is done, `shift` is earned every week.
    """
    r = np.zeros((weeks, 1, 2))
    r[0::2, 0, 0], r[1::2, 0, 0] = 0.999, 1.001
    served = [ck.at_least("service", service, np.broadcast_to([[0.0, 1.0]], (weeks, 1, 2)))]
    return ck.CMDP([[[1.0], [1.0]]], r + shift, constraints=served, action_names=["run", "service"])


def tiny(seed: int, H: int = 3, S: int = 3, **criterion: object) -> ck.CMDP:
    """Two actions, everything reached at every step, and a bound that costs something."""
    rng = np.random.default_rng(seed)
    P, r, g = rng.dirichlet(np.ones(S), size=(S, 2)), rng.random((S, 2)), rng.random((S, 2))
    made = ck.CMDP(
        P, r, mu=np.full(S, 1 / S), constraints=[ck.at_most("cost", 1e3, g)], **(criterion or {"horizon": H})
    )
    least = ck.solve(ck.CMDP(P, -g, mu=np.full(S, 1 / S), **(criterion or {"horizon": H}))).value
    most = ck.solve(made).utilities[0]
    return made.with_bounds(cost=float(0.6 * most - 0.4 * least))


def enumerated(cmdp: ck.CMDP, least: float) -> tuple[int, int] | None:
    """Fewest phases, then fewest changes over states, of all deterministic policies that keep bounds and value."""
    H, S = cmdp.n_steps, cmdp.S
    found = []
    for flat in itertools.product(range(2), repeat=H * S):
        rows = [list(flat[h * S : (h + 1) * S]) for h in range(H)]
        phases = [key for key, _ in itertools.groupby(rows)]
        changes = sum(sum(x != y for x, y in itertools.pairwise(rule)) for rule in phases)
        v, w = ck.evaluate(cmdp, ck.Policy.of(cmdp, np.eye(2)[rows if H > 1 else rows[0]]))
        if v >= least and (cmdp.signs * w >= cmdp.rho).all():
            found.append((len(phases), changes))
    return min(found, default=None)


def kept(cmdp: ck.CMDP, found: ck.Simplified) -> bool:
    v, w = ck.evaluate(cmdp, found.policy)
    met = (cmdp.signs * w - cmdp.rho >= -found.tolerance).all()
    return bool(met and v >= found.least and v == found.value and (w == found.utilities).all())


# -- what is found -----------------------------------------------------------------------------------------------------


def test_a_pump_that_alternates_over_52_weeks_becomes_two_phases():
    solution = ck.solve(pump())
    assert solution.value == pytest.approx(31.021)
    found = ck.simplify(solution, 0.01)
    assert found.before.phases > 20 and found.after == Shape(2, 0, 0, 1)
    assert {phase.rules[0].action for phase in found.phases} == {"run", "service"}
    lengths = {phase.rules[0].action: phase.last - phase.first + 1 for phase in found.phases}
    assert lengths == {"run": 31, "service": 21} and kept(pump(), found)
    assert 0 < found.lost <= 31.021 - (15 * 1.001 + 16 * 0.999) + 1e-9  # no 31 weeks in a row earn less than that
    assert found.slack.tolist() == [0.0] and found.gap == pytest.approx(found.lost, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_no_deterministic_policy_within_the_allowance_is_simpler(seed):
    cmdp = tiny(seed)
    solution = ck.solve(cmdp)
    found = ck.simplify(solution, 0.03)
    assert kept(cmdp, found)
    best = enumerated(cmdp, found.least)
    assert best is None or (found.after.phases, found.after.draws, found.after.over_states) <= (best[0], 0, best[1])


@pytest.mark.parametrize("criterion", [{"discount": 0.9}, {"criterion": "average"}], ids=["discounted", "average"])
@pytest.mark.parametrize("seed", range(3))
def test_without_a_horizon_the_changes_over_states_are_as_few_as_enumeration_finds(seed, criterion):
    cmdp = tiny(seed, S=5, **criterion)
    found = ck.simplify(ck.solve(cmdp), 0.05)
    best = enumerated(cmdp, found.least)
    assert kept(cmdp, found) and found.after.phases == 1
    assert best is None or (found.after.draws, found.after.over_states) <= (0, best[1])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("within", [0.0, 0.02, 0.3])
def test_bounds_and_allowance_are_kept_whatever_is_allowed(seed, within):
    cmdp = ck.load(f"random:S=5,A=3,H=6,N={1 + seed},slack=0.03,seed={seed}")
    solution = ck.solve(cmdp)
    found = ck.simplify(solution, within)
    assert kept(cmdp, found) and found.after <= found.before
    assert found.value >= solution.value - within * abs(solution.value)
    assert found.after.draws <= max(1, len(solution.stochastic_decisions()))


def test_the_board_of_a_queue_is_as_simple_as_the_older_search_found_it():
    assert ck.simplify(ck.solve(ck.load("queue")), within=0.01).after == Shape(3, 0, 4, 2)


def test_nothing_given_up_leaves_the_value_of_the_optimum():
    """In the pump every week counts, so that no other policy is as good."""
    found = ck.simplify(ck.solve(pump(12, 5.0)), 0.0)
    assert found.lost == pytest.approx(0.0, abs=1e-12)
    assert not found.simpler and "nothing simpler was found" in str(found)


def test_a_value_can_be_asked_for_where_the_optimum_is_near_zero():
    solution = ck.solve(pump(12, 5.0, shift=-7.005 / 12))
    assert abs(solution.value) < 1e-9 and not ck.simplify(solution, 0.01).simpler
    assert ck.simplify(solution, at_least=-0.1).after.phases == 2


def test_states_that_are_never_reached_or_leave_no_choice_do_not_count():
    """From state 0 one only meets 0 and 2; state 1 is elsewhere, and in state 3 there is one action."""
    P = np.zeros((4, 2, 4))
    P[[0, 2], :, 2], P[1, :, 1], P[2, :, 2], P[2, 0, 2], P[2, 0, 3], P[3, :, 0] = 1, 1, 1, 0.5, 0.5, 1
    actions = np.ones((4, 2), dtype=bool)
    actions[3, 0] = False
    cmdp = ck.CMDP(P, [[1, 0], [0, 1], [1, 0], [0, 0]], horizon=6, actions=actions)
    found = ck.simplify(ck.solve(cmdp), 0.0)
    assert found.after == (1, 0, 0, 0)
    assert [(rule.states, rule.action) for rule in found.phases[0].rules] == [((1, 3), 1)]


# -- its parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_phases_of_least_cost_are_those_that_enumeration_finds(seed):
    costs = np.random.default_rng(seed).normal(size=(6, 2, 3))

    def least(K):
        return min(
            sum(costs[a:b].sum(axis=0).min(axis=-1).sum() for a, b in itertools.pairwise((0, *inner, 6)))
            for inner in itertools.combinations(range(1, 6), K - 1)
        )

    for K in (1, 2, 3, 6):
        choice = best_phases(costs, K)
        paid = np.take_along_axis(costs, choice[..., None], 2).sum()
        assert paid == pytest.approx(min(least(k) for k in range(1, K + 1)))
        assert (np.diff(choice, axis=0) != 0).any(axis=1).sum() < K


def test_the_shape_of_a_policy_counted_by_hand():
    """Steps down, states to the right; a dot is a decision that does not count.

    0 0 1      one phase with the next row, because nothing contradicts: 0 0 1, one change over states
    . 0 1
    1 0 .      a second phase: 1 0 1, two changes; over the steps, state 0 has changed once
    . . 1
    """
    choice = np.array([[0, 0, 1], [1, 0, 1], [1, 0, 0], [0, 1, 1]])
    counts = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]], dtype=bool)
    assert shape_of(choice, counts, 0) == Shape(2, 0, 3, 1)
    edges, rules = phases_of(choice, counts)
    assert (edges, rules.tolist()) == ([0, 2, 4], [[0, 0, 1], [1, 0, 1]])


# -- what people see ---------------------------------------------------------------------------------------------------


def test_the_command_prints_phases_and_writes_the_simple_policy(tmp_path):
    model = str(ck.write_model(pump(), tmp_path / "pump.json"))
    shown = CliRunner().invoke(app, ["solve", model, "--simple", "1%"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0 and "optimum of 31.021" in shown.stdout.replace("\n", " ")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["1–31", "everywhere", "run"] in lines or ["1–21", "everywhere", "service"] in lines
    path = tmp_path / "simple.csv"
    told = json.loads(
        CliRunner().invoke(app, ["solve", model, "--simple", "0.01", "--json", "--save-policy", str(path)]).stdout
    )
    simple = told["simple"]
    assert simple["after"]["phases"] == 2 and simple["lost"] == pytest.approx(simple["optimum"] - told["value"])
    assert [x["rule"][0]["action"] for x in simple["phases"]] in (["run", "service"], ["service", "run"])
    assert ck.evaluate(pump(), ck.read_policy(path, pump())).v == pytest.approx(told["value"])


def test_simple_policies_without_a_horizon_have_all_keys_of_an_optimum_in_json():
    plain, simple = (
        json.loads(CliRunner().invoke(app, ["solve", "power-queue", *more, "--json"]).stdout)
        for more in ([], ["--simple", "5%"])
    )
    assert simple.keys() == {*plain.keys(), "simple"}
    assert (simple["criterion"], simple["start"]) == (plain["criterion"], plain["start"])
    model = ck.load("power-queue")
    assert simple["value_per_step"] == pytest.approx(simple["value"] / model.criterion.steps_in_value)
    assert simple["utilities_per_step"] == pytest.approx(
        [x / model.criterion.steps_in_value for x in simple["utilities"]]
    )


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_the_tables_of_a_simple_policy_say_what_to_do(form):
    found = ck.simplify(ck.solve(pump()), 0.01)
    text = joined([shape_table(found), rule_table(found)], form)
    lines = [[cell.strip(" \\") for cell in line.strip("| ").split("|" if form == "markdown" else "&")]
             for line in text.splitlines()]  # fmt: skip
    assert ["phases", str(found.before.phases), str(found.after.phases)] in lines
    dash = "–" if form == "markdown" else "--"
    for phase in found.phases:
        shown = [line for line in lines if line[0] == f"{phase.first}{dash}{phase.last}"]
        assert [line[2] for line in shown] == [str(rule.action) for rule in phase.rules]


@pytest.mark.parametrize("share", ["2", "x%", "-1%", "nan"])
def test_a_number_that_is_no_share_is_refused(share):
    assert CliRunner().invoke(app, ["solve", "queue", "--simple", share]).exit_code == 2


def test_what_cannot_be_simplified_is_refused():
    solution = ck.solve(tiny(0))
    for within in (1.0, -0.1, math.nan, "1%"):
        with pytest.raises(ck.CmdpkitError, match=r"within is .*expected a share of the optimum"):
            ck.simplify(solution, within)
    for value in (solution.value + 1, math.nan, "1"):
        with pytest.raises(ck.CmdpkitError, match=r"at_least is .*expected a value of at most the optimum"):
            ck.simplify(solution, at_least=value)
    with pytest.raises(ck.CmdpkitError, match=r"expected what cmdpkit\.solve"):
        ck.simplify(solution.policy)
    with pytest.raises(ck.CmdpkitError, match="a draw among several policies"):
        ck.simplify(ck.solve(ck.load("one-way")))
    with pytest.raises(ck.CmdpkitError, match="a draw among several policies"):
        ck.explain(ck.load("one-way"), ck.load("one-way").states[0])


def test_a_simple_policy_prints_draws_and_escapes_like_a_solution():
    pytest.importorskip("matplotlib")
    cmdp = ck.load("queue")
    found = ck.simplify(ck.solve(cmdp), 0.02)
    text = str(found)
    assert "phases" in text and "may be given up" in text.replace("\n", " ") and "\n1–" in text
    assert found.plot().axes[0].images[0].get_array().shape == (cmdp.S, cmdp.H)
    named = ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], horizon=2, action_names=["<script>", "rest"])
    assert "<script>" not in ck.simplify(ck.solve(named))._repr_html_()


def test_a_bound_is_called_binding_only_where_it_leaves_no_room():
    best = ck.solve(ck.load("queue"))
    loose = ck.simplify(best, within=0.02)
    assert best.binds.all() and (loose.slack > 0.01).all() and not loose.binds.any()
    assert ck.simplify(best, within=0.0).binds.all()
