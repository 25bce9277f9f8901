"""What the paper claims, each with a verdict and the figures behind it.

A claim holds if the whole 95 % interval over seeds says so, fails if the whole interval says the opposite, and is
undecided otherwise. What "the same" means is in `cmdpkit.results.published`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from cmdpkit.model.transitions import FloatArray
from cmdpkit.paper import experiments
from cmdpkit.paper.experiments import GRID, LENGTHS, SYNTHETIC, end, groups_of, over_seeds, read, utility
from cmdpkit.paper.lower_bound import H, LowerBound
from cmdpkit.records.record import RunRecord
from cmdpkit.results.groups import Group
from cmdpkit.results.published import FAILS, HOLDS, UNDECIDED, Claim, Kind, Verdict, below, ends
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.wording import short, span

ROOT_GROWTH = (0.4, 0.6)  # exponents of K that count as growth like sqrt K
PRINTED_GAP = 0.012  # optimum minus value of the printed policy, 1.573 - 1.561
DIGIT = 0.0005  # half a unit of the last digit of both
IDENTIFIED = (  # the identified policy of the paper: actions with a positive probability at (step, state), from 1
    ((2, 3), (3,), (1,)),
    ((1,), (3,), (3,)),
    ((1,), (1,), (2,)),
)
PRICE = 4 / 3  # of utility on the lower-bound problem with p = 1/2: 2 / (1 + p)
VACUOUS = Verdict("vacuous", None)


def claims_of(groups: Sequence[Group], bounds: Sequence[LowerBound]) -> tuple[Claim, ...]:
    """The claims that the runs at hand can be held against, in the order of the paper."""
    made: list[Claim] = []
    for env in (SYNTHETIC, GRID):
        found = {(group.run.algo, group.run.preset): group for group in groups_of(groups, env)}
        if ("pri", "printed") in found:
            made += _experiment(env, found["pri", "printed"], found.get(("triple-q", "authors")))
    made += _growth(groups)
    made += _cancellation(groups)
    made += _theory(groups)
    return (*made, *_lower_bound(bounds))


# -- the two experiments -----------------------------------------------------------------------------------------------


def _experiment(env: str, pri: Group, triple_q: Group | None) -> list[Claim]:
    """Regret, violation and the policy of one experiment."""
    kind: Kind = "fitted" if env == SYNTHETIC else "reconstruction"
    claims = []
    if triple_q is not None:
        claims.append(_fraction(env, pri, triple_q, kind))
    kept = seed_mean(over_seeds(pri, end("violation")))
    published = "-80,000 after 8,000,000" if env == SYNTHETIC else "-6,510"
    said = _shown(kept)
    if env == SYNTHETIC:
        kept = seed_mean(over_seeds(pri, read("violation", env)))
        said = f"{_shown(kept)} after {experiments.READ_AT[env]:,}"
    verdict = below(kept, 0.0, certain=pri.deterministic)
    claims.append(Claim(env, "The violation of PRI ends at or below zero.", published, said, verdict, kind))
    claims.append(_close(env, pri, kind))
    claims.append(_one_draw(env, pri, kind))
    claims.append(_policy(pri, kind) if env == SYNTHETIC else _needed_actions(pri))
    return claims


def _fraction(env: str, pri: Group, triple_q: Group, kind: Kind) -> Claim:
    """The ratio of both regrets, with an interval that holds whatever their dependence."""
    measure = read("regret", env) if env == SYNTHETIC else end("regret")
    ours, theirs = (seed_mean(over_seeds(group, measure)) for group in (pri, triple_q))
    published = "4.4 % (68,900 of 1,570,000)" if env == SYNTHETIC else "5.3 % (169,000 of 3,190,000)"
    (low, high), (low_tq, high_tq) = ends(ours), ends(theirs)
    said = f"{100 * ours.mean / theirs.mean:.2g} % ({short(ours.mean)} of {short(theirs.mean)}, authors' constants)"
    certain = all(group.deterministic or len(group.samples) > 1 for group in (pri, triple_q))
    verdict = UNDECIDED if not certain else HOLDS if high < low_tq else FAILS if low > high_tq else UNDECIDED
    text = "PRI's regret is a small fraction of that of Triple-Q over as many episodes."
    return Claim(env, text, published, said, verdict, kind)


def _close(env: str, pri: Group, kind: Kind) -> Claim:
    """Value and bound of the policy handed over."""
    missing = seed_mean(over_seeds(pri, lambda record: experiments.optimum(record) - experiments.value(record)))
    miss = over_seeds(pri, _missed)
    limit = PRINTED_GAP + DIGIT if env == SYNTHETIC else 0.001162 + 2 * DIGIT
    verdict = below(missing, limit, certain=pri.deterministic)
    if miss.max() > 0 and verdict is HOLDS:
        verdict = FAILS
    name = "utility" if env == SYNTHETIC else "cost"
    said = f"{_shown(missing)} below, {name} {_shown(seed_mean(over_seeds(pri, utility)))}"
    published = "0.012 below, utility 2.016" if env == SYNTHETIC else "0.001 below, cost 0.499"
    text = "One policy comes out, that close to the optimum, and it keeps the bound."
    return Claim(env, text, published, said, verdict, kind)


def _missed(record: RunRecord) -> float:
    """By how much the policy handed over misses its bound; negative if it keeps it."""
    constraint = record.constraints[0]
    return float(constraint.sign * (constraint.bound - utility(record)))


def _one_draw(env: str, pri: Group, kind: Kind) -> Claim:
    number = over_seeds(pri, experiments.draws)
    said = f"1 in {int((number == 1).sum())} of {len(number)} runs"
    verdict = HOLDS if (number == 1).all() else FAILS
    return Claim(env, "The policy has one stochastic decision.", "1", said, verdict, kind)


def _policy(pri: Group, kind: Kind) -> Claim:
    same = np.array([_same_support(record) for record in pri.samples])
    p = seed_mean(over_seeds(pri, experiments.second_action))
    said = f"all nine in {int(same.sum())} of {len(same)} runs; action 2 at (1, 1) {_shown(p)}"
    published = "the table of nine; action 2 at (1, 1) 0.0593"
    text = "The identified policy: all nine decisions."
    return Claim(SYNTHETIC, text, published, said, HOLDS if same.all() else FAILS, kind)


def _same_support(record: RunRecord) -> bool:
    pi = record.policy.pi
    taken = [[tuple((np.flatnonzero(row > 0) + 1).tolist()) for row in step] for step in pi]
    return taken == [list(step) for step in IDENTIFIED]


def _needed_actions(pri: Group) -> Claim:
    left = over_seeds(pri, experiments.actions_left("now"))
    verdict = HOLDS if (left == 151).all() else FAILS
    text = "Pruning leaves the 6 x 5 x 5 + 1 actions that are needed."
    return Claim(GRID, text, "151 (printed as 155)", _shown(seed_mean(left)), verdict, "reconstruction")


# -- growth, cancellation, theory --------------------------------------------------------------------------------------


def _growth(groups: Iterable[Group]) -> list[Claim]:
    found = _by_length(groups, drawn=False)
    if len(found) < 2:
        return []
    b = _exponent(found, end("regret"))
    said = f"exponent {_shown(b)} for K from {LENGTHS[0]:,} to {LENGTHS[-1]:,}"
    text = "The regret of PRI grows like sqrt K."
    said += "; most of it is the tightening"
    return [Claim(SYNTHETIC, text, "order H sqrt K, up to logarithms", said, _like_root(b), "fitted")]


def _cancellation(groups: Iterable[Group]) -> list[Claim]:
    """Appendix G: a policy drawn in every episode has a strong violation of order sqrt K."""
    drawn, in_turn = _by_length(groups, drawn=True), _by_length(groups, drawn=False)
    if len(drawn) < 2:
        return []
    b = _exponent(drawn, _after_pruning)
    said = f"{_shown(seed_mean(over_seeds(drawn[-1], _after_pruning)))} in {drawn[-1].run.episodes:,} episodes"
    if in_turn and in_turn[-1].run.episodes == drawn[-1].run.episodes:
        said += f", in turn {_shown(seed_mean(over_seeds(in_turn[-1], _after_pruning)))}"
    whole = seed_mean(over_seeds(drawn[-1], end("strong_violation")))
    said += f"; with pruning, a fifteenth of every run here, {_shown(whole)}"
    text = (
        "Drawn in every episode, the policies of refinement and identification violate by order sqrt K at most, "
        "without cancellation (appendix G)."
    )
    verdict = below(b, ROOT_GROWTH[1], certain=drawn[-1].deterministic)
    return [Claim(SYNTHETIC, text, "order H sqrt K", f"exponent {_shown(b)}; {said}", verdict, "fitted")]


def _after_pruning(record: RunRecord) -> float:
    """Strong violation of refinement and identification."""
    line = np.atleast_2d(record.curves["strong_violation"])[0]
    (start,) = np.flatnonzero(record.curves["episode"] == experiments.after_pruning(record.run.episodes))
    return float(line[-1] - line[start])


def _by_length(groups: Iterable[Group], *, drawn: bool) -> list[Group]:
    """Runs of PRI with preset printed on the synthetic problem, from the shortest to the longest."""
    found = [
        group
        for group in groups
        if (group.run.env, group.run.algo, group.run.preset) == (SYNTHETIC, "pri", "printed")
        and bool(group.run.params.get("draw_each", False)) == drawn
        and group.run.episodes in LENGTHS
    ]
    return sorted(found, key=lambda group: group.run.episodes)


def _exponent(found: Sequence[Group], measure: experiments.Measure) -> SeedMean:
    """b in "grows like K^b", by least squares for each seed over runs of different lengths."""
    seeds = min(len(group.records) for group in found)
    lengths = np.log([group.run.episodes for group in found])
    totals: FloatArray = np.array([[measure(record) for record in group.records[:seeds]] for group in found])
    return seed_mean(np.array([np.polyfit(lengths, np.log(np.maximum(column, 1.0)), 1)[0] for column in totals.T]))


def _like_root(b: SeedMean) -> Verdict:
    if b.n == 1:
        return UNDECIDED
    low, high = ends(b)
    if ROOT_GROWTH[0] <= low and high <= ROOT_GROWTH[1]:
        return HOLDS
    return FAILS if low > ROOT_GROWTH[1] or high < ROOT_GROWTH[0] else UNDECIDED


def _theory(groups: Iterable[Group]) -> list[Claim]:
    """What the printed constants come to at a length that can be run."""
    found = [
        group
        for group in groups
        if (group.run.algo, group.run.preset, group.run.episodes) == ("pri", "theory", experiments.THEORY_EPISODES)
    ]
    claims = []
    for group in found:
        policies = [len(record.explanation.get("policies", ())) for record in group.samples]
        low, high = min(policies), max(policies)
        left = f"{low} policy" if low == high == 1 else f"{low} to {high} policies"
        never = sum("pruning by comparison" not in dict(record.phases) for record in group.samples)
        loss = seed_mean(over_seeds(group, lambda record: end("regret")(record) / record.run.episodes))
        short_by = seed_mean(over_seeds(group, lambda record: end("violation")(record) / record.run.episodes))
        said = (
            f"K = {experiments.THEORY_EPISODES // 3:,}: usage leaves {left}, comparisons are not reached in {never} "
            f"of {len(policies)} runs; {_shown(loss)} lost and {_shown(short_by)} short per episode"
        )
        text = "With the printed constants: regret of order H sqrt K, no violation, for large K."
        claims.append(Claim(group.run.env, text, "its main theorem", said, VACUOUS, "predicted"))
    return claims


# -- the lower bound ---------------------------------------------------------------------------------------------------


def _lower_bound(bounds: Sequence[LowerBound]) -> list[Claim]:
    """The statement of the paper, which a rule refutes, and what holds instead (docs/theory/pri.md)."""
    rule, loop = ([row for row in bounds if row.who == who] for who in ("rule", "open loop"))
    if not rule or not loop:
        return []
    env, last = "paper/lower-bound", rule[-1]
    within = all(row.smallest >= -(H - 1) and row.largest <= 0 for row in rule)
    regret = -PRICE * last.realised.mean
    refuted = Claim(
        env,
        "Expected regret or expected violation of every learner is of order H sqrt K.",
        "its theorem on the lower bound",
        f"a rule: realised violation from {min(row.smallest for row in rule):g} to "
        f"{max(row.largest for row in rule):g} in "
        f"every run up to K = {last.episodes:,}, hence expected regret {regret:.2g} (proved: at most {2 * (H - 1)} "
        "for every K)",
        Verdict("fails as stated", False) if within else UNDECIDED,
        "exact",
    )
    b = np.polyfit(np.log([row.episodes for row in loop]), np.log([row.rms_regret for row in loop]), 1)[0]
    strong = all(row.strong.mean >= (H - 1) * math.sqrt(row.episodes) / 300 for row in rule)
    holds = Claim(
        env,
        "The same for sums without cancellation and for single runs.",
        "not stated; its argument gives it",
        f"rule: strong violation {short(rule[0].strong.mean)} to {short(last.strong.mean)}; open loop: regret of "
        f"single runs grows with exponent {b:.2f}",
        HOLDS if strong else FAILS,
        "exact",
    )
    return [refuted, holds]


def _shown(x: SeedMean) -> str:
    """A mean with its interval, where there is one.

    >>> _shown(SeedMean(96380.0, 95010.0, 97740.0, 10)), _shown(SeedMean(1.0, 1.0, 1.0, 3))
    ('96,380 (95,010 … 97,740)', '1')
    """
    interval = f" ({span(x.low, x.high)})" if x.low is not None and x.low != x.high else ""
    return f"{short(x.mean)}{interval}"
