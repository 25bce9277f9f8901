"""Published figures beside measured ones: judged by rule, and in the report with the numbers of the rows."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from cmdpkit.results.published import (
    AS_PUBLISHED,
    FAILS,
    HOLDS,
    NOT_JUDGED,
    UNDECIDED,
    Claim,
    Row,
    Verdict,
    below,
    claims_table,
    headlines,
    in_order,
    judged,
)
from cmdpkit.results.report import render
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.study import Study
from records import study, two_bounds

# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "published", "values", "digits", "verdict"),
    [
        ("sum", 100.0, [99.0, 100.0, 101.0], 0.5, ("as published", True)),
        ("sum", 100.0, [80.0, 100.0, 120.0], 0.5, ("undecided", None)),
        ("sum", 100.0, [139.0, 140.0, 141.0], 0.5, ("differs: 140 %", False)),
        ("sum", -80.0, [-119.0, -118.0, -118.5], 0.5, ("differs: 148 %", False)),
        ("sum", 100.0, [-3.0, -4.0, -3.5], 0.5, ("differs by -1e+02", False)),
        ("sum", 100.0, [100.0], 0.5, ("undecided", None)),
        ("value", 1.561, [1.561, 1.562, 1.5615], 5e-4, ("as published", True)),
        ("value", 1.561, [1.555, 1.567, 1.561], 5e-4, ("undecided", None)),
        ("value", 0.0593, [0.0630, 0.0635, 0.0640], 5e-5, ("differs by +0.0042", False)),
        ("count", 151, [151.0, 151.0], 0, ("as published", True)),
        ("count", 151, [151.0, 152.0], 0, ("undecided", None)),
        ("count", 2, [0.0, 0.0], 0, ("differs by -2", False)),
    ],
)
def test_a_figure_is_as_published_only_if_its_whole_interval_is_close(rule, published, values, digits, verdict):
    """By hand: the interval of 99, 100, 101 is 100 +- 2.484, that of 80, 100, 120 is 100 +- 49.7."""
    assert judged(rule, published, np.array(values), digits) == verdict


def test_a_run_without_chance_is_decided_by_itself():
    assert judged("sum", 100.0, np.array([104.9]), 0.5, certain=True) == AS_PUBLISHED
    assert judged("sum", 100.0, np.array([106.0]), 0.5, certain=True) == ("differs: 106 %", False)
    assert judged("sum", 100.0, np.array([105.5]), 0.5, certain=True) == AS_PUBLISHED, "5 % and half a digit"


@pytest.mark.parametrize("centre", [100.0, 103.0, 106.0, 140.0])
def test_noise_never_turns_a_figure_into_a_published_one(centre):
    """Seeds that scatter more around the same mean can lose a verdict, but never gain agreement."""
    seen = [judged("sum", 100.0, centre + spread * np.array([-1.0, 0.0, 1.0]), 0.0) for spread in (0.01, 0.5, 5, 50)]
    agreeing = [verdict == AS_PUBLISHED for verdict in seen]
    assert agreeing == sorted(agreeing, reverse=True)
    assert seen[-1] == UNDECIDED and any(agreeing) == (centre < 105)


def test_a_limit_is_kept_or_missed_by_the_whole_interval():
    assert below(SeedMean(-2.0, -3.0, -1.0, 5), 0.0, certain=False) == HOLDS
    assert below(SeedMean(2.0, 1.0, 3.0, 5), 0.0, certain=False) == FAILS
    assert below(SeedMean(-1.0, -3.0, 1.0, 5), 0.0, certain=False) == UNDECIDED
    assert below(SeedMean(-2.0, None, None, 1), 0.0, certain=False) == UNDECIDED
    assert below(SeedMean(-2.0, None, None, 1), 0.0, certain=True) == HOLDS


def test_headlines_count_every_kind_but_ours():
    mean = seed_mean(np.array([1.0, 1.0]))
    kinds = [("exact", AS_PUBLISHED), ("fitted", AS_PUBLISHED), ("fitted", UNDECIDED), ("fitted", Verdict("x", False))]
    made = [Row("e", "a", "q", 1.0, mean, verdict, (), kind) for kind, verdict in [*kinds, ("ours", NOT_JUDGED)]]
    first, second = headlines(made)
    assert first.startswith("Exact: 1 figure, 1 as published, 0 differ, 0 undecided (computed by")
    assert second.startswith("Fitted: 3 figures, 1 as published, 1 differ, 1 undecided (a setting was chosen")


def test_claims_and_figures_survive_the_way_through_a_file():
    claim = Claim("paper/grid", "It is so.", "5 %", "6 %", Verdict("fails as stated", False), "exact")
    assert Claim.of(json.loads(json.dumps(claim.to_dict()))) == claim
    assert claims_table([claim]).data() == [
        {"verdict": "fails as stated", "claim": "It is so.", "published": "5 %", "measured": "6 %", "kind": "exact"}
    ]
    old = Row("e", "a", "q", 1.0, seed_mean(np.array([1.0])), UNDECIDED, ()).to_dict()
    assert Row.of({**old, "kind": "not the same problem"}).kind == "reconstruction", "the name in earlier files"


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown():
    """Two problems, the name of one needs escaping."""
    cmdp = two_bounds()
    claim = Claim("two </script><b>", "PRI is <i>it</i>.", "1", "2", Verdict("fails <b>", False), "fitted")
    records = (*study("paper/grid", 2), *study("two </script><b>", 2, cmdp))
    return Study(records, {"two </script><b>": cmdp}, claims=(claim,))


@pytest.fixture(scope="module")
def rows():
    """Figures of two problems, some with names that need escaping, one without an interval."""
    board, start, hostile = "The board is ours.", "The start is ours.", "Assumed: <b>nothing</b> & </script>"
    grid, two = "paper/grid", "two </script><b>"
    same, good, bad = AS_PUBLISHED, Verdict("better: 64 %", True), Verdict("bound <s>missed", False)
    return (
        Row(grid, "pri (printed)", "regret", 1.69e5, seed_mean(np.array([351.4, 352.5, 1.0])), good, (board,)),
        Row(
            grid,
            "pri (printed)",
            "cost",
            0.499,
            seed_mean(np.array([0.49901, 0.49901])),
            same,
            (board, start),
            "fitted",
        ),
        Row(grid, "triple-q", "regret", 3.19e6, seed_mean(np.array([2.0e6, 2.1e6])), good, (board,)),
        Row(two, "pri <i>x</i>", "violation <u>", -8e4, seed_mean(np.array([552.1234567])), bad, (hostile, board)),
    )


@pytest.fixture(scope="module")
def beside(shown, rows, tmp_path_factory):
    """The page with published figures."""
    return shown.to_html(tmp_path_factory.mktemp("beside") / "report.html", rows=rows)


def test_a_study_alone_says_nothing_of_published_figures(shown, rows):
    """The section and the link to it are all that rows add."""
    shown = replace(shown, claims=())
    alone, both = render(shown), render(shown, rows=rows)
    assert "Published and measured" not in alone and "assumption" not in alone.partition("<body>")[2]
    start, end = both.index('<section id="published"'), both.index('<section id="summary"')
    link = '<a href="#published">Published and measured</a>\n'
    assert (both[:start] + both[end:]).replace(link, "").split() == alone.split()


def test_published_figures_fit_the_limit_too(shown, rows):
    many = [replace(row, assumptions=(f"{i} {row.assumptions[0]}" * 50,)) for i in range(100) for row in rows]
    full = len(render(shown, rows=many).encode())
    assert len(render(shown, rows=many, limit=full).encode()) < full


READ = """[...document.querySelectorAll('table.published tbody')].flatMap(body => [...body.rows].map(row => {
    const cell = name => row.querySelector('td.col-' + name), interval = cell('interval').dataset;
    const text = a => document.querySelector(a.getAttribute('href')).textContent;
    return { algo: body.querySelector('th').textContent, quantity: cell('quantity').textContent,
        published: cell('published').dataset.value, measured: cell('measured').dataset.value,
        low: interval.low ?? null, high: interval.high ?? null,
        texts: ['published', 'measured', 'interval'].map(name => cell(name).textContent),
        verdict: cell('verdict').textContent, differs: row.classList.contains('differs'),
        assumptions: [...cell('assumptions').querySelectorAll('a')].map(text) }; }))"""


def test_published_figures_come_first_with_the_numbers_of_the_rows(browser, beside, rows):
    browser.open(beside)
    assert browser.errors == []
    assert browser.run("document.querySelector('main section').id") == "published"
    text = browser.run("document.getElementById('published').textContent")
    assert "Fitted: 1 figure, 1 as published, 0 differ, 0 undecided (" in text and "Ours:" not in text
    claims = (
        "[...document.querySelectorAll('table.claims tbody tr')].map(row => [...row.cells].map(x => x.textContent))"
    )
    assert browser.run(claims) == [["fails <b>", "PRI is <i>it</i>.", "two </script><b>", "1", "2", "fitted"]]
    assert browser.run("document.querySelectorAll('table.claims tr.differs').length") == 1
    regions = "[...document.querySelectorAll('#published .scroll')]"
    names = f"{regions}.map(x => document.getElementById(x.getAttribute('aria-labelledby')).textContent)"
    assert browser.run(names) == ["Claims", "paper/grid: fitted", "paper/grid: ours", "two </script><b>: ours"]
    assert browser.run(f"{regions}.map(x => x.querySelectorAll('tbody tr').length)") == [1, 1, 2, 1]
    found = browser.run(READ)
    assert len(found) == len(rows)
    for shown, row in zip(found, in_order(rows), strict=True):
        assert (shown["algo"], shown["quantity"], shown["verdict"]) == (row.algo, row.quantity, row.verdict.text)
        assert (float(shown["published"]), float(shown["measured"])) == (row.published, row.measured.mean)
        bounds = tuple(None if shown[name] is None else float(shown[name]) for name in ("low", "high"))
        assert bounds == (row.measured.low, row.measured.high)
        assert shown["differs"] == (row.verdict.agrees is False)
        assert sorted(shown["assumptions"]) == sorted(row.assumptions)
        read = [float(text.replace(",", "")) for text in shown["texts"][:2]]
        assert read == pytest.approx([row.published, row.measured.mean], rel=5e-4)
    assert [shown["texts"][2] for shown in found] == ["no spread", "-268.4 … 738.3", "1,415,000 … 2,685,000", "–"]
    assert browser.run("document.querySelectorAll('#published :is(b, i, u, s)').length") == 0


def test_an_assumption_is_reached_with_the_keyboard(browser, beside):
    browser.open(beside)
    browser.run("document.querySelector('table.published .col-assumptions a').focus()")
    browser.press("Enter")
    assert browser.run("location.hash") == "#assumption-1"
    assert browser.run("document.querySelector('li:target').textContent") == "The board is ours."
    box = browser.run("document.querySelector('li:target').getBoundingClientRect().toJSON()")
    assert -1 < box["top"] < box["bottom"] <= browser.run("innerHeight")


@pytest.mark.parametrize("width", [1280, 700, 390, 320])
@pytest.mark.parametrize("dark", [False, True])
def test_published_figures_are_readable_at_every_width(browser, beside, width, dark):
    """Nothing is wider than the window, cells lie next to each other, and words stand out from what is behind them."""
    browser.open(beside, width=width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    if width < 560:
        assert browser.run(
            "[...document.querySelectorAll('table.published')].every(t => t.scrollWidth <= t.clientWidth)"
        )
    assert browser.run(OVERLAPPING) == []
    said = "getComputedStyle(document.querySelector('.differs .col-verdict span'))"
    assert contrast(browser.run(f"{said}.color"), browser.run(f"{said}.backgroundColor")) >= 4.5


OVERLAPPING = """[...document.querySelectorAll('table.published tr')].flatMap(row => {
    const box = cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return { text: cell.textContent, ...range.getBoundingClientRect().toJSON() };
    };
    const boxes = [...row.cells].filter(cell => cell.rowSpan === 1).map(box).filter(b => b.width);
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 6 && b.top < a.bottom - 6;
    return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => meet(a, b)).map(b => a.text + ' | ' + b.text)); })"""


def contrast(text, behind):
    """Of two colours "rgb(r, g, b)", as WCAG defines it."""

    def luminance(colour):
        parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(text), luminance(behind)))
    return (high + 0.05) / (low + 0.05)
