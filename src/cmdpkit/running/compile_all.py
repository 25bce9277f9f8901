"""Compile everything in advance, for images of containers and for clusters, by running small problems."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

from cmdpkit import learners
from cmdpkit.exact.solver import solve
from cmdpkit.exact.tradeoff import tradeoff
from cmdpkit.io.loading import load
from cmdpkit.model import compiled
from cmdpkit.model.policy import Policy
from cmdpkit.running.learning import learn
from cmdpkit.simulate.distribution import simulate_policy

# One and two constraints are compiled separately; machine-two and power-queue have no horizon.
SOLVED = ("paper/synthetic", "treatment", "machine-two", "power-queue:discount=0.95")
LEARNED = {"horizon": ("paper/synthetic", "treatment"), "average": ("machine-two",)}
EPISODES = 300  # of every run; learners that plan must have planned by then
STEPS = 3_000  # the same without a horizon


def compile_all(algorithms: Sequence[str] | None = None, tell: Callable[[str], None] = lambda what: None) -> list[str]:
    """Solve, evaluate and learn small problems, so that all compiled functions that this needs are kept on disk.

    Parameters
    ----------
    algorithms : names of the learning algorithms to compile; all of this package unless given
    tell : called with the name of each part before it is compiled

    Returns the names of the parts.
    """
    done = []
    allowed, compiled.INTERPRETED_SECONDS = compiled.INTERPRETED_SECONDS, 0.0
    try:
        for name, work in _parts(learners.names() if algorithms is None else algorithms):
            tell(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the runs are too short to mean anything
                work()
            done.append(name)
    finally:
        compiled.INTERPRETED_SECONDS = allowed
    return done


def _parts(algorithms: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The name of each part, and the work that compiles it."""
    for model in SOLVED:
        yield f"solve {model}", lambda model=model: _solved(model)  # type: ignore[misc]
    for algo in algorithms:
        criteria = learners.facts(algo).criteria
        for criterion, models in LEARNED.items():
            for model in models if criterion in criteria else ():
                length = {"episodes": EPISODES} if criterion == "horizon" else {"steps": STEPS}
                yield f"learn {model} --algo {algo}", lambda m=model, a=algo, n=length: learn(m, a, **n)  # type: ignore[misc]


def _solved(model: str) -> None:
    cmdp = load(model)
    solution = solve(cmdp)
    if isinstance(solution.policy, Policy):
        simulate_policy(cmdp, solution.policy, 100)
    if not cmdp.criterion.stationary:
        tradeoff(cmdp, cmdp.constraints[0].name, 3)
