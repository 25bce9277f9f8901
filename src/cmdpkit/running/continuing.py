"""Runs that go on after they have ended: possible where the algorithm did not know the length of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import resolve
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import RunRecord
from cmdpkit.running.active import Progress
from cmdpkit.running.learning import learn_in, length_of, stop_rule
from cmdpkit.running.stopping import Asked, Stop
from cmdpkit.running.worlds import World, world_of


def continue_run(
    record: RunRecord,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    stop: Asked | None = None,
    env: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """Continue a run that was begun with ``stop=`` and has ended.

    The result is, to the bit, that of a run which was longer from the start, and has the same identity. A record that
    `learn` has returned carries the state in which its run ended, and so does the file ``checkpoint``. A record from
    disk does not: without a checkpoint the run is played again first.

    Parameters
    ----------
    record : what `learn` returned, or a record that was loaded
    episodes, steps : how many more episodes to play, or steps to take in a world without episodes; or give
    stop : a rule as in `learn`, which applies to the whole run
    env : the model or environment of the run, where its name in the record is not enough to find it again
    checkpoint, progress : as in `learn`

    >>> import cmdpkit as ck
    >>> begun = ck.learn("paper/synthetic", "cl-pri", stop=500, seed=7)
    >>> longer = ck.continue_run(begun, episodes=1000)
    >>> longer.run == ck.learn("paper/synthetic", "cl-pri", stop=1500, seed=7).run
    True
    """
    asked = record.run
    if not asked.anytime:
        raise CmdpkitError(
            f"this run of {asked.algo} was planned for {asked.episodes:,} {asked.unit}s and has ended; to be able to "
            f"continue, begin it with stop= instead of {asked.unit}s="
        )
    if asked.baseline:
        raise CmdpkitError(
            f"this run of {asked.algo} was begun with a safe policy of yours, which a record does not hold: call learn "
            "again with the same baseline and a later stop="
        )
    world = _world_again(record, env)
    more = length_of(world, episodes, steps)
    until = stop_rule(world, more, stop) or Stop(episodes=asked.episodes + (more or 0))
    kind = resolve(asked.algo)
    if code_digest(kind) != asked.code:
        raise CmdpkitError(f"the code of {asked.algo} has changed since this run; begin a new one")
    run = replace(asked, episodes=0)
    return learn_in(world, run, kind, stop=until, checkpoint=checkpoint, begun=record.saved, progress=progress)


def _world_again(record: RunRecord, env: Any) -> World:
    """A new world like that of a record, in which nothing has been counted yet."""
    run = record.run
    if env is None and run.env == "model":
        raise CmdpkitError("the model of this run has no name by which it could be found again; give it as env=")
    source = run.env if env is None else env
    limits = record.constraints if record.policy_value is None and not hasattr(source, "play") else None
    world = world_of(source, limits, run.noise, run.bounds or None)  # type: ignore[arg-type]
    if world.fingerprint != run.fingerprint:
        raise CmdpkitError(
            f"{world.name} is not what this run was begun in; give the same model or environment as env="
        )
    return world
