"""Policies in files: JSON, CSV and npz are read back exactly; Markdown and Python modules are for other users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import write_text, writing
from cmdpkit.io.formats import csv_text, json_text, npz
from cmdpkit.io.formats.archive import Expected
from cmdpkit.io.formats.decimals import Written, rule_of
from cmdpkit.io.formats.describe import names_entry
from cmdpkit.io.formats.policy_export import markdown, python_module
from cmdpkit.io.formats.source import Fields, Index, Table, read_text, reading, suffix_of
from cmdpkit.model.policy import Policy
from cmdpkit.model.rounding import warn
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE

FORMAT = "cmdpkit policy"
VERSION = 1
HEAD = ("states", "actions")
LENGTH = ("horizon", "stationary")  # exactly one of them
COLUMNS = ("step", "state", "action", "probability")


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """The policy in a .json, .csv or .npz file.

    >>> import tempfile
    >>> policy = Policy([[[0.25, 0.75]]], ("on",), ("stay", "leave"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_policy(policy, Path(folder, "policy.csv"))
    ...     print(path.read_text())
    ...     read_policy(path) == policy
    # horizon = 1
    # states = ["on"]
    # actions = ["stay", "leave"]
    # rows = 2
    step,state,action,probability
    1,on,stay,0.25
    1,on,leave,0.75
    <BLANKLINE>
    True
    """
    path = Path(path)
    suffix = suffix_of(path, (".json", ".csv", ".npz"))
    with reading(path):
        if suffix == ".npz":
            return _read_npz(path)
        text = read_text(path)
        return _policy_of(path, _parse_csv(path, text) if suffix == ".csv" else _parse_json(path, text))


def write_policy(policy: Policy, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a policy to a .json, .csv, .npz, .md or .py file; one that exists is kept unless ``overwrite`` is true."""
    path = Path(path)
    suffix = suffix_of(path, (".json", ".csv", ".npz", ".md", ".py"))
    if not isinstance(policy, Policy):
        raise CmdpkitError(
            f"write_policy writes a Policy, got {type(policy).__name__} (of a mixture, write markov(...) or its parts)"
        )
    if suffix == ".npz":
        with writing(path, overwrite=overwrite) as file:
            npz.write(file, "policy", _head(policy), {"pi": policy.pi})
        return path
    dump = {".json": _dump_json, ".csv": _dump_csv, ".md": markdown, ".py": python_module}
    return write_text(path, dump[suffix](policy), overwrite=overwrite)


def _head(policy: Policy) -> dict[str, Any]:
    length: dict[str, Any] = {"stationary": True} if policy.is_stationary else {"horizon": policy.horizon}
    return {
        **length,
        "states": names_entry(policy.states),
        "actions": names_entry(policy.action_names),
    }


def _decisions(policy: Policy) -> Iterator[tuple[dict[str, int], Any, dict[str, float]]]:
    """(step from 1 if there are steps, state, probability of every action taken) everywhere, reached or not."""
    actions = [str(a) for a in policy.action_names]
    for h, table in enumerate(policy.pi):
        step = {} if policy.is_stationary else {"step": h + 1}
        for state, row in zip(policy.states, table.tolist(), strict=True):
            yield step, state, {a: p for a, p in zip(actions, row, strict=True) if p > 0}


def _dump_json(policy: Policy) -> str:
    decisions = [{**step, "state": s, "probabilities": row} for step, s, row in _decisions(policy)]
    return json_text.dump({"format": FORMAT, "version": VERSION, **_head(policy), "decisions": decisions})


def _dump_csv(policy: Policy) -> str:
    rows = [(*step.values(), s, a, p) for step, s, row in _decisions(policy) for a, p in row.items()]
    columns = COLUMNS[1:] if policy.is_stationary else COLUMNS
    return csv_text.dump({**_head(policy), "rows": len(rows)}, (), columns, rows)


def _parse_json(path: Path, text: str) -> Table:
    document = json_text.parse(path, text)
    fields = Fields(path, "policy", document)
    fields.only(("format", "version", *HEAD, "decisions"), LENGTH)
    if document["format"] != FORMAT:
        fields.fail(f"'format' is {quoted(document['format'])}, expected {quoted(FORMAT)}")
    if document["version"] != VERSION:
        fields.fail(f"'version' is {quoted(document['version'])}; this cmdpkit reads version {VERSION}")
    return document


def _parse_csv(path: Path, text: str) -> Table:
    """The same document as in JSON, with the lines of the file."""
    sheet = csv_text.parse(path, text, (*LENGTH, *HEAD, "rows"), "rows")
    if sheet.constraints:
        Fields(path, "head", sheet.constraints[0]).fail("a policy has no constraints")
    head = Fields(path, "head", sheet.head)
    head.only(HEAD, (*LENGTH, "rows"))
    timed = _steps(head) is not None
    Fields(path, "columns", sheet.columns).only(COLUMNS if timed else COLUMNS[1:])
    decisions: dict[tuple[str, str], Table] = {}
    for row in sheet.rows:
        step = {"step": csv_text.whole(row["step"])} if timed else {}
        new = {**step, "state": row["state"], "probabilities": Table((), row.line)}
        decision = decisions.setdefault((row.get("step", "").strip(), row["state"]), Table(new, row.line))
        table = decision["probabilities"]
        if row["action"] in table:
            same = "step, state and action" if timed else "state and action"
            Fields(path, "row", row).fail(f"{same} are those of line {table.lines[row['action']]}")
        table[row["action"]] = csv_text.number(row["probability"], Written, comma=sheet.comma)
        table.lines[row["action"]] = row.line
    return Table({**sheet.head, "decisions": list(decisions.values())}, None, sheet.head.lines)


def _policy_of(path: Path, document: Table) -> Policy:
    """The policy that a document describes; every step and state must be given exactly once."""
    fields = Fields(path, "policy", document)
    steps = _steps(fields)
    H, timed = steps or 1, steps is not None
    states, actions = fields.names("states"), fields.names("actions")
    state, action = Index("state", states), Index("action", actions)
    seen: dict[tuple[int, int], Fields] = {}
    rows: dict[tuple[int, int], dict[int, float]] = {}
    tolerances: dict[tuple[int, int], float] = {}
    for i, table in enumerate(fields.list_of("decisions", dict, "tables"), 1):
        decision = Fields(path, f"decision {i}", table)
        decision.only((*["step"] * timed, "state", "probabilities"))
        h = decision.whole("step", 1, H) - 1 if timed else 0
        place = h, state.find(decision.name("state"), decision, "state")
        decision.what = f"decision{f' at step {h + 1}' * timed} in state {quoted(states[place[1]])}"
        if place in seen:
            decision.fail(f"given a second time; the first is in line {seen[place].table.line}")
        seen[place] = decision
        row = decision.inner("probabilities")
        rows[place] = {action.find(a, row, a): p for a, p in row.probabilities().items()}
        tolerances[place] = row.tolerance()
    if len(rows) < H * len(states):
        h, s = next((h, s) for h in range(H) for s in range(len(states)) if (h, s) not in rows)
        fields.fail(f"there is no decision{f' at step {h + 1}' * timed} in state {quoted(states[s])}")
    pi = np.zeros((H, len(states), len(actions)))
    tolerance = np.zeros((H, len(states)))
    for place, given in rows.items():
        pi[place][list(given)] = list(given.values())
        tolerance[place] = tolerances[place]
    sums = pi.sum(axis=-1)
    miss = np.abs(sums - 1)
    for h, s in np.argwhere(miss > tolerance).tolist():
        seen[h, s].fail(f"the probabilities sum to {sums[h, s]:.12g}, {rule_of(tolerance[h, s])}")
    rounded = miss > ROW_SUM_TOLERANCE
    if rounded.any():
        pi[rounded] /= sums[rounded][:, None]
        warn(float(miss[rounded].max()), str(path))
    return Policy(pi, states, actions, not timed)


def _steps(fields: Fields) -> int | None:
    """The horizon of a policy; None if it is stationary."""
    if "horizon" not in fields.table and "stationary" not in fields.table:
        fields.fail("'horizon' is missing (or stationary = true)")
    if "horizon" in fields.table and "stationary" in fields.table:
        fields.fail("'horizon' and 'stationary' are given, expected one of them", "stationary")
    if "horizon" in fields.table:
        return fields.whole("horizon")
    if fields.table["stationary"] is not True:
        fields.fail(f"'stationary' is {quoted(fields.table['stationary'])}, expected true (or a horizon)", "stationary")
    return None


def _read_npz(path: Path) -> Policy:
    header, arrays = npz.read(path, "policy", _layout)
    return Policy(arrays["pi"], header.names("states"), header.names("actions"), _steps(header) is None)


def _layout(header: Fields) -> dict[str, Expected]:
    """The array of the policy that a header declares."""
    header.only(HEAD, LENGTH)
    sizes = _steps(header) or 1, len(header.names("states")), len(header.names("actions"))
    return {"pi": Expected("float64", tuple((n,) for n in sizes))}
