"""Values that no run can have had as a result are refused wherever a record is made, whatever its checksums say."""

import json
from dataclasses import replace

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.records.store import load_records, save_record
from mutants import mutants
from records import make_record


@pytest.fixture(scope="module")
def record():
    return make_record("paper/grid", "triple-q", 1, episodes=1000)


def changed(record, **parts):
    return replace(record, certificate=replace(record.certificate, **parts))


GAP = r"its certificate has the gap -5.*expected a number of at least 0"
ENDS = "its certificate does not have an interval, from low to high, for the value and each of 1 bounds"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: changed(r, gap=-5.0), GAP),
        (lambda r: changed(r, gap=float("nan")), "its certificate has the gap nan"),
        (lambda r: changed(r, value=(2.0, 1.0)), ENDS),
        (lambda r: changed(r, utilities=()), ENDS),
        (lambda r: changed(r, level=1.5), r"the level of its certificate is 1\.5, expected a probability"),
        (lambda r: changed(r, safe=("yes",)), "its certificate judges 1 of 1 bounds, or not by true, false and null"),
        (lambda r: changed(r, since="x"), "its certificate is for what came since 'x'"),
        (lambda r: changed(r, least_known=({"a": 1},)), "what its certificate knows least are not lists of step"),
        (lambda r: replace(r, seconds=-1.0), r"it took -1\.0 seconds"),
        (lambda r: replace(r, optimum=[]), r"its optimum is \[\], expected a number"),
        (lambda r: replace(r, policy_utilities=np.zeros(3)), "it has 3 totals of the policy for 1 bounds"),
    ],
)
def test_a_record_with_impossible_values_is_refused(change, message, record):
    with pytest.raises(ck.CmdpkitError, match=f"a record of triple-q on paper/grid, seed 1: .*{message}"):
        change(record)


def test_a_stored_record_with_any_other_value_is_read_or_refused_by_the_name_of_its_file(record, tmp_path):
    path = save_record(record, tmp_path)
    arrays = dict(np.load(path))
    text = arrays["header"].tobytes().decode()
    told = []
    for body in mutants(json.loads(text)):
        np.savez(path, **arrays | {"header": np.frombuffer(json.dumps(body).encode(), dtype=np.uint8)})
        try:
            for read in load_records(tmp_path):
                assert str(read) and read.to_dict()
        except ck.CmdpkitError as error:
            told.append(str(error))
    assert len(told) > 100 and all(path.name in x for x in told)


NOT_NUMBERS = {"complex": lambda x: x * 1j, "text": lambda x: x.astype(str), "nothing": lambda x: x[..., :0]}
WRONG = {
    "cut short": lambda x: x[..., :-1],
    "not finite": lambda x: x * np.nan,
    "a further axis": lambda x: x[None],
    "a further bound": lambda x: np.stack([np.ravel(x), np.ravel(x)]),
    "a single number": lambda x: x.ravel()[0],
    "turned": lambda x: x.T[..., None],
    **NOT_NUMBERS,
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", ["episode", "regret", "violation", "realised_violation", "multiplier", "own"])
def test_a_stored_curve_that_nobody_can_read_is_refused_by_the_name_of_file_and_curve(name, kind, record, tmp_path):
    made = replace(record, curves={**record.curves, "own": record.curves["multiplier"]})
    path = save_record(made, tmp_path)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {name: WRONG[kind](arrays[name])})
    with pytest.raises(ck.CmdpkitError, match=f"{path.name}.*curve '.*, expected ") as told:
        load_records(tmp_path)
    assert name == "episode" or f"curve '{name}' " in str(told.value)


@pytest.mark.parametrize("name", ["regret", "violation"])
def test_a_curve_with_the_axes_of_another_is_refused(name, record, tmp_path):
    path = save_record(record, tmp_path)
    arrays = dict(np.load(path))
    other = {"regret": arrays["violation"], "violation": arrays["regret"]}[name]
    np.savez(path, **arrays | {name: other})
    rows = len(arrays["episode"])
    expected = {"regret": rf"\({rows},\)", "violation": rf"\(1, {rows}\)"}[name]
    with pytest.raises(ck.CmdpkitError, match=f"curve '{name}' has shape .*, expected {expected}: the run was read"):
        load_records(tmp_path)


def test_a_curve_of_a_learner_may_have_a_row_or_one_for_each_bound(record, tmp_path):
    x = record.curves["regret"]
    made = replace(record, curves={**record.curves, "own": x, "each": x[None]})
    save_record(made, tmp_path)
    (read,) = load_records(tmp_path)
    assert read.curves["own"].shape == x.shape and read.curves["each"].shape == (1, len(x))


@pytest.mark.parametrize("kind", ["cut short", "not finite", "complex", "text", "nothing"])
def test_a_stored_policy_that_is_none_is_refused_by_the_name_of_its_file(kind, record, tmp_path):
    path = save_record(record, tmp_path)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"policy": WRONG[kind](arrays["policy"])})
    with pytest.raises(ck.CmdpkitError, match=path.name):
        load_records(tmp_path)
