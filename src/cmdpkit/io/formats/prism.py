"""The explicit files of the model checker PRISM, which Storm reads too: .tra, .sta, .lab and rewards.

Formats as in the manual of PRISM, appendix "Explicit Model Files". A reward file has lines "state value", or for the
choices of a Markov decision process "state choice next value". PRISM counts a reward at every step up to a horizon H by
the property R{...}[C<=H], which is what totals mean here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.explicit import Explicit, check_names, one_start, told_apart
from cmdpkit.io.formats.source import read_text
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name

_STATE = re.compile(r"(\d+):\s*(\(.*\)|.+)")
_TITLE = re.compile(r'# Reward structure "(.+)"')
_LABEL = re.compile(r'(\d+)="([^"]*)"')


def read(path: Path, rewards: Mapping[str, Sequence[Path]]) -> Explicit:
    """The model in a .tra file, with the .sta and .lab files beside it if there are any, and the reward files given."""
    check_names(path, rewards)
    lines = _numbered(path)
    line, words = next(lines, (0, []))
    if words == ["mdp"]:  # as Storm writes it, without sizes
        line, words, sizes = *next(lines, (0, [])), []
    else:
        sizes = words
        if len(words) != 3 or not all(word.isdigit() for word in words):
            _fail(path, line, words, "the numbers of states, choices and transitions of a Markov decision process")
        line, words = next(lines, (0, []))
    choices: dict[tuple[int, int], dict[int, float]] = {}
    names: dict[tuple[int, int], Name] = {}
    while words:
        if len(words) not in (4, 5):
            _fail(path, line, words, "state, choice, next state, probability and perhaps an action")
        s, c, x = (_index(path, line, word) for word in words[:3])
        row = choices.setdefault((s, c), {})
        row[x] = row.get(x, 0.0) + _number(path, line, words[3])
        names.setdefault((s, c), words[4] if len(words) == 5 else c)
        line, words = next(lines, (0, []))
    S = int(sizes[0]) if sizes else 1 + max((max(s, *row) for (s, _), row in choices.items()), default=-1)
    _check_sizes(path, sizes, choices, S)
    keys = sorted(choices)
    rows = [choices[key] for key in keys]
    state = np.array([s for s, _ in keys], dtype=np.int64)
    actions, action = told_apart(state, [names[key] for key in keys])
    return Explicit(
        states=_states(path.with_suffix(".sta"), S),
        actions=actions,
        state=state,
        action=action,
        indptr=np.cumsum([0, *map(len, rows)]),
        successors=np.array([x for row in rows for x in row], dtype=np.int64),
        prob=np.array([p for row in rows for p in row.values()], dtype=float),
        rewards={name: _rewards(paths, keys, choices, S) for name, paths in rewards.items()},
        start=one_start(_initial(path.with_suffix(".lab"))),
    )


def _check_sizes(path: Path, sizes: list[str], choices: Mapping[tuple[int, int], Mapping[int, float]], S: int) -> None:
    found = (S, len(choices), sum(len(row) for row in choices.values()))
    if sizes and tuple(map(int, sizes)) != found:
        raise CmdpkitError(
            f"{path}: {', '.join(sizes)} states, choices and transitions are announced, but the file has "
            f"{', '.join(map(str, found))}; is it complete?"
        )
    beyond = max((max(s, *row) for (s, _), row in choices.items()), default=-1)
    if beyond >= S:
        raise CmdpkitError(f"{path}: state {beyond} is used, but there are {S} states, numbered from 0")


def _states(path: Path, S: int) -> Sequence[Name]:
    """Names of the states from a .sta file: the values of their variables; without a file, their numbers.

    Where there is one variable, its value is the name, without the brackets around it.
    """
    if not path.exists():
        return list(range(S))
    names: list[Name] = list(range(S))
    lines = read_text(path).splitlines()
    single = bool(lines) and re.fullmatch(r"\(\w+\)", lines[0].strip()) is not None
    for line, text in enumerate(lines, 1):
        found = _STATE.fullmatch(text.strip())
        if found and int(found[1]) < S:
            value = found[2][1:-1] if single and found[2].startswith("(") and found[2].endswith(")") else found[2]
            names[int(found[1])] = int(value) if single and re.fullmatch(r"-?\d{1,18}", value) else value
        elif found or (line > 1 and text.strip()):
            raise CmdpkitError(f"{path}:{line}: {quoted(text)}, expected a number below {S}, a colon and values")
    return names


def _initial(path: Path) -> list[int]:
    """The states with the label "init"; state 0 without a file."""
    if not path.exists():
        return [0]
    head, *rows = read_text(path).splitlines() or [""]
    numbers = {name: int(i) for i, name in _LABEL.findall(head)}
    if "init" not in numbers:
        return []
    found = []
    for line, text in enumerate(rows, 2):
        state, colon, labels = text.partition(":")
        if text.strip() and not (colon and state.strip().isdigit()):
            raise CmdpkitError(f"{path}:{line}: {quoted(text)}, expected a state, a colon and numbers of labels")
        if str(numbers["init"]) in labels.split():
            found.append(int(state))
    return found


def _rewards(
    paths: Sequence[Path], keys: list[tuple[int, int]], choices: Mapping[tuple[int, int], Mapping[int, float]], S: int
) -> FloatArray:
    """What every choice earns on average by the state and transition rewards of some files together."""
    of_state, of_choice = np.zeros(S), dict.fromkeys(keys, 0.0)
    for path in paths:
        for i, (line, words) in enumerate(_numbered(path)):
            if i == 0 and all(word.isdigit() for word in words) and len(words) in (2, 3):
                continue  # sizes
            where = [_index(path, line, word) for word in words[:-1]]
            if len(where) == 1 and where[0] < S:
                of_state[where[0]] += _number(path, line, words[-1])
            elif len(where) == 3 and (where[0], where[1]) in choices:
                share = choices[where[0], where[1]].get(where[2], 0.0)
                of_choice[where[0], where[1]] += share * _number(path, line, words[-1])
            else:
                _fail(path, line, words, "a state of the model and a number, or state, choice, next state and a number")
    return np.array([of_state[key[0]] + of_choice[key] for key in keys])


def files(model: Explicit, path: Path) -> Iterator[tuple[Path, str]]:
    """The files that hold a model: transitions, states, labels, and one of transition rewards for every structure."""
    number: dict[int, int] = {}
    choices = []  # "state choice", where the choices of a state are counted from 0
    for s in model.state.tolist():
        choices.append(f"{s} {number.get(s, 0)}")
        number[s] = number.get(s, 0) + 1
    owner = np.repeat(np.arange(len(choices)), np.diff(model.indptr)).tolist()
    successors = model.successors.tolist()
    head = f"{len(model.states)} {len(choices)} {len(owner)}"
    names = ["_".join(str(model.actions[a]).split()) for a in model.action.tolist()]
    branches = zip(owner, successors, model.prob.tolist(), strict=True)
    rows = [f"{choices[i]} {x} {p!r} {names[i]}" for i, x, p in branches]
    yield path, "\n".join([head, *rows, ""])
    states = ["(state)", *(f"{s}:({name})" for s, name in enumerate(model.states))]
    yield path.with_suffix(".sta"), "\n".join([*states, ""])
    yield path.with_suffix(".lab"), "\n".join(['0="init" 1="deadlock"', *(f"{s}: 0" for s in model.start), ""])
    for name, values in model.rewards.items():
        told = [repr(x) for x in values.tolist()]
        rows = [f"{choices[i]} {x} {told[i]}" for i, x in zip(owner, successors, strict=True)]
        title = f'# Reward structure "{name}"'
        yield path.with_name(f"{path.stem}.{'_'.join(name.split())}.rew"), "\n".join([title, head, *rows, ""])


def beside(path: Path) -> dict[str, list[Path]]:
    """The reward files STEM.NAME.rew beside a .tra file, by the name of the structure in their first line."""
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
    if not (word.isdigit() and len(word) < 18):
        raise CmdpkitError(f"{path}:{line}: {quoted(word)}, expected a whole number, counted from 0")
    return int(word)


def _number(path: Path, line: int, word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = float("nan")
    if not np.isfinite(found):
        raise CmdpkitError(f"{path}:{line}: {quoted(word)}, expected a finite number")
    return found


def _fail(path: Path, line: int, words: Sequence[str], expected: str) -> None:
    raise CmdpkitError(f"{path}:{line or 1}: {quoted(' '.join(words))}, expected {expected}")
