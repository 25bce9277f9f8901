"""Where the presets of `pri` differ from the pseudo-code of arXiv 2309.15395, and why: one table made from the presets.

A row is one step of Algorithms 1 to 5. Its cells for `theory` and `printed` are written from the parameters of these
presets for the paper's synthetic problem (K = 7,000,000), and so is whether a preset follows the print, so that the
table cannot say anything else than what is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import cmdpkit as ck
from reproduction.text import table

K = 7_000_000  # the paper's K in its synthetic experiment
LENGTHS = {"theory": 3 * K, "printed": 15_000_000}  # episodes of a run with that K


class DepartureCase(NamedTuple):
    """A preset for the synthetic problem."""

    preset: str
    p: Any  # parameters of PRI
    base: Any  # parameters of its first base run, in the usage phase

    @classmethod
    def of(cls, preset: str, **changes: object) -> DepartureCase:
        """The preset with some parameters changed."""
        spec = ck.learners.Spec.of(ck.load("paper/synthetic"), LENGTHS[preset])
        learner = ck.learners.load("pri")(spec, preset=preset, **changes)
        return cls(preset, learner.params, learner.pruning.current.params)


def tightening(K):
    """The paper's eps_rho."""
    return math.log(K) ** 2 / math.sqrt(K)


class Departure(NamedTuple):
    """One step of the pseudo-code."""

    step: str  # the step of the pseudo-code
    printed: str  # the step as the paper prints it
    fields: tuple[str, ...]  # the parameters of PRI that decide it
    cell: Callable[[DepartureCase], str]  # the step as a preset does it
    literal: Callable[[DepartureCase], bool]  # whether a preset follows the print
    why: str  # the reason for departing from the print


def _about(x: float) -> str:
    return f"{x:,.3g}" if x < 1000 else f"{x:,.0f}"


def _tightening(c: DepartureCase) -> str:
    return f"{_about(c.p.eps_rho)} added in refinement, {_about(c.p.eps_prune)} in pruning"


def _underused(c: DepartureCase) -> str:
    said = [f"at most {_about(c.p.count_min)} uses"] if c.p.count_min or not c.p.use_min else []
    said += [f"at most {c.p.use_min:.3g} of the visits"] if c.p.use_min else []
    said += [f"or a state that {c.p.reach_min:.3g} of the episodes reach"] if c.p.reach_min else []
    return " ".join(said)


def _base(c: DepartureCase) -> str:
    if c.preset == "theory":
        return f"{c.p.base} with the constants of its Theorem 1"
    return f"{c.p.base}, bonus {c.base.reward_bonus:.2g}, eta {c.base.eta:.2g}, tables lifted"


def _tolerance(c: DepartureCase) -> str:
    sides = "either way" if c.p.two_sided else "less"
    return f"value {_about(c.p.tol_value)} {sides}, utility {_about(c.p.tol_utility)} short"


def _tests(c: DepartureCase) -> str:
    if c.p.literal_tests:
        return "steps, states, actions in order; without, then alone; every action"
    return "least used first; alone first if used most; one of two"


def _needed(c: DepartureCase, number: int) -> int:
    return (number + 1) // 2 if c.p.literal_tests else number // 2 + 1


def _floor(c: DepartureCase) -> str:
    return f"{_about(c.p.floor)}, with M policies at most 1 / M"


def _never(_: DepartureCase) -> bool:
    return False


DEPARTURES = (
    Departure("length", "K chosen by the user", ("K",), lambda c: f"{c.p.K:,} of {LENGTHS[c.preset]:,} episodes",
              lambda c: True, ""),
    Departure("tightening", "(log K)^2 / sqrt K", ("eps_rho", "eps_prune"), _tightening,
              lambda c: c.p.eps_rho == c.p.eps_prune == tightening(c.p.K),
              "The printed 0.0939 exceeds the slack 0.0898 of the synthetic problem: in pruning, the base learner "
              "would have no policy to find."),
    Departure("base learner", "Triple-Q; its constants are not printed", ("base",),
              _base, lambda c: c.preset == "theory" and c.p.base == "triple-q",
              "With the constants of its theorem Triple-Q learns nothing at any length that can be run. Ours were "
              "chosen so that usage leaves the actions of the optimum."),
    Departure("queue of the base learner", "driven by C at the first step (appendix B)", (),
              lambda c: ("realised utilities" if c.base.realised else "C at the first step")
              + (f", tightened by {_about(c.base.eps_high)}" if c.base.eps_high else ", not tightened"),
              lambda c: not c.base.realised,
              "C is optimistic: driven by it, a queue leaves a violation as large as the bonus."),
    Departure("episodes of a base run", "K^0.25", ("run_episodes", "compare_episodes"),
              lambda c: f"{c.p.run_episodes:,} for usage, {c.p.compare_episodes:,} for comparisons",
              lambda c: c.p.run_episodes == c.p.compare_episodes == math.ceil(c.p.K**0.25),
              "52 episodes teach Triple-Q nothing. The experiments print 100,000 (synthetic) and 200,000 (grid)."),
    Departure("usage runs", "4 log K", ("runs",), lambda c: f"{c.p.runs}",
              lambda c: c.p.runs == math.ceil(4 * math.log(c.p.K)), "The synthetic experiment prints 10."),
    Departure("uses that count", "those of the whole base run", ("whole_usage",),
              lambda c: "whole run" if c.p.whole_usage else "last half to three quarters, scaled to the run",
              lambda c: c.p.whole_usage, "The first part of a base run shows how it learned, not what it learned."),
    Departure("under-used", "N_h(x, a) <= K^0.2", ("count_min", "use_min", "reach_min"), _underused,
              lambda c: math.isclose(c.p.count_min, c.p.K**0.2) and not c.p.use_min and not c.p.reach_min,
              "K^0.2 = 23 uses are nothing in 100,000 episodes. The experiment's threshold is not printed."),
    Departure("removed by usage", "under-used in at least 2 log K runs", ("quorum",), lambda c: f"in {c.p.quorum} runs",
              lambda c: c.p.quorum == math.ceil(2 * math.log(c.p.K)), "More than half of 10 runs."),
    Departure("comparisons", "of every action that usage left", ("compare",),
              lambda c: "all" if c.p.compare else "none, unless asked for (grid)", lambda c: c.p.compare,
              "The synthetic experiment prunes by usage alone; the grid experiment compares."),
    Departure("loops of votes", "4 log K calls of Compare with 4 log K trials each", ("votes", "trials"),
              lambda c: f"{c.p.votes} x {c.p.trials}",
              lambda c: c.p.votes == c.p.trials == math.ceil(4 * math.log(c.p.K)),
              "The grid experiment prints one comparison of 200,000 episodes. The printed counts of episodes, 8 HSA "
              "K^0.25 log K and 20 HSA K^0.25 log K, fit one loop, the pseudo-code has two."),
    Departure("votes needed", "2 log K, half of them; all are cast", ("literal_tests", "votes", "trials"),
              lambda c: f"{_needed(c, c.p.votes)} of {c.p.votes}, {_needed(c, c.p.trials)} of {c.p.trials}"
              + ("; all are cast" if c.p.literal_tests else "; the rest is skipped once decided"),
              lambda c: c.p.literal_tests, "More than half is a majority, and votes that change nothing cost regret."),
    Departure("order of the tests", "any; without the action first, then alone", ("literal_tests",), _tests,
              lambda c: c.p.literal_tests,
              "Cheap tests first. With two actions left, the tests of the second are those of the first."),
    Departure("a set is as good", "|v* - v| <= 4 / K^0.03 and w >= tightened rho",
              ("tol_value", "tol_utility", "two_sided"), _tolerance,
              lambda c: math.isclose(c.p.tol_value, 4 / c.p.K**0.03) and c.p.two_sided and c.p.tol_utility == 0,
              "2.49 is above every gap of the problem, gains need no excuse, and half of all runs at a binding optimum "
              "miss the bound by noise. The experiment's thresholds are not printed."),
    Departure("averages of a comparison", "over all of its episodes", ("burn_in",),
              lambda c: f"without the first {c.p.burn_in:g} of them" if c.p.burn_in else "over all",
              lambda c: c.p.burn_in == 0, "A base run that has yet to learn says nothing about its action set."),
    Departure("early stop", "not in the pseudo-code; in the grid experiment, without its threshold",
              ("early_stop", "checks"),
              lambda c: f"when regret or violation exceeds what may pass, checked {c.p.checks} times"
              if c.p.early_stop else "none",
              lambda c: not c.p.early_stop, "As in the grid experiment."),
    Departure("last action of a state", "may be removed", (), lambda c: "the most used one is kept", _never,
              "Without an action there is no policy."),
    Departure("decisions with one action", "tested", (), lambda c: "not tested", _never,
              "The smaller set would be empty."),
    Departure("length of pruning", "not limited", ("prune_max",), lambda c: f"at most {c.p.prune_max:,} episodes",
              _never, "A run has a length. With the printed loops pruning could take three times K."),
    Departure("number of policies M", "all of the action set", ("max_policies",),
              lambda c: f"the {c.p.max_policies} most used", _never,
              "M grows exponentially with what usage leaves open."),
    Departure("M = 1", "the policy is output directly", (), lambda c: "it is played to the end of the run", _never,
              "A run has a length."),
    Departure("rounds", "sqrt K rounds of sqrt K episodes", (),
              lambda c: f"{c.p.K // math.isqrt(c.p.K):,} of {math.isqrt(c.p.K):,}, of M if that is more", _never,
              "sqrt K is no whole number."),
    Departure("plays of a policy", "alpha_m sqrt K", (), lambda c: "rounded, the rest is carried to the next round",
              _never,
              "alpha_m sqrt K is no whole number, and the same rounding in every round would cost order sqrt K."),
    Departure("order of plays", "in turn; drawn by alpha in appendix G", ("draw_each",),
              lambda c: "drawn" if c.p.draw_each else "in turn", lambda c: not c.p.draw_each, ""),
    Departure("returns that are estimated from", "the first e' sqrt K of a round", (), lambda c: "the first of a round",
              lambda c: True, ""),
    Departure("divisor", "t e' sqrt K", (), lambda c: "the number of returns added", _never,
              "t e' sqrt K is no whole number; dividing by it would bias the averages."),
    Departure("floor e'", "1 / log K", ("floor",), _floor,
              lambda c: math.isclose(c.p.floor, 1 / math.log(c.p.K)), ""),
    Departure("Decomposition-Opt", "utility within rad_t of the tightened rho", ("band",),
              lambda c: "within rad_t" if c.p.band else "at least the tightened rho", lambda c: c.p.band,
              ""),
    Departure("Decomposition-Opt is infeasible", "not said", (), lambda c: "the smallest margin is maximised", _never,
              "Something has to be played."),
    Departure("Decomposition-Opt before every policy was played", "solved with sums of zero", (), lambda c: "skipped",
              _never, "Only if M exceeds sqrt K."),
    Departure("identified policy", "N_h(x, a) / sum of N_h(x, .), pooled", (), lambda c: "pooled counts",
              lambda c: True, ""),
    Departure("states without visits", "0 / 0", (), lambda c: "the most used action", _never, "A policy needs one."),
)  # fmt: skip


def followed(preset):
    """How many steps a preset does as printed."""
    case = DepartureCase.of(preset)
    return sum(departure.literal(case) for departure in DEPARTURES)


def departures_text():
    """Every step with what is printed, what both presets do, and why; cells that follow the print are marked."""
    cases = [DepartureCase.of("theory"), DepartureCase.of("printed")]

    def cell(departure, case):
        return departure.cell(case) + (" (as printed)" if departure.literal(case) else "")

    headings = ("step", "paper", "preset theory", "preset printed", "why")
    lines = [(d.step, d.printed, *(cell(d, case) for case in cases), d.why) for d in DEPARTURES]
    counts = f"theory follows the print in {followed('theory')} of {len(DEPARTURES)} steps, printed in "
    counts += str(followed("printed"))
    return table(f"PRI as printed and as run (synthetic problem, K = {K:,}; {counts})", headings, lines)
