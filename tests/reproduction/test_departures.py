"""The table of departures says what the presets do: every parameter is in it, and its cells follow the parameters."""

import dataclasses
import math
from pathlib import Path

import pytest
from reproduction.departures import DEPARTURES, DepartureCase, K, departures_text, followed

from cmdpkit.learners.pri.presets import PRIParams

NECESSARY = {  # what the pseudo-code leaves undefined or cannot mean: both presets depart from it
    "last action of a state", "decisions with one action", "length of pruning", "number of policies M", "M = 1",
    "rounds", "plays of a policy", "divisor", "Decomposition-Opt is infeasible",
    "Decomposition-Opt before every policy was played", "states without visits",
}  # fmt: skip
AS_PRINTED = {
    "length", "order of plays", "returns that are estimated from", "floor e'", "Decomposition-Opt", "identified policy",
}  # fmt: skip

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms" / "pri.md").read_text(encoding="utf-8")


def test_every_parameter_of_pri_is_in_the_table():
    named = {name for departure in DEPARTURES for name in departure.fields}
    assert named == {field.name for field in dataclasses.fields(PRIParams)}
    assert len({departure.step for departure in DEPARTURES}) == len(DEPARTURES)


def test_theory_departs_only_where_the_print_cannot_be_followed_and_printed_says_why_it_departs():
    theory, printed = DepartureCase.of("theory"), DepartureCase.of("printed")
    assert {d.step for d in DEPARTURES if not d.literal(theory)} == NECESSARY
    assert {d.step for d in DEPARTURES if d.literal(printed)} == AS_PRINTED
    assert all(d.why for d in DEPARTURES if not (d.literal(theory) and d.literal(printed)))
    assert len(DEPARTURES) == 32


CHANGES = {  # another value of every parameter, allowed beside the others of both presets
    "K": 6_000_000, "eps_rho": 0.5, "eps_prune": 0.25,
    "runs": 99, "run_episodes": 777, "use_min": 0.3, "count_min": 99.0, "reach_min": 0.4,
    "quorum": 5, "votes": 9, "trials": 7, "compare_episodes": 777, "tol_value": 0.77, "tol_utility": 0.77,
    "burn_in": 0.25, "checks": 77, "prune_max": 77, "floor": 0.007, "max_policies": 7,
}  # fmt: skip


@pytest.mark.parametrize("preset", ["theory", "printed"])
@pytest.mark.parametrize("departure", DEPARTURES, ids=lambda d: d.step)
def test_a_changed_parameter_changes_the_cells_of_its_row(preset, departure):
    """So no cell can go on saying what a preset used to do."""
    case = DepartureCase.of(preset)
    for name in departure.fields:
        if name == "base":
            continue  # the table is about triple-q, and says so if the base learner is another one
        if name == "checks" and not case.p.early_stop:
            continue  # without an effect
        value = CHANGES[name] if name in CHANGES else not getattr(case.p, name)
        assert departure.cell(DepartureCase.of(preset, **{name: value})) != departure.cell(case), name


def test_the_numbers_of_theory_are_those_of_the_formulas():
    """Evaluated here once more, for K = 7,000,000 and natural logarithms."""
    assert K == 7_000_000
    log = math.log(K)
    theory = DepartureCase.of("theory")
    cells = {departure.step: departure.cell(theory) for departure in DEPARTURES}
    assert cells["tightening"] == "0.0939 added in refinement, 0.0939 in pruning"
    assert f"{log**2 / math.sqrt(K):.3g}" == "0.0939"
    assert cells["episodes of a base run"].startswith(f"{math.ceil(K**0.25)} for usage") and math.ceil(K**0.25) == 52
    assert cells["usage runs"] == str(math.ceil(4 * log)) == "64"
    assert cells["under-used"] == f"at most {K**0.2:.3g} uses" == "at most 23.4 uses"
    assert cells["removed by usage"] == f"in {math.ceil(2 * log)} runs" == "in 32 runs"
    assert cells["votes needed"].startswith("32 of 64, 32 of 64; all")
    assert cells["a set is as good"] == f"value {4 / K**0.03:.3g} either way, utility 0 short"
    assert cells["floor e'"].startswith(f"{1 / log:.3g},")
    assert cells["length"] == "7,000,000 of 21,000,000 episodes"


def test_the_table_shows_every_row_with_its_marks():
    lines = [[cell.strip() for cell in line.split(" | ")] for line in departures_text().splitlines()[4:]]
    by_step = {cells[0].removeprefix("| "): cells for cells in lines}
    assert len(by_step) == len(DEPARTURES) and followed("theory") == 21 and followed("printed") == 6
    assert "follows the print in 21 of 32 steps" in PAGE and "follows it in 6: besides the same 11" in PAGE
    assert by_step["uses that count"][2] == "whole run (as printed)"
    assert "as printed" not in by_step["uses that count"][3]
