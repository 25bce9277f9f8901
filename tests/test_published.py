"""Published figures beside measured ones: judged by rule, and in the report with the numbers of the rows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cmdpkit.results.published import AS_PUBLISHED, Row, Verdict, in_order, judged
from cmdpkit.results.report.page import render
from cmdpkit.results.statistics import seed_mean
from cmdpkit.results.study import Study
from records import study, two_bounds

# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_violation_around_zero_is_not_judged():
    assert judged("violation", -1.0, np.array([-1.0, 2.0, 0.5]), 0.0) == ("undecided", False)


@pytest.mark.parametrize(
    ("regrets", "violation", "verdict"),
    [
        ([40.0, 41.0, 42.0], [-2.0, -1.9, -2.1], ("better: 41 %", True)),
        ([40.0, 41.0, 42.0], [2.0, 1.9, 2.1], ("less: 41 %, bound missed", False)),
        ([40.0, 41.0, 42.0], [2.0, -1.9, 0.1], ("less: 41 %, bound undecided", False)),
        ([-40.0, -41.0, -42.0], [2.0, 1.9, 2.1], ("less: negative, bound missed", False)),
        ([-40.0, -41.0, -42.0], [2.0, -1.9, 0.1], ("less: negative, bound undecided", False)),
        ([0.1, 0.2, 0.3], [0.5], ("less: under 1 %, bound missed", False)),
        ([140.0, 141.0, 142.0], [2.0, 1.9, 2.1], ("worse: 141 %", False)),
    ],
)
def test_less_regret_is_better_only_where_the_bound_was_kept(regrets, violation, verdict):
    assert judged("regret", 100.0, np.array(regrets), 0.5, np.array(violation)) == verdict


@pytest.mark.parametrize(
    ("kind", "published", "values", "digits", "verdict"),
    [
        ("value", 0.499, [0.4994, 0.4992], 5e-4, ("as published", True)),
        ("value", 0.499, [0.4999, 0.4996, 0.4988], 5e-4, ("as published", True)),
        ("value", 0.499, [0.500, 0.502, 0.498, 0.502], 5e-4, ("as published (interval)", True)),
        ("value", 0.499, [0.511, 0.511], 5e-4, ("differs by +0.012", False)),
        ("value", 0.499, [0.4996], 5e-4, ("differs by +0.0006", False)),
        ("count", 155, [155.0, 155.0], 0, ("as published", True)),
        ("count", 155, [151.0, 152.0, 152.0], 0, ("differs by -3.333", False)),
        ("realised violation", -9.0, [1.0], 0, ("kept in 0 of 1 run", False)),
        ("violation", -9.0, [0.1], 0, ("bound missed", False)),
        ("regret", 100.0, [104.9], 0.5, ("as published", True)),
        ("regret", 100.0, [106.0], 0.5, ("worse: 106 %", False)),
        ("violation", -9.0, [-9.2, -8.9, -9.1], 0.05, ("as published", True)),
        ("violation", -9.0, [-3.0], 0.05, ("bound kept", True)),
    ],
)
def test_every_rule_says_when_a_figure_is_as_published(kind, published, values, digits, verdict):
    found = judged(kind, published, np.array(values), digits)
    assert found == verdict and found.same == found.text.startswith("as published")


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown():
    """Two problems, the name of one needs escaping."""
    cmdp = two_bounds()
    return Study((*study("paper/grid", 2), *study("two </script><b>", 2, cmdp)), {"two </script><b>": cmdp})


@pytest.fixture(scope="module")
def rows():
    """Figures of two problems, some with names that need escaping, one without an interval."""
    board, start, hostile = "The board is ours.", "The start is ours.", "Assumed: <b>nothing</b> & </script>"
    grid, two = "paper/grid", "two </script><b>"
    same, good, bad = AS_PUBLISHED, Verdict("better: 64 %", True), Verdict("bound <s>missed", False)
    return (
        Row(grid, "pri (paper)", "regret", 1.69e5, seed_mean(np.array([351.4, 352.5, 1.0])), good, (board,)),
        Row(
            grid, "pri (paper)", "cost", 0.499, seed_mean(np.array([0.49901, 0.49901])), same, (board, start), "fitted"
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
    alone, both = render(shown), render(shown, rows=rows)
    assert "Published and measured" not in alone and "assumption" not in alone.partition("<body>")[2]
    start, end = both.index('<section id="published"'), both.index('<section class="problem"')
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
    assert "Reproduced: 0 of 0 predicted figures (" in text
    assert "Not counted, fitted: 1 of 1 figure as published, 0 better (" in text
    assert "Not counted, ours: 0 of 3 figures as published, 2 better (" in text
    regions = "[...document.querySelectorAll('#published .scroll')]"
    names = f"{regions}.map(x => document.getElementById(x.getAttribute('aria-labelledby')).textContent)"
    assert browser.run(names) == ["paper/grid: fitted", "paper/grid: ours", "two </script><b>: ours"]
    assert browser.run(f"{regions}.map(x => x.querySelectorAll('tbody tr').length)") == [1, 2, 1]
    found = browser.run(READ)
    assert len(found) == len(rows)
    for shown, row in zip(found, in_order(rows), strict=True):
        assert (shown["algo"], shown["quantity"], shown["verdict"]) == (row.algo, row.quantity, row.verdict.text)
        assert (float(shown["published"]), float(shown["measured"])) == (row.published, row.measured.mean)
        bounds = tuple(None if shown[name] is None else float(shown[name]) for name in ("low", "high"))
        assert bounds == (row.measured.low, row.measured.high)
        assert shown["differs"] == (not row.verdict.agrees)
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
