"""The report in a real browser: no complaint, no request, and the numbers of the records."""

import base64
import csv
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from operator import itemgetter
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.io.formats.sheet import csv_cell
from cmdpkit.records.record import Run
from cmdpkit.records.store import Failure
from cmdpkit.results.groups import curve, finals, groups
from cmdpkit.results.report import _files, problems, render, said, summary
from cmdpkit.results.runs import group_table
from cmdpkit.results.study import Study
from cmdpkit.results.tables import Column, Table
from cmdpkit.results.wording import short
from records import make_record, study, two_bounds


@pytest.fixture(scope="module")
def shown():
    """A board, two constraints with awkward names, runs without a model, one seed only, and a failure."""
    cmdp = two_bounds()
    records = [
        *study("paper/grid", 3),
        *study("two </script><b>", 3, cmdp),
        make_record("blind", "pri", 4, cmdp, blind=True, params={"eta": 0.5}),
        *(make_record("blind", "triple-q", seed, cmdp, blind=True) for seed in (4, 7)),
    ]
    failure = Failure(Run("paper/grid", "conrl", 10, 0, "practical"), "infeasible: <img src=x onerror=alert(1)>")
    return Study(tuple(records), {"two </script><b>": cmdp}, (failure,))


@pytest.fixture(scope="module")
def page(shown, tmp_path_factory):
    return shown.to_html(tmp_path_factory.mktemp("report") / "report.html", title="A <b>study</b> & more")


# -- without a browser -------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Tags, addresses and ids of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href")]
        self.ids += [value for key, value in attrs if key == "id"]


def test_the_page_is_one_small_file_that_refers_to_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 2_000_000
    reader = Reader()
    reader.feed(text)
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)
    assert "@import" not in text and "url(" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(set(reader.ids)) == len(reader.ids)
    assert reader.tags.count("script") == 2
    assert not {"b", "img"} & set(reader.tags)  # only names hold these, and they are escaped
    assert "NaN" not in text and ">nan<" not in text and "Infinity" not in text


def test_refusals_are_explained(shown, page, monkeypatch):
    with pytest.raises(ValueError, match="exists already; pass overwrite=True"):
        shown.to_html(page)
    with pytest.raises(ValueError, match="there is nothing to report"):
        render(Study(()))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ValueError, match=r"pip install 'cmdpkit\[report\]'"):
        render(shown)


def test_failures_alone_make_a_report(shown):
    assert "Runs that failed" in render(Study((), None, shown.failures))


# -- in the browser ----------------------------------------------------------------------------------------------------


def cells(browser, problem):
    """label -> {heading: data-value} of the verdict table."""
    return dict(
        browser.run(f"""{{ const table = document.querySelector('#{problem} .verdict');
        const names = [...table.tHead.rows[0].cells].map(th => th.textContent.trim());
        [...table.tBodies[0].rows].map(row => [row.dataset.label, Object.fromEntries(
            [...row.cells].slice(1).map((cell, i) => [names[i + 1], cell.dataset.value]))]) }}""")
    )


@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_without_a_complaint_and_fits_the_window(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    # Tables never leave the page: they scroll in their frame, and their first column stays.
    assert (
        browser.run("Math.max(...[...document.querySelectorAll('.scroll')].map(x => x.getBoundingClientRect().right))")
        <= width
    )
    pinned = browser.run("""[...document.querySelectorAll('.pinned')].filter(x => x.offsetParent).map(table => {
        const frame = table.closest('.scroll'); frame.scrollLeft = 1e6;
        return table.rows[1].cells[0].getBoundingClientRect().left - frame.getBoundingClientRect().left; })""")
    assert len(pinned) >= 3 and max(map(abs, pinned)) < 1
    # On a phone no table scrolls: every row is a card, and every cell shows the heading of its column.
    scrolling = browser.run(
        "[...document.querySelectorAll('.pinned')].some(x => x.scrollWidth > x.parentElement.clientWidth)"
    )
    headings = browser.run("""[...document.querySelectorAll('.verdict td')].map(
        x => [getComputedStyle(x, '::before').content, x.dataset.heading])""")
    if width == 390:
        assert not scrolling and all(shown == f'"{heading}"' for shown, heading in headings)
    else:
        assert all(shown == "none" for shown, _ in headings)
    assert browser.run("document.querySelectorAll('figure svg path.line').length") >= 3 * (1 + 1) + 3 * (1 + 2)
    luminance = browser.run(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
    )
    assert (luminance < 200) == dark
    browser.run("document.getElementById('theme').click()")
    after = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)")
    assert (after < 200) != dark


def test_the_numbers_are_those_of_the_records(browser, page, shown):
    browser.open(page)
    found = groups(shown.records)
    for problem, env in enumerate(("paper/grid", "two </script><b>", "blind"), 1):
        table = cells(browser, f"problem-{problem}")
        mine = [g for g in found if g.run.env == env]
        assert list(table) == [g.label for g in mine]
        for group in mine:
            row = table[group.label]
            assert row["seeds"] == str(len(group.seeds))
            kinds = {"": "", "strong ": "strong_"} if env != "blind" else {"realised ": "realised_"}
            for words, name in kinds.items():
                if env != "blind":
                    assert float(row[f"{words}regret"]) == finals(group, f"{name}regret").mean()
                for n, c in enumerate(group.records[0].constraints):
                    assert float(row[f"{words}violation of {c.name}"]) == finals(group, f"{name}violation", n).mean()
    curves = browser.run("data.problems.map(p => p.groups.map(g => g.curves))")
    for group, drawn in zip(found, [g for p in curves for g in p], strict=True):
        for name, rows in drawn.items():
            for n, row in enumerate(rows):
                assert row["mean"][-1] == pytest.approx(finals(group, name, n).mean(), rel=1e-5)
                assert ("low" in row) == (len(group.seeds) > 1)


def test_names_are_shown_as_they_are(browser, page):
    browser.open(page)
    assert browser.run("document.querySelector('h1').textContent") == "A <b>study</b> & more"
    assert browser.run("document.querySelector('#problem-2 h2').textContent") == "two </script><b>"
    assert "late <i>jobs</i> ≤ 0.6" in browser.run("document.querySelector('#problem-2 .facts').textContent")
    assert "<script>alert(1)</script>" in browser.run(
        "document.querySelector('#problem-1 [data-internals]').textContent"
    )
    assert "<img src=x onerror=alert(1)>" in browser.run("document.querySelector('#failures').textContent")


def test_sorting_by_a_column_orders_the_rows_by_value_both_ways(browser, page):
    browser.open(page)
    headings = "[...document.querySelectorAll('#problem-1 .verdict thead th')]"
    regret = f"{headings}.find(th => th.textContent.trim() === 'regret')"
    values = {label: float(row["regret"]) for label, row in cells(browser, "problem-1").items()}
    browser.run(f"{regret}.querySelector('button').focus()")
    for key, down, word in (("Enter", False, "ascending"), (" ", True, "descending")):  # by keyboard alone
        browser.press(key)
        assert list(cells(browser, "problem-1")) == sorted(values, key=values.get, reverse=down)
        assert browser.run(f"{regret}.getAttribute('aria-sort')") == word
        assert browser.run(f"{headings}.filter(th => th.getAttribute('aria-sort') !== 'none').length") == 1


def test_a_chosen_algorithm_is_followed_everywhere(browser, page):
    browser.open(page)
    browser.run("document.querySelector('#problem-1 .verdict .pick[data-label=\"triple-q\"]').focus()")
    browser.press("Enter")
    assert browser.run("[...document.querySelectorAll('tr.chosen')].every(r => r.dataset.label === 'triple-q')")
    assert browser.run("document.querySelectorAll('.verdict tr.chosen').length") == 3  # in every problem
    bright = "[...document.querySelectorAll('path.line[data-label]')].filter(p => !p.classList.contains('dim'))"
    assert browser.run(f"{bright}.length > 0 && {bright}.every(p => p.dataset.label === 'triple-q')")
    assert browser.run("document.querySelector('#problem-1 [data-control=label]').value") == "triple-q"
    assert "frame length" in browser.run("document.querySelector('#problem-1 [data-internals]').textContent")
    browser.run("document.querySelector('#problem-2 .verdict .pick[data-label=\"triple-q\"]').click()")
    assert browser.run("document.querySelectorAll('tr.chosen, .dim').length") == 0
    assert browser.errors == []


def test_axes_and_forms_switch_the_drawing(browser, page):
    browser.open(page)
    line = "document.querySelector('#problem-1 [data-charts=curves] path.line').getAttribute('d')"
    seen = {browser.run(line)}
    for choice in ("log", "strong", "realised"):
        browser.run(f"document.querySelector('#problem-1 input[value={choice}]').click()")
        browser.settle()
        seen.add(browser.run(line))
    assert len(seen) == 4 and not any("NaN" in path for path in seen)
    titles = browser.run(
        "[...document.querySelectorAll('#problem-1 [data-charts=curves] figcaption')].map(x => x.firstChild.innerText)"
    )
    assert titles == ["realised regret", "realised violation of cost ≤ 0.5"]
    assert browser.run("document.querySelector('#problem-3 input[value=weak]').disabled")
    assert browser.errors == []


def test_a_chart_is_read_out_by_arrow_keys(browser, page, shown):
    browser.open(page)
    browser.run("document.querySelector('#problem-1 figure svg').focus()")
    browser.press("ArrowRight")
    text = browser.run("document.querySelector('#problem-1 .tip').textContent")
    assert text.startswith("episode 1,000,000") and "pri" in text and "triple-q" in text
    browser.press("ArrowLeft")
    assert not browser.run("document.querySelector('#problem-1 .tip').textContent").startswith("episode 1,000,000")
    numbers = dict(re.findall(r"(pri|triple-q|opt-cmdp) (-?[\d.]+ ?[kM]?)", text))
    for group in groups(shown.records)[:3]:
        mantissa, _, unit = numbers[group.label].partition(" ")
        expected = finals(group, "regret").mean()
        assert float(mantissa) * {"": 1, "k": 1e3, "M": 1e6}[unit] == pytest.approx(expected, rel=6e-4)


CHART = "document.querySelector('#problem-1 [data-charts=curves] figure')"
PATHS = f"[...{CHART}.querySelectorAll('path.line')].map(p => [p.dataset.label, p.getAttribute('d')])"
VALUES = f"[...{CHART}.querySelectorAll('.plot > svg > text')].map(t => t.textContent)"  # of both axes


def test_every_way_to_zoom_changes_the_axes_and_every_way_back_restores_them(browser, page):
    browser.open(page)
    x, y, width, height = browser.box(f"{CHART}.querySelector('svg')")
    full = browser.run(VALUES)
    middle = (x + 0.5 * width, y + 0.6 * height)

    def changed(back):
        assert browser.run(VALUES) != full and not browser.run(f"{CHART}.querySelector('.all').hidden")
        back()
        browser.settle()
        assert browser.run(VALUES) == full and browser.run(f"{CHART}.querySelector('.all').hidden")

    browser.mouse((x + 0.4 * width, middle[1]), middle, (x + 0.7 * width, middle[1]))  # along: the height refits
    marks = [float(t.replace(" M", "e6").replace(" k", "e3")) for t in browser.run(VALUES) if t[-1] in "Mk"]
    assert marks and max(marks) < 1e6  # the end of the run is out of sight
    changed(lambda: browser.run(f"{CHART}.querySelector('.all').click()"))
    browser.mouse((x + 0.4 * width, y + 0.4 * height), middle, (x + 0.7 * width, y + 0.8 * height))  # a rectangle
    changed(lambda: browser.press("0"))
    browser.wheel(*middle, 100)
    changed(lambda: browser.wheel(*middle, -100))
    browser.wheel(*middle, 100, ctrl=False)  # without Ctrl the page scrolls
    assert browser.run(VALUES) == full
    browser.run(f"{CHART}.querySelector('svg').focus()")
    browser.press("+")
    near = browser.run(VALUES)
    browser.press("ArrowLeft", shift=True)
    assert browser.run(VALUES) != near
    changed(lambda: browser.press("Escape"))
    browser.press("+")
    changed(lambda: browser.run(f"{CHART}.querySelector('svg').dispatchEvent(new MouseEvent('dblclick'))"))
    assert browser.errors == []


def test_hidden_algorithms_leave_the_charts_and_the_axes_refit(browser, page, shown):
    browser.open(page)
    worst = max(groups(shown.records)[:3], key=lambda g: finals(g, "regret").mean()).label
    button = f"document.querySelector('#problem-1 .show[data-label=\"{worst}\"]')"
    before, marks = dict(browser.run(PATHS)), browser.run(VALUES)
    browser.run(f"{button}.focus()")
    browser.press("Enter")
    after = dict(browser.run(PATHS))
    assert set(before) - set(after) == {worst} and browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    assert all(after[label] != before[label] for label in after) and browser.run(VALUES) != marks
    assert worst not in browser.run(f"{CHART}.querySelector('.tip').textContent")
    browser.run(f"{button}.click()")
    assert dict(browser.run(PATHS)) == before
    browser.run(f"{button}.focus()")
    browser.press("Enter", shift=True)
    assert list(dict(browser.run(PATHS))) == [worst]
    browser.run(f"{button}.dispatchEvent(new MouseEvent('click', {{bubbles: true, shiftKey: true}}))")
    assert dict(browser.run(PATHS)) == before and browser.errors == []


def test_phases_are_strips_above_the_plot_in_the_colour_of_their_algorithm(browser, page, shown):
    for width in (1300, 390):
        browser.open(page, width=width)
        strips = browser.run(f"""[...{CHART}.querySelectorAll('[data-strip]')].map(g => [g.dataset.strip,
            [...g.querySelectorAll('rect')].map(r => r.textContent), g.getBoundingClientRect().bottom,
            getComputedStyle(g.querySelector('rect')).fill ===
            getComputedStyle({CHART}.querySelector(`path.line[data-label="${{g.dataset.strip}}"]`)).stroke])""")
        phased = [g for g in groups(shown.records)[:3] if len(g.records[0].phases) > 1]
        assert [strip[0] for strip in strips] == [g.label for g in phased]
        top = browser.run(f"{CHART}.querySelector('.plot svg svg').getBoundingClientRect().top")
        for (_, titles, bottom, coloured), group in zip(strips, phased, strict=True):
            assert [title.split(": ")[1].split(" from ")[0] for title in titles] == [
                n for n, _ in group.records[0].phases
            ]
            assert bottom <= top + 1 and coloured
        boxes = browser.run("""[...document.querySelectorAll('figure')].map(
            f => [...f.querySelectorAll('.phase-name')].map(t => {
                const b = t.getBoundingClientRect();
                return [b.left, b.top, b.right, b.bottom];
            }))""")
        for names in boxes:
            for i, a in enumerate(names):
                assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in names[:i])


def test_one_line_that_flattens_the_others_gets_a_symmetric_log_axis(browser, page):
    """The rule, on hand-made lines; and that hiding the line brings the linear axis back."""
    browser.open(page)
    assert browser.run("flattens([[0, 5, 10], [0, 4, 9], [0, 500, 1000]])")
    assert not browser.run("flattens([[0, 5, 10], [0, 25, 30], [0, 30, 60]])")
    assert browser.run("flattens([[1, 1, 1, 1, 1, 1, 1, 1, 1, 100]])")  # a single peak
    assert not browser.run("flattens([[0, 0, 0]])") and not browser.run("flattens([])")
    browser.run("""{ const line = (label, top) => ({ label, look: 0, x: [1, 2, 3], mean: [0, top / 2, top] });
        window.tried = chart({ title: 't', x: 'episode', xScale: 'linear', yScale: 'auto', zero: true,
                               series: [line('a', 10), line('b', 9), line('flat', 9000)] });
        document.body.append(tried); }""")
    browser.settle()
    assert browser.run("tried.querySelector('small').textContent") == "symlog axis"
    browser.run("toggle('flat')")
    assert browser.run("tried.querySelector('small').textContent") == ""


def test_wide_bands_of_few_seeds_do_not_flatten_the_lines(browser, page):
    """Lines from 0 to 10 with a band of +-100: the axis ends at most once their range beyond them."""
    browser.open(page)
    line = "{ label: 'a', look: 0, x: [1, 2], mean: [0, 10], low: [-100, -90], high: [100, 110] }"
    spec = "{ xScale: 'linear', yScale: 'linear', zero: true }"
    assert browser.run(f"(s => [s.low, s.high])(axes({spec}, [{line}], [], null)[1])") == pytest.approx([-11.2, 21.2])
    narrow = line.replace("[-100, -90]", "[-1, 9]").replace("[100, 110]", "[1, 11]")
    assert browser.run(f"(s => [s.low, s.high])(axes({spec}, [{narrow}], [], null)[1])") == pytest.approx(
        [-1.48, 11.48]
    )
    assert browser.run(f"axes({spec.replace('linear', 'log')}, [], [], null).every(s => s.low > 0 || s === 'log')")


def test_seed_lines_appear_on_demand_and_are_those_of_the_records(browser, page, shown):
    browser.open(page)
    box = "document.querySelector('#problem-1 [data-control=seeds]')"
    assert browser.run(f"{CHART}.querySelectorAll('path.seed').length") == 0
    browser.run(f"{box}.focus()")
    browser.press(" ")
    several = [g for g in groups(shown.records)[:3] if len(g.samples) > 1]
    assert browser.run(f"{CHART}.querySelectorAll('path.seed').length") == sum(len(g.samples) for g in several)
    kept = browser.run("data.problems[0].groups.map(g => [g.label, g.at, g.curves.regret[0].raw ?? null])")
    for (label, at, raw), group in zip(kept, groups(shown.records)[:3], strict=True):
        line = curve(group, "regret")
        assert label == group.label and (raw is None) == (len(group.samples) == 1)
        if raw is not None:
            np.testing.assert_allclose(raw, line.raw[:, np.searchsorted(line.episode, at)], rtol=6e-4, atol=1e-9)
    browser.run(f"{box}.click()")
    assert browser.run(f"{CHART}.querySelectorAll('path.seed').length") == 0 and browser.errors == []


def test_charts_and_tables_can_be_taken_away(browser, page, shown):
    """SVG with its own colours and legend, PNG at twice the size, CSV with the numbers, tables in three forms."""
    browser.open(page)
    browser.run("window.saved = {}; window.saveAddress = (name, href) => { window.saved[name] = href; }")
    browser.run(f"{CHART}.querySelectorAll('.tools [data-file]').forEach(b => b.click())")
    browser.wait("Object.keys(saved).length === 3")
    files = {name: unquote(href.partition(",")[2]) for name, href in browser.run("saved").items()}
    found = groups(shown.records)[:3]
    rows = list(csv.DictReader(io.StringIO(files["regret.csv"])))
    for group in found:
        mine = [row for row in rows if row["line"] == group.label]
        line = curve(group, "regret")
        at = np.searchsorted(line.episode, [float(row["episode"]) for row in mine])
        for column in ("mean", "low", "high"):
            expected = getattr(line, column)
            assert ([row[column] for row in mine] == [""] * len(mine)) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose([float(row[column]) for row in mine], expected[at], rtol=1e-5, atol=1e-9)
    picture = ElementTree.fromstring(files["regret.svg"])
    assert {group.label for group in found} <= {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert "class=" not in files["regret.svg"] and "var(" not in files["regret.svg"]
    png = base64.b64decode(files["regret.png"])
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20]) == pytest.approx(2 * float(picture.get("width")), abs=2)
    browser.run(
        "window.saved = {}; document.querySelectorAll('[data-table=problem-1-verdict] button').forEach(b => b.click())"
    )
    files = {name: unquote(href.partition(",")[2]) for name, href in browser.run("saved").items()}
    table = group_table(found)
    assert files["paper-grid.tex"] == table.to_latex() and files["paper-grid.md"] == table.to_markdown()
    (row, *_) = csv.DictReader(io.StringIO(files["paper-grid.csv"]))
    assert float(row["regret"]) == finals(found[0], "regret").mean()
    assert browser.errors == []


def test_the_summary_over_problems_comes_first_and_is_the_grid_of_the_study(browser, page, shown):
    browser.open(page)
    assert browser.run("document.querySelector('main section').id") == "summary"
    table = browser.run("""[...document.querySelectorAll('#summary table')[0].tBodies[0].rows].map(
        r => [...r.cells].map(c => [c.textContent, c.dataset.value ?? '', c.classList.contains('best')]))""")
    expected = shown.grid("strong_regret").rows
    for row, mine in zip(table, expected, strict=True):
        assert row[0][0].strip() == mine.problem
        values = [float(value) for _, value, _ in row[1:] if value]
        assert values == [x.mean for x in mine.means.values()]
        assert sum(best for *_, best in row[1:]) == (len(mine.means) > 1)
    one = shown.only(envs="paper/grid")
    assert summary(one.groups(), problems(one)) is None


def test_the_report_opens_with_the_result_of_every_problem_and_its_regret(browser, page, shown):
    browser.open(page)
    lines = browser.run("[...document.querySelectorAll('#summary .said li')].map(x => x.textContent.trim())")
    assert len(lines) == 2  # of the third problem only realised regret is known
    found = Study(tuple(r for r in shown.records if r.run.env == "paper/grid")).groups()
    ends = {group.label: finals(group, "strong_regret").mean() for group in found}
    kept = {
        g.label
        for g in found
        if all(np.all(r.policy_utilities[0] <= r.constraints[0].bound_on_total) for r in g.records)
    }
    best = min(kept or ends, key=lambda name: ends[name])
    assert lines[0].startswith(f"paper/grid: {best} has the least strong regret, {short(ends[best])}")
    assert lines[0].endswith("all meet the bounds.") and ("but no algorithm" in lines[0]) == (not kept)
    titles = browser.run("""[...document.querySelectorAll('[data-charts=opening] figcaption')].map(
        x => x.firstChild.textContent)""")
    assert titles[0] == "regret on paper/grid" and len(titles) == 3


def test_the_verdict_prefers_policies_within_the_bounds_to_less_regret():
    """Hand-made records: the algorithm with less regret violates the bound in one of its runs."""
    records = [make_record("paper/grid", algo, seed) for algo in ("pri", "triple-q") for seed in range(3)]
    bound = records[0].constraints[0].bound_on_total
    ends = {a: np.mean([r.final("strong_regret") for r in records if r.run.algo == a]) for a in ("pri", "triple-q")}
    less, more = sorted(ends, key=lambda name: ends[name])
    within = {r.run.key: bound - 0.1 for r in records}
    within[next(r.run.key for r in records if r.run.algo == less)] = bound + 0.1
    made = [replace(r, policy_utilities=(within[r.run.key],)) for r in records]
    assert said(groups(made)).startswith(f"{more} has the least strong regret")
    every = [replace(r, policy_utilities=(bound - 0.1,)) for r in records]
    assert said(groups(every)).startswith(f"{less} has the least strong regret")
    none = [replace(r, policy_utilities=(bound + 0.1,)) for r in records]
    assert said(groups(none)).endswith("but no algorithm returned policies that all meet the bounds.")
    alone = [replace(r, policy_utilities=(within[r.run.key],)) for r in records if r.run.algo == less]
    assert said(groups(alone)).endswith("; 2 of 3 returned policies meet the bounds.")


def test_the_policy_view_marks_decisions_left_to_chance_step_by_step(browser, page, shown):
    browser.open(page)
    record = shown.records[0]
    marked = "[...document.querySelectorAll('#problem-1 .board .cell.chance')].map(c => c.dataset.state)"
    slider = "document.querySelector('#problem-1 [data-control=step]')"
    for step in range(1, record.policy.horizon + 1):
        browser.run(f"{slider}.value = {step}; {slider}.dispatchEvent(new Event('input'))")
        assert browser.run(marked) == [d.state for d in record.decisions if d.step == step]
    assert record.decisions[0].state in browser.run(
        "document.querySelector('#problem-1 [data-policy=summary]').textContent"
    )
    rows = "[...document.querySelectorAll('#problem-2 [data-policy=board] tr.chance')].map(r => r.dataset.state)"
    table = next(r for r in shown.records if r.run.env.startswith("two"))
    assert browser.run(rows) == [d.state for d in table.decisions if d.step == 1]


FORMULAS = ["=1+1", "+a", "@b", "-c", "'=1"]  # as a spreadsheet would take them
CELLS = [*FORMULAS, "it's", "a,b", 'say "x"', " x", "=1,2", "two\nlines", "-inf", "-1.5", "", "50 %"]


def test_a_cell_of_a_downloaded_table_is_no_formula_for_a_spreadsheet(browser, page):
    browser.open(page)
    assert browser.run(f"{json.dumps(CELLS)}.map(csvCell)") == [csv_cell(x) for x in CELLS]
    assert browser.run("csvText([[-1.5, -1e-7, null, '=a', '# b']])") == '-1.5,-1e-7,,\'=a,"# b"\n'


def test_tables_of_a_page_have_no_formulas_for_spreadsheets():
    columns = [Column("name", "name", "", itemgetter("name")), Column("value", "value", "", itemgetter("value"))]
    rows = [{"name": x, "value": -0.5} for x in CELLS] + [{"name": "none", "value": None}]
    text = _files(Table("t", tuple(columns), tuple(rows)))["files"]["csv"]
    assert text.splitlines()[:3] == ["name,value", "'=1+1,-0.5", "'+a,-0.5"]
    read = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert [x[1:] if x[:2] in ("'=", "'+", "'@", "'-", "''") else x for x, _ in read] == [*CELLS, "none"]
    assert read[-1][1] == ""


def test_prices_and_multipliers_are_the_exact_ones(browser, page):
    browser.open(page)
    prices = browser.run("data.problems.map(p => p.prices)")
    assert prices[0] == ck.solve(ck.load("paper/grid")).shadow_prices.tolist()
    assert prices[1] == ck.solve(two_bounds()).shadow_prices.tolist() and prices[2] is None
    parts = "[...document.querySelectorAll('[data-part={}]')].map(x => !x.hidden)"
    assert browser.run(parts.format("price")) == [True, True, False]
    assert browser.run(parts.format("dual")) == [True, True, True]
    line = browser.run("data.problems[0].tradeoffs[0]")
    expected = ck.tradeoff(ck.load("paper/grid"), "cost", len(line["bounds"]))
    np.testing.assert_allclose(line["values"], expected.values)


def test_the_reproduction_box_says_what_to_type(browser, page):
    browser.open(page)
    commands = browser.run("[...document.querySelectorAll('pre')].map(p => p.textContent.trim().split('\\n'))")
    call = "ck.learn('paper/grid', 'pri', seed=seed, episodes=1000000, preset='practical')"
    assert commands[0][0] == f"for seed in [0, 1, 2]: {call}"
    assert commands[1][0].startswith("for seed in [0, 1, 2]: ck.learn('two </script><b>', 'pri', ")
    assert commands[2][0].endswith("seed=seed, episodes=1000000, preset='practical', eta=0.5)")
    assert f"numpy {np.__version__}" in browser.run(
        "document.querySelector('#problem-1 pre').parentElement.textContent"
    )


def test_the_copy_button_copies_the_commands_or_selects_them(browser, page):
    """A browser may refuse the clipboard. Both answers are given by hand, and what is taken are the commands."""
    browser.open(page)
    clipboard = "Object.defineProperty(navigator, 'clipboard', {{configurable: true, value: {{writeText: {}}}}})"
    wanted = browser.run("document.querySelector('.copy').parentElement.querySelector('pre').textContent")
    for answer, taken, shown in (
        ("async (text) => { window.taken = text }", "window.taken", "copied"),
        ("async () => { throw new Error('refused') }", "getSelection().toString()", "selected: press Ctrl+C"),
    ):
        browser.run(clipboard.format(answer) + ", 1")
        browser.run("document.querySelector('.copy').click()")
        browser.wait(f"document.querySelector('.copy').textContent === {json.dumps(shown)}")
        assert browser.run(taken).strip() == wanted.strip() and wanted.strip()
    assert not browser.errors
