"""The runs behind every part of the reproduction, and what is read from their records.

One file, experiments/paper-PART.toml, says what the runs of a part are.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import cmdpkit as ck

SYNTHETIC, GRID = "paper/synthetic", "paper/grid"
READ_AT = {SYNTHETIC: 8_000_000, GRID: 5_800_000}  # episodes after which regret and violation are compared
PARTS = ("synthetic", "grid", "growth", "cancellation", "theory", "table1")  # in the order in which they are shown
FOLDER = Path(__file__).parent.parent / "experiments"
TITLE = "The PRI paper, run again"


def planned(part, seeds):
    """The experiment of a part, with as many seeds as are asked for.

    >>> len(planned("synthetic", 10).runs())
    40
    """
    return replace(ck.Experiment.load(FOLDER / f"paper-{part}.toml"), seeds=list(range(seeds)))


def carried_out(parts, seeds, folder, workers=None):
    """The study of every part; runs that parts share are made once, and those in the folder are not repeated."""
    asked = {part: planned(part, seeds) for part in parts}
    worlds = {key: world for experiment in asked.values() for key, world in experiment.worlds.items()}
    keys = {part: [run.key for run in experiment.runs()] for part, experiment in asked.items()}
    runs = {run.key: run for experiment in asked.values() for run in experiment.runs()}
    done = ck.execute(list(runs.values()), worlds, folder, title=TITLE, workers=workers, observer=Counter())
    if done.failed:
        sys.exit(f"{len(done.failed)} runs failed, the first because {next(iter(done.failed.values()))}")
    study = done.study()
    found = {record.run.key: record for record in study.records}
    return {part: replace(study, records=tuple(found[key] for key in keys[part])) for part in parts}


class Counter:
    """Print how many runs are done."""

    def begin(self, total, done):
        """The first call: how many runs are asked for, and how many of them are already done."""
        self.total, self.done = total, done

    def report(self, at):
        """Progress within a run, which is not shown."""

    def ended(self, run, reason):
        """A run has ended."""
        self.done += 1
        print(f"{self.done} of {self.total} runs: {run.algo} ({run.preset}) on {run.env}", file=sys.stderr)


# -- what is read from a record ---------------------------------------------------------------------------------------


def over_seeds(group, measure):
    """The mean of a figure over the seeds of a group, with its interval."""
    return ck.seed_mean(np.array([measure(record) for record in group.samples], dtype=float))


def certain(group):
    """Whether a single figure of the group can be judged: there are several seeds, or they all gave the same."""
    return len(group.records) > 1


def read(name, episodes=None):
    """A curve after some number of episodes, by default where the paper reads it; it must have been read there."""

    def measure(record):
        (i,) = np.flatnonzero(record.curves["episode"] == (episodes or READ_AT[record.run.env]))
        return np.atleast_2d(record.curves[name])[0, i]

    return measure


def end(name):
    """A curve at the end of the run."""
    return lambda record: np.atleast_2d(record.curves[name])[0, -1]


def value(record):
    """The exact value of the returned policy."""
    return record.policy_value


def utility(record):
    """The exact utility or cost of the returned policy."""
    return record.policy_utilities[0]


def shortfall(record):
    """By how much the returned policy misses its bound; negative if it meets it."""
    constraint = record.constraints[0]
    return constraint.sign * (constraint.bound - utility(record))


def optimality_gap(record):
    """The optimum minus the value of the returned policy."""
    return record.optimum - value(record)


def randomised(record):
    """The number of stochastic decisions of the returned policy."""
    return len(record.decisions)


def second_action(record):
    """How often the policy takes action 2 at step 1 in state 1, the only stochastic decision of the optimum."""
    return record.policy.pi[0, 0, 1]


def actions_left(when):
    """How many actions are left at some point of a run of PRI."""
    return lambda record: record.internals["actions"][when]


def checked(record):
    """Triples (step, state, action) that comparisons tested, without those of stochastic decisions of the policy."""
    tested = {(test["step"] - 1, test["state"], test["action"]) for test in record.internals.get("tests", ())}
    return sum(record.policy.pi[triple] in (0.0, 1.0) for triple in tested)
