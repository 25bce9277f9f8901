"""What every learner promises, checked on several small problems; the functions in `CHECKS` are one promise each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Returns, Source, Spec, resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.tolerances import SUM_ORDER
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.running.playing import account_of
from cmdpkit.running.request import Baseline, known_safe
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.meter import EPISODES, EXACT, REALISED
from cmdpkit.simulate.random import Stream, stream
from cmdpkit.simulate.simulator import reset, step
from cmdpkit.testing.environments import ContractBroken, expect, report

# Models to test a learner in.
PROBLEMS: dict[str, Callable[[], CMDP]] = {
    "paper/synthetic": lambda: envs.build("paper/synthetic"),
    "paper/grid": lambda: envs.build("paper/grid"),  # some actions do not exist, and the constraint is an "at most"
    "two constraints": lambda: envs.build("random", S=5, A=3, H=3, N=2, conflict=0.5, seed=3),
    "no constraints": lambda: envs.build("random", S=5, A=2, H=3, N=0, stationary=True, seed=4),
    "deterministic": lambda: envs.build("random", S=5, A=3, H=4, N=1, successors=1, conflict=0.5, seed=6),
}


def check_learner(
    kind: str | type[Learner], *, episodes: int = 150, seed: int = 0, preset: str | None = None, **params: Any
) -> None:
    """Raise `ContractBroken` unless a learner keeps all the promises of a learner, on several small problems.

    Parameters
    ----------
    kind : the class, or its name
    episodes : length of the runs, of which there are about fifty
    seed : of the random numbers
    preset, params : with which the learner is made

    >>> check_learner("dual-q", episodes=30)
    """
    broken: list[str] = []
    for at, (name, problem) in enumerate(PROBLEMS.items()):
        case = Case(resolve(kind), problem(), episodes, seed, preset, params)
        for promise, check in CHECKS.items():
            if promise in WITH_OWN_MODEL and at > 0:
                continue
            try:
                check(case)
            except ContractBroken as error:
                broken.append(str(error))
            except CmdpkitError as error:
                broken.append(f"On the problem {name!r} it raises an error: {error}.")
    report(resolve(kind).__name__, "a learner", broken)


@dataclass
class Case:
    """A learner class and a problem on which its promises are checked."""

    kind: type[Learner]  # the class
    cmdp: CMDP  # the problem
    episodes: int = 150  # length of the runs
    seed: int = 0  # seed of the random numbers
    preset: str | None = None  # the learner's first preset if None
    params: dict[str, Any] = field(default_factory=dict)  # parameters that differ from the preset
    anytime: bool = False  # whether the learner is not told how long the run is

    def learner(self, cmdp: CMDP | None = None, allowed: BoolArray | None = None, told: CMDP | None = None) -> Learner:
        """A new learner for a model; if it needs a safe policy, it is given that of the model `told`."""
        cmdp = cmdp or self.cmdp
        given = {}
        if self.kind.needs:
            safe = self.safe if (told or cmdp) is self.cmdp else known_safe(ModelWorld(told or cmdp))
            given = safe.told(self.kind)
        spec = Spec.of(cmdp, self.episodes, allowed)
        if self.anytime:
            spec = replace(spec, K=max(1, self.episodes // 6), anytime=True)
        return self.kind(spec, preset=self.preset, **given, **self.params)

    def source(self, cmdp: CMDP | None = None) -> Source:
        """A world in which nothing was counted yet; regret is measured against 0."""
        return Source.of(cmdp or self.cmdp, 0.0)

    def rng(self) -> Stream:
        """The random numbers of a run."""
        return stream(self.seed)

    @cached_property
    def safe(self) -> Baseline:
        """The safe policy of the problem, for learners that need one."""
        return known_safe(ModelWorld(self.cmdp))

    @cached_property
    def whole(self) -> Whole:
        """A run in one piece. It is played once, and several checks compare runs of their own with it."""
        learner, source, rng = self.learner(), self.source(), self.rng()
        played = Played.of(learner, learner.run(source, rng, self.episodes), rng)
        return Whole(played, source, learner.behaviour())


class Played(NamedTuple):
    """The results of a run, for comparison with another run."""

    returns: Returns  # of every episode
    rng: Stream  # the random stream after the run
    state: dict[str, NDArray[Any]]  # saved state of the learner
    recommended: FloatArray  # its policy

    @classmethod
    def of(cls, learner: Learner, returns: Returns, rng: Stream) -> Played:
        """Collect the results after a run."""
        return cls(returns, rng, learner.state(), learner.recommend())

    def parts(self) -> dict[str, NDArray[Any]]:
        """All results by name; two runs that should be equal must have equal parts."""
        found: dict[str, NDArray[Any]] = {"rewards": self.returns.reward, "utilities": self.returns.utilities}
        found |= {"random numbers used": self.rng, "policies recommended": self.recommended}
        return found | {f"state[{name!r}]": x for name, x in self.state.items()}

    def expect_same(self, other: Played, sentence: str) -> None:
        """Raise `ContractBroken` with a sentence, and the first part that differs, unless two runs have equal bits."""
        mine, theirs = self.parts(), other.parts()
        names = ", ".join(sorted(mine.keys() ^ theirs.keys()))
        expect(not names, f"{sentence}: names of the saved state ({names}) differ.")
        for name, x in mine.items():
            expect(_same(x, theirs[name]), f"{sentence}: {name} differ.")


class Whole(NamedTuple):
    """A run in one piece, and its results."""

    played: Played  # its results
    source: Source  # its world, with the meter
    behaviour: FloatArray  # the policy of the next episode


def _same(x: NDArray[Any], y: NDArray[Any]) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and bool(np.array_equal(x, y, equal_nan=x.dtype.kind == "f"))


# -- the promises ------------------------------------------------------------------------------------------------------


def policies_are_policies(case: Case) -> None:
    """Behaviour and recommendation are distributions over allowed actions, before, during and after a run."""
    learner, source, rng = case.learner(), case.source(), case.rng()
    for n in (0, 3, case.episodes - 3):
        learner.run(source, rng, n)
        for what, pi in (("behaviour()", learner.behaviour()), ("recommend()", learner.recommend())):
            _expect_policy(what, np.asarray(pi), learner.spec)


def _expect_policy(what: str, pi: NDArray[Any], spec: Spec) -> None:
    shape = (spec.H, spec.S, spec.A)
    expect(pi.shape == shape, f"{what} has shape {pi.shape}, expected (H, S, A) = {shape}.")
    expect(bool(np.isfinite(pi).all() and (pi >= 0).all()), f"{what} has entries that are no probabilities.")
    off = float(np.abs(pi.sum(axis=-1) - 1).max())
    expect(off <= SUM_ORDER, f"{what} has probabilities of a state that do not sum to 1, they are off by {off:.2g}.")
    expect(bool((pi[~spec.allowed] == 0).all()), f"{what} gives probability to actions that are not allowed.")


def behaviour_is_what_it_plays(case: Case) -> None:
    """Every action it takes is allowed, and has a probability in what `behaviour` said before the episode."""
    learner, sim, rng = case.learner(), case.source().simulator, case.rng()
    for _ in range(case.episodes):
        learner.begin(rng)
        pi = learner.behaviour()
        for h, s, a in _episode(learner, sim, rng):
            where = f"at step {h} in state {s} (counting from 0)"
            allowed = 0 <= a < learner.spec.A and bool(learner.spec.allowed[h, s, a])
            expect(allowed, f"It plays action {a} {where}, which is not allowed.")
            expect(pi[h, s, a] > 0, f"It plays action {a} {where}, to which behaviour() gives probability 0.")


def _episode(learner: Learner, sim: Any, rng: Stream) -> list[tuple[int, int, int]]:
    """Play an episode that was begun, step by step, and return its (h, s, a); a forbidden action ends it."""
    s = int(reset(sim, rng))
    a, path = learner.first(s, rng), []
    for h in range(learner.spec.H):
        path.append((h, s, int(a)))
        if not (0 <= a < learner.spec.A and learner.spec.allowed[h, s, a]):
            return path
        s_next, x = step(sim, h, s, a, rng)
        s, signals = int(s_next), sim.outcomes[x].copy()
        if h + 1 < learner.spec.H:
            a = learner.next(signals, s, rng)
    learner.last(signals)
    return path


def confined_it_uses_no_other_action(case: Case) -> None:
    """If every action that is not allowed earns 1 instead of 0.4, a run still earns 0.4 in every step."""
    H, S, A = 3, 5, 3
    random = np.random.default_rng(1)
    allowed = random.random((H, S, A)) < 0.5
    allowed[..., 1] |= ~allowed.any(axis=-1)
    allowed[:, -1] = True  # the state that traps
    P = np.zeros((H, S, A, S))
    P[..., :-1] = random.dirichlet(np.ones(S - 1), (H, S, A))
    P[~allowed] = P[:, -1] = np.eye(S)[-1]
    r = np.where(allowed, 0.4, 1.0)
    r[:, -1] = 1.0
    trap = CMDP(P, r, 1 - r, 0.1, renormalise=True)
    learner = case.learner(trap, allowed, told=trap.restrict(allowed))
    returns = learner.run(Source.of(trap), case.rng(), case.episodes)
    earned = bool(np.allclose(returns.reward, 0.4 * H, rtol=1e-12))
    expect(earned, "Confined to some actions by spec.allowed, it uses others in run().")


def a_run_in_pieces_is_the_whole_run(case: Case) -> None:
    """run(n) is n times run(1): neither the learner nor the meter depends on how a run is cut."""
    expected, source, _ = case.whole
    pieces, other, again = case.learner(), case.source(), case.rng()
    sizes = (1, 0, 7, case.episodes // 3)
    parts = [pieces.run(other, again, n) for n in (*sizes, case.episodes - sum(sizes))]
    joined = Returns(np.concatenate([x.reward for x in parts]), np.concatenate([x.utilities for x in parts], axis=1))
    expected.expect_same(Played.of(pieces, joined, again), "A run in pieces is not the whole run")
    updated = ("reach", "values", "sums", "clock")  # by the meter as it is told
    same = all(_same(getattr(source.meter, name), getattr(other.meter, name)) for name in updated)
    expect(same, "A run in pieces shows the meter other policies than the whole run.")


def it_continues_from_a_saved_state(case: Case) -> None:
    """Saved in the middle and restored into a fresh learner, a run ends with the same bits."""
    half, whole = case.episodes // 2, case.whole.played
    tail = Returns(whole.returns.reward[half:], whole.returns.utilities[:, half:])
    first, second, again = case.learner(), case.learner(), case.rng()
    first.run(case.source(), again, half)
    saved = first.state()
    first.run(case.source(), stream(case.seed + 1), 5)  # the saved state must be a copy
    second.restore(saved)
    found = Played.of(second, second.run(case.source(), again, case.episodes - half), again)
    whole._replace(returns=tail).expect_same(found, "Restored from its state, it goes on in another way")


def a_state_that_does_not_fit_changes_nothing(case: Case) -> None:
    """A state without one of its arrays, or with one of another shape, is refused as a whole."""
    learner, fresh = case.learner(), case.learner()
    learner.run(case.source(), case.rng(), case.episodes // 2)
    state, before = learner.state(), fresh.state()
    expect(bool(state), "state() is empty: a run could not be resumed.")
    last = list(state)[-1]
    for bad in ({}, {last: np.zeros((1, 2, 3, 4, 5))}):
        try:
            fresh.restore({name: x for name, x in state.items() if name != last} | bad)
        except CmdpkitError:
            now = fresh.state()
            same = now.keys() == before.keys() and all(_same(x, now[name]) for name, x in before.items())
            expect(same, "It refuses a state that does not fit, but has changed by then.")
        else:
            raise ContractBroken(f"It accepts a state whose {last!r} is missing or of another shape.")


def run_does_what_single_steps_do(case: Case) -> None:
    """If a learner has its own `run`, it does the same as `first`, `next` and `last`, to the bit."""
    expected, source, behaviour = case.whole
    slow, other, again = case.learner(), case.source(), case.rng()
    returns = Learner.run(slow, other, again, case.episodes)
    for x, y in zip(returns, expected.returns, strict=True):  # a sum over steps may be added up in another order
        same = x.shape == y.shape and bool(np.allclose(x, y, rtol=0, atol=SUM_ORDER))
        expect(same, "run() earns other returns than single steps do.")
    single = Played.of(slow, expected.returns, again)
    expected.expect_same(single, "run() does not do what first, next and last do")
    expect(_same(behaviour, slow.behaviour()), "After run() it plays on in another way than after single steps.")
    if source.meter.every == 1:
        told, truth = source.meter.sums[EXACT], other.meter.sums[EXACT]
        expect(bool(np.allclose(told, truth, rtol=1e-6)), "run() tells the meter other policies than behaviour() says.")


def returns_are_what_was_earned(case: Case) -> None:
    """There is one return per episode, between 0 and H, and the meter has counted the same returns."""
    (played, source, _), n = case.whole, case.episodes
    totals, shape = np.vstack(played.returns), (1 + case.cmdp.N, n)
    expect(totals.shape == shape, f"run() returns totals of shape {totals.shape}, expected (1 + N, n) = {shape}.")
    inside = bool((totals >= -SUM_ORDER).all() and (totals <= case.cmdp.H + SUM_ORDER).all())
    expect(inside, "run() returns totals outside of 0 .. H.")
    counted = int(source.meter.clock[EPISODES]) == n
    same = bool(np.allclose(source.meter.sums[REALISED], totals.sum(axis=1), rtol=1e-6))
    expect(counted and same, "run() does not tell the meter what the episodes have earned.")


def the_seed_decides(case: Case) -> None:
    """The same random numbers give the same run."""
    learner, rng = case.learner(), case.rng()
    again = Played.of(learner, learner.run(case.source(), rng, case.episodes), rng)
    case.whole.played.expect_same(again, "Two runs with the same seed are not the same")


def a_source_of_another_size_is_refused(case: Case) -> None:
    """A source of another size than the spec says is refused, because compiled code would not notice it."""
    other = envs.build("random", S=7, A=4, H=2, N=1, seed=5)
    learner = case.learner()
    try:
        learner.run(Source.of(other), case.rng(), 1)
    except CmdpkitError:
        return
    raise ContractBroken("run() accepts a source of another size than its spec says.")


def it_is_blind_to_what_it_has_not_seen(case: Case) -> None:
    """Where the model is changed in cells (h, s, a) that a run never came to, the run stays the same, to the bit."""
    random, (H, S, A), n = np.random.default_rng(2), (3, 12, 3), 25
    P = random.dirichlet(np.full(S, 0.2), (H, S, A))
    r, g = 0.1 + 0.8 * random.random((2, H, S, A))

    def model(P: FloatArray, r: FloatArray, g: FloatArray) -> CMDP:
        return CMDP(P, r, g, 1.5, mu=np.full(S, 1 / S), renormalise=True)

    truth = model(P, r, g)
    short = Case(case.kind, truth, n, case.seed, case.preset, case.params)
    walker, rng, seen = short.learner(), short.rng(), set()
    for _ in range(n):
        walker.begin(rng)
        seen.update(_episode(walker, short.source().simulator, rng))
    unseen = np.ones((H, S, A), dtype=bool)  # 75 steps cannot have been to all of these 108 cells
    unseen[tuple(np.transpose(sorted(seen)))] = False
    P2 = np.where(unseen[..., None], np.roll(P, 1, axis=-1), P)
    r2, g2 = np.where(unseen, 1.0, r), np.where(unseen, 0.0, g)
    changed = _blind_run(short, model(P2, r2, g2), truth)
    sentence = "It looks at the model, which was changed where the run has never been"
    _blind_run(short, truth, truth).expect_same(changed, sentence)


def _blind_run(case: Case, cmdp: CMDP, truth: CMDP) -> Played:
    learner, rng = case.learner(cmdp, told=truth), case.rng()
    return Played.of(learner, learner.run(case.source(cmdp), rng, case.episodes), rng)


def its_internals_fit_into_a_record(case: Case) -> None:
    """What a learner says about its run can be computed and saved; otherwise a record would be made without it."""
    learner = case.learner()
    learner.run(case.source(), case.rng(), case.episodes)
    missing = account_of(ModelWorld(case.cmdp), learner, learner.recommend(), case.seed).missing
    expect(not missing, f"After a run, {'; '.join(missing)}.")


def anytime_run_matches_fixed_length(case: Case) -> None:
    """A learner that says it can go on for any time keeps the promises about pieces, states and steps there too.

    With some parameters it may refuse to do so.
    """
    open_ended = replace(case, anytime=True)
    try:
        if not case.kind.anytime or not open_ended.learner().anytime:
            return
    except CmdpkitError:
        return
    for check in (a_run_in_pieces_is_the_whole_run, it_continues_from_a_saved_state, run_does_what_single_steps_do):
        check(open_ended)


CHECKS: dict[str, Callable[[Case], None]] = {
    check.__name__: check
    for check in (
        policies_are_policies,
        behaviour_is_what_it_plays,
        confined_it_uses_no_other_action,
        returns_are_what_was_earned,
        the_seed_decides,
        a_run_in_pieces_is_the_whole_run,
        it_continues_from_a_saved_state,
        a_state_that_does_not_fit_changes_nothing,
        run_does_what_single_steps_do,
        it_is_blind_to_what_it_has_not_seen,
        a_source_of_another_size_is_refused,
        its_internals_fit_into_a_record,
        anytime_run_matches_fixed_length,
    )
}
# These bring models of their own, so one problem is enough.
WITH_OWN_MODEL = (
    "confined_it_uses_no_other_action",
    "it_is_blind_to_what_it_has_not_seen",
    "a_source_of_another_size_is_refused",
)
