"""An experiment: environments x algorithms x parameters x seeds, written in TOML or in Python, as a list of runs.

A run is addressed by what is asked of it (`Run.key`) and draws its random numbers from its own seed, so that nothing
else in the experiment has a say in its result: adding, removing or reordering environments, algorithms, parameters or
seeds changes no other run, and finished runs are found again. Runs of different algorithms with the same seed are
comparable seed by seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cmdpkit import envs, learners
from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.errors import explained
from cmdpkit.io.formats import toml_text
from cmdpkit.io.formats.source import read_text
from cmdpkit.io.loading import load
from cmdpkit.io.models import SUFFIXES
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.validate import MAX_SEED, index_of, is_int
from cmdpkit.records.record import Run, Scalar
from cmdpkit.running.parameters import check_parameters
from cmdpkit.running.runs import named
from cmdpkit.simulate.simulator import Noise


def _whole(value: Any) -> Any:
    """8e6 is a float in TOML, and a whole number all the same."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _known(name: str) -> str:
    return learners.names()[index_of("algorithm", learners.names(), name)]


def _allowed(params: dict[str, list[Any]]) -> dict[str, list[Any]]:
    check_parameters(params)
    return params


def _several(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _numbered(value: Any) -> Any:
    """A number of seeds stands for 0, 1, ..."""
    value = _whole(value)
    if is_int(value):
        if value < 1:
            raise CmdpkitError("expected at least 1 seed")
        return list(range(value))
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        return value
    return [int(x) if is_int(x) else x for x in value]


def _settings(value: Any) -> Any:
    """Every value as a list of settings."""
    if not isinstance(value, Mapping):
        return value
    for name, x in value.items():
        for one in (some := _several(x)):
            if not isinstance(one, (bool, int, float, str)):
                raise CmdpkitError(f"{name} is {one!r}, expected a number, a text, true, false, or a list of those")
        if not some:
            raise CmdpkitError(f"{name} is an empty list, expected at least one setting")
    return {name: _several(x) for name, x in value.items()}


Episodes = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Settings = Annotated[dict[str, list[Any]], BeforeValidator(_settings)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class Environment(_Part):
    """A model by its name, its file or itself; lists among its parameters and bounds are several models."""

    model: str | CMDP
    name: str = ""  # what records call a model that has no name
    renormalise: bool = False  # divide the probabilities in a model file by their sum
    params: Settings = Field(default_factory=dict)
    bounds: Settings = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, (str, CMDP)):
            return {"model": value}
        if not isinstance(value, (Mapping, cls)):
            raise CmdpkitError(f"{value!r} is no model, expected an environment, a file, or a table with the key model")
        return value

    def problems(self, folder: Path) -> Iterator[tuple[str, CMDP]]:
        """(name, model) of every setting; files are relative to the folder."""
        for params, bounds in product(_grid(self.params), _grid(self.bounds)):
            name, cmdp = self._problem(params, folder)
            yield named(name, bounds), cmdp.with_bounds(**bounds)

    def _problem(self, params: dict[str, Any], folder: Path) -> tuple[str, CMDP]:
        is_file = isinstance(self.model, str) and _is_file(self.model)
        if self.renormalise and not is_file:
            raise CmdpkitError("renormalise is for model files; the probabilities of other models sum to 1 already")
        if isinstance(self.model, CMDP):
            if params:
                raise CmdpkitError(f"params: a model itself takes no parameters, got {', '.join(params)}")
            return self.name or f"model-{self.model.fingerprint()[:8]}", self.model
        if _is_file(self.model):
            return self.name or self.model, load(folder / self.model, renormalise=self.renormalise, **params)
        head, written = envs.parse(self.model)
        index_of("environment", envs.names(), head)
        for again in params.keys() & written.keys():
            raise CmdpkitError(f"params.{again} is given twice, also in {self.model!r}")
        return self.name or _text(self.model, written, params), envs.build(head, **written, **params)


class Algorithm(_Part):
    """An algorithm; lists among its presets and parameters are several settings of it."""

    name: Annotated[str, AfterValidator(_known)]
    preset: Annotated[list[str], BeforeValidator(_several), Field(min_length=1)] | None = None  # its own first
    params: Annotated[Settings, AfterValidator(_allowed)] = Field(default_factory=dict)
    episodes: Episodes | None = None  # where it differs from the experiment's

    @property
    def presets(self) -> list[str]:
        """The presets asked for, by default the one that the algorithm has first."""
        return self.preset or [learners.resolve(self.name).default_preset()]

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Experiment(_Part):
    """What is to be run. ``folder`` is what the files in it are relative to.

    >>> asked = Experiment(name="demo", environments=["paper/grid"], algorithms=["triple-q"], episodes=1e4, seeds=2)
    >>> [(run.algo, run.episodes, run.seed) for run in asked.runs()]
    [('triple-q', 10000, 0), ('triple-q', 10000, 1)]
    """

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    environments: Annotated[list[Environment], Field(min_length=1)]
    algorithms: Annotated[list[Algorithm], Field(min_length=1)]
    episodes: Episodes
    seeds: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_SEED)]], BeforeValidator(_numbered), Field(min_length=1)
    ] = list(range(10))
    noise: Literal["none", "bernoulli"] = "none"
    out: str = ""  # of the records, relative to `folder`; runs/NAME in the current directory unless given
    folder: Path = Path()

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str, folder: Path = Path()) -> Experiment:
        """The experiment that a table describes; complaints begin with the ``source``, and the line if it is known."""
        try:
            return cls.model_validate({**document, "folder": folder})
        except ValidationError as error:
            raise CmdpkitError(explained(error, cls, source, document)) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Experiment:
        """The experiment in a TOML file, called as the file unless it has a name."""
        path = Path(path)
        document = toml_text.parse(path, read_text(path))
        if "folder" in document:
            raise CmdpkitError(f"{path}: folder: unknown key; files are relative to {path.name}")
        document.setdefault("name", path.stem)
        return cls.of(document, str(path), path.parent)

    @property
    def output(self) -> Path:
        """The folder of the records."""
        return self.folder / self.out if self.out else Path("runs", self.name)

    @cached_property
    def problems(self) -> tuple[tuple[str, CMDP], ...]:
        """(name, model) of every environment and setting of its parameters."""
        found: dict[str, CMDP] = {}
        for i, environment in enumerate(self.environments):
            try:
                for name, cmdp in environment.problems(self.folder):
                    if name in found:
                        raise CmdpkitError(f"{name!r} is listed twice")
                    found[name] = cmdp
            except ValueError as error:
                raise CmdpkitError(f"{self.name}: environments[{i}]: {error}") from None
        return tuple(found.items())

    def runs(self) -> list[Run]:
        """Every run, by environment, algorithm, preset, parameters and seed, each in the order it is written."""
        noise: Noise = self.noise
        extra: dict[str, Scalar] = {} if noise == "none" else {"noise": noise}
        runs = [
            Run(env, algo.name, algo.episodes or self.episodes, seed, preset, params | extra, cmdp.fingerprint())
            for env, cmdp in self.problems
            for algo in self.algorithms
            for preset, params in product(algo.presets, _grid(algo.params))
            for seed in self.seeds
        ]
        seen: set[str] = set()
        for run in runs:
            if run.key in seen:
                raise CmdpkitError(f"{self.name}: {run.algo} on {run.env} with seed {run.seed} is asked for twice")
            seen.add(run.key)
        return runs


def _grid(settings: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of settings, the last name changing fastest."""
    return [dict(zip(settings, values, strict=True)) for values in product(*settings.values())]


def _is_environment(text: str) -> bool:
    return text.partition(":")[0].strip() in envs.names()


def _is_file(text: str) -> bool:
    return not _is_environment(text) and Path(text).suffix in SUFFIXES


def _text(model: str, written: Mapping[str, Scalar], params: Mapping[str, Scalar]) -> str:
    """An environment with parameters as `load` reads it, parameters of a table in alphabetical order."""
    if not params:
        return model
    merged = {**written, **params}
    texts = {name: str(x).lower() if isinstance(x, bool) else str(x) for name, x in merged.items()}
    return f"{model.partition(':')[0]}:" + ",".join(f"{name}={texts[name]}" for name in sorted(texts))
