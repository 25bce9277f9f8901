"""An experiment: environments x algorithms x parameters x seeds, written in TOML or in Python, as a list of runs.

The key of a run is a digest of what is asked of it (`Run.key`), and its random numbers come from its own seed. Nothing
else in the experiment influences its result: adding, removing or reordering environments, algorithms, parameters or
seeds changes no other run, and finished runs are found again. Different algorithms can be compared seed by seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments import document as read
from cmdpkit.experiments.document import MAX_RUNS, Settings, read_fields
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes, parse_toml, read_text
from cmdpkit.io.loading import build, load, look_in, parsed
from cmdpkit.io.models import SUFFIXES
from cmdpkit.learners.contract import Learner
from cmdpkit.learners.registry import name_of, resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.validate import index_of
from cmdpkit.records.record import Run, Scalar, unit_of
from cmdpkit.running.gym.world import GymRecipe
from cmdpkit.running.request import Place, check_criterion, run_of
from cmdpkit.simulate.simulator import Noise


@dataclass(frozen=True, eq=False)
class ExperimentProblem(Place):
    """An environment with one choice of its parameters and bounds."""

    world: CMDP | GymRecipe  # the model, or how to make the environment

    @property
    def unit(self) -> str:
        """What the length of a run counts, "episode" or "step"."""
        return unit_of(self.criterion)


@dataclass(frozen=True, eq=False)
class ExperimentEnvironment:
    """A model, its name or its file, or a function that makes a model, a Gymnasium environment or a `GymWorld`.

    A list as a parameter or bound means one environment for each of its values.
    """

    model: str | CMDP  # a name, a file, "package.module:function", or a model
    name: str = ""  # its name in records, by default the name or file
    params: Settings = field(default_factory=dict)  # parameters of the environment, by name
    bounds: Settings = field(default_factory=dict)  # that replace those of the model, by constraint

    @classmethod
    def of(cls, node: Located, mistakes: Mistakes) -> ExperimentEnvironment | None:
        """The environment that a table, a name or a model describes; None if there is a mistake, which is noted."""
        if isinstance(node.value, (str, CMDP)):
            return cls(node.value)
        node.expect(isinstance(node.value, Mapping), "an environment, a file, a model, or a table with the key model")
        readers = {"model": read.model, "name": Located.text, "params": read.settings, "bounds": read.settings}
        found = read_fields(node, readers, ("model",), mistakes)
        return cls(**found) if "model" in found else None

    def problems(self, folder: Path, noise: Noise) -> Iterator[ExperimentProblem]:
        """Yield one problem per setting; paths of files are relative to the folder."""
        for params, bounds in product(_grid(self.params), _grid(self.bounds)):
            name, made = self._made(params, folder)
            changed = {key: float(x) for key, x in bounds.items()}
            if isinstance(made, CMDP):
                cmdp = made.with_bounds(**changed)
                judged = "horizon" if cmdp.criterion.has_horizon else cmdp.criterion.kind
                yield ExperimentProblem(name, judged, cmdp.fingerprint(), changed, noise, cmdp)
            elif noise != "none" or changed:
                raise CmdpkitError(f"{name} is no model: it has no bounds to change, and its signals cannot be drawn")
            else:
                recipe = GymRecipe(str(self.model), tuple(params.items()), name)
                world = recipe.make(made)
                world.close()
                yield ExperimentProblem(name, world.criterion, world.fingerprint, {}, "none", recipe)

    def _made(self, params: dict[str, Any], folder: Path) -> tuple[str, Any]:
        """The name of the environment in records, and the environment: a CMDP, or the result of the user's function."""
        if isinstance(self.model, CMDP):
            if params:
                raise CmdpkitError(f"params: a model itself takes no parameters, got {', '.join(params)}")
            return self.name or f"model-{self.model.fingerprint()[:8]}", self.model
        found = parsed(self.model)
        if found is None:
            if Path(self.model).suffix.lower() not in SUFFIXES:
                index_of("environment", envs.names(), self.model.partition(":")[0])
            made = load(folder / self.model, **params)
            return self.name or self.model, made
        head, written = found
        made = build(self.model, **params)
        return self.name or _text(self.model, head, {**written, **params}), made


@dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm; a list as preset or parameter means one setting for each of its values."""

    name: str | type  # or "package.module:Class", or the class itself
    preset: list[str] | None = None  # by default its first
    params: Settings = field(default_factory=dict)  # that differ from the preset
    episodes: int | None = None  # if it differs from the experiment's
    steps: int | None = None  # the same for models without a horizon
    readings: list[int] = field(default_factory=list)  # episodes or steps at which curves are read, besides the usual

    @classmethod
    def of(cls, node: Located, mistakes: Mistakes) -> Algorithm | None:
        """The algorithm that a table, a name or a class describes; None if there is a mistake, which is noted."""
        if not isinstance(node.value, Mapping):
            return cls(read.algorithm(node))
        readers = {
            "name": read.algorithm,
            "preset": read.presets,
            "params": read.parameters,
            "episodes": read.length,
            "steps": read.length,
            "readings": read.lengths,
        }
        found = read_fields(node, readers, ("name",), mistakes)
        return cls(**found) if "name" in found else None


@dataclass(frozen=True, eq=False)
class Experiment:
    """All runs of an experiment, by environments, algorithms and seeds.

    `Experiment.of` makes it of names and tables, `Experiment.load` of a TOML file. Paths of model files, and ``out``,
    are relative to ``folder``.

    >>> table = {"name": "demo", "environments": ["paper/grid"], "algorithms": ["triple-q"], "episodes": 1e4}
    >>> [(run.algo, run.episodes, run.seed) for run in Experiment.of({**table, "seeds": 2}).runs()]
    [('triple-q', 10000, 0), ('triple-q', 10000, 1)]
    """

    name: str  # name of the folder of records
    environments: tuple[ExperimentEnvironment, ...]  # the problems
    algorithms: tuple[Algorithm, ...]  # the learners that are compared
    steps: int | None = None  # of every run on a model without a horizon
    episodes: int | None = None  # of every run on any other environment
    seeds: tuple[int, ...] = tuple(range(10))  # every algorithm learns every problem with each of them
    noise: Noise = "none"  # "bernoulli" draws every signal as 0 or 1 of its range
    out: str = ""  # folder of the records; by default runs/NAME in the current directory
    folder: Path = Path()

    def __post_init__(self) -> None:
        for parts, kind in ((self.environments, ExperimentEnvironment), (self.algorithms, Algorithm)):
            if not all(isinstance(part, kind) for part in parts):
                raise CmdpkitError(
                    "names and tables make an experiment by Experiment.of({...}), not by Experiment(...)"
                )

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str = "experiment", folder: Path = Path()) -> Experiment:
        """The experiment that a table describes; errors begin with the ``source``, and the line if it is known."""
        return cls(**_read(document, source), folder=folder)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Experiment:
        """The experiment in a TOML file; unless the file gives a name, its own name is taken.

        Reading imports nothing. The environments and algorithms that the file names are looked for in `problems` and
        `runs`.
        """
        path = Path(path)
        document = parse_toml(path, read_text(path))
        document.setdefault("name", path.stem)
        return cls.of(document, str(path), path.parent)

    @property
    def output(self) -> Path:
        """The folder of the records."""
        return self.folder / self.out if self.out else Path("runs", self.name)

    @cached_property
    def problems(self) -> tuple[ExperimentProblem, ...]:
        """Every environment with every setting of its parameters and bounds."""
        self._check_size()
        self._look_beside()
        found: dict[tuple[str, tuple[tuple[str, float], ...]], ExperimentProblem] = {}
        for i, environment in enumerate(self.environments):
            try:
                for problem in environment.problems(self.folder, self.noise):
                    key = (problem.name, tuple(sorted(problem.bounds.items())))
                    if key in found:
                        raise CmdpkitError(f"{problem.name!r} is listed twice with the same bounds")
                    found[key] = problem
            except ValueError as error:
                raise CmdpkitError(f"{self.name}: environments[{i}]: {error}") from None
        return tuple(found.values())

    @property
    def worlds(self) -> dict[str, CMDP | GymRecipe]:
        """The models and environments of the runs, by fingerprint."""
        return {problem.fingerprint: problem.world for problem in self.problems}

    def runs(self) -> list[Run]:
        """Every run, ordered by environment, algorithm, preset, parameters and seed, each as listed."""
        self._check_size()
        kinds = self._kinds()
        self._check_lengths()
        runs = [
            run_of(
                problem,
                kind,
                self._length(problem, algo, kind),
                seed=seed,
                preset=preset,
                readings=algo.readings,
                params=params,
            )
            for problem in self.problems
            for algo, named in zip(self.algorithms, kinds, strict=True)
            for kind in (resolve(named, problem.criterion),)
            for preset, params in product(algo.preset or [kind.default_preset()], _grid(algo.params))
            for seed in self.seeds
        ]
        seen: set[str] = set()
        for run in runs:
            if run.key in seen:
                raise CmdpkitError(f"{self.name}: {run.algo} on {run.problem} with seed {run.seed} is asked for twice")
            seen.add(run.key)
        return runs

    def _check_size(self) -> None:
        """Refuse an experiment of more than `MAX_RUNS` runs before any of them is listed."""
        problems = sum(_combinations(e.params) * _combinations(e.bounds) for e in self.environments)
        settings = sum(len(a.preset or [""]) * _combinations(a.params) for a in self.algorithms)
        if problems * settings * len(self.seeds) > MAX_RUNS:
            raise CmdpkitError(
                f"{self.name}: {problems:,} environments x {settings:,} settings of algorithms x {len(self.seeds):,} "
                f"seeds are more than {MAX_RUNS:,} runs; every list of values multiplies their number"
            )

    def _kinds(self) -> list[type[Learner]]:
        """The classes of the algorithms; those of the user are imported here, and not when the experiment is read."""
        self._look_beside()
        kinds = []
        for i, algo in enumerate(self.algorithms):
            try:
                kind = resolve(algo.name)
                name = name_of(kind)
                if "<locals>" in name or resolve(name, kind.criteria[0]) is not kind:
                    raise CmdpkitError(
                        f"{name} cannot be found by this name: define the class at the top level of a module"
                    )
                kinds.append(kind)
            except CmdpkitError as error:
                raise CmdpkitError(f"{self.name}: algorithms[{i}].name: {error}") from None
        return kinds

    def _look_beside(self) -> None:
        """Have a user's modules found next to the file of the experiment, if it names any."""
        if any(":" in str(x) for x in (*(e.model for e in self.environments), *(a.name for a in self.algorithms))):
            look_in(str(self.folder.absolute()))

    def _length(self, problem: ExperimentProblem, algo: Algorithm, kind: type[Learner]) -> int:
        """How many episodes or steps an algorithm is given on a problem that it can learn."""
        try:
            check_criterion(kind, problem.name, problem.criterion)
        except CmdpkitError as error:
            raise CmdpkitError(f"{self.name}: {error}") from None
        key = f"{problem.unit}s"
        length: int | None = getattr(algo, key) or getattr(self, key)
        if length is None:
            has = "has a horizon" if problem.unit == "episode" else "has no horizon"
            raise CmdpkitError(f"{self.name}: {problem.name} {has}: give {key}, the length of its runs")
        return length

    def _check_lengths(self) -> None:
        """Refuse a length in a unit in which no environment is learned."""
        for key, has in (("episodes", "no environment"), ("steps", "every environment")):
            if any(f"{problem.unit}s" == key for problem in self.problems):
                continue
            if any(getattr(part, key) is not None for part in (self, *self.algorithms)):
                raise CmdpkitError(f"{self.name}: {key} is given, but {has} has a horizon; leave it out")


def _read(document: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The fields of an experiment, checked; raises one CmdpkitError with all mistakes."""
    mistakes = Mistakes(source)
    top = Located(source, "", LocatedTable(document, None, getattr(document, "lines", None)))

    def all_of(kind: type[ExperimentEnvironment] | type[Algorithm], node: Located) -> tuple[Any, ...]:
        found = []
        for entry in node.entries():
            with mistakes.noting():
                found.append(kind.of(entry, mistakes))
        return tuple(found)

    readers: dict[str, Callable[[Located], Any]] = {
        "name": read.folder_name,
        "environments": partial(all_of, ExperimentEnvironment),
        "algorithms": partial(all_of, Algorithm),
        "steps": read.length,
        "episodes": read.length,
        "seeds": read.seeds,
        "noise": read.one_of("none", "bernoulli"),
        "out": Located.text,
    }
    found = read_fields(top, readers, ("name", "environments", "algorithms"), mistakes)
    parts = (document, *(vars(x) for x in found.get("algorithms", ()) if x is not None))
    if all(part.get(key) is None for part in parts for key in ("episodes", "steps")):
        mistakes.add("", None, f"{source}: episodes is missing (or steps, for models without a horizon)")
    mistakes.check()
    return found


def _combinations(settings: Mapping[str, list[Any]]) -> int:
    """How many settings `_grid` would list."""
    return math.prod(len(values) for values in settings.values())


def _grid(settings: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of settings, the last name changing fastest."""
    return [dict(zip(settings, values, strict=True)) for values in product(*settings.values())]


def _text(model: str, head: str, params: Mapping[str, Scalar]) -> str:
    """The text for which `load` returns the environment with these parameters, which are in alphabetical order."""
    if not params or parsed(model) == (head, params):
        return model
    texts = {name: str(x).lower() if isinstance(x, bool) else str(x) for name, x in params.items()}
    return f"{head}:" + ",".join(f"{name}={texts[name]}" for name in sorted(texts))
