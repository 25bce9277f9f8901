"""Broken model files: every kind is refused with a ValueError that names the file, the line, the value and the rule."""
# ruff: noqa: E501 - a table of cases reads best with a case per line

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmdpkit.io.models import read_model, write_model
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

NAN = float("nan")
HUGE = 10**400  # a whole number no float can hold
R = np.zeros((2, 2))


def valid() -> CMDP:
    return CMDP(np.full((2, 2, 2), 0.5), R, R, 0.0, horizon=3)


TOML = """\
[model]
horizon = 3
start = "empty"
states = ["empty", "busy"]
actions = ["rest", "serve"]
transitions = 3

[[constraint]]
name = "backlog"
sense = "at_most"
bound = 30

[grid]
rows = 1
columns = 2
cells = [[0, 0], [0, 1]]

[[transition]]
state = "empty"
action = "rest"
reward = 0.0
backlog = 0.0
next = {empty = 0.5, busy = 0.5}

[[transition]]
state = "busy"
action = "rest"
reward = 0.0
backlog = 1.0
next = {busy = 1.0}

[[transition]]
state = "busy"
action = "serve"
reward = 1.0
backlog = 1.0
next = {empty = 0.75, busy = 0.25}
"""
SERVE = '"busy"\naction = "serve"\n'  # where the last transition begins, line 33 of the file

TOML_CASES = {
    "no valid TOML": ("horizon = 3", "horizon 3", r"model.toml:2: not valid TOML: .*\(column 9\)"),
    "text not closed": ('start = "empty"', 'start = "empty', r"model.toml:3: not valid TOML"),
    "nested beyond reason": ("horizon = 3", f"horizon = {'[' * 5000}", r"model.toml.*not valid TOML"),
    "number of thousands of digits": ("horizon = 3", f"horizon = {'1' * 5000}", r"model.toml.*not valid TOML"),
    "unknown table": ("[grid]", "[gird]", r"model.toml:13: the file: unknown key 'gird'; did you mean 'grid'"),
    "unknown key of the model": ("horizon", "horizn", r"model.toml:2: model: unknown key 'horizn'; did you mean 'horizon'"),
    "unknown key of a constraint": ("bound = 30", "limit = 30", r"model.toml:11: constraint 1: unknown key 'limit'"),
    "no horizon": ("horizon = 3\n", "", r"model.toml:1: model: 'horizon' is missing"),
    "no start": ('start = "empty"\n', "", r"model.toml:1: model: 'start' is missing"),
    "no signal": ("backlog = 1.0\nnext = {e", "next = {e", r"model.toml:32: .*'backlog' is missing"),
    "no next states": ("next = {busy = 1.0}\n", "", r"model.toml:25: .*'next' is missing"),
    "horizon text": ("horizon = 3", 'horizon = "3"', r"model.toml:2: model: 'horizon' is '3', expected a whole number"),
    "horizon beyond counting": ("horizon = 3", f"horizon = {HUGE}", r"model.toml:2: .*'horizon' is 1000.*, from 1 to 1,000,000,000"),
    "more steps than memory holds": (TOML, TOML.replace("horizon = 3", "horizon = 999_999_999").replace(SERVE, SERVE + "step = 1\n"), r"model.toml:1: model: 999,999,999 steps, 2 states and 2 actions are more than memory holds"),
    "more states than anybody has": ('["empty", "busy"]', "100_000_000_000", r"model.toml:4: .*'states' is 100000000000, .* from 1 to"),
    "horizon a truth value": ("horizon = 3", "horizon = true", r"model.toml:2: model: 'horizon' is True, expected a wh"),
    "horizon and discount": ("horizon = 3", "horizon = 3\ndiscount = 0.9", r"model.toml:3: model: 'horizon' and 'discount' are given"),
    "discount above 1": ("horizon = 3", "discount = 1.5", r"model.toml:2: model: discount is 1.5, expected"),
    "step without a horizon": (TOML, TOML.replace("horizon = 3", "discount = 0.9").replace(SERVE, SERVE + "step = 1\n"), r"model.toml:35: .*unknown key 'step'"),
    "bound per step unclear": ("bound = 30", "bound = 30\nper_step = 1", r"model.toml:12: constraint 1: 'per_step' is 1, expected true or false"),
    "reward text": ("reward = 1.0", 'reward = "1"', r"model.toml:35: .*'reward' is '1', expected a finite number"),
    "reward NaN": ("reward = 1.0", "reward = nan", r"model.toml:35: .*'reward' is nan, expected a finite number"),
    "reward beyond floats": ("reward = 1.0", f"reward = {HUGE}", r"model.toml:35: .*'reward' is 1000.*, expected a finite"),
    "totals overflow": ("reward = 1.0", "reward = 1e308", r"model.toml: r\[s=1, a=1\] \(state 'busy', action 'serve'\) is"),
    "signal a truth value": ("backlog = 0.0", "backlog = false", r"model.toml:22: .*'backlog' is False, expected a fin"),
    "probabilities sum to less": ("busy = 0.25}", "busy = 0.2}", r"model.toml:37: .*sum to 0.95, expected 1 within 1e-09"),
    "probabilities all zero": ("next = {busy = 1.0}", "next = {busy = 0}", r"model.toml:30: .*sum to 0, expected 1"),
    "next state unknown": ("{empty = 0.75", "{emty = 0.75", r"model.toml:37: .*unknown state 'emty'; did you mean 'empty'"),
    "state unknown": (SERVE, SERVE.replace("busy", "bsy"), r"model.toml:33: .*unknown state 'bsy'; did you mean 'busy'"),
    "action unknown": (SERVE, SERVE.replace("serve", "swerve"), r"model.toml:34: .*unknown action 'swerve'; .*'serve'"),
    "state a list": (SERVE, SERVE.replace('"busy"', '["busy"]'), r"model.toml:33: .*'state' is \['busy'\], expected a name"),
    "state blank": (SERVE, SERVE.replace("busy", " "), r"model.toml:33: .*'state' is ' ', expected a name"),
    "transition twice": (SERVE, SERVE.replace("serve", "rest"), r"model.toml:32: .*second time; the first is .* line 25"),
    "step outside": (SERVE, SERVE + "step = 4\n", r"model.toml:35: .*'step' is 4, expected a whole number, from 1 to 3"),
    "state without an action at some step": ('action = "rest"\n', 'action = "rest"\nstep = 2\n', r"model.toml: actions\[h=0, s=0\].*'empty'.* is empty: every state needs"),
    "state without any action": (TOML, TOML.replace('"busy"]', '"busy", "broken"]').replace("columns = 2", "columns = 3").replace("[0, 1]]", "[0, 1], [0, 2]]"), r"model.toml: actions\[s=2\].*'broken'.* is empty: every state needs"),
    "per_step unknown": ("horizon = 3", 'horizon = 3\nper_step = ["rewards"]', r"model.toml:3: .*lists 'rewards'; did you"),
    "states repeated": ('["empty", "busy"]', '["empty", "empty"]', r"model.toml:4: .*states\[1\] is 'empty' again"),
    "states of fractions": ('["empty", "busy"]', "[1.5, 2]", r"model.toml:4: model: 'states': entry 1 is 1.5, expected a name"),
    "states a text": ('["empty", "busy"]', '"empty busy"', r"model.toml:4: model: 'states' is 'empty busy', expected a list"),
    "start unknown": ('start = "empty"', 'start = "emtpy"', r"model.toml:3: model: unknown state 'emtpy'; did you mean"),
    "start sums to more": ('"empty"\nst', "{empty = 1, busy = 0.5}\nst", r"model.toml:3: model: 'start' sums to 1.5, expected 1"),
    "start empty": ('"empty"\nst', "{}\nst", r"model.toml:3: model: 'start' is {}, expected a table"),
    "count of transitions": ("transitions = 3", "transitions = 4", r"model.toml:6: model: 4 transitions .* the file has 3"),
    "sense": ("at_most", "at most", r"model.toml:8: constraint 1: .*sense is 'at most', expected 'at_least' or 'at_most'"),
    "bound text": ("bound = 30", 'bound = "30"', r"model.toml:11: constraint 1: 'bound' is '30', expected a finite number"),
    "constraint called like a key": ('name = "backlog"', 'name = "reward"', r"model.toml:9: constraint 1: 'reward' is a key or"),
    "constraint not named by text": ('name = "backlog"', "name = 5", r"model.toml:9: constraint 1: 'name' is 5, expected text"),
    "constraint twice": ("[grid]", '[[constraint]]\nname = "backlog"\nsense = "at_most"\nbound = 1\n[grid]', r"model.toml:14: constraint 2: two constraints are called 'backlog'"),
    "constraint with single brackets": ("[[constraint]]", "[constraint]", r"model.toml:8: .*\[\[constraint\]\]"),
    "cells of another number": ("[[0, 0], [0, 1]]", "[[0, 0]]", r"model.toml:16: grid: grid has 1 cells, expected one per state: 2"),
    "marks unknown": ("rows = 1", 'rows = 1\nmarks = {bsy = "x"}', r"model.toml:15: grid: marks: unknown state 'bsy'"),
    "arrows of another number": ("rows = 1", 'rows = 1\narrows = ["x"]', r"model.toml:17: grid: grid has 1 arrows, expected one per action: 2"),
    "per_step incomplete": (TOML, TOML.replace(SERVE, SERVE + "step = 1\n").replace("horizon = 3", "horizon = 3\nper_step = []"), r"model.toml:33: .*actions depends on the step, but 'per_step' .* does not list 'actions'"),
}  # fmt: skip


JSON = json.dumps(
    {
        "model": {"horizon": 2, "start": "x"},
        "transition": [{"state": "x", "action": "a", "next": {"x": 1}, "reward": 0, "step": h} for h in (1, 2)],
    },
    indent=1,
)

JSON_CASES = {
    "no valid JSON": ('"horizon": 2,', '"horizon": 2', r"model.json:4: not valid JSON: Expecting ',' delimiter"),
    "key twice": ('"horizon": 2,', '"horizon": 2, "horizon": 2,', r"model.json: not valid JSON: key 'horizon' is given twice"),
    "next state twice": ('"x": 1', '"x": 0.5, "x": 0.5', r"model.json: not valid JSON: key 'x' is given twice"),
    "NaN": ('"x": 1', '"x": NaN', r"model.json: .*next: 'x' is nan, expected a finite number"),
    "null": ('"reward": 0', '"reward": null', r"model.json: .*'reward' is None, expected a finite number"),
    "nested beyond reason": ('"horizon": 2', f'"horizon": {"[" * 100_000}', r"model.json: not valid JSON"),
    "number of thousands of digits": ('"horizon": 2', f'"horizon": {"2" * 5000}', r"model.json: not valid JSON"),
    "transitions a table": ('"transition": [', '"transition": {"x": 1}, "y": [', r"model.json: .*'y'"),
    "transitions of numbers": ('"transition": [', '"transition": [5, ', r"model.json: .*expected a list of tables"),
    "transitions none": (JSON[JSON.index('"transition"') :], '"transition": []}', r"model.json: .*there are no transitions"),
    "model a list": ('{\n  "horizon": 2,\n  "start": "x"\n }', '["horizon"]', r"model.json: model: expected a table, got \['horizon'\]"),
    "step twice over": (',\n   "step": 2', "", r"model.json: .*second time; the first is the transition from .x. under .a. at step 1$"),
}  # fmt: skip


CSV = """\
# horizon = 2
# start = "x"
# constraint wear <= 3
state,action,next_state,probability,reward,wear,step
x,a,x,0.5,1,1,
x,a,y,0.5,1,1,
y,a,y,1.0,0,0,1
y,a,y,1.0,2,0,2
"""

CSV_CASES = {
    "head without quotes": ('"x"', "x", r"model.csv:2: head: 'start' is x, expected .*in quotes"),
    "head with an unknown key": ("# horizon", "# horizn", r"model.csv:1: head: unknown key 'horizn'; did you mean"),
    "head with a key twice": ("# start", "# horizon = 3\n# start", r"model.csv:2: head: 'horizon' is given twice; .*line 1"),
    "head without horizon": ("# horizon = 2\n", "", r"model.csv: model: 'horizon' is missing"),
    "head with a bad horizon": ("horizon = 2", "horizon = 2.5", r"model.csv:1: model: 'horizon' is 2.5, expected a whole"),
    "constraint without a sign": ("wear <= 3", "wear < 3", r"model.csv:3: head: 'constraint wear < 3' is not of the form"),
    "constraint without a bound": ("wear <= 3", "wear <= much", r"model.csv:3: constraint 1: 'bound' is 'much', expected"),
    "constraint without a column": ("# constraint wear", "# constraint tear", r"model.csv:4: columns: unknown key 'wear'; did you mean 'tear'\?"),
    "column missing": (CSV[CSV.index("state,") :], "state,action,next_state,probability,wear\n", r"model.csv:4: columns: 'reward' is missing"),
    "constraint called like a column": ("# constraint wear", "# constraint reward", r"model.csv:3: constraint 1: 'reward' is a key or"),
    "column unknown": (",reward,", ",rewards,", r"model.csv:4: columns: unknown key 'rewards'; did you mean 'reward'"),
    "column twice": (",reward,", ",wear,", r"model.csv:4: columns: 'wear' is given twice"),
    "no columns": (CSV[CSV.index("state,") :], "", r"model.csv: there is no line of column names"),
    "no rows": (CSV[CSV.index("x,a,x") :], "", r"model.csv:4: columns: there are no rows below them"),
    "too few cells": ("x,a,y,0.5,1,1,", "x,a,y,0.5,1", r"model.csv:6: has 5 cells, expected 7: state, action"),
    "too many cells": ("x,a,y,0.5,1,1,", "x,a,y,0,5,1,1,", r"model.csv:6: has 8 cells, expected 7"),
    "quote not closed": ("x,a,y,0.5", 'x,"a,y,0.5', r"model.csv:8: not valid CSV: unexpected end of data"),
    "quote in the middle": ("x,a,y,0.5", 'x,"a"b,y,0.5', r"model.csv:6: not valid CSV: ',' expected after '\"'"),
    "field beyond reason": ("x,a,y,0.5", f"x,{'a' * 200_000},y,0.5", r"model.csv:6: not valid CSV: field larger"),
    "probability text": ("x,a,y,0.5", "x,a,y,half", r"model.csv:6: probability is 'half', expected a number such as 1000.5; correct it"),
    "probability negative": ("x,a,y,0.5", "x,a,y,-0.5", r"model.csv:6: probability is -0.5, expected at least 0"),
    "probability with a comma": ("x,a,y,0.5", 'x,a,y,"0,5"', r"model.csv:6: probability is '0,5', expected a number"),
    "probability with an underscore": ("x,a,y,0.5", "x,a,y,0_5", r"model.csv:6: probability is '0_5', expected"),
    "probability NaN": ("x,a,y,0.5", "x,a,y,nan", r"model.csv:6: probability is 'nan', expected a number"),
    "reward overflows": ("y,a,y,1.0,2", "y,a,y,1.0,1e999", r"model.csv:8: reward is '1e999', expected a number of at most 1.8e.308 in size"),
    "row sums to less": ("x,a,y,0.5", "x,a,y,0.4", r"model.csv:5: transition from 'x' under 'a': .*sum to 0.9, expected 1"),
    "row twice": ("x,a,y,0.5", "x,a,x,0.5", r"model.csv:6: step, state, action and next_state are those of line 5"),
    "next state unknown": ("x,a,y,0.5", "x,a,z,0.5", r"model.csv:6: unknown state 'z'; known are x, y"),
    "step outside": ("2,0,2", "2,0,3", r"model.csv:8: step is '3', expected a whole number, from 1 to 2"),
    "step written in two ways": ("2,0,2", "2,0,01", r"model.csv:7: transition from 'y' under 'a' at step 1: .* sum to 2"),
    "step and every step": ("2,0,2", "2,0,", r"model.csv:8: .*second time; the first is .* in line 7"),
    "count of rows": ("# start", "# transitions = 5\n# start", r"model.csv:2: head: 5 transitions .* the file has 4"),
    "head with a bad grid": ("# start", "# grid = 5\n# start", r"model.csv:2: grid: expected a table, got 5"),
}  # fmt: skip


TEXTS = {".toml": (TOML, TOML_CASES), ".json": (JSON, JSON_CASES), ".csv": (CSV, CSV_CASES)}


@pytest.mark.parametrize(("suffix", "case"), [(suffix, case) for suffix, (_, cases) in TEXTS.items() for case in cases])
def test_broken_text_files_are_refused_with_the_line(suffix, case, tmp_path):
    text, cases = TEXTS[suffix]
    before, after, message = cases[case]
    assert before in text
    path = tmp_path / f"model{suffix}"
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_model(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"start": "z"}, r"model.csv:2: model: unknown state 'z'"),
        ({"start": {"x": 0.5}}, r"model.csv:2: model: 'start' sums to 0.5"),
        ({"constraints": []}, r"model.csv:4: columns: unknown key 'wear'"),
        (
            {"constraints": [at_most("wear", 1, R)]},
            r"constraint 'wear' has a signal of its own, expected it in the col",
        ),
        ({"constraints": ["wear"]}, r"constraints must be at_least\(...\) or at_most\(...\), got 'wear'"),
        ({"constraints": at_most("wear", 1)}, r"constraints is Constraint.*expected a list"),
    ],
)
def test_broken_overrides_of_a_csv_file_are_refused(overrides, message, tmp_path):
    path = tmp_path / "model.csv"
    path.write_text(CSV)
    with pytest.raises(ValueError, match=message):
        read_model(path, **overrides)


@pytest.mark.parametrize("suffix", [".toml", ".json", ".npz"])
def test_overrides_are_for_csv_files_only(suffix, tmp_path):
    path = write_model(valid(), tmp_path / f"model{suffix}")
    with pytest.raises(ValueError, match=rf"model\{suffix}: horizon can be given for .csv files and data frames only"):
        read_model(path, horizon=4)


def npz(path: Path, **changes: Any) -> Path:
    """A valid npz file with some of its arrays (or header entries, as a dict) changed; None drops one."""
    original = path.with_name("original.npz")
    write_model(valid(), original)
    with np.load(original) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes())
    for name, value in changes.items():
        if name == "header" and isinstance(value, dict):
            header.update(value)
            arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        elif value is None:
            del arrays[name]
        else:
            arrays[name] = value
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=True, **arrays)
    return path


NPZ_CASES = {
    "no header": ({"header": None}, r"model.npz: not a file written by cmdpkit: it has no header"),
    "header of floats": ({"header": np.zeros(3)}, r"model.npz: not a file written by cmdpkit"),
    "header damaged": ({"header": np.frombuffer(b"{", dtype=np.uint8)}, r"model.npz: the header is damaged"),
    "header a number": ({"header": np.frombuffer(b"5", dtype=np.uint8)}, r"model.npz: the header is damaged"),
    "other format": ({"header": {"format": "zoo"}}, r"model.npz: not a model written by cmdpkit"),
    "newer version": ({"header": {"version": 2}}, r"model.npz: version 2 of the format; this cmdpkit reads version 1"),
    "unknown header key": ({"header": {"horizn": 3}}, r"model.npz: header: unknown key 'horizn'"),
    "horizon": ({"header": {"horizon": 0}}, r"model.npz: header: 'horizon' is 0, expected a whole number"),
    "names": ({"header": {"states": ["a"]}}, r"model.npz: kernel: successors\[1\] is 1, expected a state in 0..0"),
    "constraint": ({"header": {"constraint": []}}, r"model.npz: g has 1 signals for 0 bounds"),
    "array missing": ({"prob": None}, r"model.npz: array 'prob' is missing"),
    "array unknown": ({"extra": np.zeros(2)}, r"model.npz: unknown array 'extra'"),
    "array of other dtype": ({"prob": np.full(8, 0.5, complex)}, r"model.npz: kernel: prob is an array of complex128, expected float64"),
    "pickled objects": ({"prob": np.array([{}, 1])}, r"model.npz: not a complete npz .*Object arrays cannot be loaded"),
    "probabilities NaN": ({"prob": np.full(8, NAN)}, r"model.npz: P\[s=0, a=0\] gives .* probability nan"),
    "probabilities sum": ({"prob": np.full(8, 0.4)}, r"model.npz: P\[s=0, a=0\] sums to 0.8"),
    "probabilities too few": ({"prob": np.full(7, 0.5)}, r"model.npz: kernel: successors is int32 of shape \(8,\), .*7"),
    "probabilities without an axis": ({"prob": np.array(1.0), "successors": np.zeros(1, np.int32)}, r"model.npz: kernel: prob is float64 of shape \(\), expected"),
    "start without an axis": ({"mu": np.array(1.0)}, r"model.npz: mu is .*: an initial state must be an index"),
    "successors outside": ({"successors": np.full(8, 9, np.int32)}, r"model.npz: kernel: successors\[0\] is 9, expected"),
    "indptr of other length": ({"indptr": np.arange(4)}, r"model.npz: kernel: indptr is int64 of shape \(4,\), expected"),
    "indptr pointing beyond": ({"indptr": np.array([0, 2, 4, 6, 99])}, r"model.npz: kernel: indptr must rise from 0 .*8"),
    "indptr of two axes": ({"indptr": np.zeros((5, 1), int)}, r"model.npz: kernel: indptr is int64 of shape \(5, 1\), expected"),
    "rewards NaN": ({"r": np.full((1, 2, 2), NAN)}, r"model.npz: r\[s=0, a=0\] is nan"),
    "rewards of other steps": ({"r": np.zeros((2, 2, 2))}, r"model.npz: r has 2 steps, expected 1 \(stationary\) or horizon = 3"),
    "signals of one axis less": ({"signals": np.zeros((2, 2))}, r"model.npz: g has 2 signals for 1 bounds"),
    "no action": ({"actions": np.zeros((1, 2, 2), bool)}, r"model.npz: actions\[s=0\] is empty"),
    "start": ({"mu": np.array([0.5, 0.4])}, r"model.npz: mu sums to 0.9"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), NPZ_CASES.values(), ids=NPZ_CASES)
def test_broken_npz_files_are_refused(changes, message, tmp_path):
    path = npz(tmp_path / "model.npz", **changes)
    with pytest.raises(ValueError, match=message):
        read_model(path)


class Trap:
    """Unpickling this would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def test_nothing_is_ever_unpickled(tmp_path):
    trace = tmp_path / "trace"
    array = np.empty(1, dtype=object)
    array[0] = Trap(trace)
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Trap(trace)))
    np.save(tmp_path / "array.npy", array, allow_pickle=True)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    npz(tmp_path / "header.npz", header=array)
    for name in ("pickle.npz", "array.npz", "header.npz"):
        with pytest.raises(ValueError, match=rf"{name}: not a complete npz file of plain arrays"):
            read_model(tmp_path / name)
    assert not trace.exists()
