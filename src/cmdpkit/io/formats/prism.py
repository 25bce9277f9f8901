"""The explicit files of the model checker PRISM: .tra, .sta, .lab and rewards.

Formats as in the manual of PRISM, appendix "Explicit Model Files". A reward file has lines "state value", or for the
choices of a Markov decision process "state choice next value". PRISM counts a reward at every step up to a horizon H by
the property R{...}[C<=H], which is what totals mean here. Such files know no horizon and no bounds, so whoever reads
them says which reward structure is the reward, which ones are bounded, and for how long.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cmdpkit.errors import CmdpkitError, InputWarning, quoted
from cmdpkit.io.atomic import write_text
from cmdpkit.io.formats.source import read_text, reading, suffix_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, listed
from cmdpkit.model.fits import check_model
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.model.validate import Name, index_of

PathLike = str | os.PathLike[str]
Choices = dict[tuple[int, int], dict[int, float]]  # probability of every next state, by the numbers of state and choice

EXPLICIT_SUFFIXES = (".tra",)
_STATE = re.compile(r"([0-9]{1,17}):\s*(\(.*\)|.+)")
_TITLE = re.compile(r'# Reward structure "(.+)"')
_LABEL = re.compile(r'([0-9]{1,17})="([^"]*)"')


# -- reading -----------------------------------------------------------------------------------------------------------


def read_explicit(
    path: PathLike,
    *,
    reward: str,
    constraints: Iterable[Constraint] = (),
    rewards: Mapping[str, PathLike | Sequence[PathLike]] | None = None,
    start: Name | Mapping[Any, float] | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    criterion: str | None = None,
    renormalise: bool = False,
) -> CMDP:
    """The problem in the explicit files of PRISM, with the bounds and the length that such files do not have.

    Parameters
    ----------
    path : a .tra file, with its .sta and .lab files next to it if there are any
    reward : name of the reward structure to maximise
    constraints : bounds; each counts the reward structure that has its name
    rewards : the reward files of every structure by its name; state and transition rewards of the same structure are
        added. By default the files STEM.NAME.rew next to the .tra file, as `write_explicit` names them.
    start : the first state, or a mapping from states to probabilities; by default the initial state of the .lab file
    horizon, discount, criterion : exactly one of them, as for `CMDP`
    renormalise : divide the probabilities of every choice by their sum, whatever it is
    """
    path = Path(path)
    suffix_of(path, EXPLICIT_SUFFIXES)
    given: Mapping[str, Any] = _beside(path) if rewards is None else rewards
    if not given:
        raise CmdpkitError(f"{path}: there is no reward structure; give files that hold one: rewards={{name: file}}")
    choices, names, S = _choices(path)
    state = np.array([s for s, _ in choices], dtype=np.int64)
    actions, action = told_apart(state, names)
    A = len(actions)
    place, rows = state * A + action, choices.values()
    states = _states(path.with_suffix(".sta"), S)
    if start is None:
        start = _initial(path.with_suffix(".lab"), states)

    def signal(name: str) -> FloatArray:
        index_of("reward structure", list(given), name)
        files = [given[name]] if isinstance(given[name], str | os.PathLike) else given[name]
        table = np.zeros(S * A)
        table[place] = _rewards([Path(file) for file in files], choices, S)
        return table.reshape(S, A)

    with reading(path):
        return CMDP(
            Kernel.from_entries(
                (1, S, A),
                np.repeat(place, [len(row) for row in rows]),
                np.array([x for row in rows for x in row], dtype=np.int64),
                np.array([p for row in rows for p in row.values()], dtype=float),
            ),
            signal(reward),
            mu=start if isinstance(start, Mapping) else {start: 1.0},
            actions=np.isin(np.arange(S * A), place).reshape(S, A),
            constraints=[replace(c, signal=signal(c.name)) for c in listed(constraints)],
            states=states,
            action_names=actions,
            horizon=horizon,
            discount=discount,
            criterion=criterion,
            renormalise=renormalise,
        )


def _choices(path: Path) -> tuple[Choices, list[Name], int]:
    """The choices in a .tra file in the order of their states, the names of their actions, and the number of states."""
    lines = _numbered(path)
    line, sizes = next(lines, (1, []))
    if len(sizes) != 3 or not all(map(_is_number, sizes)):
        _fail(path, line, sizes, "the numbers of states, choices and transitions of a Markov decision process")
    S = int(sizes[0])
    found: Choices = {}
    names: dict[tuple[int, int], Name] = {}
    for line, words in lines:
        if len(words) not in (4, 5):
            _fail(path, line, words, "state, choice, next state, probability and perhaps an action")
        s, c, x = (_index(path, line, word) for word in words[:3])
        if max(s, x) >= S:
            _fail(path, line, words, f"states below {S}, as the first line says")
        row = found.setdefault((s, c), {})
        row[x] = row.get(x, 0.0) + _number(path, line, words[3])
        names.setdefault((s, c), words[4] if len(words) == 5 else c)
    there = (len({s for s, _ in found}), len(found), sum(map(len, found.values())))
    if tuple(map(int, sizes)) != there:
        raise CmdpkitError(
            f"{path}: {', '.join(sizes)} states, choices and transitions are announced, but the file has "
            f"{', '.join(map(str, there))} (states with a choice, which every state needs); is it complete?"
        )
    keys = sorted(found)
    return {key: found[key] for key in keys}, [names[key] for key in keys], S


def told_apart(state: IntArray, given: Sequence[Name]) -> tuple[list[Name], IntArray]:
    """Names of actions, and the action of every choice, for choices that are called ``given``.

    Where two choices of a state have the same name, a number is put behind that of the second.

    >>> told_apart(np.array([0, 0, 1]), ["go", "go", "go"])
    (['go', 'go (2)'], array([0, 1, 0]))
    """
    used = set[tuple[int, Name]]()
    number: dict[Name, int] = {}
    action = np.zeros(len(given), dtype=np.int64)
    for i, (s, name) in enumerate(zip(state.tolist(), given, strict=True)):
        made, again = name, 1
        while (s, made) in used:
            again += 1
            made = f"{name} ({again})"
        used.add((s, made))
        action[i] = number.setdefault(made, len(number))
    return list(number), action


def _states(path: Path, S: int) -> list[Name]:
    """Names of states from a .sta file: values of their variables, or the value of a single one; else numbers."""
    names: list[Name] = list(range(S))
    lines = read_text(path).splitlines() if path.exists() else []
    single = bool(lines) and re.fullmatch(r"\(\w+\)", lines[0].strip()) is not None
    for line, text in enumerate(lines, 1):
        found = _STATE.fullmatch(text.strip())
        if found and int(found[1]) < S:
            value = found[2][1:-1] if single and found[2].startswith("(") and found[2].endswith(")") else found[2]
            names[int(found[1])] = int(value) if single and re.fullmatch(r"-?\d{1,18}", value) else value
        elif found or (line > 1 and text.strip()):
            _fail(path, line, [text], f"a number below {S}, a colon and values")
    return names


def _initial(path: Path, states: Sequence[Name]) -> Name:
    """The only state with the label "init", as a file cannot say how likely each of several is; the first one, if
    there is no file.
    """
    if not path.exists():
        return states[0]
    head, *rows = read_text(path).splitlines() or [""]
    numbers = {name: i for i, name in _LABEL.findall(head)}
    found = []
    for line, text in enumerate(rows, 2):
        state, colon, labels = text.partition(":")
        if text.strip() and not (colon and _is_number(state.strip()) and int(state) < len(states)):
            _fail(path, line, [text], f"a state below {len(states)}, a colon and numbers of labels")
        if numbers.get("init") in labels.split():
            found.append(states[int(state)])
    if len(found) != 1:
        raise CmdpkitError(
            f'{path}: the label "init" names {len(found):,} initial states, expected one; give the first state or the '
            "probability of each: start=... (read_explicit)"
        )
    return found[0]


def _rewards(paths: Iterable[Path], choices: Choices, S: int) -> FloatArray:
    """The mean reward of every choice, from the state and transition rewards of some files together."""
    of_state, of_choice = np.zeros(S), dict.fromkeys(choices, 0.0)
    for path in paths:
        for i, (line, words) in enumerate(_numbered(path)):
            if i == 0 and all(map(_is_number, words)) and len(words) in (2, 3):
                continue  # sizes
            where = [_index(path, line, word) for word in words[:-1]]
            if len(where) == 1 and where[0] < S:
                of_state[where[0]] += _number(path, line, words[-1])
            elif len(where) == 3 and (where[0], where[1]) in choices:
                share = choices[where[0], where[1]].get(where[2], 0.0)
                of_choice[where[0], where[1]] += share * _number(path, line, words[-1])
            else:
                _fail(path, line, words, "a state of the model and a number, or state, choice, next state and a number")
    return np.array([of_state[s] + total for (s, _), total in of_choice.items()])


def _beside(path: Path) -> dict[str, list[Path]]:
    """The reward files STEM.NAME.rew next to a .tra file, by the name of the structure in their first line."""
    found: dict[str, list[Path]] = {}
    for file in sorted(path.parent.glob(f"{path.stem}.*.rew")):
        titled = _TITLE.match(read_text(file))
        name = titled[1] if titled else file.name[len(path.stem) + 1 : -len(".rew")]
        found.setdefault(name, []).append(file)
    return found


def _numbered(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The words of every line that is not empty and not a comment, with its number."""
    for line, text in enumerate(read_text(path).splitlines(), 1):
        words = text.split()
        if words and not words[0].startswith("#"):
            yield line, words


def _index(path: Path, line: int, word: str) -> int:
    if not _is_number(word):
        _fail(path, line, [word], "a whole number, counted from 0")
    return int(word)


def _is_number(word: str) -> bool:
    """Whether this is a whole number of a size that a file can have."""
    return word.isascii() and word.isdecimal() and len(word) < 18


def _number(path: Path, line: int, word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = float("nan")
    if not np.isfinite(found):
        _fail(path, line, [word], "a finite number")
    return found


def _fail(path: Path, line: int, words: Sequence[str], expected: str) -> NoReturn:
    raise CmdpkitError(f"{path}:{line}: {quoted(' '.join(words))}, expected {expected}")


# -- writing -----------------------------------------------------------------------------------------------------------


def write_explicit(cmdp: CMDP, path: PathLike, *, overwrite: bool = False) -> Path:
    """Write the explicit files of PRISM, and return the path of the .tra file, which is what `read_explicit` takes.

    Beside it are written STEM.sta with the names of the states, STEM.lab with the start, and STEM.NAME.rew for the
    reward and for the signal of every constraint. Bounds and horizon are not written, because the format has no place
    for them. Nothing may depend on the step, and the start must be one state.
    """
    check_model(cmdp)
    path = Path(path)
    suffix_of(path, EXPLICIT_SUFFIXES)
    _check_sayable(cmdp)
    if cmdp.outcomes is not None:
        warnings.warn(
            f"{path}: only means are written; the format has no place for outcomes", InputWarning, stacklevel=2
        )
    written = _files(cmdp, path)
    for target in written:
        if target.exists() and not overwrite:
            raise CmdpkitError(f"{target} exists already; pass overwrite=True to replace it")
    for target, lines in written.items():
        write_text(target, "\n".join([*lines, ""]), overwrite=overwrite)
    return path


def _check_sayable(cmdp: CMDP) -> None:
    """Refuse a model that the format cannot express."""
    c = cmdp.compact
    if cmdp.kernel.T > 1 or any(x.shape[-3] > 1 for x in (c.r, c.g, c.allowed)):
        raise CmdpkitError(
            "the model depends on the step, which this format cannot say; make the step a part of the state first"
        )
    if any(constraint.name == "reward" for constraint in cmdp.constraints):
        raise CmdpkitError("a constraint is called 'reward', which is the name of the reward in this format; rename it")
    if np.count_nonzero(cmdp.mu) > 1:
        raise CmdpkitError(
            "the model starts in several states with probabilities, which the format cannot say; "
            "add a first state that leads to them"
        )


def _files(cmdp: CMDP, path: Path) -> dict[Path, list[str]]:
    """The lines of every file: transitions, states, labels, and one of transition rewards for every structure."""
    c = cmdp.compact
    state, action = np.nonzero(c.allowed[0])
    rows = cmdp.kernel.masked(c.allowed)  # all transitions that are left belong to an allowed choice, in their order
    owner = np.repeat(np.arange(len(state)), rows.lengths[state * cmdp.A + action]).tolist()
    choice = (np.cumsum(c.allowed[0], axis=1) - 1)[state, action]  # the choices of a state are counted from 0
    choices = [f"{s} {k}" for s, k in zip(state.tolist(), choice.tolist(), strict=True)]
    names = ["_".join(str(cmdp.action_names[a]).split()) for a in action.tolist()]
    successors = rows.successors.tolist()
    head = f"{cmdp.S} {len(choices)} {len(owner)}"
    branches = zip(owner, successors, rows.prob.tolist(), strict=True)
    found = {
        path: [head, *(f"{choices[i]} {x} {p!r} {names[i]}" for i, x, p in branches)],
        path.with_suffix(".sta"): ["(state)", *(f"{s}:({name})" for s, name in enumerate(cmdp.states))],
        path.with_suffix(".lab"): ['0="init" 1="deadlock"', f"{int(cmdp.mu.argmax())}: 0"],
    }
    signals = {"reward": c.r[0], **{x.name: x.sign * g[0] + 0.0 for x, g in zip(cmdp.constraints, c.g, strict=True)}}
    for name, table in signals.items():
        values = table[state, action].tolist()
        rewards = [f"{choices[i]} {x} {values[i]!r}" for i, x in zip(owner, successors, strict=True)]
        title = f'# Reward structure "{name}"'
        found[path.with_name(f"{path.stem}.{'_'.join(name.split())}.rew")] = [title, head, *rewards]
    return found
