"""Policies in files: JSON, CSV and npz are read back exactly; Markdown and Python modules are for other users."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import write_pieces, writing
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.controller import policy_table, python_module
from cmdpkit.io.formats.document import names_entry
from cmdpkit.io.formats.json_toml import json_pieces, parse_json
from cmdpkit.io.formats.npz import Expected, read_npz, write_npz
from cmdpkit.io.formats.parquet_model import database
from cmdpkit.io.formats.source import Fields, Index, LocatedTable, Written, read_text, reading, rule_of, suffix_of
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import all_rows, drawn_at, index_type
from cmdpkit.model.fits import forced
from cmdpkit.model.policy import MadeFor, Policy
from cmdpkit.model.read_dynamics import warn
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE

if TYPE_CHECKING:
    from cmdpkit.exact.solver import Solution

FORMAT = "cmdpkit policy"
VERSION = 1
HEAD = ("states", "actions", "made_for")  # the last one is optional
LENGTH = ("horizon", "stationary")  # exactly one of them
MAX_HEAD = 1 << 30  # bytes of a line above the data, which may hold the names of all states
COLUMNS = ("step", "state", "action", "probability")
TOGETHER = 1 << 16  # lines that are written at once
PROBABILITY = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
SHORTEST_LINE = 6  # bytes, as in "s,a,1" with its line end


def read_policy(path: str | os.PathLike[str], cmdp: CMDP | None = None) -> Policy:
    """The policy in a .json, .csv or .npz file.

    With a model, the policy gets the model's names, is repeated at every step if it is stationary and the model is not,
    and is refused unless it fits. A .csv file then needs no head, no column ``step`` and no column ``probability``:
    lines of ``state,action`` are enough. States that have only one action may be left out.

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
            policy = _read_npz(path)
        elif suffix == ".json":
            policy = _policy_of(path, _parse_json(path, read_text(path)))
        else:
            policy = _read_long_csv(path) or _policy_of(path, _parse_csv(path, read_text(path), cmdp), cmdp)
        return policy if cmdp is None else Policy.of(cmdp, policy)


def write_policy(
    policy: Policy | Solution, path: str | os.PathLike[str], *, model: CMDP | None = None, overwrite: bool = False
) -> Path:
    """Write a policy to a .json, .csv, .npz, .md or .py file; one that exists is kept unless ``overwrite`` is true.

    The file says for which model and bounds the policy was made, if ``model`` or a `Solution` is given.
    """
    path = Path(path)
    suffix = suffix_of(path, (".json", ".csv", ".npz", ".md", ".py"))
    model = getattr(policy, "cmdp", None) if model is None else model
    policy = getattr(policy, "policy", policy)  # a solution has one
    if not isinstance(policy, Policy):
        raise CmdpkitError(
            f"write_policy writes a Policy, got {type(policy).__name__} (of a mixture, write markov(...) or its parts)"
        )
    if model is not None:
        policy = policy.with_model(model)
    if suffix == ".npz":
        found = policy.decisions
        where = np.stack(all_rows(found, len(found.choice))[:2], axis=1)
        arrays = {"choice": found.choice, "where": where, "p": found.p}
        with writing(path, overwrite=overwrite) as file:
            write_npz(file, "policy", {**_head(policy), "draws": len(where)}, arrays)
        return path
    pieces = {".json": _json_pieces, ".csv": _csv_pieces, ".md": policy_table, ".py": python_module}
    return write_pieces(path, pieces[suffix](policy), overwrite=overwrite)


def _head(policy: Policy) -> dict[str, Any]:
    length: dict[str, Any] = {"stationary": True} if policy.is_stationary else {"horizon": policy.horizon}
    made = policy.made_for
    return {
        **length,
        "states": names_entry(policy.states),
        "actions": names_entry(policy.action_names),
        **({} if made is None else {"made_for": {**made._asdict(), "bounds": list(made.bounds)}}),
    }


def _decisions(policy: Policy) -> Iterator[dict[str, Any]]:
    """Step from 1 if there are steps, state, and probability of every action taken: everywhere, reached or not."""
    actions = [str(a) for a in policy.action_names]
    states = names_entry(policy.states) if not isinstance(policy.states, range) else policy.states
    for h in range(policy.shape[0]):
        step = {} if policy.is_stationary else {"step": h + 1}
        drawn = drawn_at(policy.decisions, h)
        for s, a in enumerate(policy.choice[h]):
            row = {actions[a]: 1.0}
            if s in drawn:
                row = {actions[i]: float(drawn[s][i]) for i in np.flatnonzero(drawn[s]).tolist()}
            yield {**step, "state": states[s], "probabilities": row}


def _json_pieces(policy: Policy) -> Iterator[str]:
    return json_pieces({"format": FORMAT, "version": VERSION, **_head(policy), "decisions": _decisions(policy)})


def _csv_pieces(policy: Policy) -> Iterator[str]:
    columns = COLUMNS[1:] if policy.is_stationary else COLUMNS
    yield csv_text.top({**_head(policy), "rows": _count(policy)}, (), columns)
    yield from _lines(policy)


def _parse_json(path: Path, text: str) -> LocatedTable:
    document = parse_json(path, text)
    fields = Fields(path, "policy", document)
    fields.only(("format", "version", *HEAD[:2], "decisions"), (*LENGTH, *HEAD))
    if document["format"] != FORMAT:
        fields.fail(f"'format' is {quoted(document['format'])}, expected {quoted(FORMAT)}")
    if document["version"] != VERSION:
        fields.fail(f"'version' is {quoted(document['version'])}; this cmdpkit reads version {VERSION}")
    return document


def _read_long_csv(path: Path) -> Policy | None:
    """A policy in the form in which it was written here; None for any other, which is then read as a document."""
    head = []
    try:
        with open(path, "rb") as file:
            while (line := file.readline(MAX_HEAD)).lstrip(b"\xef\xbb\xbf").startswith(b"#"):
                head.append(line)
            begin = file.tell()
        sheet = csv_text.parse(path, (b"".join(head) + line).decode("utf-8-sig"), (*LENGTH, *HEAD, "rows"), "")
        fields = Fields(path, "head", sheet.head)
        H = _steps(fields)
        names = fields.names("states"), fields.names("actions")
        rows = fields.whole("rows", 0)
        made_for = _made_for(fields)
    except (CmdpkitError, UnicodeDecodeError, KeyError, OSError):
        return None
    if sheet.constraints or set(sheet.columns) != set(COLUMNS if H else COLUMNS[1:]):
        return None
    found = _read_body(path, begin, tuple(sheet.columns), *names, H or 1, rows)
    return None if found is None else _named(*found, H, names, made_for)


def _parse_csv(path: Path, text: str, cmdp: CMDP | None) -> LocatedTable:
    """The same document as in JSON, with the lines of the file; what the head leaves out is taken from the model."""
    sheet = csv_text.parse(path, text, (*LENGTH, *HEAD, "rows"), "rows")
    if sheet.constraints:
        Fields(path, "head", sheet.constraints[0]).fail("a policy has no constraints")
    if cmdp is not None:
        timed = "step" in sheet.columns
        if "horizon" not in sheet.head and "stationary" not in sheet.head:
            sheet.head.update({"horizon": cmdp.steps} if timed else {"stationary": True})
        sheet.head.setdefault("states", names_entry(cmdp.states))
        sheet.head.setdefault("actions", names_entry(cmdp.action_names))
    head = Fields(path, "head", sheet.head)
    if cmdp is None and not sheet.head:
        head.fail("there are no lines '# states = ...' above the data; give the model too: read_policy(path, model)")
    head.only(HEAD[:2], (*LENGTH, *HEAD, "rows"))
    timed = _steps(head) is not None
    columns: Sequence[str] = COLUMNS if timed else COLUMNS[1:]
    if cmdp is not None and "probability" not in sheet.columns:
        columns = columns[:-1]
    Fields(path, "columns", sheet.columns).only(columns)
    decisions: dict[tuple[str, str], LocatedTable] = {}
    for row in sheet.rows:
        step = {"step": csv_text.whole(row["step"])} if timed else {}
        new = {**step, "state": row["state"], "probabilities": LocatedTable((), row.line)}
        decision = decisions.setdefault((row.get("step", "").strip(), row["state"]), LocatedTable(new, row.line))
        table = decision["probabilities"]
        if "probability" not in sheet.columns and table:
            Fields(path, "row", row).fail(
                f"{quoted(row['state'])} has an action in line {decision.line} already; leave one of them out, or add "
                "a column probability if the policy draws"
            )
        if row["action"] in table:
            same = "step, state and action" if timed else "state and action"
            Fields(path, "row", row).fail(f"{same} are those of line {table.lines[row['action']]}")
        table[row["action"]] = csv_text.number(row.get("probability", "1"), Written, comma=sheet.comma)
        table.lines[row["action"]] = row.line
    return LocatedTable({**sheet.head, "decisions": list(decisions.values())}, None, sheet.head.lines)


def _policy_of(path: Path, document: LocatedTable, cmdp: CMDP | None = None) -> Policy:
    """The policy of a document; every step and state is given once, or with a model left out if it has one action."""
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
    if cmdp is not None and len(states) == cmdp.S:
        only = forced(cmdp)
        for h, s in np.argwhere(np.broadcast_to(only, (H, cmdp.S)) >= 0).tolist() if len(only) in (1, H) else ():
            rows.setdefault((h, s), {int(only[h % len(only), s]): 1.0})
    if len(rows) < H * len(states):
        h, s = next((h, s) for h in range(H) for s in range(len(states)) if (h, s) not in rows)
        fields.fail(
            f"there is no decision{f' at step {h + 1}' * timed} in state {quoted(states[s])}; add one for every "
            "state that has more than one action"
        )
    pi = np.zeros((H, len(states), len(actions)))
    tolerance = np.zeros((H, len(states)))
    for place, given in rows.items():
        pi[place][list(given)] = list(given.values())
        tolerance[place] = tolerances.get(place, ROW_SUM_TOLERANCE)
    sums = pi.sum(axis=-1)
    miss = np.abs(sums - 1)
    for h, s in np.argwhere(miss > tolerance).tolist():
        seen[h, s].fail(f"the probabilities sum to {sums[h, s]:.12g}, {rule_of(tolerance[h, s])}")
    rounded = miss > ROW_SUM_TOLERANCE
    if rounded.any():
        pi[rounded] /= sums[rounded][:, None]
        warn(float(miss[rounded].max()), str(path))
    policy = Policy(pi, states, actions, not timed)
    return policy._with(made_for=_made_for(fields))


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


def _made_for(fields: Fields) -> MadeFor | None:
    """The entries of a file about the model that its policy was made for."""
    if "made_for" not in fields.table:
        return None
    made = fields.inner("made_for")
    made.only(MadeFor._fields)
    bounds = made.list_of("bounds", str, "texts")
    return MadeFor(made.text("fingerprint"), made.text("criterion"), tuple(bounds))


def _named(
    choice: Any, rows: tuple[Any, Any], H: int | None, names: tuple[Any, Any], made_for: MadeFor | None
) -> Policy:
    """Decisions with their names as a policy for H steps, or as a stationary one; see `Policy.of_choices`."""
    policy = Policy.of_choices(choice, rows, *names, is_stationary=H is None)
    return policy._with(made_for=made_for, shape=(H or 1, *policy.shape[1:]))


def _read_npz(path: Path) -> Policy:
    header, arrays = read_npz(path, "policy", _layout)
    names, H, made_for = (header.names("states"), header.names("actions")), _steps(header), _made_for(header)
    if "pi" in arrays:
        return Policy(arrays["pi"], *names, H is None)._with(made_for=made_for)
    return _named(arrays["choice"], (arrays["where"], arrays["p"]), H, names, made_for)


def _layout(header: Fields) -> dict[str, Expected]:
    """The arrays of the policy that a header declares; files of version 0.1 hold the whole table."""
    header.only(HEAD[:2], (*LENGTH, *HEAD, "draws"))
    H, S, A = _steps(header) or 1, len(header.names("states")), len(header.names("actions"))
    if "draws" not in header.table:
        return {"pi": Expected("float64", ((H,), (S,), (A,)))}
    m = header.whole("draws", 0, H * S)
    return {
        "choice": Expected(np.dtype(index_type(A)).name, ((1, H), (S,))),
        "where": Expected("int64", ((m,), (2,))),
        "p": Expected("float64", ((m,), (A,))),
    }


# -- large policies as CSV: neither writing nor reading makes an object for every line at once -------------------------


def _lines(policy: Policy) -> Iterator[str]:
    """Lines 'step,state,action,probability' (no step if stationary), several thousand at a time."""
    states, actions = ([csv_text.cell(str(x)) for x in names] for names in (policy.states, policy.action_names))
    sure = [f",{a},1.0\n" for a in actions]
    for h in range(policy.shape[0]):
        step = "" if policy.is_stationary else f"{h + 1},"
        drawn = drawn_at(policy.decisions, h)
        choice = policy.choice[h]
        for first in range(0, len(choice), TOGETHER):
            part = slice(first, first + TOGETHER)
            block = [f"{step}{s}{sure[a]}" for s, a in zip(states[part], choice[part].tolist(), strict=True)]
            for s in drawn.keys() & range(first, first + len(block)) if drawn else ():
                used = np.flatnonzero(drawn[s]).tolist()
                block[s - first] = "".join(f"{step}{states[s]},{actions[a]},{float(drawn[s][a])!r}\n" for a in used)
            yield "".join(block)


def _count(policy: Policy) -> int:
    """How many lines these are."""
    H, S, _ = policy.shape
    T, m = len(policy.decisions.choice), len(policy.decisions.s)
    return (T * S - m + int(np.count_nonzero(policy.decisions.p))) * H // T


def _read_body(
    path: Path, begin: int, columns: Sequence[str], states: Sequence[Any], actions: Sequence[Any], H: int, rows: int
) -> tuple[Any, tuple[Any, Any]] | None:
    """Choice and rows, as in `Policy.of_choices`, from byte ``begin`` of a file on; None if anything there is unusual.

    What is unusual is for the caller to find out, who reads slowly and says what is wrong and where. ``rows`` is how
    many lines are announced.
    """
    S, A = len(states), len(actions)
    if path.stat().st_size < H * S * SHORTEST_LINE or not _ends_with_a_line(path):
        return None
    found = _read_columns(path, begin, columns, {"step": range(1, H + 1), "state": states, "action": actions})
    if found is None or len(found["p"]) != rows:
        return None
    place = (found["step"].astype(np.int64) if "step" in columns else 0) * S + found["state"]
    return _of_lines(np.full((H, S), -1, dtype=np.int32), A, place, found["action"], found["p"])


def _read_columns(
    path: Path, begin: int, columns: Sequence[str], names: dict[str, Sequence[Any]]
) -> dict[str, NDArray[Any]] | None:
    """Where the names of every line stand in their lists, and "p", its probability; None if a line has others.

    DuckDB reads a copy without the head, because it takes [ and * in a path for patterns, and quotes in the head for
    the beginning of a cell.
    """
    import duckdb

    types = ", ".join(f"'{column}': 'VARCHAR'" for column in columns)
    known = [column for column in columns if column != "probability"]
    listed = ", ".join(f"{column}s.i AS {column}" for column in known)
    joins = " ".join(f"LEFT JOIN {column}s ON file.{column} = {column}s.name" for column in known)
    try:
        with tempfile.TemporaryDirectory(prefix="cmdpkit-") as folder, database() as connection:
            copy = Path(folder, "body.csv")
            with open(path, "rb") as file:
                file.seek(begin)
                body = file.read()
            if b",\n" in body or b",\r" in body:  # an empty cell at the end of a line would be passed over
                return None
            copy.write_bytes(body)
            for column in known:
                texts = np.array([*map(str, names[column]), None], dtype=object)[:-1]
                connection.register(f"{column}s", {"name": texts, "i": np.arange(len(texts), dtype=np.int32)})
            found: dict[str, NDArray[Any]] = connection.execute(
                f"SELECT {listed}, CASE WHEN regexp_full_match(probability, '{PROBABILITY}') "
                f"THEN TRY_CAST(probability AS DOUBLE) END AS p FROM read_csv('{copy}', header = false, "
                f"auto_detect = false, delim = ',', quote = '\"', escape = '\"', columns = {{{types}}}) AS file {joins}"
            ).fetchnumpy()
    except (OSError, duckdb.Error):
        return None
    return None if any(np.ma.is_masked(x) for x in found.values()) else found


def _of_lines(
    choice: NDArray[np.int32], A: int, place: NDArray[Any], a: NDArray[Any], p: NDArray[Any]
) -> tuple[Any, tuple[Any, Any]] | None:
    """The policy, put into ``choice`` [H, S], of lines at places h * S + s; None unless each has one distribution."""
    flat, sure = choice.reshape(-1), p == 1.0
    flat[place[sure]] = a[sure]
    taken = int((flat >= 0).sum())
    place, a, p = place[~sure], a[~sure], p[~sure]
    drawn, row = np.unique(place, return_inverse=True)
    table = np.zeros((len(drawn), A))
    table[row, a] = p
    twice = len(np.unique(row * np.int64(A) + a)) < len(p)
    if twice or taken != sure.sum() or (flat[drawn] >= 0).any() or taken + len(drawn) != len(flat):
        return None
    if (p > 1).any() or (np.abs(table.sum(axis=1) - 1) > ROW_SUM_TOLERANCE).any():
        return None
    flat[drawn] = 0
    return choice, (np.stack(np.divmod(drawn, choice.shape[1]), axis=1), table)


def _ends_with_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in (b"\n", b"\r")


showing.read_policy.register(str, read_policy)
showing.read_policy.register(os.PathLike, read_policy)
