"""Every published figure next to the measured one, with the assumptions behind the pair."""

from typing import Any, NamedTuple

from reproduction import runs
from reproduction.judging import KINDS, NOT_JUDGED, UNDECIDED, Verdict, ends, judged
from reproduction.runs import GRID, SYNTHETIC, end, read
from reproduction.text import interval, short, table

ASSUMPTIONS = {
    "start": "The text fixes the initial state, but the experiment cannot have: with state 1, 2 or 3 the optimum is "
    "1.480, 2.045 or 1.232, never the printed 1.573. The start distribution used is the next draw of the random stream "
    "that the printed tables are from; with it the optimum and the value and utility of the printed policy come out to "
    "their last digit. One printed reward, 0.20724388, is 0.20724288 in that stream: a digit was copied wrongly.",
    "board": "The board of the grid is shown in a figure only, and its rewards are described in one sentence that can "
    "be read in several ways. Both are reconstructions, chosen to have the printed reward and cost.",
    "tightening": "Refinement on the synthetic problem is tightened by (log K)^2 / sqrt K, as printed; pruning is not, "
    "because that exceeds the slack. On the grid 0.001 is used, from the printed cost 0.499, without the printed band. "
    "Values of the policy, regret and violation follow from it.",
    "pruning": "Pruning on the synthetic problem is by usage alone, as printed. Its threshold and the constants of its "
    "base learner are not printed; ours were chosen so that usage leaves the actions of the optimum. On the grid it is "
    "one run of 200,000 episodes and comparisons that end early; their thresholds are not printed.",
    "length": "It is not said after how many episodes of the grid the figures are. They are read after 5,800,000 and "
    "at the end.",
    "constants": "The constants of the paper's Triple-Q are not printed. Shown are those of the published Triple-Q "
    "experiment (authors), which is what is judged, and ours (practical).",
    "ours": "cl-pri is not the paper's algorithm but our own. It controls the realised violation; the expected one "
    "differs from that by sampling noise.",
}


class Figure(NamedTuple):
    """A published figure."""

    rule: str  # of judgement: "sum", "value" or "count"
    quantity: str
    published: float
    digits: float  # half a unit of the last published digit
    measure: Any  # from a record to the same figure
    kind: str  # what agreement can show, see `judging.KINDS`


class Row(NamedTuple):
    """A published figure, the measured one, and the verdict on the pair."""

    env: str
    algo: str  # with its preset
    figure: Figure
    measured: Any  # mean and interval over seeds
    verdict: Verdict
    assumptions: tuple[str, ...]  # keys of `ASSUMPTIONS`
    deterministic: bool  # whether all seeds gave the same numbers, so that there is one run


def _sums(regret, violation, digits, kind):
    return (
        Figure("sum", "regret", regret, digits[0], read("regret"), kind),
        Figure("sum", "violation", violation, digits[1], read("violation"), kind),
    )


def _at_the_end(figures):
    return tuple(x._replace(quantity=f"{x.quantity} at the end", measure=end(x.quantity)) for x in figures)


def _ours(figures):
    return tuple(figure._replace(kind="ours") for figure in figures)


_PRI = {
    SYNTHETIC: _sums(6.89e4, -8e4, (50.0, 5e3), "fitted"),
    GRID: _sums(1.69e5, -6.51e3, (500.0, 5.0), "reconstruction"),
}
_TRIPLE_Q = {
    SYNTHETIC: _sums(1.57e6, -4.17e5, (5e3, 500.0), "predicted"),
    GRID: _sums(3.19e6, -5.27e5, (5e3, 500.0), "reconstruction"),
}
PUBLISHED = {
    SYNTHETIC: {
        ("pri", "printed"): (
            Figure("value", "optimum", 1.573, 5e-4, lambda record: record.optimum, "exact"),
            *_PRI[SYNTHETIC],
            Figure("value", "reward of the policy", 1.561, 5e-4, runs.value, "fitted"),
            Figure("value", "utility of the policy", 2.016, 5e-4, runs.utility, "fitted"),
            Figure("value", "action 2 at (1, 1)", 0.059305, 5e-7, runs.second_action, "fitted"),
            Figure("count", "stochastic decisions", 1, 0, runs.randomised, "fitted"),
        ),
        ("cl-pri", "practical"): (
            *_ours(_PRI[SYNTHETIC]),
            Figure("sum", "realised violation", -8e4, 5e3, read("realised_violation"), "ours"),
        ),
        ("triple-q", "authors"): _TRIPLE_Q[SYNTHETIC],
        ("triple-q", "practical"): _ours(_TRIPLE_Q[SYNTHETIC]),
    },
    GRID: {
        ("pri", "printed"): (
            *_PRI[GRID],
            *_at_the_end(_PRI[GRID]),
            Figure("value", "reward of the policy", 5.000, 5e-4, runs.value, "reconstruction"),
            Figure("value", "cost of the policy", 0.499, 5e-4, runs.utility, "reconstruction"),
            Figure("sum", "actions left by usage, about", 200, 0, runs.actions_left("after usage"), "reconstruction"),
            Figure("count", "actions left, printed as 155", 151, 0, runs.actions_left("now"), "reconstruction"),
            Figure("count", "other triples checked", 2, 0, runs.checked, "reconstruction"),
            Figure("count", "stochastic decisions", 1, 0, runs.randomised, "reconstruction"),
        ),
        ("cl-pri", "practical"): (
            *_ours(_PRI[GRID]),
            Figure("sum", "realised violation", -6.51e3, 5.0, read("realised_violation"), "ours"),
        ),
        ("triple-q", "authors"): (*_TRIPLE_Q[GRID], *_at_the_end(_TRIPLE_Q[GRID])),
        ("triple-q", "practical"): _ours(_TRIPLE_Q[GRID]),
    },
}


def compared(groups):
    """Every published figure next to that of the groups of runs of both experiments."""
    rows = []
    for group in groups:
        env, algo = group.run.env, group.run.algo
        base = {SYNTHETIC: ("start",), GRID: ("board", "length")}[env]
        about = {"triple-q": ("constants",), "pri": ("tightening", "pruning")}.get(algo, ("ours",))
        for figure in PUBLISHED[env][algo, group.run.preset]:
            measured = runs.over_seeds(group, figure.measure)
            verdict = NOT_JUDGED
            if figure.kind != "ours":
                published = judged(figure.rule, figure.published, ends(measured), figure.digits)
                verdict = published if runs.certain(group) else UNDECIDED
            name = f"{algo} ({group.run.preset})"
            rows.append(Row(env, name, figure, measured, verdict, (*base, *about), group.deterministic))
    return sorted(rows, key=lambda row: list(KINDS).index(row.figure.kind))


def headlines(rows):
    """How many figures are as published, differ or are undecided: a sentence for every kind that is judged."""
    said = []
    for kind, meaning in KINDS.items():
        found = [row.verdict.agrees for row in rows if row.figure.kind == kind]
        if found and kind != "ours":
            count = f"{found.count(True)} as published, {found.count(False)} differ, {found.count(None)} undecided"
            said.append(f"- {kind}, {len(found)} figures: {count} ({meaning})")
    return said


def figures_text(rows):
    """The table of all figures, what the kinds mean, and the numbered assumptions."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(x for row in rows for x in row.assumptions), 1)}
    headings = ("problem, algorithm", "quantity", "kind", "published", "measured, 95 % interval", "verdict", "assuming")
    lines = [
        (
            f"{row.env}, {row.algo}",
            row.figure.quantity,
            row.figure.kind,
            short(row.figure.published, 5),
            interval(row.measured) + (", one run (deterministic)" if row.deterministic else ""),
            row.verdict.text,
            ", ".join(str(numbers[name]) for name in row.assumptions),
        )
        for row in rows
    ]
    listed = [f"{i}. {ASSUMPTIONS[name]}" for name, i in numbers.items()]
    return "\n".join([*headlines(rows), "", table("Published and measured", headings, lines), *listed, ""])
