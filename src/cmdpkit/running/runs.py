"""Runs that are kept: one run in a folder, never made twice, and several seeds of one request side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from cmdpkit.io.atomic import make_folder
from cmdpkit.io.loading import load
from cmdpkit.io.policies import write_policy
from cmdpkit.model.policy import Policy
from cmdpkit.records.record import Run, RunRecord, Scalar
from cmdpkit.records.store import has_record, load_record, save_record
from cmdpkit.running.baselines import Baseline, known_safe
from cmdpkit.running.learning import learn_in, request
from cmdpkit.running.parameters import check_parameters
from cmdpkit.running.threads import Report, in_threads
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.simulator import Noise


def ensure(
    run: Run,
    folder: Path,
    world: Callable[[], ModelWorld],
    progress: Report | None = None,
    baseline: Baseline | None = None,
) -> None:
    """Make sure that a folder holds the record of a run: a finished one is left alone, a saved one is continued.

    ``world`` gives a world in which nothing is counted yet. The policy is written first and the record last, so that a
    record means that everything is there. Several processes may ensure the same run at once: all of them come to the
    same bits, and the first record stays.
    """
    saved = checkpoint(folder, run.key)
    if not has_record(folder, run.key):
        make_folder(folder)  # now, not after hours of learning
        record = learn_in(world(), run, baseline=baseline, checkpoint=saved, save_end=False, progress=progress)
        write_policy(record.policy, folder / f"{run.key}.policy.json", overwrite=True)
        save_record(record, folder)
    saved.unlink(missing_ok=True)


def checkpoint(folder: Path, key: str) -> Path:
    """Where an unfinished run is saved."""
    return folder / f"{key}.run.npz"


def named(env: str, bounds: Mapping[str, float]) -> str:
    """What a record calls an environment, with the bounds that were changed.

    >>> named("queue", {"energy": 20.0}), named("queue", {})
    ('queue with energy = 20', 'queue')
    """
    return env + "".join(f" with {name} = {str(float(value)).removesuffix('.0')}" for name, value in bounds.items())


def learn_many(
    env: str,
    algo: str,
    *,
    episodes: int,
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
    """One record a seed, in the order of the seeds, several at a time (compiled code lets go of the interpreter lock).

    With a folder ``out``, finished runs are read from it instead of being made again, and unfinished ones continue from
    where they were saved last; the policy of each is written there too. Ctrl-C saves the runs under way, within
    seconds. ``renormalise`` divides the probabilities in a model file by their sum.

    >>> records = learn_many("paper/synthetic", "triple-q", episodes=500, seeds=range(2))
    >>> [record.run.seed for record in records]
    [0, 1]
    """
    check_parameters(params)
    cmdp = load(env, renormalise=renormalise).with_bounds(**(bounds or {}))
    world = ModelWorld(cmdp, named(env, bounds or {}), noise)
    safe = None if baseline is None else known_safe(world, baseline)
    asked: dict[str, Any] = {"episodes": episodes, "preset": preset, "noise": noise, "baseline": safe, **params}
    runs = [request(world, algo, seed=seed, **asked) for seed in seeds]

    def one(run: Run, report: Report) -> RunRecord:
        if out is None:
            return learn_in(world.fresh(), run, baseline=safe, progress=report)
        ensure(run, Path(out), world.fresh, report, safe)
        return load_record(out, run.key)

    with closing(in_threads(one, runs, threads or min(len(runs), os.cpu_count() or 1), progress)) as ends:
        records = {run.key: record for run, record in ends}
    return [records[run.key] for run in runs]
