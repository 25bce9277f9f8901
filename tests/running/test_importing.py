"""Runs of other libraries as records: curves by hand, beside our own runs in one study."""

import numpy as np
import pytest

import cmdpkit as ck

WORK, REST = ck.Policy([[[1.0, 0.0]]] * 2), ck.Policy([[[0.0, 1.0]]] * 2)
MIXED = ck.Policy([[[0.5, 0.5]]] * 2)


def job() -> ck.CMDP:
    """Working earns 1 and wears 1, twice; a wear of at most 1 makes 1 the best value."""
    return ck.CMDP([[[1.0], [1.0]]], r=[[1, 0]], constraints=[ck.at_most("wear", 1, [[1, 0]])], horizon=2)


def at(record: ck.RunRecord, name: str, episode: int) -> float:
    (place,) = np.flatnonzero(record.curves["episode"] == episode)
    return float(np.atleast_2d(record.curves[name])[0, place])


def test_policies_give_exact_curves():
    record = ck.import_run(job(), "theirs", policies=[(10, WORK), (30, REST), (60, MIXED)])
    # Per episode: working gains 1 on the optimum and misses the bound by 1, resting loses 1 and has 1 to spare.
    assert at(record, "regret", 10) == pytest.approx(-10) and at(record, "violation", 10) == pytest.approx(10)
    assert at(record, "regret", 25) == pytest.approx(5) and at(record, "violation", 25) == pytest.approx(-5)
    assert record.regret == pytest.approx(20) and record.violation.tolist() == pytest.approx([-20])
    assert record.final("strong_regret") == pytest.approx(30)
    assert record.final("strong_violation").tolist() == pytest.approx([10])
    assert record.final("unsafe_episodes") == pytest.approx(10)
    assert (record.optimum, record.policy_value, record.policy_utilities.tolist()) == (pytest.approx(1), 1.0, [1.0])
    assert len(record.decisions) == 2 and record.run.episodes == 100


def test_returns_give_realised_curves_in_the_users_sense():
    returns = np.array([[2.0, 2.0]] * 4 + [[0.0, 0.0]] * 6)
    record = ck.import_run(job(), "theirs", returns=returns, policy=MIXED)
    assert "regret" not in record.curves
    assert at(record, "realised_regret", 4) == pytest.approx(-4) and record.regret == pytest.approx(2)
    assert at(record, "realised_violation", 4) == pytest.approx(4) and record.violation.tolist() == pytest.approx([-2])


def test_imported_runs_are_listed_with_ours_and_come_back_from_disk(tmp_path):
    ours = [ck.learn(job(), "triple-q", episodes=50, seed=seed) for seed in (0, 1)]
    theirs = [ck.import_run(job(), "theirs", policies=[(50, MIXED)], seed=seed, code="abc") for seed in (0, 1)]
    for record in theirs:
        ck.save_record(record, tmp_path)
    loaded = ck.load_records(tmp_path)
    assert [record.run.key for record in loaded] == [record.run.key for record in theirs]
    study = ck.Study((*ours, *loaded))
    assert {group.label.split()[0] for group in study.groups()} == {"triple-q", "theirs"}
    assert "theirs" in study.to_markdown()


def test_a_run_on_an_infeasible_problem_has_no_optimum_and_no_regret():
    """Wear of at least 3 in two steps is out of reach: working misses it by 1, resting by 3."""
    hard = ck.CMDP([[[1.0], [1.0]]], r=[[1, 0]], constraints=[ck.at_least("wear", 3, [[1, 0]])], horizon=2)
    record = ck.import_run(hard, "theirs", policies=[(10, WORK), (30, REST)], returns=[[2.0, 2.0]] * 40)
    assert record.optimum is None
    assert not {"regret", "strong_regret", "realised_regret"} & set(record.curves)
    assert record.violation.tolist() == pytest.approx([10 * 1 + 30 * 3])
    assert record.final("realised_violation").tolist() == pytest.approx([40.0])
    assert record.final("unsafe_episodes") == pytest.approx(40)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"^give policies=.*the last policy=.*here these are none"),
        ({"policies": [(0, WORK)]}, r"policies is .*expected pairs \(number of episodes, Policy\)"),
        ({"policies": [WORK]}, r"policies is .*expected pairs"),
        ({"returns": [[1.0]], "policy": WORK}, r"returns has shape \(1, 1\), expected \(episodes, 2\)"),
        ({"returns": [[1.0, np.nan]], "policy": WORK}, r"returns has shape \(1, 2\), .*all finite"),
        ({"returns": [[1.0, 1.0]]}, "the last policy="),
        ({"returns": [[1.0, 1.0]], "policies": [(3, WORK)]}, r"same number of episodes; here these are \[1, 3\]"),
    ],
)
def test_what_cannot_be_a_run_is_refused(given, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        ck.import_run(job(), "theirs", **given)
