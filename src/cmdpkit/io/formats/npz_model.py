"""Models as npz: the sparse rows of the kernel and the other arrays, as they are held in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from cmdpkit.io.formats import npz
from cmdpkit.io.formats.archive import Expected
from cmdpkit.io.formats.criterion import KEYS, constraint_entry, criterion_entry, read_criterion
from cmdpkit.io.formats.describe import grid_table, names_entry
from cmdpkit.io.formats.document import constraints_of, grid_of
from cmdpkit.io.formats.source import Fields, Index
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import Kernel

MAPPED = ("indptr", "successors", "prob")  # what can stay on disk; a model makes tables of its own from the rest


def write(file: BinaryIO, cmdp: CMDP) -> None:
    """Store a model."""
    c = cmdp.compact
    header: dict[str, Any] = {
        **criterion_entry(cmdp),
        "states": names_entry(cmdp.states),
        "actions": names_entry(cmdp.action_names),
        "constraint": [constraint_entry(x) for x in cmdp.constraints],
    }
    if cmdp.grid:
        header["grid"] = grid_table(cmdp.grid, cmdp.states)
    signals = cmdp.signs[:, None, None, None] * c.g
    arrays = {"r": c.r, "signals": signals, "actions": c.allowed, "mu": c.mu}
    npz.write(file, "model", header, {"indptr": c.indptr, "successors": c.successors, "prob": c.prob, **arrays})


def read(path: Path, *, renormalise: bool = False, mmap: bool = False) -> CMDP:
    """A model that `write` stored; with ``mmap`` its transitions stay on disk."""
    header, arrays = npz.read(path, "model", _layout, mapped=MAPPED if mmap else ())
    states, actions = header.names("states"), header.names("actions")
    S, A = len(states), len(actions)
    T = (arrays["indptr"].size - 1) // (S * A)
    return CMDP(
        Kernel.owning(T, S, A, arrays["indptr"], arrays["successors"], arrays["prob"]),
        arrays["r"],
        arrays["signals"],
        mu=arrays["mu"],
        **read_criterion(header),
        actions=arrays["actions"],
        constraints=constraints_of(header),
        states=states,
        action_names=actions,
        renormalise=renormalise,
        grid=grid_of(header, Index("state", states), A),
    )


def _layout(header: Fields) -> dict[str, Expected]:
    """The arrays of the model that a header declares, with every length an axis may have."""
    header.only(("states", "actions", "constraint"), (*KEYS, "grid"))
    H = read_criterion(header).get("horizon", 1)
    S, A, N = len(header.names("states")), len(header.names("actions")), len(constraints_of(header))
    steps = (1, H)  # an array that does not depend on the step is stored once
    entries = range(H * S * A * S + 1)
    return {
        "indptr": Expected("int64", ((S * A + 1, H * S * A + 1),)),
        "successors": Expected("int32", (entries,)),
        "prob": Expected("float64", (entries,)),
        "r": Expected("float64", (steps, (S,), (A,))),
        "signals": Expected("float64", ((N,), steps, (S,), (A,))),  # in the user's sense
        "actions": Expected("bool", (steps, (S,), (A,))),
        "mu": Expected("float64", ((S,),)),
    }
