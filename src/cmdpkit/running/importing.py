"""Runs of other libraries as records, so that a `Study` can show them next to ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.io.loading import load
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import numbers
from cmdpkit.operators.policies import evaluate, occupancy
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.running.active import checkpoints

PRESET = "imported"
Curves = dict[str, FloatArray]


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
    try:
        best: Solution | None = solve_fully(cmdp)
    except Infeasible:
        best = None
    values = evaluate(cmdp, final)
    read = np.array(checkpoints(K), dtype=float)
    return RunRecord(
        run=Run(name, algo, K, seed, PRESET, fingerprint=cmdp.fingerprint(), code=code),
        constraints=cmdp.constraints,
        optimum=None if best is None else best.value,
        curves={"episode": read, **_expected(cmdp, best, played, read), **_realised(cmdp, best, earned, read)},
        policy=final,
        policy_value=values.v,
        policy_utilities=values.w,
        decisions=tuple(final.stochastic_decisions(occupancy(cmdp, final).sum(axis=-1))),
        certificate=None,
        phases=(),
        internals={},
        notes=("made by another library and imported; how it learned is not known here",),
        seconds=seconds,
    )


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


def _expected(cmdp: CMDP, best: Solution | None, played: list[tuple[int, Policy]], read: FloatArray) -> Curves:
    """Curves of exact expectations: within a block of episodes with one policy they are straight lines."""
    if not played:
        return {}
    sizes = np.array([n for n, _ in played], dtype=float)
    ends = np.concatenate(([0.0], np.cumsum(sizes)))
    values = [evaluate(cmdp, policy) for _, policy in played]
    missed = np.array([cmdp.rho - cmdp.signs * x.w for x in values]).reshape(len(played), cmdp.N).T
    tolerance = np.zeros(cmdp.N) if best is None else best.tolerance
    unsafe = (missed > tolerance[:, None]).any(axis=0).astype(float)

    def summed(rate: FloatArray) -> FloatArray:
        line: FloatArray = np.interp(read, ends, np.concatenate(([0.0], np.cumsum(rate * sizes))))
        return line

    def rows(table: FloatArray) -> FloatArray:
        return np.array([summed(row) for row in table]).reshape(cmdp.N, len(read))

    curves = {
        "violation": rows(missed),
        "strong_violation": rows(np.maximum(missed, 0.0)),
        "unsafe_episodes": summed(unsafe),
    }
    if best is not None:
        lost = np.array([best.value - x.v for x in values])
        curves |= {"regret": summed(lost), "strong_regret": summed(np.maximum(lost, 0.0))}
    return curves


def _realised(cmdp: CMDP, best: Solution | None, earned: FloatArray | None, read: FloatArray) -> Curves:
    """Curves of the observed totals."""
    if earned is None:
        return {}
    at = read.astype(int) - 1
    missed = np.cumsum(cmdp.rho - cmdp.signs * earned[:, 1:], axis=0)[at].T
    curves = {"realised_violation": missed.reshape(cmdp.N, len(read))}
    if best is not None:
        curves["realised_regret"] = np.cumsum(best.value - earned[:, 0])[at]
    return curves
