"""Runs of other libraries as records, so that a `Study` can show them next to ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.loading import load
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import numbers
from cmdpkit.operators.policies import evaluate, reach
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.running.active import Point, checkpoints, curves_of, measured
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.meter import Meter

PRESET = "imported"
EXACT = {"regret", "violation", "strong_regret", "strong_violation", "unsafe_episodes"}  # curves of expectations
REALISED = {"realised_regret", "realised_violation"}  # and of what was observed


def import_run(
    env: str | CMDP,
    algo: str,
    *,
    policies: Iterable[tuple[int, Policy]] | None = None,
    returns: ArrayLike | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    code: str = "",
    seconds: float = 0.0,
) -> RunRecord:
    """A run that was made elsewhere, as a record for `Study` and `save_record`.

    Parameters
    ----------
    env : the problem: a model, or its name for `load`
    algo : what the run is called in tables and figures
    policies : pairs (number of episodes, policy) in the order of play. Regret and violation are computed
        exactly from the model.
    returns : array [K, 1 + N], what every episode earned: the reward, and the total of each constraint in the user's
        sense. They give the realised regret and violation.
    policy : the policy that the run ended with; by default the last one of ``policies``
    seed : the seed of the run; runs that differ in the seed alone are averaged
    code : anything that tells one version of the other code from another, such as a commit
    seconds : how long the run took

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], horizon=1)
    >>> good, bad = ck.Policy([[[1.0, 0.0]]]), ck.Policy([[[0.0, 1.0]]])
    >>> import_run(cmdp, "theirs", policies=[(3, bad), (7, good)]).regret
    3.0
    """
    cmdp = env if isinstance(env, CMDP) else load(env)
    name = f"model {cmdp.fingerprint()[:8]}" if isinstance(env, CMDP) else env
    played = _blocks(policies)
    earned = None if returns is None else _returns(returns, cmdp)
    K = sum(n for n, _ in played) if played else len(earned if earned is not None else ())
    if K == 0:
        raise CmdpkitError("nothing was played: give policies=[(episodes, policy), ...], returns [K, 1 + N], or both")
    if earned is not None and len(earned) != K:
        raise CmdpkitError(f"returns has {len(earned):,} episodes, but the policies were played for {K:,}")
    final = policy if policy is not None else played[-1][1] if played else None
    if final is None:
        raise CmdpkitError("policy is missing: give the policy with which the run ended, policy=...")
    world = ModelWorld(cmdp, name)
    curves = curves_of(list(_points(world, played, earned, K)), "episode")
    unknown = (set() if played else EXACT) | (set() if earned is not None else REALISED)
    values = evaluate(cmdp, final)
    return RunRecord(
        run=Run(name, algo, K, seed, PRESET, fingerprint=world.fingerprint, code=code),
        constraints=cmdp.constraints,
        optimum=world.optimum,
        curves={name: x for name, x in curves.items() if name not in unknown},
        policy=final,
        policy_value=values.v,
        policy_utilities=values.w,
        decisions=tuple(final.stochastic_decisions(reach=reach(cmdp, final))),
        certificate=None,
        phases=(),
        internals={},
        notes=("made by another library and imported; how it learned is not known here", *world.notes),
        seconds=seconds,
    )


def _points(world: ModelWorld, played: list[tuple[int, Policy]], earned: FloatArray | None, K: int) -> Iterator[Point]:
    """The points of the curves of K episodes; what is not known counts as 0."""
    world.meter = meter = Meter.of(world.cmdp, world.optimum)
    signs, (span, low) = np.array([1.0, *world.cmdp.signs]), meter.scale.T
    values = [signs * np.array([x.v, *x.w]) for x in (evaluate(world.cmdp, policy) for _, policy in played)]
    ends, read = np.cumsum([n for n, _ in played]), checkpoints(K)
    for first, last in pairwise(sorted({0, *read, *ends.tolist()})):
        n = last - first
        total = n * low if earned is None else signs * earned[first:last].sum(axis=0)
        block = np.searchsorted(ends, first, side="right")
        meter.add(n, values[block] if values else np.zeros(len(signs)), (total - n * low) / span)
        if last in read:
            yield measured(world)


def _blocks(policies: Iterable[tuple[int, Policy]] | None) -> list[tuple[int, Policy]]:
    """The policies that were played, with their numbers of episodes, checked."""
    blocks = []
    for i, block in enumerate(policies or (), 1):
        if not (isinstance(block, Sequence) and len(block) == 2 and isinstance(block[1], Policy)):
            raise CmdpkitError(f"policies entry {i} is {quoted(block)}, expected a pair (number of episodes, Policy)")
        n = block[0]
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise CmdpkitError(f"policies entry {i} was played for {quoted(n)} episodes, expected a number above 0")
        blocks.append((int(n), block[1]))
    return blocks


def _returns(returns: ArrayLike, cmdp: CMDP) -> FloatArray:
    earned = numbers("returns", returns)
    if earned.ndim != 2 or earned.shape[1] != 1 + cmdp.N:
        raise CmdpkitError(f"returns has shape {earned.shape}, expected (episodes, {1 + cmdp.N}): reward and totals")
    if not np.isfinite(earned).all():
        k, n = np.argwhere(~np.isfinite(earned))[0]
        raise CmdpkitError(f"returns[{k}, {n}] is {earned[k, n]}, expected a finite number")
    return earned
