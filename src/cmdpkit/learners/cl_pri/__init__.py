"""CL-PRI: closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`, arXiv 2309.15395).

Few episodes in, one policy out that keeps its bounds and has at most N stochastic decisions, with a certificate from
its own data. The whole of it, for K episodes with the bounds rho, of which k were played:

    EXPLORE   play what looks best when everything badly known is taken to be good (`play`), until hardly any new action
              is found; at most `exploration` episodes per (state, action), and `exploration_share` of the run
    LOOP      in blocks of `growth` min(k, K - k) episodes
                model <- what the counts suggest
                pi, prices, spare <- repaying_plan(model, rho, debt so far)
                until freeze K: n(h, s, a) <- tries(model, pi, prices, spare)
                play pi; but wherever an action has been tried less than n times, play that action
    HAND OVER at hand_over K: final <- handed_over(model, rho)
    CERTIFY   from then on every other block plays the final policy: betting intervals for its value and utilities

The functions of that name are in this module. `episodes` is the loop, and `continuing` the same idea in worlds without
episodes (long-run averages and discounted totals). A run whose length nobody knows (*anytime*) goes through all this in
stages, each of which doubles the length of the run. Where the world is declared stationary, all steps share their
counts. What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.counts import signal_variances
from cmdpkit.estimate.errors import fill_variance_ahead, plan_errors, squared_errors
from cmdpkit.estimate.margins import HandOver
from cmdpkit.estimate.model import Model, Plan
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.progress import Watch
from cmdpkit.exact.solver import solve_in
from cmdpkit.exact.sources import Horizon
from cmdpkit.learners import Learner, Params, Spec
from cmdpkit.learners._closed_loop import TIE, TINY, Account, owed
from cmdpkit.model.evaluate import action_values, flow
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import MIN_DELTA

HALVINGS = 16  # of the logarithm of a number of tries, which is then known to 0.1 %


@dataclass(frozen=True)
class ClosedLoopParams(Params):
    """Numbers that do not change during a run; one setting for all problems. Prices and totals are in unit scale.

    Where nothing else is said, a number was taken over from the form before, or chosen on the development problems of
    `bench/_suite.py` at 1,000 to 10,000 episodes; finer differences than a factor of two could not be seen.
    """

    delta: float = 0.05  # error probability of the certificate; a convention
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified; a choice, not measured
    # Exploration with episodes.
    exploration: float = 10.0  # episodes of exploration per cell, at most
    exploration_share: float = 0.3  # of the run that exploration may take
    new_cells: float = 0.03  # exploration ends when it finds no more new cells per episode than this
    look: int = 10  # episodes between two sweeps over all values
    widen: float = 0.3  # exploration is looked at whenever it has grown by this share, with an exact plan
    rate: float = 2.0  # of its prices, over H sqrt(its episodes); from the theory of gradient ascent, up to a factor
    price: float = 10.0  # the highest price in exploration, and while no feasible plan is known
    optimism: float = 0.5  # standard errors, and share of what the best known next state would be worth more
    curiosity: float = 0.005  # of the steps left, divided by visits: a bonus where nothing seems to vary
    # The loop with episodes.
    growth: float = 0.1  # a block has this share of the episodes played or left, whichever are fewer
    bonus: float = 0.35  # of the index of tries: from the index of Gittins for normal arms (Brezzi and Lai 2002)
    pseudo: float = 2.0  # visits that the average variance of a step counts as, where an action was tried rarely
    revisit: float = 0.2  # states count as visited at least this share as often as so far, in what is worth a try
    spend: float = 0.5  # of what plans can repay at allowed prices: what tries may cost, together with the debt
    reserve: float = 3.0  # standard deviations of bad luck that are kept in reserve
    steep: float = 2.0  # until `freeze` debts are repaid at this multiple of a bound's own price, at most
    extra: float = 0.05  # plus this
    repay_price: float = 100.0  # and never above this: units of reward per unit of utility; yours to choose
    least: int = 3  # observations without which no plan after `freeze` uses an action
    missed: float = 0.1  # a missed bound counts like this share of the range of values; chosen on the unseen problems
    # Worlds without episodes; chosen on the instances of `bench/continuing.py`.
    prior: float = 1.0  # weight of what other actions of the same state have led to, beside what an action has led to
    unsure: int = 5  # tries up to which the signals of an action count as 1, the best there is, in drawn models
    seldom: int = 100  # tries up to which an action may lead where others of its state have led, in the cautious model
    blocks: int = 1000  # of the whole run; after each of them it is decided how to steer
    margin: float = 4.0  # standard deviations of a block by which the realised utilities shall exceed the bounds
    steering: float = 3.0  # bounds are tightened and loosened by steering / sqrt(t), or by more if needed
    caution: float = 1.0  # standard errors by which the policy handed over shall exceed its bounds
    room: float = 0.8  # share of the room above the bounds that tighter bounds may take
    winning: float = 10.0  # blocks in which a margin can be won
    haste: float = 3.0  # what is missing can be repaid in the rest of the run divided by this
    forgetting: float = 0.05  # weight of a new block in the estimated spread of blocks
    patience: float = 100.0  # steps for which plans wait for what may come, at least; the square root of a long run

    def __post_init__(self) -> None:
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        for name in ("exploration", "widen", "growth", "pseudo", "prior", "steering", "winning", "haste"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in (
            *("new_cells", "rate", "price", "optimism", "curiosity", "bonus", "revisit", "spend", "reserve", "steep"),
            *("extra", "repay_price", "missed", "unsure", "seldom", "margin", "caution", "patience"),
        ):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("look", "least", "blocks"):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        for name in ("room", "forgetting"):
            self._expect(name, 0 < getattr(self, name) <= 1, "above 0, at most 1")
        self._expect("exploration_share", 0 < self.exploration_share <= self.freeze, "above 0, at most freeze")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, "above 0, at most hand_over")
        self._expect("hand_over", self.hand_over < 1, "less than 1")


class ClosedLoopPRI(Learner):
    """CL-PRI at work; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ClosedLoopPRI(Spec.of(cmdp, K=3000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 3000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 3000)
    """

    title = "CL-PRI: our own; plans from counts, steers what is realised to the bounds, one policy with a certificate."
    guarantee = "the certificate of the policy handed over holds with probability 1 - delta; no proved rate of regret"
    paper = "our own, after arXiv 2309.15395"
    source = "ours"
    presets = {"practical": ClosedLoopParams()}
    anytime = True
    certifies = True
    criteria: ClassVar[tuple[str, ...]] = ("horizon", "average", "discounted")
    params: ClosedLoopParams

    def __new__(cls, spec: Spec, **settings: Any) -> ClosedLoopPRI:
        """The loop for episodes, or the one for single steps where the spec has no horizon."""
        if "memory" in settings:
            raise CmdpkitError(
                f"memory is {settings['memory']!r}, but cl-pri has no such parameter any more: it always counts "
                'transitions. What was memory="none" is the algorithm mf-pri; leave memory out, or ask for mf-pri'
            )
        if cls is not ClosedLoopPRI:
            return super().__new__(cls)
        if spec.criterion == "horizon":
            from cmdpkit.learners.cl_pri.episodes import Episodes

            return super().__new__(Episodes)
        from cmdpkit.learners.cl_pri.continuing import Continuing

        return super().__new__(Continuing)


# -- plans -------------------------------------------------------------------------------------------------------------


class Repaying(NamedTuple):
    """A plan that repays the debt, as far as that is not dear."""

    plan: Plan
    spare: FloatArray  # [N]: what tries may cost of each utility, all in all


def solved(pool: Columns[Horizon], model: Model, target: FloatArray) -> Plan:
    """The best policy of the model that reaches the target [N]; if none does, the best compromise."""
    asked = np.where(model.moot, 0.0, target)  # no total is below 0, so a target of 0 asks for nothing
    bounds = {c.name: float(x) for c, x in zip(model.cmdp.constraints, asked, strict=True)}
    try:
        found = solve_in(pool, model.cmdp.with_bounds(**bounds), "auto", Watch())
    except Infeasible as error:
        return Plan(error.policy.pi.copy(), np.zeros(len(target)), error.utilities, False)
    return Plan(found.policy.pi.copy(), found.shadow_prices, found.utilities, True, found.value)


def repaying_plan(model: Model, rho: FloatArray, account: Account, p: ClosedLoopParams, *, settled: bool) -> Repaying:
    """The best plan that exceeds the bounds by what is owed per episode left, as far as that is not dear.

    `gain` is by how much each bound can be exceeded if its utility is bought at the highest price that is allowed. A
    plan close to what is possible has prices that multiply all noise, so that price is low until the run is settled.
    The policies that are bought at a high price owe much of their utility to luck in few visits, and bounds may exclude
    each other. So the reserve, and what tries may cost, count only on `sure`: by how much all bounds can be exceeded at
    once, less `reserve` standard errors.
    """
    pool = Columns(Horizon(model.cmdp))
    plan = solved(pool, model, rho)
    if not plan.feasible or not len(rho):
        return Repaying(plan, np.full(len(rho), np.inf))
    allowed = (
        np.full(len(rho), p.repay_price) if settled else np.minimum(p.steep * plan.prices + p.extra, p.repay_price)
    )
    gain, sure = plan.utilities - rho, plan.utilities - rho
    for n, price in enumerate(allowed):
        weights = np.append(1.0, plan.prices)
        weights[1 + n] = max(price, plan.prices[n])
        _, choice, totals = pool.source.greedy(weights)
        error = plan_errors(model, np.eye(model.cmdp.A)[choice.astype(int)])[n]
        gain[n] = max(gain[n], totals[1 + n] - rho[n])
        sure[n] = max(sure[n], totals[1 + n] - rho[n] - p.reserve * error)
    if len(rho) > 1:
        sure = sure * possible(pool, model, rho, gain)
    wanted = owed(account, spread(model, plan.pi), sure, p.reserve)
    asked = np.minimum(wanted, gain)
    other = solved(pool, model, rho + asked)
    if not other.feasible:  # each bound can be exceeded by so much, but not all of them at once
        other = solved(pool, model, rho + possible(pool, model, rho, asked) * asked)
    return Repaying(other if other.feasible else plan, account.left * (p.spend * sure - wanted))


def possible(pool: Columns[Horizon], model: Model, rho: FloatArray, more: FloatArray) -> float:
    """The share, at most 1, of `more` [N] by which all bounds rho can be exceeded at once, less 1 % for rounding."""
    per = np.maximum(more, max(float(more.max(initial=0.0)) / 1000, TINY)) / pool.units[1:]
    reached = pool.reach(pool.scaled(np.where(model.moot, 0.0, rho)), per)[0]
    return min(1.0, max(0.0, 0.99 * reached))


def spread(model: Model, pi: FloatArray) -> FloatArray:
    """[N]: standard deviation of an episode's utilities in the estimated model, by the law of total variance."""
    cmdp, N = model.cmdp, model.cmdp.N
    q, ahead, found = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu), np.zeros(pi.shape), np.zeros(N)
    for n, g in enumerate(cmdp.compact.g):
        Q, V = action_values(cmdp, g, pi)
        fill_variance_ahead(cmdp, V, ahead)
        noise = signal_variances(model.counts, np.eye(1, 1 + N, 1 + n)[0]).reshape(-1, *pi.shape[1:])
        start = cmdp.mu @ V[0] ** 2 - (cmdp.mu @ V[0]) ** 2
        found[n] = math.sqrt(max(float((q * (ahead + noise + (Q - V[:-1, :, None]) ** 2)).sum() + start), 0.0))
    return found


# -- exploration beside a plan -----------------------------------------------------------------------------------------


class Beside(NamedTuple):
    """The plan that actions are tried beside, and the episodes before and after it."""

    pi: FloatArray  # [H, S, A]
    prices: FloatArray  # [N]
    spare: FloatArray  # [N]: what tries may cost of each utility, all in all
    played: int  # episodes so far
    ahead: int  # episodes in which what is learned will be of use


def tries(model: Model, allowed: BoolArray, beside: Beside, p: ClosedLoopParams) -> IntArray:
    """[H, S, A]: visits up to which an action is worth trying beside a plan; 0 where it is not.

    Every state at a step is a bandit. Its arms are the actions, an arm's mean is its advantage over the plan at the
    prices, and it is pulled as often as the state is visited in the episodes ahead: N times. After n tries an action is
    worth another one while  mean + z sd / sqrt(n) > 0,  with  z = bonus log(1 + N / n).  With a bonus of 0.35 this is
    the index of Gittins for normal arms, within a third. Few tries say little about sd, so the quantile of Student's
    distribution with f = n + pseudo degrees of freedom takes the place of z, about  sqrt(f (exp(z^2 / f) - 1)).  The
    mean is shrunk to what actions beside the plan are worth on average, so an action that was never tried has one as
    well: sd^2 / (variance of these worths) tries are added to n for that.

    One block at most doubles the tries of an action. What they cost of a utility must not exceed `spare`, but the first
    few tries of an action are not held back: what they cost is not known.
    """
    cmdp, pi = model.cmdp, beside.pi
    T, shape = cmdp.kernel.T, pi.shape
    n = np.broadcast_to(model.counts.visits.reshape(T, *shape[1:]), shape)
    c = np.append(1.0, beside.prices)
    found = [action_values(cmdp, x, pi) for x in (cmdp.compact.r, *cmdp.compact.g)]
    effects = [Q - V[:-1, :, None] for Q, V in found]
    advantage = np.tensordot(c, effects, 1)
    variance = squared_errors(model, np.tensordot(c, [V for _, V in found], 1), c, p.pseudo) * np.maximum(n, 1)
    reach = flow(cmdp, pi, np.zeros(shape[:2]), cmdp.mu).sum(axis=-1)
    came = n.sum(axis=-1) / max(beside.played, 1) / (shape[0] if T == 1 else 1)
    visits = beside.ahead * np.maximum(reach, p.revisit * came)[..., None]
    if T == 1:  # what is learned at one step serves all of them
        visits = np.broadcast_to(visits.sum(axis=0, keepdims=True), visits.shape)
    other = model.tried & (pi == 0)
    mean, apart = (float(advantage[other].mean()), float(advantage[other].var())) if other.any() else (0.0, 1.0)
    weight = model.tried * n
    variance = np.where(model.tried, variance, (variance * weight).sum() / max(weight.sum(), 1)) + TINY
    pulls = variance / (apart + TINY)  # what the average is worth, in tries
    shrunk = np.where(model.tried, (n * advantage + pulls * mean) / (n + pulls), mean)
    most = np.minimum(np.ceil(_last_try(shrunk, np.sqrt(variance), visits, p) - pulls), 2 * n + 1)
    more = np.where(allowed & (pi == 0) & model.known[..., None], np.maximum(most - n, 0.0), 0.0)
    for effect, spare in zip(effects[1:], np.maximum(beside.spare, 0.0), strict=True):
        cost = np.where(n < p.least, 0.0, np.maximum(-effect, 0.0))
        total = float((more * cost).sum())
        if total > spare:
            more = np.where(cost > 0, np.floor(more * spare / total), more)
    quota: IntArray = np.where(more > 0, n + more, 0).astype(np.int64)
    return quota


def _last_try(mean: FloatArray, sd: FloatArray, visits: FloatArray, p: ClosedLoopParams) -> FloatArray:
    """The largest n whose index  mean + t sd / sqrt(n)  is positive, by halving; t is explained at `tries`."""
    low, high = np.full(mean.shape, -5.0), np.log(np.maximum(visits, 1.0)) + 3.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        n = np.exp(middle)
        freedom = n + p.pseudo
        t = np.sqrt(freedom * np.expm1((p.bonus * np.log1p(visits / n)) ** 2 / freedom))
        worth = mean + t * sd / np.sqrt(n) > TIE
        low, high = np.where(worth, middle, low), np.where(worth, high, middle)
    found: FloatArray = np.exp(low)
    return found


# -- the policy to hand over -------------------------------------------------------------------------------------------


def handed_over(model: Model, rho: FloatArray, extra: FloatArray, missed: float, z: float) -> HandOver:
    """Among the best plans for the bounds plus 0, 1/2, 1, ... standard errors, the one that is worth most.

    A plan is worth its value, less `missed` of the range of values times the probability that it misses a bound, for
    every bound. The margin comes on top of `extra` [N], or of as much of that as is possible. `uncovered` is what is
    missing to z standard errors.
    """
    pool, nothing = Columns(Horizon(model.cmdp)), np.zeros(len(rho))
    found = HandOver(solved(pool, model, rho), nothing, nothing)
    if not len(rho):
        return found
    if not found.plan.feasible:
        short = rho + z * plan_errors(model, found.plan.pi) - found.plan.utilities
        return found._replace(uncovered=np.maximum(short, 0.0))
    lowest = model._replace(cmdp=model.cmdp.reformulated(r=-model.cmdp.compact.r))
    loss = missed * (solved(pool, model, nothing).value + solved(Columns(Horizon(lowest.cmdp)), lowest, nothing).value)
    extra = extra * next(x for x in (1.0, 0.5, 0.25, 0.0) if solved(pool, model, rho + x * extra).feasible)
    unit, best, short = plan_errors(model, found.plan.pi), -np.inf, nothing
    for margin in (extra + i / 2 * unit for i in count()):
        plan = solved(pool, model, rho + margin)
        errors = np.maximum(plan_errors(model, plan.pi), TINY)
        worth = plan.value - loss * float(ndtr((rho + extra - plan.utilities) / errors).sum())
        if worth <= best or not plan.feasible:
            break
        best, short = worth, np.maximum(rho + z * errors - plan.utilities, 0.0)
        found = HandOver(plan, margin, nothing)
    return found._replace(uncovered=short)
