"""Records on disk: per run one Parquet file with the curves and one JSON manifest with everything else.

Both are named after `Run.key`, so a run's files are found from its request. Each file appears as a whole or not at
all, and the manifest is written last. A manifest therefore means a finished record, and nothing that a killed process
leaves behind is read as a result. A finished record is never replaced.

The schema of manifests is described in docs/schema.md. Numbers are read back to the bit, because Python writes the
shortest text that stands for the same number. JSON has no infinity, so it is written as {"float": "inf"}; NaN is
refused. Records of earlier versions are converted to the present fields.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import make_folder, write_bytes, write_text
from cmdpkit.io.formats.document import names_entry
from cmdpkit.io.formats.json_toml import dump_json
from cmdpkit.io.formats.parquet_model import database
from cmdpkit.learners.registry import current_name
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import check_seed, written_name
from cmdpkit.records.code import Checkout, versions
from cmdpkit.records.record import Certificate, Evaluation, Run, RunRecord, plain

if TYPE_CHECKING:
    import duckdb

Folder = str | os.PathLike[str]
Columns = dict[str, NDArray[Any]]
Plain = dict[str, Any]
Made = TypeVar("Made")

SCHEMA = 2  # version of the manifests that are written
RECORD, FAILURE = "cmdpkit record", "cmdpkit failure"  # the two kinds of manifest
# The first columns of every file of curves: the key, and what was asked.
IDENTITY = ("run", "env", "bounds", "noise", "algo", "preset", "params", "baseline", "code", "seed")
MANIFEST_NAME = re.compile(r"[0-9a-f]{20}\.json")
FAILURE_NAME = re.compile(r"[0-9a-f]{20}\.failed\.json")


@dataclass(frozen=True)
class Failure:
    """A run that was started and did not finish."""

    run: Run  # the request
    reason: str  # why it did not finish, for people
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python and packages


# -- writing -----------------------------------------------------------------------------------------------------------


def save_record(record: RunRecord, folder: Folder) -> Path:
    """Write a record, and return the path of its manifest. A record that exists is kept.

    A different result in it is an error, because equal runs must agree to the bit, apart from times and versions.
    """
    manifest = _manifest(folder, record.run.key)
    if has_record(folder, record.run.key):
        return _kept(record, manifest)
    table = _parquet(columns_of(record))
    curves = {
        "file": manifest.with_suffix(".parquet").name,
        "sha256": hashlib.sha256(table).hexdigest(),
        "shapes": {name: list(np.shape(x)) for name, x in record.curves.items()},
    }
    text = seal(RECORD, {**body_of(record), "curves": curves})
    make_folder(folder)
    write_bytes(manifest.with_suffix(".parquet"), table, overwrite=True)  # curves without a manifest are no result
    try:
        write_text(manifest, text, overwrite=manifest.exists())  # a killed process can leave an empty one
    except ValueError:
        if not has_record(folder, record.run.key):
            raise
        return _kept(record, manifest)  # another process finished the same run meanwhile
    with suppress(OSError):
        _failed(folder, record.run.key).unlink()
    return manifest


def save_failure(run: Run, reason: str, folder: Folder) -> Path:
    """Record that a run failed, and why; a later failure of the same run replaces this, and a success removes it."""
    make_folder(folder)
    body = {"run": run.to_dict(), "key": run.key, "reason": reason, "versions": dict(versions())}
    return write_text(_failed(folder, run.key), seal(FAILURE, body), overwrite=True)


def _kept(record: RunRecord, manifest: Path) -> Path:
    differs = difference(record, load_record(manifest.parent, record.run.key))
    if differs is not None:
        raise CmdpkitError(
            f"{manifest} holds another result of the same run: {differs} differs. It is kept; to replace it, delete it"
        )
    return manifest


# -- reading -----------------------------------------------------------------------------------------------------------


def has_record(folder: Folder, key: str) -> bool:
    """Whether the run is finished and both files of its record exist; if not, it has to be played."""
    manifest = _manifest(folder, key)
    return _is_written(manifest) and manifest.with_suffix(".parquet").exists()


def _is_written(manifest: Path) -> bool:
    """Whether a manifest exists and is not empty, as a killed process can leave it."""
    try:
        return manifest.stat().st_size > 0
    except OSError:
        return False


def load_record(folder: Folder, key: str) -> RunRecord:
    """A record as it was saved, to the bit; raises CmdpkitError if it is missing, damaged or of a newer schema."""
    manifest = _manifest(folder, key)
    body = _body(manifest, RECORD)
    try:
        if body["key"] != key or _key_of(body["run"], body["schema"]) != key:
            raise CmdpkitError(f"{manifest} belongs to another run, {body['key']}; give it back its name")
        return record_of(body, _curves(manifest, body["curves"]))
    except (KeyError, TypeError) as error:
        raise CmdpkitError(f"{manifest} is not a complete record ({error!r}); delete it and run again") from None


def load_records(folder: Folder) -> tuple[RunRecord, ...]:
    """Every finished record in a folder and those below it, each run once, by environment, algorithm and seed."""
    found = {path.stem: path.parent for path in _listed(folder, MANIFEST_NAME) if _is_written(path)}
    records = [load_record(parent, key) for key, parent in found.items()]
    return tuple(sorted(records, key=lambda record: _order(record.run)))


def load_failures(folder: Folder) -> tuple[Failure, ...]:
    """Every run in a folder and those below it that failed and was not finished afterwards."""
    failures = {}
    for path in _listed(folder, FAILURE_NAME):
        key = path.name.partition(".")[0]
        if not has_record(path.parent, key):
            body = _body(path, FAILURE)
            failures[key] = Failure(_run_of(body["run"], body["schema"]), body["reason"], body["versions"])
    return tuple(sorted(failures.values(), key=lambda failure: _order(failure.run)))


def _order(run: Run) -> tuple[object, ...]:
    bounds, params = (json.dumps(dict(x), sort_keys=True) for x in (run.bounds, run.params))
    world = (run.env, bounds, run.noise)
    return *world, run.algo, run.preset, params, run.baseline, run.episodes, run.code, run.seed, run.key


def _listed(folder: Folder, name: re.Pattern[str]) -> Iterator[Path]:
    if not os.path.isdir(folder):
        raise CmdpkitError(f"{os.fspath(folder)} is no folder of runs: there is no such folder; check its name")
    return (path for path in sorted(Path(folder).rglob("*.json")) if name.fullmatch(path.name))


def _body(path: Path, kind: str) -> Plain:
    return unseal(path, _bytes(path).decode(errors="replace"), kind)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CmdpkitError(f"there is no {path}; run again to make it") from None
    except OSError as error:
        raise CmdpkitError(f"cannot read {path}: {error.strerror or error}") from None


def _curves(manifest: Path, described: Plain) -> Columns:
    """The curves of a record, checked against the manifest, in their shapes."""
    path = manifest.with_name(described["file"])
    if not path.exists():
        raise CmdpkitError(
            f"{path} is missing, though {manifest.name} describes it: the curves were deleted or not copied along. Put "
            f"the file back, run the same command again to make the record again, or delete {manifest.name}"
        )
    data = _bytes(path)
    if hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise CmdpkitError(
            f"{path} is damaged (its checksum does not fit); delete it and {manifest.name}, and run again"
        )
    columns = _from_parquet(path, data)
    curves = {}
    for name, shape in described["shapes"].items():
        parts = [columns[part] for part in _parts(name, shape)]
        curves[name] = parts[0] if len(shape) == 1 else np.array(parts, dtype=float).reshape(shape)
    return curves


def _manifest(folder: Folder, key: str) -> Path:
    return Path(folder, f"{key}.json")


def _failed(folder: Folder, key: str) -> Path:
    return Path(folder, f"{key}.failed.json")


# -- the table of curves -----------------------------------------------------------------------------------------------


def columns_of(record: RunRecord) -> Columns:
    """The curves as a table with one row per checkpoint. A curve [N, C] becomes N columns: "violation_1", and so on."""
    run = record.run
    check_seed(run.seed)
    rows = np.size(record.read_at)
    asked = {"run": run.key, **run.to_dict()}
    asked |= {name: json.dumps(asked[name], sort_keys=True) for name in ("bounds", "params")}
    columns: Columns = {name: np.full(rows, asked[name]) for name in IDENTITY}
    for name, values in record.curves.items():
        x = np.asarray(values)
        if x.ndim not in (1, 2) or x.shape[-1] != rows:
            raise CmdpkitError(f"curve {name!r} has shape {x.shape}, expected ({rows},) or (N, {rows})")
        if not np.isfinite(x).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise CmdpkitError(f"curve {name!r} is {x[place]} at index {place}, expected a finite number")
        for part, column in zip(_parts(name, x.shape), np.atleast_2d(x) if x.ndim == 1 else x, strict=True):
            if part.lower() in {taken.lower() for taken in columns}:
                raise CmdpkitError(f"curve {name!r} needs the column {part!r}, which is taken; rename it")
            columns[part] = column
    return columns


def _parts(name: str, shape: tuple[int, ...] | list[int]) -> list[str]:
    """The names of the columns of a curve."""
    return [name] if len(shape) == 1 else [f"{name}_{n + 1}" for n in range(shape[0])]


def _parquet(columns: Columns) -> bytes:
    """A table as the content of a Parquet file."""
    with _connected() as (connection, scratch):
        connection.register("curves", columns)
        connection.execute(f"COPY curves TO '{scratch}' (FORMAT parquet, COMPRESSION zstd)")
        return scratch.read_bytes()


def _from_parquet(path: Path, data: bytes) -> Columns:
    """The table in a Parquet file, read from a copy of it, because DuckDB takes [ and * in a path for patterns."""
    try:
        with _connected() as (connection, scratch):
            scratch.write_bytes(data)
            return connection.execute(f"FROM read_parquet('{scratch}')").fetchnumpy()
    except ValueError as error:
        raise CmdpkitError(f"{path} cannot be read: {error}") from None


@contextmanager
def _connected() -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """A connection for this thread only, and the path of a temporary file; failures become CmdpkitErrors."""
    import duckdb

    try:
        with tempfile.TemporaryDirectory(prefix="cmdpkit-") as scratch, _database(os.getpid()).cursor() as connection:
            yield connection, Path(scratch, "curves.parquet")
    except (duckdb.Error, OSError) as error:
        raise CmdpkitError(f"cannot convert curves: {str(error).strip()}") from None


@cache
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, one per process, because starting one takes longer than writing a file."""
    return database(threads=1)


# -- the envelope ------------------------------------------------------------------------------------------------------


def seal(kind: str, body: Plain) -> str:
    """The text of a manifest: its kind, its schema, the body and a checksum of these."""
    document = {"format": kind, "schema": SCHEMA, **plain(body, kind)}
    return dump_json({**document, "checksum": _checksum(document)})


def unseal(path: Path, text: str, kind: str) -> Plain:
    """The body of a manifest, as it was written; a damaged one raises a CmdpkitError that says what to do."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CmdpkitError(f"{path} is damaged ({error}); delete it and run again") from None
    if not isinstance(document, dict) or document.get("format") != kind:
        raise CmdpkitError(f"{path} is not a {kind}; move it elsewhere")
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise CmdpkitError(f"{path} has schema {schema}, this cmdpkit reads up to {SCHEMA}; update cmdpkit")
    found = document.pop("checksum", None)
    if found != _checksum(document):
        raise CmdpkitError(f"{path} is damaged (its checksum does not fit); delete it and run again")
    body: Plain = _restored(document)
    return body


def _checksum(document: Plain) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("inf", "-inf"):
            return float(value["float"])
        return {key: _restored(inner) for key, inner in value.items()}
    return [_restored(inner) for inner in value] if isinstance(value, list) else value


# -- records -----------------------------------------------------------------------------------------------------------


def body_of(record: RunRecord) -> Plain:
    """All parts of a record except its curves, as plain values."""
    return {
        "run": record.run.to_dict(),
        "key": record.run.key,
        "seconds": record.seconds,
        "versions": record.versions,
        "checkout": None if record.checkout is None else vars(record.checkout),
        "constraints": [  # a bound per step also has the number of steps that a value counts
            {"name": c.name, "sense": c.sense, "bound": c.bound, **({"steps": c.scale} if c.per_step else {})}
            for c in record.constraints
        ],
        "optimum": record.optimum,
        "policy_value": record.policy_value,
        "policy_utilities": record.policy_utilities,
        "evaluation": None if record.evaluation is None else vars(record.evaluation),
        "certificate": None if record.certificate is None else vars(record.certificate),
        "phases": [{"name": name, "start": start} for name, start in record.phases],
        "stochastic_decisions": [
            {
                "step": d.step,
                "state": written_name(d.state),
                "probabilities": [(written_name(a), p) for a, p in d.probabilities.items()],
            }
            for d in record.decisions
        ],
        "notes": record.notes,
        "explanation": record.explanation,
        "policy": {
            "states": names_entry(record.policy.states),
            "actions": names_entry(record.policy.action_names),
            "pi": record.policy.pi.tolist(),
        },
    }


def record_of(body: Plain, curves: Mapping[str, FloatArray]) -> RunRecord:
    """The record with this body and these curves: the inverse of `body_of`, for earlier schemas too."""
    run, utilities, table = _run_of(body["run"], body["schema"]), body["policy_utilities"], body["policy"]
    states, actions = (() if isinstance(table[key], int) else table[key] for key in ("states", "actions"))
    return RunRecord(
        run=run,
        constraints=tuple(
            Constraint(c["name"], c["sense"], c["bound"], None, "steps" in c, c.get("steps"))
            for c in body["constraints"]
        ),
        optimum=body["optimum"],
        curves=curves,
        policy=Policy(table["pi"], states, actions, run.unit == "step"),
        policy_value=body["policy_value"],
        policy_utilities=None if utilities is None else np.array(utilities, dtype=float),
        decisions=tuple(
            Decision(d["step"], d["state"], dict(d["probabilities"])) for d in body["stochastic_decisions"]
        ),
        certificate=_made(Certificate, body["certificate"]),
        phases=tuple((phase["name"], phase["start"]) for phase in body["phases"]),
        explanation=body["explanation"],
        notes=tuple(body["notes"]),
        seconds=body["seconds"],
        versions=body["versions"],
        checkout=_made(Checkout, body.get("checkout")),
        evaluation=_made(Evaluation, body.get("evaluation")),
    )


def difference(a: RunRecord, b: RunRecord) -> str | None:
    """The first part in which two results differ, by even a bit, or None; times, versions and commits do not count."""
    one, two = (plain(body_of(record), RECORD) for record in (a, b))
    for part in one:
        if part not in ("seconds", "versions", "checkout") and json.dumps(one[part]) != json.dumps(two[part]):
            return str(part)
    if list(a.curves) != list(b.curves):
        return "names of the curves"
    for name in a.curves:
        x, y = (np.asarray(record.curves[name]) for record in (a, b))
        if x.shape != y.shape or x.tobytes() != y.tobytes():
            return f"curve {name!r}"
    return None


def _made(kind: Callable[..., Made], table: Plain | None) -> Made | None:
    """The object with the fields in a table, where lists stand for tuples; None if there is no table."""
    return None if table is None else kind(**{key: _tuples(x) for key, x in table.items()})


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list) else x


# -- Records of earlier versions. Schema 1 (version 0.1) kept changed bounds in the name of the environment, noise and
# the digest of the baseline among the parameters, and did not record the code. `cl-pri` once had a parameter `memory`:
# with "none" it is called `mf-pri` now, and so is `pri` with the preset `practical` of version 0.1.

CHANGED_BOUND = re.compile(r" with (.+?) = (\S+)")


def _key_of(table: Plain, schema: int) -> str:
    """The key under which a run was saved, by its schema."""
    if schema > 1:
        return Run(**table).key
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:20]


def _run_of(table: Plain, schema: int) -> Run:
    """The `Run` that was written with some schema."""
    params = dict(table["params"])
    if schema > 1:
        memory = params.pop("memory", None) if table["algo"] == "cl-pri" else None
        algo = table["algo"] if memory is None else current_name(table["algo"], table["preset"], memory)
        return Run(**{**table, "algo": algo, "params": params, "readings": tuple(table.get("readings", ()))})
    algo = current_name(table["algo"], table["preset"])
    env, bounds = split_bounds(table["env"])
    found = {"noise": params.pop("noise", "none"), "baseline": params.pop("baseline", "")}
    return Run(**{**table, "env": env, "algo": algo, "params": params}, bounds=bounds, **found)


def split_bounds(env: str) -> tuple[str, dict[str, float]]:
    """The environment in a name of schema 1, and the bounds that were changed.

    >>> split_bounds("paper/grid with cost = 0.3")
    ('paper/grid', {'cost': 0.3})
    >>> split_bounds("life with cats.json")
    ('life with cats.json', {})
    """
    source, _, _ = env.partition(" with ")
    found = CHANGED_BOUND.findall(env[len(source) :])
    if "".join(f" with {name} = {value}" for name, value in found) != env[len(source) :]:
        return env, {}
    try:
        return source, {name: float(value) for name, value in found}
    except ValueError:
        return env, {}
