"""A model from whatever names it: an environment, an environment with parameters, or a file."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError, quoted

if TYPE_CHECKING:
    from cmdpkit.model.cmdp import CMDP


def load(source: str | os.PathLike[str], /, *, renormalise: bool = False, **params: object) -> CMDP:
    """The model that ``source`` names.

    ``source`` is an environment ("queue"), one with parameters ("random:S=10,seed=4", or as keywords), or the path of a
    model file. An environment's name comes first: a file of the same name is "./queue". ``renormalise`` is for files:
    it divides every row of probabilities by its sum.

    >>> load("paper/lower-bound:p=0.25", H=4)
    CMDP(H=4, S=4, A=2, N=1: utility ≥ 1)
    """
    text = os.fspath(source)
    if text.partition(":")[0].strip() in envs.names():
        if renormalise:
            raise CmdpkitError(f"{quoted(text)} is an environment: renormalise is for model files")
        name, written = envs.parse(text)
        return envs.build(name, **written, **params)
    if not os.path.lexists(text):
        raise CmdpkitError(f"{quoted(text)}: no such file and no such environment; {_hint(text)}")
    if params:
        raise CmdpkitError(f"{quoted(text)} is a file: it takes no parameters, got {', '.join(params)}")
    from cmdpkit.io.models import read_model

    return read_model(text, renormalise=renormalise)


def _hint(text: str) -> str:
    """The nearest environment or file, or where to look."""
    from cmdpkit.io.models import SUFFIXES

    folder = Path(text).parent
    files = [str(path) for path in folder.iterdir() if path.suffix in SUFFIXES] if folder.is_dir() else []
    near = difflib.get_close_matches(text.partition(":")[0], [*envs.names(), *files], 1)
    return f"did you mean {quoted(near[0])}?" if near else "`cmdpkit envs` lists the environments"
