"""What a learner is: the base class of all algorithms, ours and everybody else's.

A learner that says how it begins an episode (`first`), goes on (`next`), ends it (`last`) and which policy it would
return (`recommend`) is complete: this class drives it on a simulator, saves and restores it, and gives everything
else a default. One that learns nothing before an episode has ended is shorter: `act` and `end` take the place of the
first three. A learner may also have a compiled `run`; then `cmdpkit.testing.check_learner` shows that it does the same
as these methods, to the bit.

What a learner has learned is arrays by name: copied for a checkpoint, and put back. `Saved` is the base class of
everything that can be saved. It looks at the attributes of an object and finds its arrays, numbers, texts and truth
values, also inside of dataclasses, tuples and named tuples. It refuses any other kind of attribute by name, so that
nothing is lost in silence. A restored array must have the shape of the array whose place it takes. There are
exceptions: an array that is empty, a list of counts, or one that the class calls growing, may be replaced by one of
another length, and an attribute that is None may be replaced by anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.counts import Counts, new_episode
from cmdpkit.estimate.intervals import Intervals
from cmdpkit.learners._note import Note
from cmdpkit.learners.params import Params, Preset, Returns, Source, Spec, check_walk, chosen
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Renamed
from cmdpkit.simulate.meter import Meter, PolicyTable, Walk, advance, collect, count_step, watch
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import Simulator, reset, step

State = Mapping[str, NDArray[Any]]  # arrays by name, as a checkpoint keeps them
PLAIN = (bool, int, float, str, np.generic)
NOTHING = np.zeros(0, dtype=bool)  # stands for None
COUNT_LISTS = ("link", "state", "times")  # the lists of counts, which grow; of these only what is in use is saved


class Saved:
    """An object whose attributes can be saved as arrays and put back."""

    fixed: ClassVar[tuple[str, ...]] = ()  # names of attributes that never change during a run
    changing: ClassVar[tuple[str, ...] | None] = None  # names of those that do; None: all that are not `fixed`
    growing: ClassVar[tuple[str, ...]] = ()  # names, in a state, of arrays that may be replaced by ones of other length

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, by name; to be called between two episodes."""
        return {leaf.name: leaf.array.copy() for leaf in _leaves_of(self)}

    def restore(self, state: State) -> None:
        """Continue from a state, in an object made with the same arguments; one that does not fit changes nothing."""
        for leaf in _leaves_of(self):
            _check(leaf, state)
        _put_back(self, "", state)


class Episodic(Protocol):
    """What ``learner.episodic()`` returns if the learner can wait with learning until an episode ends.

    Between two steps it then only looks up an action, which is cheap.
    """

    def begin(self, rng: Stream) -> None:
        """A new episode, with the stream that its random actions are drawn from."""

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode: states [H or more], actions [H], reward and utilities [H, 1+N] in unit scale."""


class Learner(Saved, ABC):
    """An algorithm at work. Inherit from this class, and write `first`, `next`, `last` and `recommend`.

    Or write `act`, `end` and `recommend`, if no choice within an episode depends on the signals of that episode.

    The class attributes are data about the algorithm. Randomness comes from the stream `rng` that the methods are
    given, and from nothing else: ``cmdpkit.learners.uniform(rng)`` draws a number in [0, 1). Steps, states and actions
    count from 0.

    Parameters
    ----------
    spec : sizes, thresholds and allowed actions, which is all that a learner knows of the problem
    preset : one of `presets`, by default the first
    params : single parameters that differ from the preset
    """

    title: ClassVar[str] = ""  # what it is, in one line that ends with a full stop
    guarantee: ClassVar[str] = "none"  # what is proved about it
    paper: ClassVar[str] = ""  # where it is from, e.g. "arXiv 2106.01577"
    # What its constants and steps were taken from: the "text" of the paper; the "authors' code" or poster; a
    # "restatement" in another paper or public code; "memory", so that some could not be checked; or it is "ours".
    source: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()  # keyword arguments it must be given: slack, baseline, baseline_utility
    criteria: ClassVar[tuple[str, ...]] = ("horizon",)  # kinds of problems it can learn; also "average", "discounted"
    certifies: bool = False  # whether its certificate says how far its policy is from the optimum
    anytime: ClassVar[bool] = False  # whether it can learn without knowing the number of episodes, see `Spec.anytime`
    presets: ClassVar[Mapping[str, Preset]] = {"practical": Params()}  # by name; the first is the default

    fixed: ClassVar[tuple[str, ...]] = (  # what `state` leaves out
        *("spec", "preset", "params", "notes", "_shown", "_episode", "_rng", "_steps"),
    )
    notes: tuple[str | Note, ...] = ()  # what a user should know about these parameters at this K
    _shown: FloatArray | None = None  # the policy that the meter was told about last
    _steps = 0  # how many steps of the running episode are over, if it is driven step by step

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        if spec.criterion not in self.criteria:
            raise CmdpkitError(
                f"{type(self).__name__} learns problems with the criterion {' or '.join(self.criteria)}, this one's "
                f"criterion is {spec.criterion}"
            )
        if spec.anytime and not self.anytime:
            raise CmdpkitError(
                f"{type(self).__name__} must know the number of episodes in advance: give episodes= instead of stop="
            )
        self.spec = spec
        self.preset = self.default_preset() if preset is None else preset
        self.params = chosen(self.presets, spec, self.preset, params)
        self._episode = new_episode(spec.H, 1 + spec.N)  # the running one, for learners that wait until it has ended
        self._rng: Stream = np.zeros(4, dtype=np.uint64)  # the stream of their random actions

    @classmethod
    def default_preset(cls) -> str:
        """Name of the preset that is used unless another is asked for."""
        return next(iter(cls.presets))

    # -- what every learner says ---------------------------------------------------------------------------------------

    @abstractmethod
    def recommend(self) -> FloatArray:
        """The policy pi [H, S, A] to return now."""

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._rng, self._steps = rng, 0
        return self._act(s)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to state s: the action to take there."""
        self._episode.signals[self._steps] = signals
        self._steps += 1
        return self._act(s)

    def last(self, signals: FloatArray) -> None:
        """Learn from the last, H-th step's reward and utilities [1+N], and end the episode."""
        episode = self._episode
        episode.signals[self._steps] = signals
        self.end(episode.states, episode.actions, episode.signals)

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s, for learners that wait until an episode has ended."""
        raise NotImplementedError

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from an episode: states [H or more], actions [H], reward and utilities [H, 1+N] in unit scale."""
        raise NotImplementedError

    @classmethod
    def waits(cls) -> bool:
        """Whether it learns when an episode has ended, with `act` and `end`."""
        return cls.first is Learner.first and cls.act is not Learner.act

    @classmethod
    def missing(cls) -> list[str]:
        """The methods that a class must still define to be a learner."""
        needed = ("act", "end") if cls.waits() else ("first", "next", "last")
        return [name for name in (*needed, "recommend") if getattr(cls, name) is getattr(Learner, name)]

    # -- what has a default --------------------------------------------------------------------------------------------

    def begin(self, rng: Stream) -> None:
        """Prepare an episode, before `behaviour` is asked for its policy and before `first`; by default nothing.

        This is the place to plan, or to draw the policy of an episode, as posterior sampling does; see
        `numpy_generator`. No other method plans.
        """
        self._rng = rng

    def behaviour(self) -> FloatArray:
        """The policy pi [H, S, A] that the next episode plays, random actions included; by default `recommend()`.

        Regret and violation are measured by it.
        """
        return self.recommend()

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in a model. Two calls with n are the same as one call with 2 n, to the bit."""
        source.check(self.spec)
        out, done = np.empty((1 + self.spec.N, n)), 0
        while done < n:
            done += self._play(source, rng, out, done)
        return Returns(out[0], out[1:])

    def walk(self, walk: Walk, rng: Stream, n: int) -> Returns:
        """Take n more steps in a model without a horizon; two calls with n are the same as one call with 2 n.

        A run begins with `first`, and every step is followed by `next`. In a discounted problem a step may be followed
        by a new start: then by `last` and `first`.
        """
        check_walk(walk, self.spec)
        out = np.empty((1 + self.spec.N, n))
        if walk.place[0] < 0:
            self.begin(rng)
            s = int(reset(walk.simulator, rng))
            walk.place[:] = s, self.first(s, rng)
        for t in range(n):
            s, a = (int(x) for x in walk.place)
            self._check_action(0, s, a)
            s_next, x, restarted = advance(walk, s, a, rng)
            signals = walk.simulator.outcomes[x].copy()
            count_step(walk.meter, s, a, signals)
            out[:, t] = signals
            if restarted:
                self.last(signals)
                self.begin(rng)
            s = int(s_next)
            walk.place[:] = s, self.first(s, rng) if restarted else self.next(signals, s, rng)
        return Returns(out[0], out[1:])

    def episodic(self) -> Episodic | None:
        """A faster way to drive the learner in a Gymnasium environment, if it has one, which leads to the same bits."""
        return self if self.waits() else None

    @property
    def multipliers(self) -> FloatArray | None:
        """The prices lam [N] in reward that are put on each utility now, if there are any."""
        return None

    def usage(self, whole: bool = False) -> FloatArray | None:
        """How often each (h, s, a) was chosen, [H, S, A], recently or in the whole run, if that is counted."""
        return None

    def certificate(self) -> Intervals | None:
        """What is proved about `recommend()`, in unit scale, if anything is.

        These are intervals for its value and utilities and, if the learner `certifies`, a bound on the optimum. To ask
        changes nothing.
        """
        return None

    def counted(self) -> Counts | None:
        """What was counted so far in episodes, in unit scale, if that is done; `RunRecord.belief` rests on it."""
        return None

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        return ()

    def internals(self) -> dict[str, Any]:
        """The state of the learner as plain values by name: its counts, plans, tests or thresholds."""
        return {}

    explain = Renamed("internals")

    def warnings(self) -> tuple[str | Note, ...]:
        """Sentences about what looks wrong at this point of the run, for example a bound that cannot be met."""
        return ()

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        super().restore(state)
        self._shown = None

    # -- the default run -----------------------------------------------------------------------------------------------

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play episodes, with returns in the columns of out [1+N, n] from `first` on; returns how many, at least 1."""
        self.begin(rng)
        self._show(source.meter)
        totals = self._play_by_steps(source.simulator, rng)
        collect(source.meter, totals)
        out[:, first] = totals
        return 1

    def _act(self, s: int) -> int:
        """The action in state s, noted for the end of the episode."""
        h = self._steps
        a = self.act(h, s)
        self._episode.states[h], self._episode.actions[h] = s, a
        return a

    def _show(self, meter: Meter) -> None:
        """Tell the meter which policy the next episode plays."""
        if meter.every == 0:
            return
        pi = np.ascontiguousarray(self.behaviour(), dtype=float).reshape(-1, self.spec.A)
        changed = self._shown is None or not np.array_equal(pi, self._shown)
        watch(meter, changed, PolicyTable(pi), 1)
        self._shown = pi.copy()

    def _play_by_steps(self, simulator: Simulator, rng: Stream) -> FloatArray:
        """Play one episode: its total reward and utilities [1+N]."""
        H, totals = self.spec.H, np.zeros(1 + self.spec.N)
        s = int(reset(simulator, rng))
        a = self.first(s, rng)
        for h in range(H):
            self._check_action(h, s, a)
            s_next, x = step(simulator, h, s, a, rng)
            s, signals = int(s_next), simulator.outcomes[x].copy()
            totals += signals
            if h + 1 < H:
                a = self.next(signals, s, rng)
        self.last(signals)
        return totals

    def _check_action(self, h: int, s: int, a: int) -> None:
        """Refuse an action that does not exist or is not allowed: compiled code would not notice."""
        if not 0 <= a < self.spec.A or not self.spec.allowed[h, s, a]:
            usable = ", ".join(str(x) for x in np.flatnonzero(self.spec.allowed[h, s]))
            raise CmdpkitError(
                f"{type(self).__name__} chose action {a} at step {h} in state {s} (all counting from 0), where only "
                f"these are allowed: {usable}"
            )


# -- How attributes become arrays, and arrays attributes.


class _Leaf(NamedTuple):
    """One array of a state."""

    name: str  # the names of the attributes that lead to it, joined by "/"
    array: NDArray[Any]  # the array itself, or an array made of the plain value
    grows: bool  # whether a saved array of another length may take its place


def _leaves_of(owner: Saved) -> Iterator[_Leaf]:
    for name, value in _parts(owner).items():
        yield from _leaves(name, value, owner)


def _parts(value: Any) -> dict[str, Any]:
    """The parts of an object or a tuple that change, by name; none if it has no parts."""
    names: Sequence[str]
    if isinstance(value, Saved):
        names = value.changing if value.changing is not None else [x for x in vars(value) if x not in value.fixed]
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
    elif hasattr(value, "_fields"):
        names = value._fields
    else:
        return {str(i): part for i, part in enumerate(value)} if isinstance(value, tuple) else {}
    return {name: getattr(value, name) for name in names}


def _leaves(name: str, value: Any, owner: Saved) -> Iterator[_Leaf]:
    """The arrays of a value, whose names begin with `name`."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
        yield _Leaf(name, value, value.ndim > 0 and (len(value) == 0 or name in owner.growing))
    elif value is None:
        yield _Leaf(name, NOTHING, True)
    elif isinstance(value, PLAIN) and np.array(value).dtype.kind in "biufSU":
        yield _Leaf(name, np.array(value), False)
    elif isinstance(value, list) and len({type(x) for x in value}) <= 1 and isinstance([*value, 0][0], PLAIN):
        yield _Leaf(name, np.array(value), True)
    elif isinstance(value, (Saved, tuple)) or is_dataclass(value):
        for part, x in _parts(value).items():
            if isinstance(value, Counts) and part in COUNT_LISTS:
                yield _Leaf(f"{name}/{part}", x[: value.used[0]], True)
            else:
                yield from _leaves(f"{name}/{part}", x, owner)
    else:
        raise CmdpkitError(
            f"{type(owner).__name__}.{name} is a {type(value).__name__}, which cannot be saved by itself: arrays, "
            "numbers, texts, truth values, lists of one of these, and tuples and dataclasses of all these can. Keep it "
            "in such a form, or write the methods state and restore"
        )


def _check(leaf: _Leaf, state: State) -> None:
    """Raise unless the state has an array that can take the place of this one."""
    expected, found = leaf.array, state.get(leaf.name)
    if found is None:
        raise CmdpkitError(f"state[{leaf.name!r}] has shape missing, expected {expected.shape}")
    if _is_none(found) or expected is NOTHING:
        return
    if expected.ndim > 0 and not leaf.grows and found.dtype.kind != expected.dtype.kind:
        raise CmdpkitError(f"state[{leaf.name!r}] holds {found.dtype}, expected {expected.dtype}")
    longer = leaf.grows and found.ndim == expected.ndim and found.shape[1:] == expected.shape[1:]
    if found.shape != expected.shape and not longer:
        raise CmdpkitError(f"state[{leaf.name!r}] has shape {found.shape}, expected {expected.shape}")


def _is_none(found: NDArray[Any]) -> bool:
    return found.shape == NOTHING.shape and found.dtype == NOTHING.dtype


def _put_back(owner: Any, prefix: str, state: State) -> None:
    """Give the parts of an object the values of a state that was checked."""
    for name, value in _parts(owner).items():
        object.__setattr__(owner, name, _restored(f"{prefix}{name}", value, state))


def _restored(name: str, value: Any, state: State) -> Any:
    """What takes the place of a value; arrays are filled where they are, so that all who share them see it."""
    found = state.get(name, NOTHING)
    if isinstance(value, np.ndarray) and value.shape == found.shape:
        value[...] = found
        return value
    if value is None or isinstance(value, (np.ndarray, *PLAIN)):
        return None if _is_none(found) else found.copy() if found.ndim else found.item()
    if isinstance(value, list):
        return found.tolist()
    if isinstance(value, tuple):
        new = [_restored(f"{name}/{part}", x, state) for part, x in _parts(value).items()]
        return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
    _put_back(value, f"{name}/", state)
    return value
