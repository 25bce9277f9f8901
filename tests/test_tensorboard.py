"""Event files are read back with TensorBoard's own reader: every number of every record, at its episode."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from cmdpkit import cli
from cmdpkit.results.study import Study
from cmdpkit.running.learning import learn_many
from records import make_record, two_bounds


@pytest.fixture(scope="module")
def two():
    """Two constraints, several presets, and a run that has no model."""
    cmdp = two_bounds()
    records = [
        *(make_record("two </script><b>", "pri", seed, cmdp) for seed in (0, 1)),
        make_record("two </script><b>", "pri", 0, cmdp, preset="paper", params={"eta": 0.5}),
        make_record("blind", "opt-cmdp", 4, cmdp, blind=True),
    ]
    return Study(tuple(records))


def read(folder):
    """tag -> (episodes, values) of a run."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: ([event.step for event in events.Scalars(tag)], [event.value for event in events.Scalars(tag)])
        for tag in events.Tags()["scalars"]
    }


def expected(record):
    """The same from the record: a tag a curve, or a constraint of one."""
    tags = {}
    for name, curve in record.curves.items():
        rows = {name: curve} if curve.ndim == 1 else {f"{name}_{n + 1}": row for n, row in enumerate(curve)}
        tags |= {} if name == "episode" else rows
    return tags


def test_every_curve_of_every_run_is_there_at_its_episodes(two, tmp_path):
    folders = two.to_tensorboard(tmp_path / "events")
    assert [str(path.relative_to(tmp_path / "events")) for path in folders] == [
        "two-script-b/pri-practical/seed-0",
        "two-script-b/pri-practical/seed-1",
        "two-script-b/pri-paper/seed-0",
        "blind/opt-cmdp/seed-4",
    ]
    for folder, record in zip(folders, two.records, strict=True):
        found, curves = read(folder), expected(record)
        assert found.keys() == curves.keys()
        for tag, (steps, values) in found.items():
            assert steps == record.curves["episode"].tolist(), tag
            assert values == curves[tag].astype(np.float32).tolist(), tag  # TensorBoard keeps single precision
    assert {"regret", "violation_1", "violation_2", "strong_regret", "multiplier_2"} <= read(folders[0]).keys()
    assert [path.name for path in tmp_path.iterdir()] == ["events"]  # nothing temporary is left


def test_real_runs_bring_what_they_have(tmp_path):
    made = learn_many("paper/synthetic", "triple-q", episodes=200, seeds=(0, 1))
    for folder, record in zip(Study(tuple(made)).to_tensorboard(tmp_path), made, strict=True):
        found = read(folder)
        assert {"unsafe_episodes", "realised_violation_1", "multiplier_1"} <= found.keys()
        assert found["regret"][1][-1] == np.float32(record.regret)


def test_runs_that_would_share_a_folder_get_one_each(tmp_path):
    cmdp = two_bounds()
    names = ("a/b", "a b", "A-B", "...")
    study = Study(tuple(make_record(name, "pri", 0, cmdp) for name in names))
    folders = study.to_tensorboard(tmp_path)
    assert len({str(folder).lower() for folder in folders}) == len(names)
    assert all(folder.is_relative_to(tmp_path) for folder in folders)
    for folder, record in zip(folders, study.records, strict=True):
        assert read(folder)["regret"][1][-1] == np.float32(record.regret)


def test_existing_events_are_kept_and_only_the_same_runs_are_replaced(two, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is not an empty folder; overwrite=True \(--force\) writes into it"):
        two.to_tensorboard(tmp_path)
    with pytest.raises(ValueError, match=r"notes\.txt is not an empty folder"):
        two.to_tensorboard(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    folders = two.to_tensorboard(tmp_path, overwrite=True)
    (folders[0] / "events.txt").write_text("mine too")
    other = folders[0].parent / "seed-9"
    other.mkdir()
    (other / "events.out.tfevents.1.elsewhere").write_bytes(b"of another run")
    changed = [
        replace(r, curves=r.curves | {"regret": r.curves["regret"] + 1e6}) for r in two.records if "regret" in r.curves
    ]
    Study(tuple(changed)).to_tensorboard(tmp_path, overwrite=True)
    assert read(folders[0])["regret"][1] == changed[0].curves["regret"].astype(np.float32).tolist()
    assert (tmp_path / "notes.txt").read_text() == "mine" and (folders[0] / "events.txt").read_text() == "mine too"
    assert (other / "events.out.tfevents.1.elsewhere").read_bytes() == b"of another run"
    assert read(folders[-1]).keys() == expected(two.records[-1]).keys()  # not among the changed ones


def test_refusals_are_explained(two, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no finished run to write"):
        Study(()).to_tensorboard(tmp_path / "events")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write .*: Not a directory"):
        two.to_tensorboard(tmp_path / "file" / "events")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"needs tensorboardX.*pip install 'cmdpkit\[tensorboard\]'"):
        two.to_tensorboard(tmp_path / "events")
    assert not (tmp_path / "events").exists()


def test_the_command_writes_events_next_to_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = learn_many("paper/synthetic", "triple-q", episodes=100, seeds=(0,), out="runs")
    command = ["report", "runs", "--tensorboard", "my events"]
    text = CliRunner().invoke(cli.app, command)
    assert text.exit_code == 0, text.output
    assert "runs/report.html: 1 run\n" in text.stdout
    assert "tensorboard --logdir 'my events'" in text.stdout
    assert read(tmp_path / "my events/paper-synthetic/triple-q/seed-0")["regret"][1][-1] == np.float32(made[0].regret)
    again = CliRunner().invoke(cli.app, command)
    assert again.exit_code == 1 and "my events is not an empty folder" in again.stderr
    forced = CliRunner().invoke(cli.app, [*command, "--force", "--json"])
    assert json.loads(forced.stdout)["tensorboard"] == ["my events/paper-synthetic/triple-q/seed-0"]
