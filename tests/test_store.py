"""Records come back to the bit, are never replaced, and nothing unfinished or damaged passes for a result."""

import json
import os
import re
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.io import atomic
from cmdpkit.records import store
from cmdpkit.records.record import Run
from records import make_record, two_bounds

NOBODY = 65534  # the user without rights, on every POSIX system of ours


@pytest.fixture(scope="module")
def record():
    return make_record("two", "pri", 3, two_bounds(), params={"eta": 0.1, "reset": True, "mode": "warm"})


def unconstrained():
    return make_record("free", "opt-cmdp", 0, ck.CMDP(np.ones((2, 2, 2)) / 2, [[1.0, 0], [0, 0.5]], horizon=3))


def assert_same(a, b):
    """Every field equal, floats to the bit; written out here, independent of `store.difference`."""
    assert a.run == b.run and a.run.key == b.run.key
    assert a.constraints == b.constraints and a.policy == b.policy
    assert a.policy.pi.tobytes() == b.policy.pi.tobytes()
    assert list(a.curves) == list(b.curves)
    for name in a.curves:
        x, y = a.curves[name], b.curves[name]
        assert x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes(), name
    for name in ("optimum", "policy_value", "decisions", "certificate", "phases", "explanation", "notes", "seconds"):
        assert getattr(a, name) == getattr(b, name), name
    assert dict(a.versions) == dict(b.versions)
    both = a.policy_utilities, b.policy_utilities
    assert (both[0] is None) == (both[1] is None) and (both[0] is None or both[0].tobytes() == both[1].tobytes())


@pytest.mark.parametrize(
    "made",
    [
        lambda: make_record("paper/grid", "triple-q", 0),
        lambda: make_record("two", "pri", 3, two_bounds()),
        lambda: make_record("two", "triple-q", 1, two_bounds(), blind=True),
        unconstrained,
    ],
    ids=["grid", "two bounds", "no model", "no bounds"],
)
def test_a_record_comes_back_to_the_bit(made, tmp_path):
    saved = made()
    store.save_record(saved, tmp_path)
    assert_same(store.load_record(tmp_path, saved.run.key), saved)
    assert [x.name for x in sorted(tmp_path.iterdir())] == [f"{saved.run.key}.json", f"{saved.run.key}.parquet"]


def test_awkward_numbers_come_back_to_the_bit(record, tmp_path):
    C = len(record.curves["episode"])
    awkward = np.resize([0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, np.pi * 1e-17], C)
    episode = np.arange(1, C + 1)  # whole numbers stay whole
    explanation = {"limit": float("inf"), "low": -float("inf"), "deep": [{"x": [5e-324, 1e16 + 2]}], "float": "inf"}
    saved = replace(
        record,
        curves={"episode": episode, "odd": awkward, "pair": np.array([awkward, -awkward])},
        policy_utilities=awkward[:2],
        explanation=explanation,
    )
    store.save_record(saved, tmp_path)
    assert_same(store.load_record(tmp_path, saved.run.key), saved)


def test_arrays_tuples_and_numpy_scalars_in_an_explanation_become_plain(record, tmp_path):
    saved = replace(record, explanation={"a": np.arange(2), "b": (np.float64(0.5), np.bool_(True)), 3: None})
    store.save_record(saved, tmp_path)
    assert store.load_record(tmp_path, saved.run.key).explanation == {"a": [0, 1], "b": [0.5, True], "3": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"explanation": {"a": [1.0, float("nan")]}}, r"\['explanation'\]\['a'\]\[1\] is NaN"),
        ({"explanation": {"a": object()}}, r"\['explanation'\]\['a'\] is <object"),
        ({"curves": {"episode": np.ones(2), "regret": np.array([1.0, np.nan])}}, r"'regret' is nan at index \(1,\)"),
        ({"curves": {"episode": np.ones(2), "regret": np.ones(3)}}, r"'regret' has shape \(3,\), expected \(2,\)"),
        ({"curves": {"episode": np.ones(2), "Seed": np.ones(2)}}, "needs the column 'Seed', which is taken"),
        (
            {"curves": {"episode": np.ones(2), "x": np.ones((1, 2)), "x_1": np.ones(2)}},
            "curve 'x_1' needs the column 'x_1', which is taken",
        ),
    ],
)
def test_an_invalid_result_is_refused_and_leaves_nothing(change, message, record, tmp_path):
    with pytest.raises(ValueError, match=message):
        store.save_record(replace(record, **change), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_finished_record_is_kept_the_same_again_is_fine_and_another_result_an_error(record, tmp_path):
    path = store.save_record(record, tmp_path)
    before = {x.name: x.read_bytes() for x in tmp_path.iterdir()}
    again = replace(record, seconds=99.0, versions={"numpy": "0"})
    assert store.save_record(again, tmp_path) == path
    curves = {**record.curves, "regret": np.nextafter(record.curves["regret"], np.inf)}
    with pytest.raises(ValueError, match=r"holds another result of the same run: curve 'regret' differs.*kept"):
        store.save_record(replace(record, curves=curves), tmp_path)
    with pytest.raises(ValueError, match="policy_value differs"):
        store.save_record(replace(record, policy_value=0.5), tmp_path)
    assert {x.name: x.read_bytes() for x in tmp_path.iterdir()} == before


def test_many_writers_of_one_run_share_it(record, tmp_path):
    barrier = threading.Barrier(6)
    done = []

    def write(i):
        barrier.wait()
        done.append(store.save_record(replace(record, seconds=float(i)), tmp_path))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 6
    assert len(list(tmp_path.iterdir())) == 2
    assert store.difference(store.load_record(tmp_path, record.run.key), record) is None


def test_what_a_killed_write_leaves_is_no_result_and_does_not_hinder_the_next(record, tmp_path):
    key = record.run.key
    (tmp_path / f"{key}.parquet").write_bytes(b"PAR1 half a file")
    (tmp_path / f".{key}.json.1234abcd.tmp").write_bytes(b'{"format": ')
    (tmp_path / f"{key}.json").write_bytes(b"")  # a name reserved where there are no hard links
    assert not store.has_record(tmp_path, key)
    assert store.load_records(tmp_path) == ()
    store.save_record(record, tmp_path)
    assert_same(store.load_record(tmp_path, key), record)
    assert len(store.load_records(tmp_path)) == 1


@pytest.mark.parametrize("dies_at", range(2))
def test_dying_between_the_two_files_leaves_no_result(dies_at, record, tmp_path, monkeypatch):
    """A death after any of the writes: either nothing counts, or all of it."""
    real = atomic.write_bytes

    def dying(path, data, *, overwrite=False):
        if dies_at == 0:
            raise KeyboardInterrupt
        return real(path, data, overwrite=overwrite)

    def dying_text(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_bytes", dying)
    monkeypatch.setattr(store, "write_text", dying_text)
    with pytest.raises(KeyboardInterrupt):
        store.save_record(record, tmp_path)
    monkeypatch.undo()
    assert not store.has_record(tmp_path, record.run.key) and store.load_records(tmp_path) == ()
    store.save_record(record, tmp_path)
    assert_same(store.load_record(tmp_path, record.run.key), record)


def complaint_about(folder, record):
    """What is said about a damaged record; None if it still is the same record (white space, another spelling)."""
    try:
        loaded = store.load_record(folder, record.run.key)
    except ValueError as error:
        return str(error)
    assert_same(loaded, record)
    return None


def test_damage_is_noticed_with_the_file_and_a_remedy_or_changes_nothing(record, tmp_path):
    manifest_path = store.save_record(record, tmp_path)
    rng = np.random.default_rng(5)
    for path in (manifest_path, manifest_path.with_suffix(".parquet")):
        good = path.read_bytes()
        damaged, noticed = [good[: len(good) // 2]], 0
        for i in rng.choice(len(good), 60, replace=False):
            damaged.append(good[:i] + bytes([good[i] ^ (1 << int(rng.integers(8)))]) + good[i + 1 :])
        for data in damaged:
            path.write_bytes(data)
            complaint = complaint_about(tmp_path, record)
            noticed += complaint is not None
            assert complaint is None or re.search(rf"{path.name}.*(run again|elsewhere|update cmdpkit)", complaint)
        assert noticed == len(damaged) or (path == manifest_path and noticed > 40)
        path.write_bytes(good)
    assert_same(store.load_record(tmp_path, record.run.key), record)


def test_missing_files_newer_schemas_and_strangers_are_told_apart(record, tmp_path):
    key = record.run.key
    with pytest.raises(ValueError, match=rf"there is no .*{key}\.json; run again"):
        store.load_record(tmp_path, key)
    path = store.save_record(record, tmp_path)
    other = tmp_path / f"{'0' * 20}.json"
    other.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=f"belongs to another run, {key}"):
        store.load_records(tmp_path)
    other.unlink()
    text = path.read_text()
    path.write_text(text.replace('"schema": 2', '"schema": 3'))
    with pytest.raises(ValueError, match="has schema 3, this cmdpkit reads up to 2; update cmdpkit"):
        store.load_record(tmp_path, key)
    path.write_text('{"hello": 1}')
    with pytest.raises(ValueError, match="is not a cmdpkit record; move it elsewhere"):
        store.load_record(tmp_path, key)
    path.write_text(text)
    path.with_suffix(".parquet").unlink()
    with pytest.raises(ValueError, match=rf"{key}\.parquet is missing, though {key}\.json describes it.*run the same"):
        store.load_record(tmp_path, key)
    with pytest.raises(ValueError, match="is no folder of runs"):
        store.load_records(tmp_path / "nowhere")


def test_folders_below_are_read_too_each_run_once_and_other_files_left_alone(record, tmp_path):
    awkward = tmp_path / "runs [1] * 'x'"
    records = [make_record("two", algo, seed, two_bounds()) for algo in ("triple-q", "pri") for seed in (10, 2)]
    for i, r in enumerate(records):
        store.save_record(r, awkward / str(i))
    store.save_record(records[0], tmp_path)
    (tmp_path / "settings.json").write_text("{}")
    found = store.load_records(tmp_path)
    assert [(r.run.algo, r.run.seed) for r in found] == [("pri", 2), ("pri", 10), ("triple-q", 2), ("triple-q", 10)]


def test_failures_are_listed_until_the_run_succeeds(record, tmp_path):
    run = Run("two", "pri", 10, 0, "practical")
    store.save_failure(run, "first", tmp_path)
    store.save_failure(run, "infeasible: <nothing> to be done", tmp_path)
    store.save_failure(record.run, "disk full", tmp_path)
    listed = store.load_failures(tmp_path)
    assert [(f.run, f.reason) for f in listed] == [(record.run, "disk full"), (run, "infeasible: <nothing> to be done")]
    assert listed[1].versions["numpy"] == np.__version__
    assert store.load_records(tmp_path) == ()
    store.save_record(record, tmp_path)
    assert [f.run for f in store.load_failures(tmp_path)] == [run]
    assert len(store.load_records(tmp_path)) == 1


@contextmanager
def bound_by_permissions():
    """As a user whom permissions bind: root becomes nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_cannot_be_written_is_named_and_nothing_appears_in_it(record, tmp_path):
    store.save_record(record, tmp_path)  # what is imported on first use is there before nobody needs it
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, whose parents are closed to nobody
        path = Path(folder)
        path.chmod(0o555)
        with bound_by_permissions(), pytest.raises(ValueError, match=rf"cannot write {folder}.*: Permission denied"):
            store.save_record(record, path)
        assert not list(path.iterdir())
        path.chmod(0o777)
        with bound_by_permissions():  # it was the permission and nothing else
            assert store.save_record(record, path).exists()


def test_a_file_where_a_folder_should_be_is_named(record, tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ValueError, match=r"cannot make the folder .*runs"):
        store.save_record(record, tmp_path / "runs")


def test_plain_sql_over_the_files_gives_the_numbers_of_the_records(tmp_path):
    records = [make_record("two", algo, seed, two_bounds()) for algo in ("pri", "triple-q") for seed in range(3)]
    for r in records:
        store.save_record(r, tmp_path / "a")
    store.save_record(unconstrained(), tmp_path / "b")
    rows = duckdb.sql(
        "SELECT env, algo, avg(regret), max(violation_2) FROM "
        f"(SELECT * FROM read_parquet('{tmp_path}/**/*.parquet', union_by_name = true) "
        "QUALIFY episode = max(episode) OVER (PARTITION BY run)) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert [row[:2] for row in rows] == [("free", "opt-cmdp"), ("two", "pri"), ("two", "triple-q")]
    assert rows[0][3] is None
    for row in rows[1:]:
        mine = [r for r in records if r.run.algo == row[1]]
        assert row[2] == pytest.approx(np.mean([r.regret for r in mine]), rel=1e-12)
        assert row[3] == max(r.violation[1] for r in mine)
    columns = [c[0] for c in duckdb.sql(f"DESCRIBE FROM '{tmp_path}/a/*.parquet'").fetchall()]
    assert columns[:11] == [*store.IDENTITY, "episode"] and "code" in columns[:11]


def test_the_manifest_reads_like_the_documented_schema(record, tmp_path):
    document = json.loads(store.save_record(record, tmp_path).read_text())
    assert document["format"] == "cmdpkit record" and document["schema"] == 2 and document["key"] == record.run.key
    assert document["run"]["params"] == {"eta": 0.1, "reset": True, "mode": "warm"}
    assert document["curves"]["shapes"]["violation"] == [2, len(record.curves["episode"])]
    assert document["constraints"][0] == {"name": "late <i>jobs</i>", "sense": "at_most", "bound": 0.6}
    assert document["phases"][1] == {"name": "identification", "start": 333333}


def test_a_record_whose_curves_are_gone_is_made_again(tmp_path):
    """The run is deterministic: what is made again is what was there, to the byte."""
    asked = (["paper/synthetic"], ["triple-q"])
    options = {"episodes": 300, "seeds": 2, "out": tmp_path, "executor": "serial"}
    ck.bench(*asked, **options)
    tables = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    lost = min(tables)
    lost.unlink()
    assert not store.has_record(tmp_path, lost.stem)
    with pytest.raises(ck.CmdpkitError, match=rf"{lost.name} is missing, though {lost.stem}.json describes it"):
        ck.Study.load(tmp_path)
    ck.bench(*asked, **options)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.parquet")} == tables
    assert len(ck.Study.load(tmp_path).records) == 2


@pytest.mark.parametrize(("memory", "algo"), [("none", "mf-pri"), ("counts", "cl-pri")])
def test_a_record_of_cl_pri_that_names_its_memory_is_read_under_the_present_name(tmp_path, memory, algo):
    """Older versions wrote the parameter `memory`; with "none" it is another algorithm now."""
    made = ck.learn("paper/synthetic", "mf-pri", episodes=200, seed=1)
    old = replace(made, run=replace(made.run, algo="cl-pri", params={"memory": memory}))
    ck.save_record(old, tmp_path)
    [found] = ck.load_records(tmp_path)
    assert (found.run.algo, dict(found.run.params)) == (algo, {})
    assert np.array_equal(found.policy.pi, made.policy.pi)
