"""Curves for TensorBoard: one run there for every run here, a scalar for every column of its record."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.records.record import RunRecord
from cmdpkit.records.store import IDENTITY, columns_of
from cmdpkit.results.groups import Group
from cmdpkit.results.study import Study

EVENT_FILES = "events.out.tfevents.*"  # the names by which TensorBoard finds its files
MOST_CHARACTERS = 80  # of the name of a folder


def write_events(study: Study, folder: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the curves of every run into FOLDER/problem/algorithm/seed-N; returns the paths of these folders.

    A folder that holds something already is refused, unless ``overwrite`` is true. Then the event files of the same
    runs are replaced, and everything else stays. Nothing appears before all of it is written.
    """
    folder = Path(folder)
    writer = _writer()
    if not study.records:
        raise CmdpkitError("there is no finished run to write")
    if not overwrite and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CmdpkitError(f"{folder} is not an empty folder; overwrite=True (--force) writes into it all the same")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            named = _named(study.groups())
            for name, record in named.items():
                _write(writer, Path(scratch, name), record)
            return tuple(_moved(Path(scratch, name), folder / name) for name in named)
    except OSError as error:
        raise CmdpkitError(f"cannot write {folder}: {error.strerror or error}") from None


def _writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise CmdpkitError(
            "writing for TensorBoard needs tensorboardX, which is not installed: pip install 'cmdpkit[tensorboard]'"
        ) from None
    return SummaryWriter


def _write(writer: Any, folder: Path, record: RunRecord) -> None:
    """The curves of one run, at their episodes."""
    columns = columns_of(record)
    episodes = np.asarray(columns[record.run.unit]).tolist()
    with writer(str(folder)) as events:
        for name, column in columns.items():
            if name not in (*IDENTITY, record.run.unit):
                for episode, value in zip(episodes, np.asarray(column, dtype=float).tolist(), strict=True):
                    events.add_scalar(name, value, int(episode))


def _moved(source: Path, target: Path) -> Path:
    """Put the event file of a run in place of the one that was there; returns the folder."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob(EVENT_FILES):
        old.unlink()
    for new in source.iterdir():
        os.replace(new, target / new.name)
    return target


def _named(groups: tuple[Group, ...]) -> dict[str, RunRecord]:
    """The name of a folder for every run; where two runs would share one, the key of the run is added."""
    named: dict[str, RunRecord] = {}
    for group, record in ((x, record) for x in groups for record in x.records):
        name = f"{_slug(group.problem)}/{_slug(group.label)}/seed-{record.run.seed}"
        taken = name.lower() in {other.lower() for other in named}
        named[f"{name}-{record.run.key}" if taken else name] = record
    return named


def _slug(text: str) -> str:
    """Characters that every file system takes.

    >>> _slug("paper/grid"), _slug("cl-pri (practical, eta=0.5)"), _slug("../<b>")
    ('paper-grid', 'cl-pri-practical-eta=0.5', 'b')
    """
    return re.sub(r"[^\w.=+-]+", "-", text)[:MOST_CHARACTERS].strip("-.") or "unnamed"
