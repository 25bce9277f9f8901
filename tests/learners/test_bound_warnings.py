"""What learners say about bounds: by name, in the user's units, and never against what is known of the model."""

import re
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import learners
from cmdpkit.learners import _note as note
from cmdpkit.learners._note import WORDING, Note
from cmdpkit.running.learning import learn
from cmdpkit.running.playing import in_users_units
from cmdpkit.running.worlds import ModelWorld


def in_other_units(bound):
    """paper/synthetic with rewards times 100, and its utility as a cost: 50 less 40 times the utility a step."""
    plain = ck.load("paper/synthetic")
    cost = ck.at_most("cost", 3 * 50 - 40 * bound, 50 - 40 * plain.g[0])
    return ck.CMDP(plain.P, 100 * plain.r, mu=plain.mu, constraints=[cost])


def shortfall(notes):
    (said,) = (note for note in notes if "is missed by" in note)
    return said, float(re.search(r"missed by (\S+) per episode", said)[1])


@pytest.mark.parametrize(("algo", "K", "params"), [("triple-q", 20_000, {}), ("mf-pri", 100_000, {})])
def test_a_missed_bound_is_named_with_the_shortfall_in_the_users_units(algo, K, params):
    """At most 2.09 can be had of the utility: a bound of 2.5 is missed by 0.41, the cost by 40 times that."""
    plain = learn(ck.load("paper/synthetic").with_bounds(utility=2.5), algo, episodes=K, **params)
    other = learn(in_other_units(2.5), algo, episodes=K, **params)
    said, by = shortfall(plain.notes)
    assert said.startswith("utility ≥ 2.5 is missed by") and "may be impossible" in said
    assert 0.4 < by < 0.7
    said, by_cost = shortfall(other.notes)
    assert said.startswith("cost ≤ 50 is missed by") and "unit scale" not in said
    assert 40 * 0.4 < by_cost < 40 * 0.7


def test_a_bound_that_the_optimum_meets_is_never_called_impossible():
    """So few episodes that Triple-Q misses a bound that can be met: it says so, and that it can be met."""
    cmdp = ck.load("paper/grid").with_bounds(cost=0.1)
    run = learn(cmdp, "triple-q", episodes=3000, seed=1)
    assert run.optimum is not None
    said, by = shortfall(run.notes)
    assert said.startswith("cost ≤ 0.1 is missed by") and "the bound can be met, as the optimum does" in said
    assert by == pytest.approx(run.final("realised_violation")[0] / 3000, rel=0.2)
    assert not any("impossible" in note for note in run.notes)


@pytest.mark.parametrize("algo", learners.names_for("horizon"))
def test_no_learner_speaks_in_unit_scale_or_calls_a_possible_bound_impossible(algo):
    for env in ("paper/synthetic:rho=2.08", "paper/grid"):
        notes = learn(env, algo, episodes=300).notes
        assert not any(re.search("unit scale|impossible|infeasible:|constraint [0-9]", note) for note in notes), notes


def test_prices_and_shortfalls_are_converted_by_the_widths_of_the_ranges():
    """A shortfall is in units of the constraint, a price is reward per such unit; widths are read off the arrays."""
    cmdp = in_other_units(2.0)
    reward, cost = np.ptp(cmdp.r), np.ptp(cmdp.g)
    told = in_users_units(Note("too dear to repay", 0, by=0.5, price=2.0), ModelWorld(cmdp))
    assert told.startswith(f"cost ≤ 70 was missed by {0.5 * cost:.3g} per episode")
    assert f"every unit would have cost {2.0 * reward / cost:.3g} of reward" in told
    assert in_users_units("a plain sentence", ModelWorld(cmdp)) == "a plain sentence"


def test_every_sentence_is_used_and_every_note_has_one():
    written = "".join(path.read_text(encoding="utf-8") for path in Path(learners.__file__).parent.rglob("*.py"))
    body = written.replace(Path(note.__file__).read_text(encoding="utf-8"), "")
    named = set(re.findall(r'(?:Note|notes_above)\(\s*"([^"]+)"', body))
    assert named == set(WORDING) and all(f'"{kind}"' in body for kind in WORDING)
