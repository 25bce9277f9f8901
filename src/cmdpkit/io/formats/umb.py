"""Files in the unified Markov binary format (.umb), read and written by the library umbi of its authors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.formats.explicit import Explicit, check_names, different, one_start
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name


def _umbi() -> Any:
    try:
        import umbi.ats
        import umbi.umb
    except ImportError:
        raise CmdpkitError(".umb files need umbi, which is not installed: pip install 'cmdpkit[umb]'") from None
    return umbi


def read(path: Path) -> Explicit:
    """The Markov decision process in a file, with all its reward structures."""
    umbi = _umbi()
    try:
        file = umbi.umb.read(str(path))
        ats = umbi.ats.explicit_umb_to_explicit_ats(file)
    except Exception as error:  # umbi raises whatever its parts raise on a damaged file
        raise CmdpkitError(f"{path}: umbi cannot read it: {error}") from error
    if ats.time != umbi.ats.TimeType.DISCRETE or ats.num_players > 1:
        raise CmdpkitError(f"{path} is not a Markov decision process in discrete time with one player")
    # Read from the file itself, because umbi 0.2.5 keeps only the last structure of a transition system.
    described = (file.index.annotations or {}).get("rewards", {})
    rewards = {structure.alias or name: file.annotations["rewards"][name] for name, structure in described.items()}
    check_names(path, rewards)
    choices = [choice for s in ats.states for choice in ats.get_state_choices(s)]  # in the order of the file
    state = [choice.state for choice in choices]
    names, used = ats.choice_action_to_name, set[tuple[int, Name]]()
    action = [
        different(choice.state, used, names[choice.action] if names and choice.action is not None else "choice")
        for choice in choices
    ]
    return Explicit(
        states=list(ats.states),
        state=state,
        action=action,
        next=[_next(choice) for choice in choices],
        rewards={name: _earned(structure, choices) for name, structure in rewards.items()},
        start=one_start(ats.initial_states),
    )


def _next(choice: Any) -> dict[int, float]:
    row: dict[int, float] = {}
    for branch in choice.branches:
        row[branch.target] = row.get(branch.target, 0.0) + float(branch.prob)
    return row


def _earned(structure: Mapping[str, Sequence[Any]], choices: list[Any]) -> FloatArray:
    """What every choice earns on average by a reward structure, which may be given for states, choices and branches."""
    values = np.zeros(len(choices))
    if "states" in structure:
        values += [float(structure["states"][choice.state]) for choice in choices]
    if "choices" in structure:
        values += [float(x) for x in structure["choices"]]
    if "branches" in structure:
        earned = iter(structure["branches"])
        values += [sum(float(branch.prob) * float(next(earned)) for branch in choice.branches) for choice in choices]
    return values


def write(model: Explicit, path: Path) -> None:
    """Write a model to a new file."""
    umbi = _umbi()
    ats = umbi.ats.ExplicitAts(time=umbi.ats.TimeType.DISCRETE, num_players=1)
    for _ in model.states:
        ats.add_state()
    ats.state_to_player = [0] * len(model.states)
    ats.set_initial_states(list(model.start))
    names = list(dict.fromkeys(str(a) for a in model.action))
    ats.num_choice_actions, ats.choice_action_to_name = len(names), names
    for s, a, row in zip(model.state, model.action, model.next, strict=True):
        choice = ats.add_state_choice(s)
        choice.action = names.index(str(a))
        for x, p in row.items():
            choice.add_branch(x, p)
    for i, (name, values) in enumerate(model.rewards.items()):
        structure = ats.add_reward_annotation(f"r{i}", alias=name)  # names become folders, so they are plain
        structure.set_choice_values([float(x) for x in values])
    umbi.ats.write(ats, str(path))
