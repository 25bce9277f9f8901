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
        (lambda r: replace(r, seconds=-1.0), r"it took -1\.0 seconds"),
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
            load_records(tmp_path)
        except ck.CmdpkitError as error:
            told.append(str(error))
    assert len(told) > 100 and all(path.name in x for x in told)


@pytest.mark.parametrize("name", ["policy", "regret", "violation", "episode"])
def test_a_stored_curve_that_is_cut_short_or_not_finite_is_refused_by_the_name_of_its_file(name, record, tmp_path):
    path = save_record(record, tmp_path)
    arrays = dict(np.load(path))
    for bad in (arrays[name][..., :-1], arrays[name] * np.nan, arrays[name].astype(str)):
        np.savez(path, **arrays | {name: bad})
        with pytest.raises(ck.CmdpkitError, match=path.name):
            load_records(tmp_path)
