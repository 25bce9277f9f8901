"""A digest of everything that defines a model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.validate import masked, written_name


def fingerprint(cmdp: CMDP) -> str:
    """SHA-256 of a model, names included; what does not count, `CMDP.fingerprint` says."""
    judged: Any = cmdp.criterion if cmdp.criterion.stationary else cmdp.H
    bounds = tuple(replace(c, bound=c.total, per_step=False) for c in cmdp.constraints)
    digest = hashlib.sha256(repr((judged, cmdp.kernel.shape, bounds)).encode())
    if any(c.per_step for c in cmdp.constraints):
        digest.update(repr([c.per_step for c in cmdp.constraints]).encode())
    for names in (cmdp.states, cmdp.action_names):
        digest.update(repr(names if isinstance(names, range) else tuple(map(written_name, names))).encode())
    c, rows = cmdp.compact, cmdp.kernel.masked(cmdp.compact.allowed)
    signals = [masked(x, c.allowed) for x in (c.r, *c.g)]
    arrays: list[NDArray[Any]] = [rows.indptr, rows.successors, rows.prob, *signals, c.allowed, c.mu + 0.0]
    for x in arrays:
        digest.update(repr((x.shape, x.dtype.str)).encode())
        digest.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
