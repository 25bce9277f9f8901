"""Learning: an algorithm acts in a world, is watched, and can be stopped and resumed at any point.

The length of a run is given in advance (``episodes``, or ``steps`` in a world without episodes), or it is not fixed
(*anytime*, ``stop``). An anytime run that is continued is, to the bit, the run that was longer from the start.

All functions here state a `Request` and have it played by `playing.play`, or by `playing.keep` if there is a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.loading import load
from cmdpkit.learners import resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import BOUND_MET
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import is_int, numbers
from cmdpkit.operators.policies import evaluate, reach
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run, RunRecord, Scalar
from cmdpkit.running.active import Progress, checkpoints
from cmdpkit.running.playing import Report, in_threads, keep, play
from cmdpkit.running.request import Asked, Request, Stop, length_of, stop_rule
from cmdpkit.running.worlds import ModelWorld, World, world_of
from cmdpkit.simulate.simulator import Noise

if TYPE_CHECKING:
    from cmdpkit.running.gym.world import GymRecipe


def learn(
    env: CMDP | FunctionModel | World | str | Any,
    algo: str | type,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    stop: Asked | None = None,
    seed: int = 0,
    preset: str | None = None,
    noise: Noise = "none",
    bounds: Mapping[str, float] | None = None,
    constraints: Iterable[Constraint] | None = None,
    baseline: Policy | None = None,
    baseline_utility: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    readings: Iterable[int] = (),
    **params: Scalar,
) -> RunRecord:
    """Let an algorithm learn in a world for a number of episodes or steps, or until a rule ends the run.

    Parameters
    ----------
    env : a CMDP, a model by functions with a horizon (simulated without measuring regret), a name or file that
        `cmdpkit.load` knows, a Gymnasium environment, or "package.module:function" for a
        function of your own that makes one of these
    algo : a name that `cmdpkit algos` lists, a class of your own, or its name, "package.module:Class"
    episodes, seed : length of the run, and the seed of all its random numbers
    steps : instead of ``episodes``, the length of the run in a model without a horizon (long-run averages, discounted
        totals), which is one run of single steps. Regret and violation are then sums over steps.
    stop : instead of ``episodes`` or ``steps``, when to stop a run whose length is not fixed in advance: after a number
        of them, after a time ("60s", "10min", "2h"), when a function of the `Progress` returns True, or, with episodes,
        when the certificate proves that every bound is met ("certified"), or that every bound is met and the policy is
        no further below the optimum than a number ("gap=0.05", or "gap=1%" of the range that values can have). Such a
        run can be continued with `cmdpkit.continue_run`. Algorithms that must know the length refuse it.
    preset, params : choose the constants of the algorithm
    noise : with "bernoulli", rewards and utilities of a model are drawn as 0 or 1
    bounds : new bounds of a model, by the names of their constraints
    constraints : bounds on ``info["cost"]`` of a Gymnasium environment
    baseline, baseline_utility : a safe policy and its totals, one per constraint, for algorithms that must know them;
        if there is a model, what is not given is computed
    readings : episodes or steps at which curves are read, in addition to the usual 250 or so. There the gap to the
        optimum is certified, too (the curve "certified_gap"); else this is done at the end only, because it takes time
    checkpoint : a file in which the run is saved every few seconds and when an environment fails. The same call
        continues from it, and the result is the same to the bit.
    progress : called with a `Progress` several times a second; an exception that it raises ends the run, which is
        saved first if there is a checkpoint

    Returns
    -------
    The `RunRecord`, with curves of regret and violation and the policy that was learned.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "triple-q", episodes=2000, seed=7)
    >>> run.policy.pi.shape, len(run.violation)
    ((3, 3, 3), 1)
    """
    request = Request.of(
        world_of(env, constraints, noise, bounds),
        algo,
        episodes=episodes,
        steps=steps,
        stop=stop,
        seed=seed,
        preset=preset,
        baseline=baseline,
        baseline_utility=baseline_utility,
        readings=readings,
        params=params,
    )
    return play(request, checkpoint=checkpoint, progress=progress)


def learn_many(
    env: str | GymRecipe,
    algo: str | type,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    stop: Asked | None = None,
    more: int | None = None,
    seeds: Iterable[int],
    preset: str | None = None,
    bounds: Mapping[str, float] | None = None,
    noise: Noise = "none",
    baseline: Policy | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Report | None = None,
    **params: Scalar,
) -> list[RunRecord]:
    """Learn with several seeds, and return one record per seed, in the order of the seeds.

    Runs are carried out in ``threads`` threads, because compiled code releases the interpreter lock. With a folder
    ``out``, finished runs are read from it, unfinished ones are continued, and the policy of each is written there too.
    Ctrl-C saves the runs under way within seconds. ``more`` continues the runs in ``out`` that were ended by ``stop``,
    each by that many episodes. The other parameters are those of `cmdpkit.learn`.

    >>> records = learn_many("paper/synthetic", "triple-q", episodes=500, seeds=range(2))
    >>> [record.run.seed for record in records]
    [0, 1]
    """
    world = world_of(env, None, noise, bounds)
    until = stop if more is None else more
    asked = Request.of(
        world, algo, episodes=episodes, steps=steps, stop=until, preset=preset, baseline=baseline, params=params
    )
    requests = [asked.with_seed(seed) for seed in seeds]
    if more is not None:
        ended = [_ended(request.run, out) for request in requests]
        requests = [replace(asked, run=replace(x, length=0), stop=Stop(length=x.length + more)) for x in ended]

    def one(request: Request, report: Report) -> RunRecord:
        def fresh() -> Request:
            return replace(request, world=world.fresh())

        if out is not None:
            return keep(request.run, Path(out), fresh, request.stop, report)
        with closing((here := fresh()).world):
            return play(here, progress=report)

    many = threads or min(len(requests), os.cpu_count() or 1)
    with closing(world), closing(in_threads(one, requests, many, progress)) as ends:
        records = {request.run.key: record for request, record in ends}
    return [records[request.run.key] for request in requests]


def _ended(run: Run, out: str | os.PathLike[str] | None) -> Run:
    """The longest run in a folder that a rule has ended, asked for in the same words; ``certified`` may be left out."""
    if out is None:
        raise CmdpkitError("to continue runs, give the folder that holds them: out=, on the command line --out")
    same = (run, replace(run, params={"certified": True, **run.params}))
    from cmdpkit.records.store import load_records  # a run without a folder needs no files

    ended = [record.run for record in load_records(out) if replace(record.run, length=0) in same]
    if not ended:
        raise CmdpkitError(
            f"{os.fspath(out)} has no run of {run.algo} on {run.problem} with seed {run.seed} that can be continued: "
            "begin one with stop= (on the command line --stop), with the same model, settings and code"
        )
    return max(ended, key=lambda other: other.length)


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
            f"this run of {asked.algo} was planned for {asked.length:,} {asked.unit}s and has ended; to be able to "
            f"continue, begin it with stop= instead of {asked.unit}s="
        )
    if asked.baseline:
        raise CmdpkitError(
            f"this run of {asked.algo} was begun with a safe policy of yours, which a record does not hold: call learn "
            "again with the same baseline and a later stop="
        )
    world = _world_again(record, env)
    more = length_of(world, episodes, steps)
    until = stop_rule(world, more, stop) or Stop(length=asked.length + (more or 0))
    kind = resolve(asked.algo, world.criterion)
    if code_digest(kind) != asked.code:
        raise CmdpkitError(f"the code of {asked.algo} has changed since this run; begin a new one")
    request = Request(replace(asked, length=0), world, kind, stop=until)
    return play(request, checkpoint=checkpoint, begun=record.saved, progress=progress)


def _world_again(record: RunRecord, env: Any) -> World:
    """A new world like that of a record, in which nothing has been counted yet."""
    run = record.run
    if env is None and run.env == "model":
        raise CmdpkitError("the model of this run has no name by which it could be found again; give it as env=")
    source = run.env if env is None else env
    limits = record.constraints if record.policy_value is None and not isinstance(source, World) else None
    world = world_of(source, limits, run.noise, run.bounds or None)  # type: ignore[arg-type]
    if world.fingerprint != run.fingerprint:
        raise CmdpkitError(
            f"{world.name} is not what this run was begun in; give the same model or environment as env="
        )
    return world


# -- Runs that were made elsewhere.

IMPORTED = "imported"  # the preset of such a run


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
    world = ModelWorld(cmdp, env if isinstance(env, str) else f"model {cmdp.fingerprint()[:8]}")
    signs = np.array([1.0, *cmdp.signs])
    target = np.array([np.nan if world.optimum is None else world.optimum, *cmdp.rho])  # [1+N]
    missed = dict[str, FloatArray]()  # by how much every episode falls short of the target, [K, 1+N]
    if policies is not None:
        blocks = list(policies)
        pairs = [x for x in blocks if isinstance(x, Sequence) and len(x) == 2 and isinstance(x[1], Policy)]
        if not blocks or len(pairs) < len(blocks) or not all(is_int(n) and n > 0 for n, _ in pairs):
            raise CmdpkitError(f"policies is {quoted(blocks)}, expected pairs (number of episodes, Policy)")
        policy = blocks[-1][1] if policy is None else policy
        values = np.array([[x.v, *x.w] for x in (evaluate(cmdp, played) for _, played in blocks)])
        missed[""] = np.repeat(target - signs * values, [n for n, _ in blocks], axis=0)
        missed["strong_"] = np.maximum(missed[""], 0.0)
    if returns is not None:
        earned = numbers("returns", returns)
        if earned.ndim != 2 or earned.shape[1] != 1 + cmdp.N or not np.isfinite(earned).all():
            raise CmdpkitError(f"returns has shape {earned.shape}, expected (episodes, {1 + cmdp.N}), all finite")
        missed["realised_"] = target - signs * earned
    lengths = {len(x) for x in missed.values()}
    if policy is None or len(lengths) != 1 or 0 in lengths:
        raise CmdpkitError(
            "give policies=[(episodes, policy), ...], or returns [episodes, 1 + N] and the last policy=, or both with "
            f"the same number of episodes; here these are {sorted(lengths) or 'none'}"
        )
    K, exact = lengths.pop(), evaluate(cmdp, policy)
    read = np.array(checkpoints(K))
    sums = {prefix: np.cumsum(x, axis=0)[read - 1].T for prefix, x in missed.items()}
    curves = {"episode": read.astype(float)}
    curves |= {f"{prefix}regret": x[0] for prefix, x in sums.items() if world.optimum is not None}
    curves |= {f"{prefix}violation": x[1:] for prefix, x in sums.items()}
    if policies is not None:
        unsafe = (missed[""] > BOUND_MET * np.maximum(1.0, abs(target)))[:, 1:].any(axis=1)
        curves["unsafe_episodes"] = np.cumsum(unsafe)[read - 1].astype(float)
    return RunRecord(
        run=Run(world.name, algo, K, seed, IMPORTED, fingerprint=world.fingerprint, code=code),
        constraints=cmdp.constraints,
        optimum=world.optimum,
        curves=curves,
        policy=policy,
        policy_value=exact.v,
        policy_utilities=exact.w,
        decisions=tuple(policy.stochastic_decisions(reach=reach(cmdp, policy))),
        certificate=None,
        phases=(),
        internals={},
        notes=("made by another library and imported; how it learned is not known here", *world.notes),
        seconds=seconds,
    )
