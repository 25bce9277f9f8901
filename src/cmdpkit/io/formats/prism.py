"""The explicit files of the model checker PRISM, which Storm reads too: .tra, .sta, .lab and rewards.

Formats as in the manual of PRISM, appendix "Explicit Model Files". A reward file has lines "state value", or for the
choices of a Markov decision process "state choice next value". PRISM counts a reward at every step up to a horizon H by
the property R{...}[C<=H], which is what totals mean here.

`Explicit` stands between a `CMDP` and the files of PRISM, Storm and others (see `umb`). Such files know no horizon and
no bounds, so whoever reads one says which reward structure is the reward, which ones are bounded, and for how long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.source import read_text
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.model.validate import Name, index_of

# -- Models as other tools list them: states and choices by number, named reward structures, and nothing about bounds.


@dataclass(frozen=True)
class Explicit:
    """A model as a list of choices, in the order of their states."""

    states: Sequence[Name]  # names of the states, by number
    actions: Sequence[Name]  # names of the actions, by number
    state: IntArray  # [choices], the state of each choice
    action: IntArray  # [choices], its action; different within a state
    owner: IntArray  # [transitions], the choice that each belongs to, rising
    successors: IntArray  # [transitions], the next state
    prob: FloatArray  # [transitions], its probability
    rewards: Mapping[str, FloatArray]  # by name, [choices]: what a choice earns on average
    start: Sequence[int]  # the first states
    start_place: str = ""  # the file, or the part of one, that names them

    def problem(self, reward: str, constraints: Sequence[Constraint], start: Any = None, **options: Any) -> CMDP:
        """The constrained problem in which `reward` is maximised; a constraint bounds the structure of its name.

        ``options`` are those of `CMDP`: horizon, discount, criterion and renormalise.
        """
        S, A = len(self.states), len(self.actions)
        at = self.state * A + self.action
        if start is None:
            start = self._first()
        return CMDP(
            Kernel.from_entries((1, S, A), at[self.owner], self.successors, self.prob),
            self._table(reward, at, S, A),
            mu=start if isinstance(start, Mapping) else {start: 1.0},
            actions=np.isin(np.arange(S * A), at).reshape(S, A),
            constraints=[replace(c, signal=self._table(c.name, at, S, A)) for c in constraints],
            states=self.states,
            action_names=list(self.actions),
            **options,
        )

    def _first(self) -> Name:
        """The first state, if the file names exactly one; it cannot say how likely each of several is."""
        named = [self.states[s] for s in self.start]
        if not named:
            raise CmdpkitError(
                f"{self.start_place} names no initial state, and a problem starts somewhere; give one: start=..."
            )
        if len(named) > 1:
            first = ", ".join(map(quoted, named[:2]))
            raise CmdpkitError(
                f"{self.start_place} names {len(named):,} initial states ({first}{', ...' if len(named) > 2 else ''}), "
                "and not how likely each is; give the first state or the probability of each: start=... (read_explicit)"
            )
        return named[0]

    def _table(self, name: str, at: Any, S: int, A: int) -> FloatArray:
        """A reward structure as an array [S, A]."""
        index_of("reward structure", list(self.rewards), name)
        table = np.zeros(S * A)
        table[at] = self.rewards[name]
        return table.reshape(S, A)


def explicit_of(cmdp: CMDP) -> Explicit:
    """A model whose parts are the same at every step; the reward is called "reward", and signals as their bounds."""
    c = cmdp.compact
    if cmdp.kernel.T > 1 or any(x.shape[-3] > 1 for x in (c.r, c.g, c.allowed)):
        raise CmdpkitError(
            "the model depends on the step, which this format cannot say; make the step a part of the state first"
        )
    if any(constraint.name == "reward" for constraint in cmdp.constraints):
        raise CmdpkitError("a constraint is called 'reward', which is the name of the reward in this format; rename it")
    state, action = np.nonzero(c.allowed[0])
    rows = cmdp.kernel.masked(c.allowed)  # all transitions that are left belong to an allowed choice, in their order
    sizes = rows.lengths[state * cmdp.A + action]
    signals = {"reward": c.r[0][state, action]}
    signals |= {x.name: x.sign * g[0][state, action] + 0.0 for x, g in zip(cmdp.constraints, c.g, strict=True)}
    return Explicit(
        states=cmdp.states,
        actions=cmdp.action_names,
        state=state,
        action=action,
        owner=np.repeat(np.arange(len(state)), sizes),
        successors=rows.successors.astype(np.int64),
        prob=rows.prob,
        rewards=signals,
        start=np.flatnonzero(cmdp.mu).tolist(),
    )


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


def check_names(path: Any, names: Mapping[str, Any]) -> None:
    """Refuse a file without any reward structure."""
    if not names:
        raise CmdpkitError(f"{path}: there is no reward structure; give files that hold one: rewards={{name: file}}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise CmdpkitError(f"{path}: a reward structure is called {quoted(name)}, expected a name")


_STATE = re.compile(r"([0-9]{1,17}):\s*(\(.*\)|.+)")
_TITLE = re.compile(r'# Reward structure "(.+)"')
_LABEL = re.compile(r'([0-9]{1,17})="([^"]*)"')


def read(path: Path, rewards: Mapping[str, Sequence[Path]]) -> Explicit:
    """The model in a .tra file, with the .sta and .lab files next to it, if any, and the given reward files."""
    check_names(path, rewards)
    lines = _numbered(path)
    line, sizes = next(lines, (0, []))
    if sizes == ["mdp"]:  # as Storm writes it, without sizes
        sizes = []
    elif len(sizes) != 3 or not all(map(_is_number, sizes)):
        _fail(path, line, sizes, "the numbers of states, choices and transitions of a Markov decision process")
    choices: dict[tuple[int, int], dict[int, float]] = {}
    names: dict[tuple[int, int], Name] = {}
    for line, words in lines:
        if len(words) not in (4, 5):
            _fail(path, line, words, "state, choice, next state, probability and perhaps an action")
        s, c, x = (_index(path, line, word) for word in words[:3])
        row = choices.setdefault((s, c), {})
        row[x] = row.get(x, 0.0) + _number(path, line, words[3])
        names.setdefault((s, c), words[4] if len(words) == 5 else c)
    last = max((max(s, *row) for (s, _), row in choices.items()), default=-1)
    S = int(sizes[0]) if sizes else last + 1
    found = (S, len(choices), sum(len(row) for row in choices.values()))
    if sizes and tuple(map(int, sizes)) != found:
        raise CmdpkitError(
            f"{path}: {', '.join(sizes)} states, choices and transitions are announced, but the file has "
            f"{', '.join(map(str, found))}; is it complete?"
        )
    if last >= S:
        raise CmdpkitError(f"{path}: state {last} is used, but there are {S} states, numbered from 0")
    if len(choices) < S:
        raise CmdpkitError(
            f"{path}: there are {S:,} states and {len(choices):,} choices; every state needs at least one"
        )
    keys = sorted(choices)
    rows = [choices[key] for key in keys]
    state = np.array([s for s, _ in keys], dtype=np.int64)
    actions, action = told_apart(state, [names[key] for key in keys])
    labels = path.with_suffix(".lab")
    return Explicit(
        states=_states(path.with_suffix(".sta"), S),
        actions=actions,
        state=state,
        action=action,
        owner=np.repeat(np.arange(len(rows)), [len(row) for row in rows]),
        successors=np.array([x for row in rows for x in row], dtype=np.int64),
        prob=np.array([p for row in rows for p in row.values()], dtype=float),
        rewards={name: _rewards(paths, keys, choices, S) for name, paths in rewards.items()},
        start=_initial(labels, S),
        start_place=f'the label "init" in {labels.name}',
    )


def _states(path: Path, S: int) -> Sequence[Name]:
    """Names of states from a .sta file: values of their variables, or the value of a single one; else numbers."""
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


def _initial(path: Path, S: int) -> list[int]:
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
        if text.strip() and not (colon and _is_number(state.strip()) and int(state) < S):
            raise CmdpkitError(
                f"{path}:{line}: {quoted(text)}, expected a state below {S}, a colon and numbers of labels"
            )
        if str(numbers["init"]) in labels.split():
            found.append(int(state))
    return found


def _rewards(
    paths: Sequence[Path], keys: list[tuple[int, int]], choices: Mapping[tuple[int, int], Mapping[int, float]], S: int
) -> FloatArray:
    """The mean reward of every choice, from the state and transition rewards of some files together."""
    of_state, of_choice = np.zeros(S), dict.fromkeys(keys, 0.0)
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
    return np.array([of_state[key[0]] + of_choice[key] for key in keys])


def files(model: Explicit, path: Path) -> Iterator[tuple[Path, str]]:
    """The files that hold a model: transitions, states, labels, and one of transition rewards for every structure."""
    number: dict[int, int] = {}
    choices = []  # "state choice", where the choices of a state are counted from 0
    for s in model.state.tolist():
        choices.append(f"{s} {number.get(s, 0)}")
        number[s] = number.get(s, 0) + 1
    owner, successors = model.owner.tolist(), model.successors.tolist()
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
        raise CmdpkitError(f"{path}:{line}: {quoted(word)}, expected a whole number, counted from 0")
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
        raise CmdpkitError(f"{path}:{line}: {quoted(word)}, expected a finite number")
    return found


def _fail(path: Path, line: int, words: Sequence[str], expected: str) -> None:
    raise CmdpkitError(f"{path}:{line or 1}: {quoted(' '.join(words))}, expected {expected}")
