"""Models as npz: the sparse rows of the kernel and the arrays as they are held in memory, so size follows nonzeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from cmdpkit.io.formats import npz
from cmdpkit.io.formats.criterion import KEYS, constraint_entry, criterion_entry, read_criterion
from cmdpkit.io.formats.describe import grid_table, names_entry
from cmdpkit.io.formats.document import constraints_of, grid_of
from cmdpkit.io.formats.source import Fields, Index
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import Kernel

DTYPES = {
    "indptr": "int64",  # [T*S*A + 1]
    "successors": "int32",  # [nonzeros]
    "prob": "float64",  # [nonzeros]
    "r": "float64",  # [1 or H, S, A]
    "signals": "float64",  # [N, 1 or H, S, A], in the user's sense
    "actions": "bool",  # [1 or H, S, A]
    "mu": "float64",  # [S]
}


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


def read(path: Path, *, renormalise: bool = False) -> CMDP:
    """A model that `write` stored."""
    header, arrays = npz.read(path, "model", DTYPES)
    fields = Fields(path, "header", header)
    fields.only(("states", "actions", "constraint"), (*KEYS, "grid"))
    states, actions = fields.names("states"), fields.names("actions")
    S, A = len(states), len(actions)
    for name, shape in (("r", (S, A)), ("signals", (S, A)), ("actions", (S, A)), ("mu", (S,))):
        if arrays[name].shape[-len(shape) :] != shape:
            fields.fail(f"array {name!r} has shape {arrays[name].shape}, expected it to end in {shape}")
    T, rest = divmod(arrays["indptr"].size - 1, S * A)
    if rest or T < 1:
        fields.fail(f"array 'indptr' has {arrays['indptr'].size} entries, expected 1 + a multiple of {S * A}")
    return CMDP(
        Kernel(T, S, A, arrays["indptr"], arrays["successors"], arrays["prob"]),
        arrays["r"],
        arrays["signals"],
        mu=arrays["mu"],
        **read_criterion(fields),
        actions=arrays["actions"],
        constraints=constraints_of(fields),
        states=states,
        action_names=actions,
        renormalise=renormalise,
        grid=grid_of(fields, Index("state", states), A),
    )
