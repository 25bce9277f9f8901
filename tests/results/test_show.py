"""What people see: names instead of indices, aligned numbers, only what the policy can meet, never NaN."""

import io
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType

import cmdpkit as ck
from cmdpkit import envs
from cmdpkit.exact.diagnosis import Separation, TotalRange, Tradeoff, separations
from cmdpkit.model.cmdp import Grid
from cmdpkit.model.constraints import Sense
from cmdpkit.results import diagnosis as show
from cmdpkit.results import diagnosis as tradeoff_text
from cmdpkit.results.policies import view
from cmdpkit.results.solution import solution
from cmdpkit.results.wording import aligned, label, number, percent, ranges


def printed(renderable: RenderableType, width: int = 100) -> str:
    """As on a terminal without colours; markup stays on, so that a name that is read as markup shows."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def chain(S: int, H: int, actions: Sequence[str] = ("on", "back"), **names: Any) -> ck.CMDP:
    """A line of states walked from the left; only "on" is paid, so it is optimal everywhere and nothing is random."""
    P = np.zeros((S, len(actions), S))
    for s in range(S):
        P[s, 0, min(s + 1, S - 1)] = 1.0
        P[s, 1:, max(s - 1, 0)] = 1.0
    r = np.zeros((S, len(actions)))
    r[:, 0] = 1.0
    return ck.CMDP(P, r, horizon=H, action_names=actions, **names)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xs", "texts"),
    [
        ([1.5730628], ["1.57306"]),
        ([5.646447, 4.355878, 0.5], ["5.64645", "4.35588", "0.50000"]),
        ([2.0, 20.0], ["2", "20"]),
        ([0.1, 0.25], ["0.10", "0.25"]),
        ([123456.789, 0.4], ["123457", "0"]),
        ([-1e-17, 3.25], ["0.00", "3.25"]),
        ([1e-7], ["1e-07"]),
        ([2.5e12, 1.0], ["2.5e+12", "1"]),
        ([math.inf, 0.125], ["∞", "0.125"]),
        ([0.0, 0.0], ["0", "0"]),
        ([], []),
    ],
)
def test_a_column_has_six_digits_at_its_largest_and_the_same_decimals_everywhere(
    xs: list[float], texts: list[str]
) -> None:
    assert aligned(xs) == texts


def test_numbers_probabilities_and_steps_read_well() -> None:
    assert [number(x) for x in (2.0000000000000004, 1 / 3, -0.0, -math.inf)] == ["2", "0.333333", "0", "-∞"]
    assert [percent(p) for p in (1.0, 0.7262386, 1 - 1e-12, 1e-6)] == ["100 %", "72.62 %", "> 99.99 %", "0.0001 %"]
    assert [ranges(x) for x in ([], [4], [1, 2], [1, 3, 4, 5, 9])] == ["", "4", "1–2", "1, 3–5, 9"]


def test_a_name_can_neither_command_the_terminal_nor_pass_for_markup() -> None:
    assert label("\x1b[2J\n") == r"\x1b[2J\n"
    bound = ck.at_most("[b]cost[/b]", 3, [[1.0, 0.0]] * 2)
    cmdp = chain(2, 4, ("[red]go[/red]", "\x1b[31m"), states=["[dim]a", "b\nc"], constraints=[bound])
    found = ck.solve(cmdp)
    text = printed(solution("[x]", found)) + printed(show.diagnosis("[x]", cmdp, ck.diagnose(cmdp)))
    text += printed(show.separation(found, separations(found)))
    text += printed(tradeoff_text.tradeoff("[x]", ck.tradeoff(cmdp, "[b]cost[/b]", 3)))
    assert "\x1b" not in text
    for name in ("[x]", "[b]cost[/b]", "[red]go[/red]", r"\x1b[31m", "[dim]a", r"b\nc"):
        assert name in text, name


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_grid_world_is_drawn_with_the_arrows_of_the_only_best_ways() -> None:
    # The direct way crosses the obstacle below the start, the detour goes left, down, down, right; half and half.
    boards = printed(view(ck.solve(ck.load("paper/grid")))).split("steps 5–6")
    columns = [[line[25 * i :][:23] for line in boards[0].splitlines()] for i in range(4)]
    seen = {(step, i, j): m for step, board in enumerate(columns, 1) for (i, j), m in arrows(board[1:6]).items()}
    assert seen == {
        (1, 0, 2): "↓←",
        (2, 0, 1): "↓",
        (2, 1, 2): "↓",
        (3, 1, 1): "↓",
        (3, 2, 2): "·",
        (4, 2, 1): "→",
        (4, 2, 2): "·",
    }
    assert "step 4" in columns[3][0]
    assert columns[0][7].strip() == "r1c3: ↓ 50 %  ← 50 %"
    assert arrows(boards[1].splitlines()[1:6]) == {(2, 2): "·"}


def arrows(board: list[str]) -> dict[tuple[int, int], str]:
    """The arrows on a drawn board by (row, column); cells are three characters wide and one apart."""
    cells = {(i, j): line[2 + 4 * j :][:3] for i, line in enumerate(board) for j in range(5)}
    return {at: found for at, cell in cells.items() if (found := re.sub(r"[ .S#G]", "", cell))}


def test_a_board_without_arrows_uses_the_actions_names_and_many_boards_are_cut() -> None:
    grid = Grid(1, 30, cells=tuple((0, s) for s in range(30)))
    text = printed(view(ck.solve(chain(30, 20, grid=grid))), width=130)
    assert text.count("on") == 12  # one cell a step
    assert "step 12" in text
    assert "step 13" not in text
    assert "… and 8 more steps" in text


def test_a_board_wider_than_the_terminal_becomes_a_table_with_a_line_for_every_state_that_is_reached() -> None:
    grid = Grid(1, 30, cells=tuple((0, s) for s in range(30)), arrows=("→", "←"))
    text = printed(view(ck.solve(chain(30, 4, grid=grid)), width=60), width=60)
    assert text.splitlines()[0].split() == ["state", "action"] and "→" not in text
    assert [line.split("  ")[-1].strip() for line in text.splitlines()[2:6]] == [f"on (step {h})" for h in (1, 2, 3, 4)]
    assert text.endswith("26 of 30 states are never reached and left out")


def test_steps_with_the_same_decision_are_joined() -> None:
    lines = printed(view(ck.solve(ck.load("inventory")))).splitlines()
    assert lines[2:5] == [
        "0       5 (steps 1–5), 4 (step 6), 3 (step 7)",
        "1       4 (steps 2–5), 3 (step 6), 0 / 2 (step 7)",
        "2       3 (steps 2–5), 0 (steps 6–7)",
    ]


def test_a_large_policy_is_summed_up_and_its_uses_add_up_to_the_horizon() -> None:
    found = ck.solve(ck.load("random:S=300,H=7,seed=1"))
    text = printed(view(found))
    assert "300 states x 7 steps" in text
    assert "cmdpkit.write_policy" in text
    rows = [line.split() for line in text.splitlines()[5:]]
    assert sum(float(row[1]) for row in rows) == pytest.approx(7, abs=2e-4)
    assert [float(row[1]) for row in rows] == sorted((float(row[1]) for row in rows), reverse=True)


# -- solutions ---------------------------------------------------------------------------------------------------------


def test_slack_is_positive_inside_the_bound_for_both_senses() -> None:
    # One state, four steps, "on" only: total 4 of each signal.
    signals = [[1.0, 0.0]] * 2
    bounds = [ck.at_most("cost", 5, signals), ck.at_least("use", 1.5, signals)]
    text = printed(solution("m", ck.solve(chain(2, 4, constraints=bounds))))
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.endswith("binding")}
    assert rows == {
        "cost": ["4", "≤", "5", "1.0", "0", "not", "binding"],
        "use": ["4", "≥", "1.5", "2.5", "0", "not", "binding"],
    }
    assert "The policy is deterministic." in text


def test_a_solution_names_its_optimum_its_price_and_its_draws() -> None:
    text = printed(solution("paper/synthetic", ck.solve(ck.load("paper/synthetic"))))
    assert text.startswith("paper/synthetic: optimal value 1.57306\n")
    assert re.search(r"utility +2 +≥ 2 +0 +0\.739261 +binding", text)
    assert "step 1, state 1: 27.38 % action 2, 72.62 % action 3" in text
    assert re.search(r"Proved optimal to within \S+ \(column generation, [\d.]+ m?s\)", text)


@pytest.mark.parametrize("name", envs.names())
def test_every_environment_is_shown_without_nan_and_within_the_width(name: str) -> None:
    cmdp = ck.load(name)
    found = ck.solve(cmdp)
    texts = [printed(solution(name, found)), printed(show.diagnosis(name, cmdp, ck.diagnose(cmdp, separation=False)))]
    texts += [printed(tradeoff_text.tradeoff(name, ck.tradeoff(cmdp, c.name, 3))) for c in cmdp.constraints]
    for text in texts:
        assert "nan" not in text.lower()
        assert "inf" not in re.findall(r"[a-z]+", text)
        assert max(map(len, text.splitlines())) <= 100


# -- diagnoses ---------------------------------------------------------------------------------------------------------


def at(bound: float, *, sense: Sense = "at_least", indifferent: float = 4.0, strictest: float = 8.0) -> str:
    """The drawing of a bound on a range from 0 to 10 in ten characters, with one on either side."""
    flip = 1 if sense == "at_least" else -1
    worst, best = 0.0, 10.0 * flip
    return show.drawn_range(
        TotalRange("x", sense, bound * flip, worst, indifferent * flip, strictest * flip, best), width=10
    ).plain


@pytest.mark.parametrize("sense", ["at_least", "at_most"])
def test_a_bound_is_drawn_where_it_lies_loose_on_the_left(sense: Sense) -> None:
    assert at(0.5, sense=sense) == " ◆───━━━━╌╌ "
    assert at(5.5, sense=sense) == " ────━◆━━╌╌ "
    assert at(8.5, sense=sense) == " ────━━━━◆╌ "
    assert at(10, sense=sense) == " ────━━━━╌◆ "
    assert at(0, sense=sense) == " ◆───━━━━╌╌ "
    assert at(-1, sense=sense) == "◆────━━━━╌╌ "
    assert at(11, sense=sense) == " ────━━━━╌╌◆"


def test_a_bound_on_a_constant_is_drawn_too() -> None:
    drawing = show.drawn_range(TotalRange("x", "at_least", 3.0, 3.0, 3.0, 3.0, 3.0), width=10).plain
    assert len(drawing) == 12
    assert drawing.count("◆") == 1


def test_a_diagnosis_says_what_each_bound_does() -> None:
    cmdp = ck.load("paper/grid")
    text = printed(show.diagnosis("paper/grid", cmdp, ck.diagnose(cmdp, separation=False)))
    assert "6 steps, 25 states, 5 actions (not all of them everywhere), 1 constraint" in text
    assert "Feasible: the bound can be met with 0.5 to spare" in text
    assert "cost ≤ 0.5 binds: relaxing it gains 1.29057 per unit" in text
    assert "for free down to 1, at a price down to 0" in text
    assert "excluded by the other bounds" not in text


def test_bounds_that_exclude_parts_of_each_others_range_are_drawn_so() -> None:
    # Each step is spent on one of two things, so the totals add up to 4.
    one, other = [[1.0, 0.0]], [[0.0, 1.0]]
    bounds = [ck.at_least("one", 1, one), ck.at_least("other", 2.5, other)]
    cmdp = ck.CMDP([[[1.0], [1.0]]], one, horizon=4, constraints=bounds)
    text = printed(show.diagnosis("m", cmdp, ck.diagnose(cmdp, separation=False)))
    assert "m is valid: 4 steps, 1 state, 2 actions, 2 constraints." in text
    assert "all bounds can be met at once with 0.25 to spare" in text
    assert "one ≥ 1 does not bind" in text
    assert "other ≥ 2.5 binds: relaxing it gains 1 per unit" in text
    assert "at a price up to 1.5 (alone up to 4)" in text
    assert "excluded by the other bounds" in text


def test_an_infeasible_diagnosis_says_by_how_much() -> None:
    cmdp = ck.load("paper/synthetic:rho=3")
    found = ck.diagnose(cmdp)
    text = printed(show.diagnosis("m", cmdp, found))
    assert f"Infeasible: every policy misses some bound by {3 - found.ranges[0].strictest:.6g} or more" in text
    assert "binds" not in text


def test_decisive_actions_come_first_weighted_by_use_and_forced_ones_are_only_counted() -> None:
    rows = [
        Separation(1, "a", "x", 0.5, math.inf, 0.25, 0.125),
        Separation(4, "d", "w", 1.0, 0.0, 0.0, 1.0),
        Separation(2, "b", "y", 1.0, 0.125, 0.0625, 1.0),
        Separation(3, "c", "z", 1.0, math.inf, math.inf, 1.0),
    ]
    found = ck.solve(ck.load("paper/synthetic"))
    text = printed(show.separation(found, rows))
    table = [line.split() for line in text.splitlines() if "%" in line]
    assert table == [
        ["2", "b", "y", "100", "%", "1.000", "0.125", "0.0625"],
        ["1", "a", "x", "50", "%", "0.125", "infeasible", "0.2500"],
        ["4", "d", "w", "100", "%", "1.000", "0.000", "0.0000"],
    ]
    assert "sigma_min is at most 0.0625." in text  # of those above 0; not all were looked at
    assert "Not shown: 1 that matter less or have no alternative" in text
    assert "no choice anywhere" in printed(show.separation(found, rows[3:]))
    many = [Separation(h, 1, 1, 1.0, 1.0, float(h), 1.0) for h in range(1, 31)]
    assert "Not shown: 18 that matter less" in printed(show.separation(found, many))
    assert "The optimum uses 10 actions; computing what each is worth is slow" in printed(show.separation(found, None))


# -- trade-offs --------------------------------------------------------------------------------------------------------


def test_a_tradeoff_has_a_row_and_a_bar_a_point_and_lists_what_cannot_be_met() -> None:
    cmdp = ck.load("paper/grid")
    text = printed(tradeoff_text.tradeoff("paper/grid", ck.tradeoff(cmdp, "cost", 5, low=-0.5, high=1.5)))
    rows = [line.split() for line in text.splitlines() if line.endswith(tuple("█▏▎▍▌▋▊▉"))]
    assert [row[:3] for row in rows] == [
        ["0.0", "4.35588", rows[0][2]],
        ["0.5", "5.00116", "1.29057"],
        ["1.0", "5.64645", rows[2][2]],
        ["1.5", "5.64645", "0.00000"],
    ]
    # At the smallest bound that can be met every price from there on is right, and at 1 every one down to 0.
    assert float(rows[0][2]) >= 1.29057 and 0 <= float(rows[2][2]) <= 1.29058
    # Bars begin at 0: 40 cells are 5.64645, so 4.35588 has 30.86 and 5.00116 has 35.43 of them.
    assert [len(row[3]) for row in rows] == [31, 36, 40, 40]
    assert [row[3][-1] for row in rows] == ["▉", "▍", "█", "█"]
    assert text.endswith("No policy meets ≤ -0.5.")


def test_a_tradeoff_without_any_point_or_any_slope_is_still_shown() -> None:
    cmdp = ck.load("paper/grid")
    none = np.array([])
    text = printed(
        tradeoff_text.tradeoff(
            "g", Tradeoff(cmdp.constraints[0], none, none, none, none.reshape(0, 1), np.array([-1.0, -2.0]), cmdp)
        )
    )
    assert text.endswith("No policy meets ≤ -1, ≤ -2.")
    flat = printed(tradeoff_text.tradeoff("g", ck.tradeoff(cmdp, "cost", 2, low=2, high=3)))
    assert flat.count("█" * 40) == 2
