"""What a single episode brings: the distribution of every total, by simulation, and exactly where totals are counted.

Bounds hold on average. `simulate_policy` plays many episodes of a policy, and says how totals spread. Where a signal is
always a multiple of a unit (a cost in whole euros, jobs in a queue), `exact_distribution` carries the probabilities of
all totals through the model instead, so that nothing is left to chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled, njit
from cmdpkit.model.fits import check_fits
from cmdpkit.model.functions import LOOSE, Form, FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE, ON_GRID
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.model.validate import check_length, check_seed, index_of, is_int
from cmdpkit.operators.chains import absorbing_states, chain_of
from cmdpkit.operators.policies import evaluate
from cmdpkit.simulate.random import Stream, generator, stream, uniform
from cmdpkit.simulate.simulator import Noise, Simulator, reset, step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- Episodes of a fixed policy, one by one: what each of them earns.


class Rollout(NamedTuple):
    """Episodes played one by one, in unit scale."""

    reward: FloatArray  # [n], total reward of each episode
    utilities: FloatArray  # [N, n], total utilities of each episode


def play_episodes(sim: Simulator, policy: Policy, rng: Stream, n: int, *, discount: float = 1.0) -> Rollout:
    """n episodes of a policy that fits the simulator. What is earned at step h counts discount^h times.

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/grid")
    >>> played = play_episodes(Simulator.of(cmdp), Policy.uniform(cmdp), stream(1), 1000)
    >>> played.reward.shape, played.utilities.shape
    ((1000,), (1, 1000))
    """
    decisions = policy.decisions
    totals = np.zeros((sim.outcomes.shape[1], n))
    _play(sim, decisions._replace(p=np.cumsum(decisions.p, axis=1)), rng, float(discount), totals)
    return Rollout(totals[0], totals[1:])


@compiled
def _play(sim, decisions, rng, discount, totals):
    """Episodes of a policy, one per column of totals [1+N, n]; decisions.p holds cumulative probabilities here.

    Every step takes one random number for the action, whether the decision draws or not.
    """
    for k in range(totals.shape[1]):
        s = reset(sim, rng)
        weight = 1.0
        for h in range(sim.H):
            a = _action(decisions, h, s, uniform(rng))
            s, x = step(sim, h, s, a, rng)
            for n in range(len(totals)):
                totals[n, k] += weight * sim.outcomes[x, n]
            weight *= discount


@compiled(inline=True)
def _action(decisions, h, s, u):
    """The action at step h in state s for a number u in [0, 1)."""
    t, s = np.int64(h) if len(decisions.choice) > 1 else np.int64(0), np.int64(s)  # h % T, which takes longer
    low, high = decisions.first[t], decisions.first[t + 1]
    last = high
    if high - low == decisions.choice.shape[1]:  # every state draws
        low = high = low + s
    while low < high:  # the first row of this step whose state is not below s
        middle = (low + high) // 2
        if decisions.s[middle] < s:
            low = middle + 1
        else:
            high = middle
    if low == last or decisions.s[low] != s:
        return np.int64(decisions.choice[t, s])
    a = 0
    u *= decisions.p[low, -1]
    while decisions.p[low, a] <= u:
        a += 1
    return a


Z = 1.959963984540054  # the normal quantile of a two-sided interval of 95 %
MAX_CELLS = 20_000_000  # states times possible totals that an exact distribution may need
MAX_DENOMINATOR = 1_000  # largest denominator of a unit, as a share of the largest signal
LEFT_OUT = 1e-6  # without a horizon: weight of the steps that are not played, or probability that a run goes on
AVERAGED_STEPS = 1_000  # steps of a run where averages count
MAX_STEPS = 10_000_000  # steps of a run
MAX_SIMULATED = 1_000_000_000  # episodes whose totals are kept, 8 bytes for each of them


class TotalShare(NamedTuple):
    """A probability with its interval of 95 %."""

    estimate: float  # share of the episodes
    low: float  # lower end of the interval
    high: float  # upper end of the interval


@dataclass(frozen=True, eq=False)
class Simulation(Shown):
    """Totals of many episodes, in the user's units and by the model's criterion.

    Without a horizon an episode is a run of ``steps`` steps: its discounted total, its mean per step, or its total.
    """

    cmdp: CMDP | FunctionModel  # the model in which they were played
    policy: Policy | Any  # that was played
    totals: dict[str, FloatArray]  # by name, "reward" first: the total of every episode
    steps: int  # number of steps of an episode
    left_out: float = 0.0  # the weight of all later steps, or for totals the probability that a run was not yet over
    of_means: tuple[str, ...] = ()  # totals of signals that are known by their means alone: outcomes vary more

    def plot(self, *, size: float | tuple[float, float] | None = None, ax: Any = None) -> Figure:
        """A matplotlib figure: a histogram of every total, with its mean and its bound.

        ``size`` is the width in inches, or width and height; ``ax`` are axes to draw into, one for each total.
        """
        return showing.draw(self, size=size, ax=ax)

    @property
    def episodes(self) -> int:
        """How many episodes were played."""
        return len(self.totals["reward"])

    def above(self, name: str, limit: float) -> TotalShare:
        """Probability that the total of an episode exceeds a limit, with an interval of 95 % (Wilson's)."""
        return self._share(int((self._of(name) > limit + _rounding(limit)).sum()))

    def below(self, name: str, limit: float) -> TotalShare:
        """Probability that the total of an episode falls short of a limit, with an interval of 95 % (Wilson's)."""
        return self._share(int((self._of(name) < limit - _rounding(limit)).sum()))

    def _share(self, k: int) -> TotalShare:
        n = self.episodes
        centre, half = (k + Z * Z / 2) / (n + Z * Z), Z * math.sqrt(k * (n - k) / n + Z * Z / 4) / (n + Z * Z)
        return TotalShare(k / n, max(centre - half, 0.0), min(centre + half, 1.0))

    def _of(self, name: str) -> FloatArray:
        return list(self.totals.values())[index_of("total", list(self.totals), name)]


def simulate_policy(
    cmdp: CMDP | FunctionModel,
    policy: Policy | Any,
    episodes: int = 100_000,
    *,
    seed: int = 0,
    noise: Noise = "none",
    steps: int | None = None,
) -> Simulation:
    """Play episodes of a policy in the model, and keep the totals of each.

    Signals are drawn from the outcomes of the model. Those that it knows by their means alone count with their means at
    every step, so that their totals vary too little: ``of_means`` of the result names them.

    Parameters
    ----------
    cmdp, policy : the model, and a policy that fits it; for a model by functions, a policy that `solve` found. Such
        models know the means of their signals alone
    episodes : how many are played
    seed : of the random numbers
    noise : "bernoulli" to draw every signal as 0 or 1 of its range, with the model's value as its mean
    steps : only without a horizon, how long an episode is. By default, 1,000 steps where long-run averages count; and
        as many that a share of 1e-6 is left out where discounted totals or totals until absorption count; the result
        has that share as ``left_out``.

    >>> import cmdpkit as ck
    >>> cmdp = ck.load("paper/synthetic")
    >>> played = simulate_policy(cmdp, ck.Policy.uniform(cmdp), 10_000)
    >>> list(played.totals), bool(abs(played.totals["reward"].mean() - 1.275) < 0.02)
    (['reward', 'utility'], True)
    """
    check_seed(seed)
    check_length("episodes", episodes, MAX_SIMULATED)
    if isinstance(cmdp, FunctionModel):
        if noise != "none":
            raise CmdpkitError(f"noise is {noise!r}, which is not for models by functions; leave it out")
        return _simulated(cmdp, policy, int(episodes), seed, steps)
    check_fits(cmdp, policy)
    length, left_out = _run_length(cmdp, policy, steps)
    sim, discount = Simulator.lasting(cmdp, length, noise), cmdp.criterion.discount or 1.0
    lasting = policy.repeated(length) if policy.is_stationary else policy
    played = play_episodes(sim, lasting, stream(seed), int(episodes), discount=discount)
    weights = length if discount == 1 else (1 - discount**length) / (1 - discount)
    per = length if cmdp.criterion.kind == "average" else 1
    totals = [cmdp.reward_scale.total_from_unit(played.reward, weights) / per]
    for c, scale, utility in zip(cmdp.constraints, cmdp.utility_scales, played.utilities, strict=True):
        totals.append(c.sign * (scale.total_from_unit(utility, weights) / per) + 0.0)
    of_means = cmdp.of_means if noise == "none" else ()
    return Simulation(cmdp, policy, dict(zip(cmdp.signal_names, totals, strict=True)), length, left_out, of_means)


def _simulated(model: FunctionModel, policy: Any, episodes: int, seed: int, steps: int | None) -> Simulation:
    """Episodes of a policy of a model by functions; the part of a mixture is drawn at the start of each."""
    model.check_policy(policy)
    length, left_out = _run_length(model, policy, steps)
    rng, form, discount = stream(seed), model.form(), model.criterion.discount or 1.0
    starts = np.array([form.encode(x) for x in model.start]), np.cumsum(list(model.start.values()))
    noise = tuple(part.to for part in model.noise), tuple(part.p for part in model.noise)
    played, totals = generator(rng).multinomial(episodes, policy.weights), np.zeros((model.K, episodes))
    order, ends = generator(rng).permutation(episodes), np.cumsum(played)
    for part, first, last in zip(policy.parts, ends - played, ends, strict=True):
        found = np.zeros((model.K, last - first))
        _player(form, bool(noise[0]))(part.choice, part.drawn(), starts, noise, length, discount, rng, found)
        totals[:, order[first:last]] = found / (length if model.criterion.kind == "average" else 1)
    names = ("reward", *(c.name for c in model.constraints))
    return Simulation(model, policy, dict(zip(names, totals, strict=True)), length, left_out, names)


@lru_cache(maxsize=8)
def _player(form: Form, factored: bool) -> Any:
    """Compile episodes of a policy of a model by functions, one per column of totals [1 + N, n]."""
    step, collect, after, decode, encode = form.step, form.collect, form.after, form.decode, form.encode
    events, space, K = form.events, form.space, form.K

    @njit(**LOOSE)
    def action(choice, drawn, h, s, rng):
        t = min(h, len(choice) - 1)
        taken, left = np.int64(choice[t, s]), -1.0
        for i in range(len(drawn[0])):  # the decisions that draw, of which there are at most N
            if drawn[0][i, 0] == t and drawn[0][i, 1] == s:
                left = (uniform(rng) if left < 0.0 else left) - drawn[1][i]
                taken = drawn[0][i, 2]
                if left < 0.0:
                    break
        return taken

    @njit(**LOOSE)
    def moved(y, to, p, rng):
        s = 0
        for i in range(len(space)):
            u, w = uniform(rng), 0
            while w < p[i].shape[1] - 1 and u >= p[i][y[i], w]:
                u -= p[i][y[i], w]
                w += 1
            s = s * space[i] + to[i][y[i], w]
        return s

    @njit(**LOOSE)
    def happened(x, a, rng):
        u, s = uniform(rng), 0
        for e in range(events):
            then, p = step(x, a, e)
            if p > 0.0:
                s = encode(then)
                if u < p:
                    break
                u -= p
        return s

    @njit(**LOOSE)
    def play(choice, drawn, starts, noise, length, discount, rng, totals):
        for n in range(totals.shape[1]):
            s = starts[0][min(np.searchsorted(starts[1], uniform(rng), side="right"), len(starts[0]) - 1)]
            weight = 1.0
            for h in range(length):
                x, a = decode(s), action(choice, drawn, h, s, rng)
                own = collect(x, a)
                for k in range(K):
                    totals[k, n] += weight * own[k]
                if factored:
                    y = step(x, a, 0)[0]
                    more = after(y)
                    for k in range(K):
                        totals[k, n] += weight * more[k]
                    s = moved(y, noise[0], noise[1], rng)
                else:
                    s = happened(x, a, rng)
                weight *= discount

    return play


def _run_length(cmdp: CMDP | FunctionModel, policy: Policy, steps: int | None) -> tuple[int, float]:
    """Steps of a run, which may be given where there is no horizon, and the weight of what comes after it."""
    if steps is not None and (cmdp.criterion.has_horizon or not is_int(steps) or steps < 1):
        horizon = cmdp.criterion.horizon
        rule = f"none: the model has {horizon} steps" if horizon else "a whole number, at least 1"
        raise CmdpkitError(f"steps is {quoted(steps)}, expected {rule}")
    if cmdp.criterion.has_horizon:
        return int(cmdp.criterion.horizon or 0), 0.0
    if cmdp.criterion.kind == "average":
        return steps or AVERAGED_STEPS, 0.0
    discount = cmdp.criterion.discount
    if discount is not None:
        length = steps or math.ceil(math.log(LEFT_OUT) / math.log(discount))
        if length > MAX_STEPS:
            raise CmdpkitError(
                f"a discount of {discount!r} needs runs of {length:,} steps, expected at most {MAX_STEPS:,}; give "
                "their length, steps=..."
            )
        return length, discount**length
    assert isinstance(cmdp, CMDP)  # models by functions have no totals
    return _until_absorbed(cmdp, policy, steps)


def _until_absorbed(cmdp: CMDP, policy: Policy, steps: int | None) -> tuple[int, float]:
    """The number of steps after which almost every run has ended, and the probability that one goes on."""
    P, going = chain_of(cmdp, policy.table(0)).T.tocsr(), ~absorbing_states(cmdp)
    d = np.array(cmdp.mu)
    if steps is None:
        evaluate(cmdp, policy)  # which refuses a policy that need not be absorbed
    for taken in range(steps or MAX_STEPS):
        left = float(d[going].sum())
        if steps is None and left <= LEFT_OUT:
            return max(taken, 1), left
        d = P @ d
    if steps is None:
        raise CmdpkitError(
            f"after {MAX_STEPS:,} steps a run is not over with probability {left:.2g}, expected {LEFT_OUT:g} at most; "
            "give the length of runs, steps=..."
        )
    return steps, float(d[going].sum())


class Distribution(NamedTuple):
    """All totals that an episode can have, and their probabilities."""

    totals: FloatArray  # the possible totals, rising
    probabilities: FloatArray  # the probability of each

    def above(self, limit: float) -> float:
        """Probability that the total of an episode exceeds a limit."""
        return float(self.probabilities[self.totals > limit + _rounding(limit)].sum())

    def below(self, limit: float) -> float:
        """Probability that the total of an episode falls short of a limit."""
        return float(self.probabilities[self.totals < limit - _rounding(limit)].sum())


def _rounding(limit: float) -> float:
    """Totals may miss a number that they should be equal to by this much."""
    if isinstance(limit, bool) or not isinstance(limit, (int, float, np.number)) or limit != limit:
        raise CmdpkitError(f"limit is {quoted(limit)}, expected a number, in the units of the total")
    return ON_GRID * max(1.0, abs(limit))


def exact_distribution(
    cmdp: CMDP, policy: Policy, name: str = "reward", *, of_means: bool = False
) -> Distribution | None:
    """The exact distribution of a total; None where its signal is no multiple of a unit, or there are too many totals.

    ``name`` is "reward", or the name of a constraint; one that is called reward is "reward (constraint)" here. Of a
    signal that is known by its mean alone (`CMDP.of_means`), single episodes are not known: that is refused, unless
    ``of_means`` asks for the distribution of the means that an episode passes through.

    >>> import cmdpkit as ck
    >>> coin = ck.CMDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [2.0]], horizon=3, exact=True)
    >>> found = exact_distribution(coin, ck.Policy.uniform(coin))
    >>> found.totals.tolist(), found.probabilities.tolist()
    ([0.0, 2.0, 4.0], [0.25, 0.5, 0.25])
    """
    check_fits(cmdp, policy)
    cmdp.need_horizon("the distribution of totals")
    m = index_of("total", cmdp.signal_names, name)
    if name in cmdp.of_means and not of_means:
        raise CmdpkitError(
            f"the distribution of {quoted(name)} is not known: the model has only its means, and outcomes vary more; "
            "make the model with signals of s_next or with outcome=, or with exact=True if nothing varies; or ask for "
            "the distribution of means, of_means=True"
        )
    rows, values = _collected(cmdp, m)
    used = np.broadcast_to(cmdp.compact.allowed.any(axis=0), values.shape) if cmdp.outcomes is None else slice(None)
    unit, low = _unit(values[used])
    if unit is None:
        return None
    counts = np.maximum(np.rint((values - low) / unit), 0).astype(np.int64)
    width = int(counts.max()) * cmdp.H + 1
    if width * cmdp.S > MAX_CELLS:
        return None
    mass = _carried(cmdp, policy.pi, rows, counts, width)
    reached = np.flatnonzero(mass > 0)
    return Distribution(np.asarray(low * cmdp.H + unit * reached, dtype=np.float64), mass[reached])


def _collected(cmdp: CMDP, m: int) -> tuple[Kernel, FloatArray]:
    """What may follow in a step, and the m-th signal in the user's sense: [outcomes], or [T, S, A] without them."""
    if cmdp.outcomes is not None:
        drawn = cmdp.outcomes.masked(cmdp.compact.allowed)
        return drawn.entries, drawn.signals[:, m]
    signal = cmdp.compact.r if m == 0 else cmdp.constraints[m - 1].sign * cmdp.compact.g[m - 1]
    return cmdp.kernel, signal + 0.0


def _unit(values: FloatArray) -> tuple[float | None, float]:
    """The largest unit of which all differences from the smallest value are multiples, and that smallest value."""
    low, high = float(values.min()), float(values.max())
    if high == low:
        return 1.0, low
    gaps = np.unique(values - low)[1:]
    for parts in range(1, MAX_DENOMINATOR + 1):
        unit = float(gaps[0]) / parts
        if np.abs(gaps / unit - np.rint(gaps / unit)).max() < ON_GRID * parts:
            return unit, low
    return None, low


def _carried(cmdp: CMDP, pi: FloatArray, rows: Kernel, counts: IntArray, width: int) -> FloatArray:
    """[width]: probabilities of the totals, in units, after the last step; counts are [outcomes] or [T, S, A].

    This is no `flow` of the operators: mass [S, width] moves along the totals too, by what each outcome brings.
    """
    mass = np.zeros((cmdp.S, width))
    mass[:, 0] = cmdp.mu
    for h in range(cmdp.H):
        later = np.zeros_like(mass)
        for s in np.flatnonzero(mass.any(axis=1)).tolist():
            for a in np.flatnonzero(pi[h, s] > NEGLIGIBLE).tolist():
                moved = pi[h, s, a] * mass[s]
                entries = rows.entries(h, s, a)
                for i in range(entries.start, entries.stop):
                    k = counts[i] if counts.ndim == 1 else counts[h % len(counts), s, a]
                    later[rows.successors[i], k:] += rows.prob[i] * moved[: width - k]
        mass = later
    total: FloatArray = mass.sum(axis=0)
    return total
