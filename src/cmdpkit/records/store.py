"""Records on disk: one npz file per run, with the curves, the policy, and everything else as JSON in its header.

The file is named after `Run.key`, so that it is found from the request. It appears as a whole or not at all: a file of
this name is a finished record, and nothing that a killed process leaves behind is read as a result. A finished record
is never replaced. NumPy reads the curves without this package: ``numpy.load(path)["regret"]``.

The schema is described in docs/schema.md. Numbers are read back to the bit. JSON has no infinity, so it is written as
{"float": "inf"}; NaN is refused. Records of version 0.2 are read too, with pandas and pyarrow.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import make_folder, write_text, writing
from cmdpkit.io.formats.document import names_entry
from cmdpkit.io.formats.npz import read_arrays, write_npz
from cmdpkit.io.formats.source import dump_json
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import written_name
from cmdpkit.records.code import Checkout, versions
from cmdpkit.records.record import Certificate, Evaluation, Run, RunRecord, plain

Folder = str | os.PathLike[str]
Arrays = dict[str, NDArray[Any]]
Plain = dict[str, Any]
Made = TypeVar("Made")

SCHEMA, OLDEST_SCHEMA = 3, 2  # versions of the documents that are written, and of the oldest that are read
RECORD, FAILURE = "record", "failure"  # the two kinds of documents
SUFFIX = ".record.npz"  # of the file of a record
HEADER, POLICY = "header", "policy"  # arrays of the file that are no curves
RESERVED = (
    HEADER,
    POLICY,
    "file",
    "allow_pickle",
)  # no curve can have these names, the last two because of numpy.savez
ONE_ROW = (  # curves with one number per checkpoint; a learner's own may have one or one for each bound
    *("episode", "step", "regret", "strong_regret", "unsafe_episodes", "realised_regret", "realised_reward"),
    *("gaps_paid", "certified_gap"),
)
PER_BOUND = ("violation", "strong_violation", "realised_violation", "realised_utility", "multiplier")
RECORD_NAME = re.compile(r"[0-9a-f]{20}\.record\.npz")
FAILURE_NAME = re.compile(r"[0-9a-f]{20}\.failed\.json")
OLD_NAME = re.compile(r"[0-9a-f]{20}\.json")  # the record of an earlier version, next to its curves in Parquet


@dataclass(frozen=True)
class Failure:
    """A run that was started and did not finish."""

    run: Run  # the request
    reason: str  # why it did not finish, for people
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python and packages


# -- writing -----------------------------------------------------------------------------------------------------------


def save_record(record: RunRecord, folder: Folder) -> Path:
    """Write a record, and return the path of its file. A record that exists is kept.

    A different result in it is an error, because equal runs must agree to the bit, apart from times and versions.
    """
    path = _path(folder, record.run.key)
    if has_record(folder, record.run.key):
        return _kept(record, path)
    _check_curves(record)
    body = plain(body_of(record), RECORD)
    make_folder(folder)
    try:
        with writing(path, overwrite=path.exists()) as file:  # a killed process can leave an empty one
            write_npz(file, RECORD, {"schema": SCHEMA, **body}, {POLICY: record.policy.pi, **record.curves})
    except ValueError:
        if not has_record(folder, record.run.key):
            raise
        return _kept(record, path)  # another process finished the same run meanwhile
    with suppress(OSError):
        _failed(folder, record.run.key).unlink()
    return path


def save_failure(run: Run, reason: str, folder: Folder) -> Path:
    """Record that a run failed, and why; a later failure of the same run replaces this, and a success removes it."""
    make_folder(folder)
    body = {"run": run.to_dict(), "key": run.key, "reason": reason, "versions": dict(versions())}
    return write_text(_failed(folder, run.key), document(FAILURE, body), overwrite=True)


def _kept(record: RunRecord, path: Path) -> Path:
    differs = difference(record, load_record(path.parent, record.run.key))
    if differs is not None:
        raise CmdpkitError(
            f"{path} holds another result of the same run: {differs} differs. It is kept; to replace it, delete it"
        )
    return path


def _check_curves(record: RunRecord) -> None:
    """Refuse curves that nobody could read as docs/schema.md describes them: by name, shape, or what they hold."""
    rows, N = np.size(record.read_at), len(record.constraints)
    for name, values in record.curves.items():
        x = np.asarray(values)
        if name in RESERVED:
            raise CmdpkitError(f"a curve is called {name!r}, a name that a record needs for something else; rename it")
        shapes = [(rows,)] if name in ONE_ROW else [(N, rows)] if name in PER_BOUND else [(rows,), (N, rows)]
        if x.shape not in shapes:
            expected = " or ".join(map(str, shapes))
            raise CmdpkitError(
                f"curve {name!r} has shape {x.shape}, expected {expected}: the run was read {rows} times and has "
                f"{N} bounds"
            )
        if x.dtype.kind not in "iuf":
            raise CmdpkitError(f"curve {name!r} holds values of type {x.dtype}, expected real numbers")
        if not np.isfinite(x).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise CmdpkitError(f"curve {name!r} is {x[place]} at index {place}, expected a finite number")
    if rows == 0:
        raise CmdpkitError(f"curve {record.run.unit!r} is empty, expected at least the end of the run")


# -- reading -----------------------------------------------------------------------------------------------------------


def has_record(folder: Folder, key: str) -> bool:
    """Whether the run is finished and its record exists; if not, it has to be played."""
    return _is_written(_path(folder, key))


def _is_written(path: Path) -> bool:
    """Whether a file exists and is not empty, as a killed process can leave it."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def load_record(folder: Folder, key: str) -> RunRecord:
    """A record as it was saved, to the bit; raises CmdpkitError if it is missing, damaged or of a newer schema."""
    path = _path(folder, key)
    if not path.exists():
        raise CmdpkitError(f"there is no {path}; run again to make it")
    try:
        arrays = read_arrays(path)
    except CmdpkitError as error:
        raise CmdpkitError(f"{error}; delete it and run again") from None
    try:
        body = _opened(path, arrays.pop(HEADER).tobytes().decode(), RECORD)
        body["policy"]["pi"] = arrays.pop(POLICY)
        return _checked(path, key, body, arrays)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if str(path) in str(error):
            raise
        told = str(error) if isinstance(error, CmdpkitError) else repr(error)
        raise CmdpkitError(f"{path} is not a complete record ({told}); delete it and run again") from None


def _checked(path: Path, key: str, body: Plain, curves: Arrays) -> RunRecord:
    if body["key"] != key or _run_of(body["run"]).key != key:
        raise CmdpkitError(f"{path} belongs to another run, {body['key']}; give it back its name")
    record = record_of(body, curves)
    _check_curves(record)
    return record


def load_records(folder: Folder) -> tuple[RunRecord, ...]:
    """Every finished record in a folder and those below it, each run once, by environment, algorithm and seed."""
    old = {path.stem: path for path in _listed(folder, OLD_NAME) if _is_written(path)}
    found = {path.name.removesuffix(SUFFIX): path.parent for path in _listed(folder, RECORD_NAME) if _is_written(path)}
    records = [load_record(parent, key) for key, parent in found.items()]
    records += [_load_old(path) for key, path in old.items() if key not in found]
    return tuple(sorted(records, key=lambda record: _order(record.run)))


def load_failures(folder: Folder) -> tuple[Failure, ...]:
    """Every run in a folder and those below it that failed and was not finished afterwards."""
    failures = {}
    for path in _listed(folder, FAILURE_NAME):
        key = path.name.partition(".")[0]
        if not has_record(path.parent, key):
            body = opened(path, FAILURE)
            failures[key] = Failure(_run_of(body["run"]), body["reason"], body["versions"])
    return tuple(sorted(failures.values(), key=lambda failure: _order(failure.run)))


def _order(run: Run) -> tuple[object, ...]:
    bounds, params = (json.dumps(dict(x), sort_keys=True) for x in (run.bounds, run.params))
    world = (run.env, bounds, run.noise)
    return *world, run.algo, run.preset, params, run.baseline, run.length, run.code, run.seed, run.key


def _listed(folder: Folder, name: re.Pattern[str]) -> Iterator[Path]:
    if not os.path.isdir(folder):
        raise CmdpkitError(f"{os.fspath(folder)} is no folder of runs: there is no such folder; check its name")
    return (path for path in sorted(Path(folder).rglob("*.*")) if name.fullmatch(path.name))


def _path(folder: Folder, key: str) -> Path:
    return Path(folder, f"{key}{SUFFIX}")


def _failed(folder: Folder, key: str) -> Path:
    return Path(folder, f"{key}.failed.json")


def _load_old(path: Path) -> RunRecord:
    """The record that version 0.2 wrote: a JSON document, next to its curves in Parquet."""
    try:
        import pandas
        import pyarrow  # noqa: F401  (reads Parquet for pandas)
    except ImportError:
        raise CmdpkitError(
            f"{path} was written by cmdpkit 0.2 with its curves in Parquet; to read it, pip install 'cmdpkit[frames]'"
        ) from None
    body = opened(path, RECORD)
    try:
        table = pandas.read_parquet(path.with_suffix(".parquet"))
        curves = {}
        for name, shape in body["curves"]["shapes"].items():
            parts = [name] if len(shape) == 1 else [f"{name}_{n + 1}" for n in range(shape[0])]
            curves[name] = np.array([table[part].to_numpy() for part in parts]).reshape(shape)
        return _checked(path, path.stem, body, curves)
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise CmdpkitError(f"{path} and its .parquet are not a complete record ({error}); delete both") from None


# -- JSON documents ----------------------------------------------------------------------------------------------------


def document(kind: str, body: Plain) -> str:
    """The text of a document: its kind, its schema and the body."""
    return dump_json({"format": f"cmdpkit {kind}", "schema": SCHEMA, **plain(body, kind)})


def opened(path: Path, kind: str) -> Plain:
    """The body of a document in a file, as it was written; a damaged one raises a CmdpkitError with a remedy."""
    try:
        return _opened(path, path.read_bytes().decode(errors="replace"), kind)
    except OSError as error:
        raise CmdpkitError(f"cannot read {path}: {error.strerror or error}") from None


def _opened(path: Path, text: str, kind: str) -> Plain:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise CmdpkitError(f"{path} is damaged ({error}); delete it and run again") from None
    if not isinstance(body, dict) or body.get("format") != f"cmdpkit {kind}":
        raise CmdpkitError(f"{path} is not a cmdpkit {kind}; move it elsewhere")
    schema = body.get("schema")
    if not isinstance(schema, int) or schema < OLDEST_SCHEMA:
        raise CmdpkitError(f"{path} was written by version 0.1, whose records cmdpkit 0.2 was the last to read")
    if schema > SCHEMA:
        raise CmdpkitError(f"{path} has schema {schema}, this cmdpkit reads up to {SCHEMA}; update cmdpkit")
    found: Plain = restored(body)
    return found


def restored(value: Any) -> Any:
    """Plain values with the infinities that JSON cannot hold, see `plain`."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("inf", "-inf"):
            return float(value["float"])
        return {key: restored(inner) for key, inner in value.items()}
    return [restored(inner) for inner in value] if isinstance(value, list) else value


# -- records -----------------------------------------------------------------------------------------------------------


def body_of(record: RunRecord) -> Plain:
    """All parts of a record except its curves and the probabilities of its policy."""
    return {
        "run": record.run.to_dict(),
        "key": record.run.key,
        "seconds": record.seconds,
        "versions": record.versions,
        "finished": record.finished,
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
        "internals": record.internals,
        "policy": {
            "states": names_entry(record.policy.states),
            "actions": names_entry(record.policy.action_names),
        },
    }


def record_of(body: Plain, curves: Mapping[str, FloatArray]) -> RunRecord:
    """The record with this body, the probabilities of its policy as its "pi", and these curves."""
    run, utilities, table = _run_of(body["run"]), body["policy_utilities"], body["policy"]
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
        certificate=made(Certificate, body["certificate"]),
        phases=tuple((phase["name"], phase["start"]) for phase in body["phases"]),
        internals=body["internals" if "internals" in body else "explanation"],  # its name in version 0.2
        notes=tuple(body["notes"]),
        seconds=body["seconds"],
        versions=body["versions"],
        finished=body.get("finished", ""),
        checkout=made(Checkout, body.get("checkout")),
        evaluation=made(Evaluation, body.get("evaluation")),
    )


def difference(a: RunRecord, b: RunRecord) -> str | None:
    """The first part in which two results differ, by even a bit, or None; times, versions and commits do not count."""
    one, two = (plain(body_of(record), RECORD) for record in (a, b))
    for part in (x for x in one if x not in ("seconds", "versions", "finished", "checkout")):
        if json.dumps(one[part]) != json.dumps(two[part]):
            return str(part)
    if a.policy.pi.tobytes() != b.policy.pi.tobytes():
        return "policy"
    if list(a.curves) != list(b.curves):
        return "names of the curves"
    for name in a.curves:
        x, y = (np.asarray(record.curves[name]) for record in (a, b))
        if x.shape != y.shape or x.tobytes() != y.tobytes():
            return f"curve {name!r}"
    return None


def made(kind: Callable[..., Made], table: Plain | None) -> Made | None:
    """The object with the fields in a table, where lists stand for tuples; None if there is no table."""
    return None if table is None else kind(**{key: _tuples(x) for key, x in table.items()})


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list) else x


def _run_of(table: Plain) -> Run:
    asked = {**table, "length": table["episodes"], "readings": tuple(table.get("readings", ()))}
    del asked["episodes"]
    return Run(**asked)
