"""The report of a plan: its numbers are those of the functions that compute them, and everything on it can be used."""

import csv
import io
import json
import re
from urllib.parse import unquote

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.results.report.plan import render_plan
from records import two_bounds

EPISODES, SEED = 3_000, 5


def rule(state):
    return "admit idle" if state == "empty" else "refuse slow"


@pytest.fixture(scope="module")
def queue():
    return ck.load("queue")


@pytest.fixture(scope="module")
def page(queue, tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    today = {"today": ck.Policy.uniform(queue), "<b>rule</b>": rule}
    return ck.plan_report(queue, path, today, title="A <i>plan</i>", episodes=EPISODES, seed=SEED)


def data_of(page):
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S
    )
    return json.loads(found.group(1))


def test_values_totals_prices_and_differences_are_those_of_the_comparison(queue, page):
    data, best = data_of(page), ck.solve(queue)
    simple = ck.simplify(best, 0.01)
    named = {"today": ck.Policy.uniform(queue), "<b>rule</b>": ck.Policy.of(queue, rule)}
    plans = {**named, "simple": simple.policy, "optimum": best.policy}
    assert [plan["label"] for plan in data["plans"]] == list(plans)
    for plan in data["plans"]:
        expected = ck.evaluate(queue, plans[plan["label"]])
        assert plan["value"] == pytest.approx(expected.v, abs=1e-9)
        np.testing.assert_allclose(plan["totals"], expected.w, atol=1e-9)
    bounds = list(csv.DictReader(io.StringIO(data["tables"]["bounds"]["files"]["csv"])))
    np.testing.assert_allclose([float(row["price"]) for row in bounds], best.shadow_prices, rtol=1e-9)
    compared = ck.compare_policies(queue, named)
    costs = [x.cost for x in compared.differences][:12]
    dear = list(csv.DictReader(io.StringIO(data["tables"]["differences"]["files"]["csv"])))
    np.testing.assert_allclose([float(x["cost"]) for x in dear], costs, rtol=1e-9)
    judged = list(csv.DictReader(io.StringIO(data["tables"]["plans"]["files"]["csv"])))
    assert [row["met"] for row in judged] == [str(all(x.met)) for x in compared.policies] + ["True", "True"]
    for n, line in enumerate(data["tradeoffs"]):
        expected = ck.tradeoff(queue, queue.constraints[n].name, len(line["bounds"]))
        np.testing.assert_allclose(line["values"], expected.values, atol=1e-9)
        assert [point["at"] for point in line["points"]] == [[[p["totals"][n], p["value"]]] for p in data["plans"]]


def test_histograms_are_those_of_the_simulation(queue, page):
    data = data_of(page)
    for name, shown in zip(("reward", "energy", "backlog"), data["spreads"], strict=True):
        for line in shown["series"]:
            if line["label"] == "today":
                x = ck.simulate_policy(queue, ck.Policy.uniform(queue), EPISODES, seed=SEED).totals[name]
                inside = [np.mean(np.abs(x - centre) <= line["width"] / 2) for centre in line["x"]]
                np.testing.assert_allclose(line["mean"], inside, atol=1e-12)
            assert sum(line["mean"]) == pytest.approx(1)


def test_the_range_of_a_time_course_is_the_quantiles_of_many_episodes(queue):
    """The shares of episodes below the lower and above the upper end, by the exact distribution of the signal."""
    policy = ck.Policy.uniform(queue)
    course = ck.time_course(queue, policy, "backlog", share=0.8)
    q = ck.occupancy(queue, policy)
    x = -queue.g[queue.constraint_index("backlog")]  # inside the package an upper bound counts negatively
    for h in range(queue.H):
        g = x[h % len(x)]
        assert q[h][g < course.low[h] - 1e-12].sum() < 0.1 <= q[h][g <= course.low[h] + 1e-12].sum() + 1e-12
        assert q[h][g < course.high[h] - 1e-12].sum() < 0.9 <= q[h][g <= course.high[h] + 1e-12].sum() + 1e-12
        assert course.mean[h] == pytest.approx((q[h] * g).sum())
    with pytest.raises(ValueError, match=r"share is 1, expected a number between 0 and 1"):
        ck.time_course(queue, policy, share=1)
    with pytest.raises(ValueError, match="unknown signal 'fuel'; known are reward, energy, backlog"):
        ck.time_course(queue, policy, "fuel")


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (390, True)])
def test_the_page_opens_without_a_complaint_and_every_chart_is_drawn(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.errors == [] and browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('h1').textContent") == "A <i>plan</i>"
    assert browser.run("document.querySelectorAll('.plot > svg').length") == 3 + 2 + 3
    assert browser.run("[...document.querySelectorAll('.plot > svg')].every(x => x.querySelector('path, rect'))")
    assert not browser.run("document.body.innerHTML.includes('NaN')")
    assert "<b>rule</b>" in browser.run("document.querySelector('#plans table').textContent")


def test_plans_far_from_the_price_curve_are_arrows_at_the_edge_that_point_to_them(browser, tmp_path):
    """The curve goes from (0, 3) to (3, 6): a plan is far if it is beyond a quarter of that."""
    worth = {"save": (1, 0), "spend": (2, 1), "idle": (0, 0), "waste": (2, 5), "ruin": (-20, 5)}  # reward and cost
    shop = ck.CMDP.from_function(
        start=0,
        horizon=3,
        actions=list(worth),
        step=lambda s, a: {0: 1.0},
        reward=lambda s, a: worth[a][0],
        constraints=[ck.at_most("cost", 1.5, lambda s, a: worth[a][1])],
    )
    plans = {action: (lambda s, action=action: action) for action in worth}
    page = ck.plan_report(shop, tmp_path / "shop.html", plans, episodes=100, seed=SEED)
    browser.open(page, width=1300)
    far_plans = {}
    for k, shown in enumerate(data_of(page)["tradeoffs"]):
        figure = f"document.querySelectorAll('[data-charts=price] figure')[{k}]"
        part = f"{figure}.querySelector('.plot > svg > svg')"
        names = ("x", "y", "width", "height")
        left, top, width, height = (float(browser.run(f"{part}.getAttribute('{name}')")) for name in names)
        for dot in shown["points"]:
            (at,) = dot["at"]
            sides = []  # -1, 0 or 1: left of, on, right of the curve's range; and below, on, above
            for x, values in zip(at, (shown["bounds"], shown["values"]), strict=True):
                low, high = min(values), max(values)
                sides.append(-1 if x < low - (high - low) / 4 else int(x > high + (high - low) / 4))
            drawn = f"{figure}.querySelector(`.dot[data-label={json.dumps(dot['label'])}]`)"
            if sides == [0, 0]:
                assert browser.run(f"{drawn}.tagName") == "circle"
                continue
            far_plans[dot["label"]] = tuple(sides)
            assert browser.run(f"{drawn}.tagName") == "path"
            place = browser.run(f"{drawn}.getAttribute('transform')")
            moved = re.fullmatch(r"translate\((\S+) (\S+)\) rotate\((\S+)\)", place)
            x, y, angle = (float(moved[i]) for i in (1, 2, 3))
            if sides[0]:
                assert x == pytest.approx(left if sides[0] < 0 else left + width)
                assert np.sign(round(np.cos(np.radians(angle)), 9)) == sides[0]
            if sides[1]:
                assert y == pytest.approx(top + height if sides[1] < 0 else top)
                assert np.sign(round(np.sin(np.radians(angle)), 9)) == -sides[1]  # downwards is positive
            assert left <= x <= left + width and top <= y <= top + height
    assert far_plans == {"idle": (0, -1), "waste": (1, 0), "ruin": (1, -1)}


def test_the_controls_of_the_page_work(browser, page, queue, tmp_path):
    browser.open(page)
    browser.run("window.saved = {}; window.saveAddress = (name, href) => { window.saved[name] = href; }")
    browser.run(
        "document.querySelectorAll('#plans .tools [data-file=CSV], #spread .tools [data-file=SVG]')"
        ".forEach(b => b.click())"
    )
    files = {name: unquote(href.partition(",")[2]) for name, href in browser.run("saved").items()}
    rows = {row[0]: row for row in csv.reader(io.StringIO(files["value.csv"]))}
    assert float(rows["today"][1]) == pytest.approx(ck.evaluate(queue, ck.Policy.uniform(queue)).v)
    assert ">today<" in files["reward-of-single-episodes.svg"]
    browser.run("document.querySelector('#spread .show[data-label=today]').click()")
    assert (
        browser.run(
            "document.querySelectorAll('figure path[data-label=today], figure circle[data-label=today]').length"
        )
        == 0
    )
    assert browser.run("document.querySelectorAll('figure path.line[data-label=optimum]').length") == 3
    plan, step = (f"document.querySelector('[data-control={name}]')" for name in ("label", "step"))
    browser.run(f"{plan}.value = 'optimum'; {plan}.dispatchEvent(new Event('change'))")
    drawn = ck.solve(queue).stochastic_decisions()
    browser.run(f"{step}.value = {drawn[0].step}; {step}.dispatchEvent(new Event('input'))")
    rows = "[...document.querySelectorAll('[data-policy=board] tr.chance')].map(r => r.dataset.state)"
    assert browser.run(rows) == [d.state for d in drawn if d.step == drawn[0].step]
    assert browser.errors == []


def test_sentences_say_what_the_numbers_say(queue):
    text = render_plan(queue, ck.Policy.uniform(queue), episodes=100)
    judged = ck.compare_policies(queue, {"today": ck.Policy.uniform(queue)}).policies[0]
    assert judged.met == (True, False)
    assert (
        f"At present the plan exceeds the limit on backlog ({judged.utilities[1]:.2f} against 20); it is worth "
        f"{judged.value:.3f}" in text
    )
    kept = render_plan(queue, ck.solve(queue.with_bounds(energy=20.0)).policy, episodes=100)
    assert "At present the plan meets every bound" in kept


def test_plans_without_a_horizon_without_bounds_or_without_a_policy_of_today_have_a_page_too(monkeypatch):
    machine = ck.load("machine")
    assert "What the bounds cost" in render_plan(machine, None, episodes=50)
    free = ck.CMDP([[[1.0], [1.0]]], [[1, 0]], horizon=3)
    text = render_plan(free, ck.Policy.uniform(free), episodes=50)
    assert "What the bounds cost" not in text and "The differences that matter most" in text
    assert "What to do" in render_plan(two_bounds(), None, episodes=50)
    mixed = ck.Mixture((ck.Policy.uniform(free), ck.solve(free).policy), [0.5, 0.5])
    assert "A draw among several policies (today)" in render_plan(free, mixed, episodes=50)
    monkeypatch.setattr("cmdpkit.results.report.plan.MOST_PAIRS", 2)
    large = render_plan(free, ck.Policy.uniform(free), episodes=50)
    assert "The model is large" in large and "Single episodes" in large
    with pytest.raises(ValueError, match="a policy is called 'optimum'"):
        render_plan(free, {"optimum": ck.Policy.uniform(free)})


def test_the_command_writes_the_page_and_replaces_nothing(queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ck.write_policy(ck.Policy.uniform(queue), "today.csv")
    ck.write_model(queue, "shop.json")
    run = lambda *words: CliRunner().invoke(app, ["report", *words])  # noqa: E731
    done = run("shop.json", "--today", "today.csv")
    assert done.exit_code == 0 and done.stdout == "wrote shop.html\n"
    assert data_of(tmp_path / "shop.html")["plans"][0]["label"] == "today"
    again = run("shop.json")
    assert again.exit_code == 1 and "shop.html exists already; --force replaces it" in again.output
    assert json.loads(run("queue", "--out", "q.html", "--json").stdout)["report"] == "q.html"
    assert "neither a folder of runs nor a model" in run("runs/nowhere").output
    assert run("queue", "--table", "latex").exit_code == 2 and run(".", "--today", "today.csv").exit_code == 2


def test_prices_in_different_units_are_not_ranked():
    """Counting a cost in thousandths changes its price a thousandfold, and must not change what the page says first."""
    said = []
    for unit in (1.0, 1000.0):
        model = ck.CMDP.from_function(
            start="s",
            horizon=4,
            actions=["work", "rest"],
            step=lambda s, a: {"s": 1.0},
            reward=lambda s, a: float(a == "work"),
            constraints=[
                ck.at_most("wear", 2.0 * unit, lambda s, a, unit=unit: unit * (a == "work")),
            ],
        )
        text = render_plan(model, None, episodes=50)
        said.append(re.search(r"Relaxing the bound wear[^.]*(\.\d+)? gains [0-9.e-]+ per unit\.", text))
        assert "dearest" not in text.partition("<script")[0]
    assert all(said)
