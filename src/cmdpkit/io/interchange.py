"""Models in the files of other tools: explicit PRISM files (.tra) and the unified Markov binary format (.umb)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import write_text, writing
from cmdpkit.io.formats import prism, umb
from cmdpkit.io.formats.prism import explicit_of
from cmdpkit.io.formats.source import reading, suffix_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, listed
from cmdpkit.model.fits import check_model
from cmdpkit.model.validate import Name

SUFFIXES = (".tra", ".umb")
PathLike = str | os.PathLike[str]


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
    """The problem in a .tra or .umb file, with the bounds and the length that such files do not have.

    Parameters
    ----------
    path : a .tra file of PRISM or Storm, with its .sta and .lab files next to it if there are any, or a .umb file
    reward : name of the reward structure to maximise
    constraints : bounds; each counts the reward structure that has its name
    rewards : for .tra files, the reward files of every structure by its name; state and transition rewards of the same
        structure are added. By default the files STEM.NAME.rew next to the .tra file, as `write_explicit` names them.
    start : the first state, or a mapping from states to probabilities; by default the initial state of the file
    horizon, discount, criterion : exactly one of them, as for `CMDP`
    renormalise : divide the probabilities of every choice by their sum, whatever it is
    """
    path = Path(path)
    suffix = suffix_of(path, SUFFIXES)
    if suffix == ".umb":
        if rewards is not None:
            raise CmdpkitError("rewards is given, but a .umb file holds its reward structures itself")
        model = umb.read(path)
    else:
        given = prism.beside(path) if rewards is None else rewards
        model = prism.read(path, {name: _paths(files) for name, files in given.items()})
    judged = {"horizon": horizon, "discount": discount, "criterion": criterion}
    with reading(path):
        return model.problem(reward, listed(constraints), start, **judged, renormalise=renormalise)


def write_explicit(cmdp: CMDP, path: PathLike, *, overwrite: bool = False) -> Path:
    """Write a model for other tools, and return the path, which is what `read_explicit` takes.

    A .umb file holds the whole model. Beside a .tra file are written STEM.sta with the names of the states, STEM.lab
    with the start, and STEM.NAME.rew for the reward and for the signal of every constraint. Bounds and horizon are not
    written, because the formats have no place for them. The start must be one state.
    """
    check_model(cmdp)
    path = Path(path)
    suffix = suffix_of(path, SUFFIXES)
    model = explicit_of(cmdp)
    if len(model.start) > 1:
        raise CmdpkitError(
            "the model starts in several states with probabilities, which the format cannot say; "
            "add a first state that leads to them"
        )
    if suffix == ".umb":
        with writing(path, overwrite=overwrite) as file:
            umb.write(model, file)
        return path
    written = list(prism.files(model, path))
    for target, _ in written:
        if target.exists() and not overwrite:
            raise CmdpkitError(f"{target} exists already; pass overwrite=True to replace it")
    for target, text in written:
        write_text(target, text, overwrite=overwrite)
    return path


def _paths(files: PathLike | Sequence[PathLike]) -> list[Path]:
    return [Path(files)] if isinstance(files, str | os.PathLike) else [Path(file) for file in files]
