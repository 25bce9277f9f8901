"""How any process can make the same Gymnasium environment: the name of a function, its parameters, and constraints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.loading import build, builder_of
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import index_of
from cmdpkit.records.code import code_digest
from cmdpkit.running.gym.reading import Range
from cmdpkit.running.gym.world import GymWorld


@dataclass(frozen=True)
class GymRecipe:
    """How to make a world from a user's function that returns a Gymnasium environment or a `GymWorld`.

    Every call of `make` gives a new world. Its fingerprint includes the code of the function, so an edited environment
    counts as another one.
    """

    source: str  # "package.module:function", with parameters after another colon, or a name that a package offers
    params: tuple[tuple[str, Any], ...] = ()  # further parameters of the function
    name: str = ""  # what records call it, by default the source
    constraints: tuple[Constraint, ...] | None = None  # this and the last three fields are parameters of `GymWorld`
    bounds: tuple[tuple[str, float], ...] = ()  # bounds that replace those of the constraints, by name
    horizon: int | None = None  # number of steps; the time limit of the environment if None
    reward_range: Range | None = None  # smallest and largest reward of a step
    cost_ranges: tuple[Range, ...] | None = None  # smallest and largest value of each cost

    def make(self, built: Any = None) -> GymWorld:
        """A new world; ``built`` is what the function returned, if it was called already."""
        with _named(self.source):
            world = self._world(build(self.source, **dict(self.params)) if built is None else built)
        world.name, world.recipe, world.bounds = self.name or self.source, self, dict(self.bounds)
        code = code_digest(builder_of(self.source))
        world.fingerprint = hashlib.sha256(f"{world.fingerprint} {code}".encode()).hexdigest()
        return world

    def _world(self, built: Any) -> GymWorld:
        if isinstance(built, GymWorld):
            given = [field.name for field in fields(self)[3:] if getattr(self, field.name)]
            if given:
                raise CmdpkitError(f"the function returns a GymWorld, which settles {', '.join(given)} itself")
            return built
        if not isinstance(built, gymnasium.Env):
            kind = type(built).__name__
            raise CmdpkitError(f"the function returns a {kind}, expected a CMDP, a gymnasium.Env or a GymWorld")
        world = self._around(built, self.constraints)
        return self._around(built, self._bounded(world.constraints)) if self.bounds else world

    def _around(self, env: gymnasium.Env[Any, Any], constraints: Sequence[Constraint] | None) -> GymWorld:
        return GymWorld(
            env, constraints, horizon=self.horizon, reward_range=self.reward_range, cost_ranges=self.cost_ranges
        )

    def _bounded(self, constraints: tuple[Constraint, ...]) -> list[Constraint]:
        """The constraints with the bounds that were changed."""
        changed = list(constraints)
        for name, bound in self.bounds:
            n = index_of("constraint", [c.name for c in constraints], name)
            changed[n] = replace(changed[n], bound=bound)
        return changed


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Add to an error which environment it is about."""
    try:
        yield
    except CmdpkitError as error:
        raise CmdpkitError(f"{source}: {error}") from None
