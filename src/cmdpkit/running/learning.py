"""Learning: an algorithm acts in a world, is watched, and can be stopped and resumed at any point.

The length of a run is given in advance (``episodes``, or ``steps`` in a world without episodes), or it is not fixed
(*anytime*, ``stop``). An anytime run that is continued is, to the bit, the run that was longer from the start.

All functions here state a `Request` and have it played by `playing.play`, or by `playing.keep` if there is a folder.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from cmdpkit import learners
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import solve
from cmdpkit.io.loading import load
from cmdpkit.learners import resolve
from cmdpkit.model import compiled
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run, RunRecord, Scalar
from cmdpkit.running.active import Progress
from cmdpkit.running.playing import Report, in_threads, keep, play
from cmdpkit.running.request import Asked, Request, Stop, length_of, stop_rule
from cmdpkit.running.worlds import World, world_of
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
        when the certificate proves that every bound is met ("certified"), that every bound is met and the policy is
        no further below the optimum than a number ("gap=0.05", or "gap=1%" of the range that values can have), or that
        no interval is wider than a number ("width=0.1"). Such a run can be continued with `cmdpkit.continue_run`.
        Algorithms that must know the length refuse it.
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
    renormalise: bool = False,
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
    each by that many episodes. ``renormalise`` divides the probabilities in a model file by their sum. The other
    parameters are those of `cmdpkit.learn`.

    >>> records = learn_many("paper/synthetic", "triple-q", episodes=500, seeds=range(2))
    >>> [record.run.seed for record in records]
    [0, 1]
    """
    world = world_of(env, None, noise, bounds, renormalise=renormalise)
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


# -- Compiling everything in advance, for images of containers and for clusters, by running small problems.

# One and two constraints are compiled separately; machine-two and power-queue have no horizon.
SOLVED = ("paper/synthetic", "treatment", "machine-two", "power-queue:discount=0.95")
LEARNED = {"horizon": ("paper/synthetic", "treatment"), "average": ("machine-two",)}
# Learners that plan must have planned by then.
LENGTHS: dict[str, dict[str, Any]] = {"horizon": {"episodes": 300}, "average": {"steps": 3_000}}


def compile_all(algorithms: Sequence[str] | None = None, tell: Callable[[str], None] = lambda what: None) -> list[str]:
    """Solve, evaluate and learn small problems, so that all compiled functions that this needs are kept on disk.

    Parameters
    ----------
    algorithms : names of the learning algorithms to compile; all of this package unless given
    tell : called with the name of each part before it is compiled

    Returns the names of the parts.
    """
    done = []
    allowed, compiled.INTERPRETED_WORK = compiled.INTERPRETED_WORK, 0
    try:
        for name, work in _parts(learners.names() if algorithms is None else algorithms):
            tell(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the runs are too short to mean anything
                work()
            done.append(name)
    finally:
        compiled.INTERPRETED_WORK = allowed
    return done


def _parts(algorithms: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The name of each part, and the work that compiles it."""
    for model in SOLVED:
        yield f"solve {model}", partial(_solved, model)
    for algo in algorithms:
        for criterion in [x for x in LEARNED if x in learners.facts(algo).criteria]:
            for model in LEARNED[criterion]:
                yield f"learn {model} --algo {algo}", partial(learn, model, algo, **LENGTHS[criterion])


def _solved(model: str) -> None:
    from cmdpkit.exact.diagnosis import tradeoff  # nothing else here needs these two
    from cmdpkit.simulate.distribution import simulate_policy

    cmdp = load(model)
    solution = solve(cmdp)
    if isinstance(solution.policy, Policy):
        simulate_policy(cmdp, solution.policy, 100)
    if cmdp.criterion.has_horizon:
        tradeoff(cmdp, cmdp.constraints[0].name, 3)
