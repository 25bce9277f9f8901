"""The report in a real browser: no complaint, no request, and the numbers of the records."""

from __future__ import annotations

import json
import re
import shlex
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.records.manifest import Failure
from cmdpkit.records.record import Run
from cmdpkit.results.groups import finals, groups
from cmdpkit.results.report import DETAILS, problems, render
from cmdpkit.results.study import Study, model_of
from cmdpkit.running.learning import learn_many
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


def test_a_large_study_stays_under_the_limit_by_leaving_policies_and_points_out(shown):
    full = render(shown)
    small = render(shown, limit=int(len(full.encode()) * 0.5))
    assert len(small.encode()) < len(full.encode()) * 0.5
    assert "This study is large" in small and "This study is large" not in full
    with pytest.raises(ValueError, match=r"the report would have .* bytes, more than 1,000; report on fewer runs"):
        render(shown, limit=1000)


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


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_without_a_complaint_and_fits_the_window(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth") <= width
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
    ledger = browser.run(
        "[...document.querySelectorAll('.ledger tbody tr')].map("
        "r => [r.dataset.key, r.querySelector('.col-regret')?.dataset.value ?? ''])"
    )
    assert ledger == [[r.run.key, repr(r.regret) if "regret" in r.curves else ""] for g in found for r in g.records]


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
    browser.run("document.querySelector('#problem-2 .picks .pick[data-label=\"triple-q\"]').click()")
    assert browser.run("document.querySelectorAll('tr.chosen, .dim').length") == 0
    assert browser.errors == []


def test_axes_and_forms_switch_what_is_drawn(browser, page):
    browser.open(page)
    line = "document.querySelector('#problem-1 [data-charts=curves] path.line').getAttribute('d')"
    seen = {browser.run(line)}
    for choice in ("log", "strong", "realised"):
        browser.run(f"document.querySelector('#problem-1 input[value={choice}]').click()")
        browser.settle()
        seen.add(browser.run(line))
    assert len(seen) == 4 and not any("NaN" in path for path in seen)
    titles = browser.run(
        "[...document.querySelectorAll('#problem-1 [data-charts=curves] figcaption')].map(f => f.textContent)"
    )
    assert titles == ["realised regret", "realised violation of cost ≤ 0.5"]
    assert browser.run("document.querySelector('#problem-3 input[value=weak]').disabled")
    assert browser.errors == []


def test_a_chart_is_read_out_by_arrow_keys(browser, page, shown):
    browser.open(page)
    browser.run("document.querySelector('#problem-1 figure svg').focus()")
    browser.press("ArrowRight")
    text = browser.run("document.querySelector('#problem-1 .readout').textContent")
    assert text.startswith("episode 1,000,000") and "pri" in text and "triple-q" in text
    browser.press("ArrowLeft")
    assert not browser.run("document.querySelector('#problem-1 .readout').textContent").startswith("episode 1,000,000")


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


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_downloaded_policies_are_those_of_the_records(browser, page, shown, suffix, tmp_path):
    browser.open(page)
    browser.run("window.saved = {}; window.save = (name, type, text) => { window.saved[name] = text; }")
    browser.run(f"document.querySelectorAll('.ledger [data-file={suffix}]').forEach(b => b.click())")
    saved = browser.run("window.saved")
    assert len(saved) == len(shown.records)
    for record in shown.records:
        path = tmp_path / f"{record.run.key}.{suffix}"
        path.write_text(saved[path.name], encoding="utf-8")
        assert ck.read_policy(path) == record.policy


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
    assert commands[0][0] == "cmdpkit learn paper/grid --algo pri --preset practical --episodes 1000000 --seeds 3"
    assert commands[1][0].startswith("cmdpkit learn 'two </script><b>' --algo pri")
    assert commands[2][0].endswith("--episodes 1000000 --seeds 1 --first-seed 4 --set eta=0.5")
    call = "ck.learn('blind', 'triple-q', seed=seed, episodes=1000000, preset='practical')"
    assert commands[2][1] == f"for seed in [4, 7]: {call}"
    assert f"numpy {np.__version__}" in browser.run(
        "document.querySelector('#problem-1 pre').parentElement.textContent"
    )


def test_the_command_of_the_box_makes_the_same_runs():
    """Bounds, noise and parameters included: what the command asks for has the keys of the records."""
    asked = {"bounds": {"utility": 1.9}, "noise": "bernoulli", "eta": 4.0}
    made = learn_many("paper/synthetic", "triple-q", episodes=50, seeds=(2, 3), **asked)
    (command,) = problems(Study(tuple(made)), DETAILS[0])[0]["reproduction"]["commands"]
    words = shlex.split(command)
    options = dict(zip(words[3::2], words[4::2], strict=True))
    again = learn_many(
        words[2],
        options["--algo"],
        episodes=int(options["--episodes"]),
        seeds=range(int(options["--first-seed"]), int(options["--first-seed"]) + int(options["--seeds"])),
        preset=options["--preset"],
        bounds={name: float(value) for name, value in [options["--bound"].split("=")]},
        noise=options["--noise"],
        **{name: float(value) for name, value in [options["--set"].split("=")]},
    )
    assert [r.run.key for r in again] == [r.run.key for r in made]
    assert model_of(made[0].run) is not None


def test_the_command_of_a_run_with_readings_or_of_unknown_length_has_its_key():
    """Both were given as plain runs of so many episodes, which have other keys; and imported runs got commands too."""
    made = ck.learn("paper/synthetic", "cl-pri", stop=40)
    theirs = ck.import_run("paper/synthetic", "theirs", policies=[(5, made.policy)])
    (command,) = problems(Study((made, theirs)), DETAILS[0])[0]["reproduction"]["commands"]
    assert command == "cmdpkit learn paper/synthetic --algo cl-pri --preset practical --stop 40 --seeds 1"
    assert "Reproduce" not in render(Study((theirs,))) and "Reproduce" in render(Study((made,)))
    read = ck.learn("paper/synthetic", "dual-q", episodes=40, readings=[7])
    (command,) = problems(Study((read,)), DETAILS[0])[0]["reproduction"]["commands"]
    again = eval(command.partition(": ")[2], {"ck": ck, "seed": 0})
    assert again.run == read.run and 7 in again.curves["episode"]


def test_the_data_in_the_page_are_valid_json(page):
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert len(json.loads(found.group(1))["problems"]) == 3


def test_the_command_names_the_file_of_a_baseline_and_not_its_digest():
    safe = ck.solve(ck.load("paper/synthetic").with_bounds(utility=2.05)).policy
    runs = [ck.learn("paper/synthetic", "dope", episodes=20, seed=seed, baseline=safe) for seed in (0, 1, 5)]
    for made, told in ((runs[:2], "--seeds 2 --baseline YOUR-POLICY.json"), (runs[1:], "baseline=baseline)")):
        (command,) = problems(Study(tuple(made)), DETAILS[0])[0]["reproduction"]["commands"]
        assert command.endswith(told), command
