"""Policies in files: JSON, CSV and npz are read back exactly; a Python module is for the machine that acts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import write_pieces, writing
from cmdpkit.io.formats.controller import python_module
from cmdpkit.io.formats.document import names_entry
from cmdpkit.io.formats.npz import check_names, read_npz, write_npz
from cmdpkit.io.formats.sheet import Sheet, csv_cell, csv_top, parse_csv, rule_of, sums_of
from cmdpkit.io.formats.source import Located, Mistakes, json_pieces, parse_json, read_text, reading, suffix_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import all_rows, drawn_at
from cmdpkit.model.fits import forced
from cmdpkit.model.policy import MadeFor, Policy
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.validate import MAX_HORIZON, Positions, warn

if TYPE_CHECKING:
    from cmdpkit.exact.solver import Solution

FORMAT = "cmdpkit policy"
VERSION = 1
HEAD = ("states", "actions", "made_for")  # the last one is optional
LENGTH = ("horizon", "stationary")  # exactly one of them
COLUMNS = ("step", "state", "action", "probability")
TOGETHER = 1 << 16  # lines that are written at once


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
        policy = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}[suffix](path, cmdp)
        return policy if cmdp is None else Policy.of(cmdp, policy)


def write_policy(
    policy: Policy | Solution, path: str | os.PathLike[str], *, model: CMDP | None = None, overwrite: bool = False
) -> Path:
    """Write a policy to a .json, .csv, .npz or .py file; one that exists is kept unless ``overwrite`` is true.

    The file says for which model and bounds the policy was made, if ``model`` or a `Solution` is given.
    """
    path = Path(path)
    suffix = suffix_of(path, (".json", ".csv", ".npz", ".py"))
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
    pieces = {".json": _json_pieces, ".csv": _csv_pieces, ".py": python_module}
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
    yield csv_top({**_head(policy), "rows": _count(policy)}, (), columns)
    yield from _lines(policy)


def _read_json(path: Path, cmdp: CMDP | None) -> Policy:
    document = Located(path, "policy", parse_json(path, read_text(path)))
    document.only(("format", "version", *HEAD[:2], "decisions"), (*LENGTH, *HEAD))
    document.at("format").expect(document.value["format"] == FORMAT, quoted(FORMAT))
    if document.value["version"] != VERSION:
        document.fail(f"'version' is {quoted(document.value['version'])}; this cmdpkit reads version {VERSION}")
    rows: list[tuple[Any, ...]] = []
    called: list[str] = []
    for i, table in enumerate(document.at("decisions").list_of(dict, "tables"), 1):
        decision = Located(path, f"decision {i}", table).table()
        decision.only((*["step"] * ("horizon" in document), "state", "probabilities"))
        odds = decision.inner("probabilities")
        rows += [(table.get("step"), table["state"], a, odds.value[a]) for a in odds.probabilities()]
        called += [f"decision {i}"] * len(odds.value)
    columns = {name: [row[k] for row in rows] for k, name in enumerate(COLUMNS)}
    return _policy(Sheet(path, columns, called=called), document, cmdp)


def _read_csv(path: Path, cmdp: CMDP | None) -> Policy:
    """A policy with one line per action taken; what the head leaves out is taken from the model."""
    sheet = parse_csv(path, read_text(path), (*LENGTH, *HEAD, "rows"), "rows")
    if sheet.constraints:
        Located(path, "head", sheet.constraints[0]).fail("a policy has no constraints")
    head = Located(path, "head", sheet.head)
    if cmdp is None and not sheet.head:
        head.fail("there are no lines '# states = ...' above the data; give the model too: read_policy(path, model)")
    if cmdp is not None:
        if "horizon" not in head and "stationary" not in head:
            sheet.head.update({"horizon": cmdp.n_steps} if "step" in sheet.columns else {"stationary": True})
        sheet.head.setdefault("states", names_entry(cmdp.states))
        sheet.head.setdefault("actions", names_entry(cmdp.action_names))
    head.only(HEAD[:2], (*LENGTH, *HEAD, "rows"))
    columns = COLUMNS[1:] if _steps(head) is None else COLUMNS
    sure = cmdp is not None and "probability" not in sheet.columns
    sheet.names_of_columns().only(columns[:-1] if sure else columns)
    return _policy(sheet, head, cmdp)


def _policy(sheet: Sheet, head: Located, cmdp: CMDP | None) -> Policy:
    """The policy in the rows of a sheet; with a model, states that have one action may be left out.

    Without probabilities, every row is the only action of its state.
    """
    horizon, made_for = _steps(head), _made_for(head)
    states, actions = head.at("states").names(), head.at("actions").names()
    H, S, A = horizon or 1, len(states), len(actions)
    mistakes = Mistakes(sheet.where, sheet.place)
    sheet.note_broken(mistakes)
    place = sheet.positions("state", Positions("state", states), mistakes)
    if horizon is not None:
        place += sheet.steps(horizon, mistakes, every=False) * S
    action = sheet.positions("action", Positions("action", actions), mistakes)
    certain = "probability" not in sheet.columns
    p = np.ones(len(place)) if certain else sheet.probabilities(mistakes)
    mistakes.check()
    seen: dict[int, int] = {}
    for i, key in enumerate((place if certain else place * A + action).tolist()):
        if (first := seen.setdefault(key, i)) != i:
            told = f"{quoted(sheet.columns['state'][i])} has this decision already, in {sheet.name(first)}"
            remedy = "leave one of them out, or give the probability of each action if the policy randomises"
            mistakes.add("a decision given twice", i, told, remedy)
    mistakes.check()

    def decision(place: int) -> str:
        h, s = divmod(place, S)
        return f"decision{'' if horizon is None else f' at step {h + 1}'} in state {quoted(states[s])}"

    covered = np.unique(place)
    one_action: Sequence[int] = ()
    if cmdp is not None and cmdp.S == S and H in (1, cmdp.n_steps) and len(forced(cmdp)) in (1, H):
        only = np.broadcast_to(forced(cmdp), (H, S)).reshape(-1)
        one_action = np.setdiff1d(np.flatnonzero(only >= 0), covered).tolist()
    if len(covered) + len(one_action) < H * S:  # seen before any array of this size is made
        there = np.union1d(covered, one_action)
        missing = next((i for i, x in enumerate(there.tolist()) if x != i), len(there))
        head.fail(f"there is no {decision(missing)}; add one for every state that has more than one action")
    sums, tolerance = sums_of(place, p, H * S, sheet.written(np.arange(len(p))))
    for at in covered[np.abs(sums - 1)[covered] > tolerance[covered]].tolist():
        row = sheet.at(int(np.flatnonzero(place == at)[0]), decision(at))
        row.fail(f"the probabilities sum to {sums[at]:.12g}, {rule_of(tolerance[at])}")
    choice = np.full(H * S, -1, dtype=np.int32)
    sure = (p == 1.0) & (np.bincount(place, p > 0, H * S)[place] == 1)
    choice[place[sure]] = action[sure]
    if len(one_action):
        choice[one_action] = only[one_action]
    drawn = np.flatnonzero(choice < 0)
    table = np.zeros((len(drawn), A))
    of_drawn = np.isin(place, drawn)
    table[np.searchsorted(drawn, place[of_drawn]), action[of_drawn]] = p[of_drawn]
    off = np.abs(sums[drawn] - 1)
    if (off > ROW_SUM_TOLERANCE).any():
        table[off > ROW_SUM_TOLERANCE] /= sums[drawn][off > ROW_SUM_TOLERANCE, None]
        warn(float(off.max()), str(sheet.where))
    choice[drawn] = 0
    where = np.stack(np.divmod(drawn, S), axis=1)
    return _named(choice.reshape(H, S), (where, table), horizon, (states, actions), made_for)


def _steps(fields: Located) -> int | None:
    """The horizon of a policy; None if it is stationary."""
    if ("horizon" in fields) == ("stationary" in fields):
        there = "and 'stationary' are given" if "horizon" in fields else "is missing"
        fields.fail(f"'horizon' {there}, expected it or stationary = true")
    if "horizon" in fields:
        return fields.at("horizon").whole(1, MAX_HORIZON)
    stationary = fields.at("stationary")
    stationary.expect(stationary.value is True, "true (or a horizon)")
    return None


def _made_for(fields: Located) -> MadeFor | None:
    """The entries of a file about the model that its policy was made for."""
    if "made_for" not in fields:
        return None
    made = fields.inner("made_for")
    made.only(MadeFor._fields)
    bounds = made.at("bounds").list_of(str, "texts")
    return MadeFor(made.at("fingerprint").text(), made.at("criterion").text(), tuple(bounds))


def _named(
    choice: Any, rows: tuple[Any, Any], H: int | None, names: tuple[Any, Any], made_for: MadeFor | None
) -> Policy:
    """Decisions with their names as a policy for H steps, or as a stationary one; see `Policy.of_choices`."""
    policy = Policy.of_choices(choice, rows, *names, is_stationary=H is None)
    return policy._with(made_for=made_for, shape=(H or 1, *policy.shape[1:]))


def _read_npz(path: Path, _cmdp: CMDP | None) -> Policy:
    header, arrays = read_npz(path, "policy")
    header.only((*HEAD[:2], "draws"), (*LENGTH, *HEAD))
    check_names(path, arrays, ("choice", "where", "p"))
    names, H = (header.at("states").names(), header.at("actions").names()), _steps(header)
    choice, where, p = (arrays[name] for name in ("choice", "where", "p"))
    if choice.shape[:1] not in ((1,), (H or 1,)):
        raise CmdpkitError(f"{path}: array 'choice' has shape {choice.shape}, expected 1 or {H} steps")
    header.at("draws").expect(p.shape[:1] == (header.value["draws"],), f"the rows of p, which has shape {p.shape}")
    return _named(choice, (where, p), H, names, _made_for(header))


# -- large policies as CSV: neither writing nor reading makes an object for every line at once -------------------------


def _lines(policy: Policy) -> Iterator[str]:
    """Lines 'step,state,action,probability' (no step if stationary), several thousand at a time."""
    states, actions = ([csv_cell(str(x)) for x in names] for names in (policy.states, policy.action_names))
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
