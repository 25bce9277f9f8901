"""What a folder of runs holds beside their records: the models, a title, and figures published elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmdpkit import envs
from cmdpkit.io.atomic import make_folder, write_text
from cmdpkit.io.formats.source import read_text
from cmdpkit.io.loading import load, parsed
from cmdpkit.io.models import read_model
from cmdpkit.model.cmdp import CMDP
from cmdpkit.records.manifest import seal, unseal
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.results.published import Claim, Row

Folder = str | os.PathLike[str]

MODELS = "models"  # the folder of model files, which are named by their fingerprints
SETTINGS, SETTINGS_FORMAT = "study.json", "cmdpkit study"


@dataclass(frozen=True)
class Settings:
    """How a study is to be shown."""

    title: str = ""  # heading of the report
    published: tuple[Row, ...] = ()  # figures published elsewhere, beside what the runs gave
    claims: tuple[Claim, ...] = ()  # claims published elsewhere, with verdicts


def save_settings(folder: Folder, title: str, published: Iterable[Row] = (), claims: Iterable[Claim] = ()) -> None:
    """Keep what a report needs beside the records; what was kept before is replaced."""
    body: dict[str, Any] = {"title": title, "published": [row.to_dict() for row in published]}
    body["claims"] = [claim.to_dict() for claim in claims]
    make_folder(Path(folder))
    write_text(Path(folder, SETTINGS), seal(SETTINGS_FORMAT, body), overwrite=True)


def load_settings(folder: Folder) -> Settings:
    """What is kept beside the records of a folder; without it, the name of the folder is the title."""
    path = Path(folder, SETTINGS)
    if not path.exists():
        return Settings(Path(folder).resolve().name)
    body = unseal(path, read_text(path), SETTINGS_FORMAT)
    claims = tuple(Claim.of(table) for table in body.get("claims", ()))  # earlier files have none
    return Settings(body["title"], tuple(Row.of(table) for table in body["published"]), claims)


def load_models(folder: Folder, records: Iterable[RunRecord]) -> dict[str, CMDP]:
    """The models of records that a folder and those below it keep, by their fingerprints."""
    kept = {path.stem: path for path in Path(folder).rglob(f"{MODELS}/*.npz")}
    wanted = {record.run.fingerprint for record in records}
    return {fingerprint: read_model(kept[fingerprint]) for fingerprint in sorted(wanted & kept.keys())}


def model_of(run: Run, models: Mapping[str, CMDP] | None = None) -> CMDP | None:
    """The model that a run was made on: one that is given by fingerprint or name, or loaded by its name.

    None unless it is certainly the same. A record is data: code that it names ("package.module:function", or an
    environment of another package) is never imported or called for it.
    """
    if not run.fingerprint:
        return None
    known = models or {}
    cmdp = known.get(run.fingerprint)
    named = parsed(run.env)
    if cmdp is None and run.env not in known and named is not None and not envs.is_built_in(named[0]):
        return None
    try:
        if cmdp is None:
            cmdp = (known[run.env] if run.env in known else load(run.env)).with_bounds(**run.bounds)
    except (ValueError, OSError):  # a file that moved, a name made up for a model in memory
        return None
    return cmdp if cmdp.fingerprint() == run.fingerprint else None
