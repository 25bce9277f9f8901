"""What the paper claims, each claim with a verdict and the figures behind it.

A claim holds if the whole 95 % interval over seeds says so, fails if the whole interval says the opposite, and is
undecided otherwise. A claim about constants that were not run is "not covered" by what was measured.
"""

import math
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from reproduction import runs
from reproduction.judging import (
    FAILS,
    HOLDS,
    NOT_COVERED,
    UNDECIDED,
    VACUOUS,
    Verdict,
    below,
    ends,
    judged,
)
from reproduction.runs import GRID, READ_AT, SYNTHETIC, end, over_seeds, read, shortfall
from reproduction.text import interval, short, table

PUBLISHED_GAP = {SYNTHETIC: 1.573 - 1.561, GRID: 5.001162 - 5.0}  # optimum minus value of the printed policy
DIGIT = 0.0005  # half a unit of the last printed digit of values
PUBLISHED_RATIO = {SYNTHETIC: (0.044, 0.0005), GRID: (0.053, 0.0005)}  # PRI's regret as a share of Triple-Q's
IDENTIFIED = (  # the printed policy: actions with a positive probability at (step, state), from 1
    ((2, 3), (3,), (1,)),
    ((1,), (3,), (3,)),
    ((1,), (1,), (2,)),
)
KIND = {SYNTHETIC: "fitted", GRID: "reconstruction"}


class Claim(NamedTuple):
    """A published sentence in our words, what came out, and the verdict."""

    env: str
    text: str
    published: str  # the figures behind it in the paper
    measured: str  # the figures behind it here
    verdict: Verdict
    kind: str  # what agreement can show, see `judging.KINDS`


def claims_of(parts, bounds=()):
    """The claims that the runs of these parts can be held against, in the order of the paper.

    ``parts`` maps the name of a part to its groups of runs, ``bounds`` are the rows of `lower_bound.measured`.
    """
    made = []
    for part in ("synthetic", "grid"):
        groups = {(group.run.algo, group.run.preset): group for group in parts.get(part, ())}
        if groups:
            made += _experiment(groups)
    drawn = parts.get("cancellation", ())
    made += [_growth(parts["growth"])] if parts.get("growth") else []
    made += [_cancellation(drawn, parts.get("growth", ()))] if drawn else []
    made += [_theory(group) for group in parts.get("theory", ())]
    return [*made, *_lower_bound(bounds)]


def claims_text(claims):
    """One row per claim, with the verdict first."""
    headings = ("verdict", "claim", "published", "measured", "kind")
    problem = {SYNTHETIC: "synthetic", GRID: "grid"}
    lines = [
        (f"**{claim.verdict.text}**", f"{problem.get(claim.env, 'lower bound')}: {claim.text}", claim.published,
         claim.measured, claim.kind)
        for claim in claims
    ]  # fmt: skip
    return table("Claims of the paper", headings, lines).replace("\\*\\*", "**")


# -- the two experiments -----------------------------------------------------------------------------------------------


def _experiment(groups):
    pri, env = groups["pri", "printed"], groups["pri", "printed"].run.env
    policy = _policy(pri) if env == SYNTHETIC else _needed_actions(pri)
    return [_fraction(groups), _violation(pri), _close(pri), _one_decision(pri), policy]


def _fraction(groups):
    """The ratio of both regrets, with an interval that holds whatever their dependence."""
    pri, triple_q, tuned = (
        groups[key] for key in (("pri", "printed"), ("triple-q", "authors"), ("triple-q", "practical"))
    )
    env = pri.run.env
    measure = read("regret") if env == SYNTHETIC else end("regret")
    ours, theirs, best = (over_seeds(group, measure) for group in (pri, triple_q, tuned))
    (low, high), (low_tq, high_tq) = ends(ours), ends(theirs)
    published, digits = PUBLISHED_RATIO[env]
    verdict = judged("sum", published, (low / high_tq, high / low_tq), digits)
    if not (runs.certain(pri) and runs.certain(triple_q)):
        verdict = UNDECIDED
    said = f"{100 * ours.mean / theirs.mean:.2g} % ({short(ours.mean)} of {short(theirs.mean)}, authors' constants)"
    said += f"; Triple-Q as this package tunes it loses {short(best.mean)}"
    text = "PRI's regret is a small fraction of that of Triple-Q over as many episodes."
    of = {SYNTHETIC: "68,900 of 1,570,000", GRID: "169,000 of 3,190,000"}[env]
    return Claim(env, text, f"{100 * published:.2g} % ({of})", said, verdict, KIND[env])


def _violation(pri):
    env = pri.run.env
    kept = over_seeds(pri, read("violation") if env == SYNTHETIC else end("violation"))
    after = f"after {READ_AT[env]:,}" if env == SYNTHETIC else "at the end"
    published = {SYNTHETIC: "-80,000", GRID: "-6,510"}[env]
    return Claim(
        env, "The violation of PRI ends at or below zero.", published, f"{interval(kept)} {after}",
        _if_certain(pri, below(ends(kept), 0.0)), KIND[env],
    )  # fmt: skip


def _close(pri):
    """The returned policy is as close to the optimum as the printed one, and no seed misses the bound."""
    env = pri.run.env
    gap, worst = over_seeds(pri, runs.optimality_gap), max(map(shortfall, pri.samples))
    verdict = below(ends(gap), PUBLISHED_GAP[env] + DIGIT)
    if worst > 0 and verdict is HOLDS:
        verdict = FAILS
    name = {SYNTHETIC: "utility", GRID: "cost"}[env]
    said = f"{interval(gap)} below, {name} {interval(over_seeds(pri, runs.utility))}"
    published = {SYNTHETIC: "0.012 below, utility 2.016", GRID: "0.001 below, cost 0.499"}[env]
    text = "One policy comes out, that close to the optimum, and it meets the bound."
    return Claim(env, text, published, said, _if_certain(pri, verdict), KIND[env])


def _one_decision(pri):
    number = [runs.randomised(record) for record in pri.samples]
    said = f"1 in {number.count(1)} of {len(number)} runs"
    verdict = HOLDS if set(number) == {1} else FAILS
    return Claim(pri.run.env, "The policy has one stochastic decision.", "1", said, verdict, KIND[pri.run.env])


def _policy(pri):
    same = [_support(record) == IDENTIFIED for record in pri.samples]
    p = interval(over_seeds(pri, runs.second_action))
    said = f"all nine in {sum(same)} of {len(same)} runs; action 2 at (1, 1) {p}"
    text, published = "The identified policy: all nine decisions.", "the table of nine; action 2 at (1, 1) 0.0593"
    return Claim(SYNTHETIC, text, published, said, HOLDS if all(same) else FAILS, "fitted")


def _support(record):
    return tuple(tuple(tuple((np.flatnonzero(row > 0) + 1).tolist()) for row in step) for step in record.policy.pi)


def _needed_actions(pri):
    left = over_seeds(pri, runs.actions_left("now"))
    text = "Pruning leaves the 6 x 5 x 5 + 1 actions that are needed."
    verdict = HOLDS if ends(left) == (151, 151) else FAILS
    return Claim(GRID, text, "151 (printed as 155)", interval(left), verdict, "reconstruction")


def _if_certain(group, verdict):
    return verdict if runs.certain(group) else UNDECIDED


# -- growth, cancellation, theory --------------------------------------------------------------------------------------


def exponent_of(groups, measure):
    """b in "grows like K^b", by least squares for each seed over runs of different lengths."""
    lengths = np.log([group.run.episodes for group in groups])
    totals = np.array([[measure(record) for record in group.records] for group in groups])
    return ck.seed_mean(np.array([np.polyfit(lengths, np.log(np.maximum(x, 1.0)), 1)[0] for x in totals.T]))


def _growth(groups):
    """The theorem is about the printed constants, of which preset printed has only those after pruning."""
    b = exponent_of(groups, end("regret"))
    lengths = [group.run.episodes for group in groups]
    said = f"exponent {interval(b)} for K from {lengths[0]:,} to {lengths[-1]:,} with preset printed, which no theorem "
    said += "covers; its tightening exceeds the slack at all of these lengths"
    text = "The regret of PRI grows like sqrt K."
    return Claim(SYNTHETIC, text, "order H sqrt K, up to logarithms", said, NOT_COVERED, "fitted")


def _cancellation(drawn, in_turn):
    """Appendix G: a policy drawn in every episode has a strong violation of order sqrt K."""
    b, total = exponent_of(drawn, _after_pruning), interval(over_seeds(drawn[-1], _after_pruning))
    said = f"exponent {interval(b)} with preset printed, which no theorem covers; {total} in "
    said += f"{drawn[-1].run.episodes:,} episodes"
    if in_turn:
        said += f", in turn {interval(over_seeds(in_turn[-1], _after_pruning))}"
    text = "Drawn in every episode, the policies after pruning violate by order sqrt K at most, without cancellation "
    return Claim(SYNTHETIC, text + "(appendix G).", "order H sqrt K", said, NOT_COVERED, "fitted")


def _after_pruning(record):
    """Strong violation of refinement and identification."""
    line = np.atleast_2d(record.curves["strong_violation"])[0]
    (start,) = np.flatnonzero(record.curves["episode"] == record.run.readings[0])
    return line[-1] - line[start]


def _theory(group):
    """What the printed constants come to at a length that can be run."""
    records = group.samples
    policies = [len(record.internals.get("policies", ())) for record in records]
    never = sum("pruning by comparison" not in dict(record.phases) for record in records)
    episodes = group.run.episodes
    lost, short_by = (
        over_seeds(group, lambda x, name=name: end(name)(x) / episodes) for name in ("regret", "violation")
    )
    left = "1 policy" if set(policies) == {1} else f"{min(policies)} to {max(policies)} policies"
    said = (
        f"K = {episodes // 3:,}: usage leaves {left}, comparisons are not reached "
        f"in {never} of {len(policies)} runs; {interval(lost)} lost and {interval(short_by)} short per episode"
    )
    text = "With the printed constants: regret of order H sqrt K, no violation, for large K."
    return Claim(group.run.env, text, "its main theorem", said, VACUOUS, "predicted")


# -- the lower bound ---------------------------------------------------------------------------------------------------


def _lower_bound(rows):
    """The statement of the paper, which a rule refutes, and what holds instead (docs/theory/pri.md)."""
    if not rows:
        return []
    env, H, last = "paper/lower-bound", rows[-1].H, rows[-1]
    low, high = min(row.smallest for row in rows), max(row.largest for row in rows)
    refuted = Claim(
        env,
        "Expected regret or expected violation of every learner is of order H sqrt K.",
        "its theorem on the lower bound",
        f"a rule: realised violation between {low:g} and {high:g} after every episode of every run up to K = "
        f"{last.episodes:,}, hence expected regret {interval(last.expected_regret)} (proved: at most {2 * (H - 1)})",
        Verdict("fails as stated", False) if low >= -(H - 1) and high <= 0 else UNDECIDED,
        "exact",
    )
    b = np.polyfit(np.log([row.episodes for row in rows]), np.log([row.rms_regret for row in rows]), 1)[0]
    strong = all(row.strong.mean >= (H - 1) * math.sqrt(row.episodes) / 300 for row in rows)
    holds = Claim(
        env,
        "The same for sums without cancellation and for single runs.",
        "not stated; its argument gives it",
        f"the same rule: strong violation {short(rows[0].strong.mean)} to {short(last.strong.mean)}; regret of single "
        f"runs grows with exponent {b:.2f}",
        HOLDS if strong else FAILS,
        "exact",
    )
    return [refuted, holds]
