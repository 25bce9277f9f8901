"""Records come back to the bit, are never replaced, and nothing unfinished or damaged passes for a result."""

import json
import os
import re
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
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
    for name in ("optimum", "policy_value", "decisions", "certificate", "phases", "internals", "notes", "seconds"):
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
    assert [x.name for x in sorted(tmp_path.iterdir())] == [f"{saved.run.key}.record.npz"]


def test_awkward_numbers_come_back_to_the_bit(record, tmp_path):
    C = len(record.curves["episode"])
    awkward = np.resize([0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, np.pi * 1e-17], C)
    episode = np.arange(1, C + 1)  # whole numbers stay whole
    internals = {"limit": float("inf"), "low": -float("inf"), "deep": [{"x": [5e-324, 1e16 + 2]}], "float": "inf"}
    saved = replace(
        record,
        curves={"episode": episode, "odd": awkward, "pair": np.array([awkward, -awkward])},
        policy_utilities=awkward[:2],
        internals=internals,
    )
    store.save_record(saved, tmp_path)
    assert_same(store.load_record(tmp_path, saved.run.key), saved)


def test_arrays_tuples_and_numpy_scalars_in_internals_become_plain(record, tmp_path):
    saved = replace(record, internals={"a": np.arange(2), "b": (np.float64(0.5), np.bool_(True)), 3: None})
    store.save_record(saved, tmp_path)
    assert store.load_record(tmp_path, saved.run.key).internals == {"a": [0, 1], "b": [0.5, True], "3": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"internals": {"a": [1.0, float("nan")]}}, r"\['internals'\]\['a'\]\[1\] is NaN"),
        ({"internals": {"a": object()}}, r"\['internals'\]\['a'\] is <object"),
        ({"curves": {"episode": np.ones(2), "regret": np.array([1.0, np.nan])}}, r"'regret' is nan at index \(1,\)"),
        ({"curves": {"episode": np.ones(2), "regret": np.ones(3)}}, r"'regret' has shape \(3,\), expected \(2,\)"),
        ({"curves": {"episode": np.ones(2), "policy": np.ones(2)}}, "is called 'policy', a name that a record needs"),
        ({"curves": {"episode": np.ones(2), "file": np.ones(2)}}, "is called 'file', a name that a record needs"),
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
    assert len(list(tmp_path.iterdir())) == 1
    assert store.difference(store.load_record(tmp_path, record.run.key), record) is None


def test_what_a_killed_write_leaves_is_no_result_and_does_not_hinder_the_next(record, tmp_path):
    key = record.run.key
    (tmp_path / f".{key}.record.npz.1234abcd.tmp").write_bytes(b"PK half a file")
    (tmp_path / f"{key}.record.npz").write_bytes(b"")  # a name reserved where there are no hard links
    assert not store.has_record(tmp_path, key)
    assert store.load_records(tmp_path) == ()
    store.save_record(record, tmp_path)
    assert_same(store.load_record(tmp_path, key), record)
    assert len(store.load_records(tmp_path)) == 1


def test_dying_at_any_byte_of_the_file_leaves_no_result(record, tmp_path, monkeypatch):
    """A death after any of the writes: nothing counts, and the next attempt is not hindered."""
    real, written = store.write_npz, []

    def dying(file, *rest):
        real(file, *rest)
        written.append(file.tell())
        file.truncate(int(written[-1] * len(written) / 5))
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_npz", dying)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            store.save_record(record, tmp_path)
    monkeypatch.undo()
    assert len(written) == 4 and min(written) > 0
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
    path = store.save_record(record, tmp_path)
    rng = np.random.default_rng(5)
    good = path.read_bytes()
    damaged, noticed = [good[: len(good) // 2]], 0
    for i in rng.choice(len(good), 400, replace=False):
        damaged.append(good[:i] + bytes([good[i] ^ (1 << int(rng.integers(8)))]) + good[i + 1 :])
    for data in damaged:
        path.write_bytes(data)
        complaint = complaint_about(tmp_path, record)
        noticed += complaint is not None
        assert complaint is None or re.search(rf"{path.name}.*(run again|elsewhere|update cmdpkit)", complaint)
    assert noticed > 0.9 * len(damaged), "the rest are dates and permissions in the archive"
    path.write_bytes(good)
    assert_same(store.load_record(tmp_path, record.run.key), record)


def with_header(path, change):
    """Write a record again with another header."""
    arrays = dict(np.load(path))
    arrays["header"] = np.frombuffer(change(arrays["header"].tobytes().decode()).encode(), dtype=np.uint8)
    np.savez(path, **arrays)


def test_missing_files_newer_schemas_and_strangers_are_told_apart(record, tmp_path):
    key = record.run.key
    with pytest.raises(ValueError, match=rf"there is no .*{key}\.record\.npz; run again"):
        store.load_record(tmp_path, key)
    path = store.save_record(record, tmp_path)
    good = path.read_bytes()
    other = tmp_path / f"{'0' * 20}.record.npz"
    other.write_bytes(good)
    with pytest.raises(ValueError, match=f"belongs to another run, {key}"):
        store.load_records(tmp_path)
    other.unlink()
    with_header(path, lambda text: text.replace('"schema": 3', '"schema": 4'))
    with pytest.raises(ValueError, match="has schema 4, this cmdpkit reads up to 3; update cmdpkit"):
        store.load_record(tmp_path, key)
    with_header(path, lambda _: '{"hello": 1}')
    with pytest.raises(ValueError, match="is not a cmdpkit record; move it elsewhere"):
        store.load_record(tmp_path, key)
    np.savez(path, header=np.frombuffer(b"{", dtype=np.uint8))
    with pytest.raises(ValueError, match=r"is damaged .*; delete it and run again"):
        store.load_record(tmp_path, key)
    path.write_bytes(good)
    assert_same(store.load_record(tmp_path, key), record)
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


def test_the_file_reads_like_the_documented_schema_without_this_package(record, tmp_path):
    arrays = np.load(store.save_record(record, tmp_path))
    document = json.loads(bytes(arrays["header"]))
    assert document["format"] == "cmdpkit record" and document["schema"] == 3 and document["key"] == record.run.key
    assert document["run"]["params"] == {"eta": 0.1, "reset": True, "mode": "warm"}
    assert document["constraints"][0] == {"name": "late <i>jobs</i>", "sense": "at_most", "bound": 0.6}
    assert document["phases"][1] == {"name": "identification", "start": 333333}
    assert arrays["violation"].shape == (2, len(record.curves["episode"]))
    assert arrays["regret"].tobytes() == record.curves["regret"].tobytes()
    assert arrays["policy"].tobytes() == record.policy.pi.tobytes()


def test_a_record_that_is_gone_is_made_again(tmp_path):
    """The run is deterministic: what is made again is what was there, to the bit."""
    asked = (["paper/synthetic"], ["triple-q"])
    options = {"episodes": 300, "seeds": 2, "out": tmp_path, "executor": "serial"}
    ck.bench(*asked, **options)
    before = store.load_records(tmp_path)
    lost, kept = sorted(tmp_path.glob("*.record.npz"))
    there = kept.read_bytes()
    lost.unlink()
    assert not store.has_record(tmp_path, lost.name.partition(".")[0]) and len(store.load_records(tmp_path)) == 1
    ck.bench(*asked, **options)
    assert kept.read_bytes() == there
    for a, b in zip(before, store.load_records(tmp_path), strict=True):
        assert store.difference(a, b) is None
