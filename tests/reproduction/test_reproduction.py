"""The reproduction of the PRI paper: every published figure is read where the paper read it, and judged by a rule."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reproduction.__main__ as application
from reproduction.accounting import accounts, accounts_text
from reproduction.figures import ASSUMPTIONS, PUBLISHED, compared, figures_text, headlines
from reproduction.judging import below, judged
from reproduction.runs import GRID, READ_AT, SYNTHETIC, planned

import cmdpkit as ck
from cmdpkit.results.groups import groups
from cmdpkit.running.active import checkpoints
from records import make_record
from reproduction import claims, growth, judging, lower_bound, runs

FOLDER = Path(judging.__file__).parent

# -- public names only -------------------------------------------------------------------------------------------------


def uses(tree):
    """Modules that a file imports, names that it imports from them, and attributes of `ck`; other than its own."""
    modules, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "ck":
                names.add(node.attr)
            elif node.attr.startswith("_") and node.attr not in ("_replace", "__doc__"):  # public in Python
                names.add(f"private {node.attr}")
    return modules, names


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_reproduction_uses_public_names_only(path):
    """It imports the package as a whole, and takes from it what `cmdpkit.__all__` lists."""
    text = path.read_text(encoding="utf-8")
    modules, names = uses(ast.parse(text))
    assert {name for name in modules if name.startswith("cmdpkit")} <= {"cmdpkit"}
    assert "importlib" not in modules and "getattr(" not in text and "__import__" not in text
    assert names <= set(ck.__all__)


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "published", "values", "digits", "verdict"),
    [
        ("sum", 100.0, [99.0, 100.0, 101.0], 0.5, ("as published", True)),
        ("sum", 100.0, [80.0, 100.0, 120.0], 0.5, ("undecided", None)),
        ("sum", 100.0, [139.0, 140.0, 141.0], 0.5, ("140 % of published", False)),
        ("sum", -80.0, [-119.0, -118.0, -118.5], 0.5, ("148 % of published", False)),
        ("sum", 100.0, [-3.0, -4.0, -3.5], 0.5, ("differs by -104", False)),
        ("value", 1.561, [1.561, 1.562, 1.5615], 5e-4, ("as published", True)),
        ("value", 1.561, [1.555, 1.567, 1.561], 5e-4, ("undecided", None)),
        ("value", 0.0593, [0.0630, 0.0635, 0.0640], 5e-5, ("differs by 0.0042", False)),
        ("count", 151, [151.0, 151.0], 0, ("as published", True)),
        ("count", 151, [151.0, 152.0], 0, ("undecided", None)),
        ("count", 2, [0.0, 0.0], 0, ("differs by -2", False)),
    ],
)
def test_a_figure_is_as_published_only_if_its_whole_interval_is_close(rule, published, values, digits, verdict):
    """By hand: the interval of 99, 100, 101 is 100 +- 2.484, that of 80, 100, 120 is 100 +- 49.7."""
    assert judged(rule, published, judging.ends(ck.seed_mean(values)), digits) == verdict


@pytest.mark.parametrize("centre", [100.0, 103.0, 106.0, 140.0])
def test_noise_never_turns_a_figure_into_a_published_one(centre):
    """Seeds that scatter more around the same mean can lose a verdict, but never gain agreement."""
    spreads = [centre + spread * np.array([-1.0, 0.0, 1.0]) for spread in (0.01, 0.5, 5, 50)]
    seen = [judged("sum", 100.0, judging.ends(ck.seed_mean(values)), 0.0) for values in spreads]
    agreeing = [verdict == judging.AS_PUBLISHED for verdict in seen]
    assert agreeing == sorted(agreeing, reverse=True)
    assert seen[-1] == judging.UNDECIDED and any(agreeing) == (centre < 105)


def test_a_limit_is_kept_or_missed_by_the_whole_interval():
    assert below((-3.0, -1.0), 0.0) == judging.HOLDS
    assert below((1.0, 3.0), 0.0) == judging.FAILS
    assert below((-3.0, 1.0), 0.0) == judging.UNDECIDED


# -- figures -----------------------------------------------------------------------------------------------------------

SPREAD = {0: 0.9, 1: 1.0, 2: 1.1}
REALISED = {0: -50.0, 1: 0.0, 2: -20.0}
# Two triples that are not part of the stochastic decision of the grid, one of them tested twice, and one that is.
TESTS = [{"step": h, "state": s, "action": a} for h, s, a in ((2, 0, 1), (2, 0, 1), (3, 6, 2), (1, 2, 2))]


def made(part, regret, violation, seeds=3):
    """Records of all runs of an experiment, whose curves have given values where they are to be read.

    At the end of a longer run they have twice those, and everywhere else nonsense, so that nothing can be interpolated.
    """
    env = {"synthetic": SYNTHETIC, "grid": GRID}[part]
    cmdp = ck.load(env)
    optimum = ck.solve(cmdp)
    for run in planned(part, seeds).runs():
        record = make_record(env, run.algo, run.seed, cmdp, episodes=run.episodes, optimum=optimum)
        episode = np.array(checkpoints(run.episodes, run.readings))
        k = np.full(len(episode), 1e9)
        k[-1] = 2.0
        k[episode == READ_AT[env]] = 1.0
        k[episode == 1_000_000] = 0.25
        curves = {"episode": episode, "regret": regret * SPREAD[run.seed] * k}
        curves["violation"] = violation * SPREAD[run.seed] * k[None]
        curves["realised_violation"] = REALISED[run.seed] * k[None]
        internals = {"actions": {"to begin with": 630, "after usage": 200, "now": 151}, "tests": TESTS}
        yield replace(record, run=run, curves=curves, policy=optimum.policy, internals=internals)


def rows(part, regret, violation, seeds=3):
    return compared(groups(made(part, regret, violation, seeds)))


def of(found, algo="pri (printed)"):
    return {row.figure.quantity: row for row in found if row.algo == algo}


def test_curves_are_read_where_the_paper_read_them_and_the_interval_is_over_seeds():
    for row in rows("synthetic", 7e4, -5e4):
        if row.figure.quantity in ("regret", "violation"):
            value = 7e4 if row.figure.quantity == "regret" else -5e4
            expected = ck.seed_mean(value * np.array([0.9, 1.0, 1.1]))
            assert (row.measured.mean, row.measured.n) == (pytest.approx(value, rel=1e-6), 3)
            assert row.measured.low == pytest.approx(expected.low, rel=1e-6)
    grid = {row.figure.quantity: row.measured.mean for row in rows("grid", 7e4, -5e4)}
    ends = {name: x for name, x in grid.items() if name.endswith("end")}
    assert ends == {"regret at the end": pytest.approx(1.4e5), "violation at the end": pytest.approx(-1e5)}


def test_a_single_seed_decides_nothing_unless_seeds_make_no_difference(monkeypatch):
    verdicts = {row.verdict.text for row in rows("synthetic", 6.9e4, -8e4, seeds=1) if row.figure.kind != "ours"}
    assert verdicts == {"undecided"}
    for seed in range(3):
        monkeypatch.setitem(SPREAD, seed, 1.0)
        monkeypatch.setitem(REALISED, seed, -1.0)
    found = rows("grid", 1e5, -1.0)
    assert all(row.deterministic and row.measured.n == 1 and row.measured.low is None for row in found)
    assert of(found)["regret"].verdict.text == "59.2 % of published", "a run without chance is decided by itself"
    assert figures_text(found).count("one run (deterministic)") == len(found)


def test_kinds_say_what_a_figure_rests_on():
    """Regret, violation and policy of pri follow from settings that were chosen; only the optimum is exact."""
    found = [*rows("synthetic", 6.9e4, -8e4), *rows("grid", 1.69e5, -6.51e3)]
    kinds = {(row.env, row.algo, row.figure.quantity): row.figure.kind for row in found}
    assert {key for key, kind in kinds.items() if kind == "exact"} == {(SYNTHETIC, "pri (printed)", "optimum")}
    predicted = {key for key, kind in kinds.items() if kind == "predicted"}
    assert predicted == {(SYNTHETIC, "triple-q (authors)", name) for name in ("regret", "violation")}
    assert {kind for (env, _, _), kind in kinds.items() if env == GRID} == {"reconstruction", "ours"}
    assert {algo for (_, algo, _), kind in kinds.items() if kind == "ours"} == {
        "cl-pri (practical)",
        "triple-q (practical)",
    }
    assert all(row.verdict.agrees is None for row in found if row.figure.kind == "ours")
    assert [line.split(",")[0] for line in headlines(found)] == [
        "- exact", "- predicted", "- fitted", "- reconstruction"
    ]  # fmt: skip


def test_triples_that_were_checked_are_counted_once_and_without_the_needed_ones():
    found = of(rows("grid", 1.0, 1.0))
    assert found["other triples checked"].measured.mean == 2 and found["other triples checked"].verdict.agrees
    assert found["actions left, printed as 155"].verdict.agrees, "6 x 5 x 5 + 1"


def test_the_exact_figures_of_the_paper_are_those_of_the_instance():
    found = of(rows("synthetic", 1.0, 1.0))
    assert found["optimum"].verdict.text == "as published" and found["optimum"].measured.mean == pytest.approx(1.573063)
    assert found["action 2 at (1, 1)"].measured.mean == pytest.approx(0.2738, abs=1e-4)
    assert found["action 2 at (1, 1)"].verdict.text == "differs by 0.214"


def test_a_fixed_start_cannot_be_meant():
    """The argument in the assumption about the start: optima of the three possible initial states."""
    cmdp = ck.load(SYNTHETIC)
    optima = [ck.solve(ck.CMDP(cmdp.P, cmdp.r, cmdp.g[0], 2.0, mu=s)).value for s in range(3)]
    assert [f"{v:.3f}" for v in optima] == ["1.480", "2.045", "1.232"]
    assert all(f"{v:.3f}" in ASSUMPTIONS["start"] for v in optima)


def test_the_table_has_every_figure_with_its_numbered_assumptions():
    found = rows("synthetic", 7e4, -5e4)
    text = figures_text(found)
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| paper/")]
    listed = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    assert len(lines) == len(found) == sum(map(len, PUBLISHED[SYNTHETIC].values()))
    for cells, row in zip(lines, found, strict=True):
        assert (cells[0], cells[1], cells[5]) == (f"{row.env}, {row.algo}", row.figure.quantity, row.verdict.text)
        assert float(cells[3].replace(",", "")) == pytest.approx(row.figure.published, rel=1e-4)
        assert [listed[i] for i in cells[6].split(", ")] == [ASSUMPTIONS[name] for name in row.assumptions]


# -- accounting --------------------------------------------------------------------------------------------------------


def test_regret_and_violation_give_the_gaps_that_were_paid():
    """By hand: 68,900 - 0.7393 x 80,000 = 9,759, and 1,570,000 - 0.7393 x 417,000 = 1,261,700; price from the dual."""
    cmdp = ck.load(SYNTHETIC)
    price = (ck.solve(cmdp.with_bounds(utility=1.99)).value - ck.solve(cmdp.with_bounds(utility=2.01)).value) / 0.02
    assert price == pytest.approx(0.7393, abs=1e-4), "the slope of the optimum in the bound"
    text = accounts_text(accounts(groups(made("synthetic", 1000.0, -1000.0))))
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()[4:]]
    gaps = {(x[0], x[1]): float(x[4].replace(",", "")) for x in cells if len(x) > 1}
    assert gaps["pri, published", "8,000,000"] == pytest.approx(68_900 - price * 80_000, rel=1e-3)
    assert gaps["triple-q, published", "8,000,000"] == pytest.approx(1_570_000 - price * 417_000, rel=1e-3)
    assert gaps["pri (printed), measured", "8,000,000"] == pytest.approx(1000 * (1 - price), rel=1e-3)
    assert gaps["pri (printed), measured", "1,000,000"] == pytest.approx(250 * (1 - price), rel=1e-3)


# -- claims ------------------------------------------------------------------------------------------------------------


def judged_claims(part, regret, violation, share):
    """The claims about an experiment in which PRI's regret is that share of Triple-Q's with the authors' constants."""
    found = []
    for record in made(part, regret, violation):
        if record.run.preset == "authors":
            record = replace(record, curves={**record.curves, "regret": record.curves["regret"] / share})
        found.append(record)
    return claims.claims_of({part: groups(found)})


@pytest.mark.parametrize(
    ("share", "spread", "verdict"),
    [
        (0.044, 1e-3, "as published"),
        (0.045, 1e-3, "as published"),
        (0.044, 0.1, "undecided"),
        (0.12, 1e-3, "273 % of published"),
        (0.02, 1e-3, "45.5 % of published"),
        (0.95, 0.01, "2.16e+03 % of published"),
    ],
)
def test_the_ratio_of_regrets_is_judged_by_the_rule_of_all_figures(monkeypatch, share, spread, verdict):
    """Published is 4.4 %; a regret of 95 % of Triple-Q's is no "small fraction" of it, and 2 % is not the same."""
    for seed in range(3):
        monkeypatch.setitem(SPREAD, seed, 1 + spread * (seed - 1))
    claim = judged_claims("synthetic", 7e4, -3e4, share)[0]
    assert "small fraction" in claim.text and claim.verdict.text == verdict
    assert "as this package tunes it loses 70,000" in claim.measured


@pytest.mark.parametrize("part", ["synthetic", "grid"])
@pytest.mark.parametrize(("violation", "verdict"), [(-3e4, "holds"), (3e4, "fails")])
def test_a_violation_is_judged_by_its_whole_interval(part, violation, verdict):
    claim = judged_claims(part, 7e4, violation, 0.05)[1]
    assert claim.text.startswith("The violation of PRI ends at or below zero") and claim.verdict.text == verdict


def test_the_policy_is_held_against_all_nine_printed_decisions():
    """The records hold the optimum: the printed actions, another probability. One wrong action is noticed."""
    found = list(made("synthetic", 7e4, -1.0))
    close, decision, whole = claims.claims_of({"synthetic": groups(found)})[2:5]
    assert [claim.verdict.text for claim in (close, decision, whole)] == ["holds"] * 3
    assert "all nine in 3 of 3 runs; action 2 at (1, 1) 0.2738" in whole.measured
    wrong = []
    for record in found:
        pi = record.policy.pi.copy()
        pi[2, 2] = [0.0, 0.0, 1.0]
        wrong.append(replace(record, policy=ck.Policy(pi)) if record.run.seed == 1 else record)
    whole = claims.claims_of({"synthetic": groups(wrong)})[4]
    assert whole.verdict.text == "fails" and whole.measured.startswith("all nine in 2 of 3 runs")


def test_a_policy_that_misses_its_bound_in_one_run_fails():
    found = list(made("synthetic", 7e4, -1.0))
    short = [replace(x, policy_utilities=x.policy_utilities - 1e-6) if x.run.seed == 2 else x for x in found]
    assert claims.claims_of({"synthetic": groups(short)})[2].verdict.text == "fails"


def test_the_printed_policy_is_the_one_that_policies_are_held_against():
    assert [[len(actions) for actions in step] for step in claims.IDENTIFIED] == [[2, 1, 1], [1, 1, 1], [1, 1, 1]]
    support = ck.solve(ck.load("paper/synthetic:rho=2.016")).policy.pi > 1e-9
    assert tuple(tuple(tuple(np.flatnonzero(row) + 1) for row in step) for step in support) == claims.IDENTIFIED


def test_growth_is_fitted_over_runs_of_different_lengths_and_covers_no_theorem():
    """Regret K^power exactly, but for 3 % between seeds, which change at the second length: b has a known interval."""
    cmdp, power = ck.load(SYNTHETIC), 0.62
    optimum, parts = ck.solve(cmdp), {}
    for part in ("growth", "cancellation"):
        found = []
        for run in planned(part, 3).runs():
            record = make_record(run.env, run.algo, run.seed, cmdp, episodes=run.episodes, optimum=optimum)
            noise = 1 + 0.1 * (run.seed - 1) * (run.episodes == 15_000_000)
            episode = np.array(checkpoints(run.episodes, run.readings))
            total = np.full(len(episode), run.episodes**power * noise)
            curves = {"episode": episode, "regret": total, "violation": total[None]}
            pruned = 10 * (run.episodes // 150)
            assert run.readings[0] == pruned, "the first reading is the end of pruning"
            curves["strong_violation"] = np.where(episode == pruned, 1e7, 1e7 + total)[None]  # pruning is left out
            found.append(replace(record, run=run, curves=curves))
        parts[part] = groups(found)
    grown, drawn = claims.claims_of(parts)
    assert [grown.verdict.text, drawn.verdict.text] == ["not covered"] * 2
    assert f"exponent {power - 0.0007:.4g}" in grown.measured and f"exponent {power - 0.0007:.4g}" in drawn.measured
    slack = ck.solve(ck.CMDP(cmdp.P, cmdp.g[0], mu=cmdp.mu)).value - 2
    assert all(np.log(K := 7 * run.episodes // 15) ** 2 / np.sqrt(K) > slack for run in planned("growth", 1).runs())


def test_the_rule_of_the_lower_bound_is_the_markov_chain_that_it_should_be():
    """Expected plays of v from the exact distribution of the violation, a chain on -6..0 in sixths of H - 1."""
    K, n = 1000, 400
    (row,) = lower_bound.measured(episodes=(K,), runs=n)
    there, plays = {0: 1.0}, 0.0
    for _ in range(K):
        after = {}
        for x, p in there.items():
            plays += p * (x > -2)
            for y in (x - 4, x - 1) if x > -2 else (x + 2, x + 2):
                after[y] = after.get(y, 0.0) + p / 2
        there = after
    assert min(there) >= -6 and max(there) <= 0
    regret = 9 * (plays - K * 4 / 9)  # v* = 5 and playing v costs 9: K v* - (K - plays) 9
    error = row.rms_regret / np.sqrt(n)
    assert abs(row.regret.mean - regret) < 5 * error and abs(row.strong.mean - (K - plays) * 3) < 5 * error / 3
    violation = 1.5 * sum(x * p for x, p in there.items())
    assert abs(row.realised.mean - violation) < 5 * 3 / np.sqrt(n) and -9 <= row.smallest <= row.largest <= 0


def test_the_lower_bound_is_refuted_by_a_rule_and_holds_without_cancellation():
    found = lower_bound.measured(episodes=(1_000, 4_000), runs=40)
    refuted, holds = claims.claims_of({}, found)
    assert (refuted.verdict.text, holds.verdict.text) == ("fails as stated", "holds")
    for row in found:
        assert row.strong.mean == pytest.approx(row.episodes * 5 / 3, rel=0.05), "5/9 of the episodes miss 3"
    too_large = [row._replace(largest=0.5) for row in found]
    assert claims.claims_of({}, too_large)[0].verdict.text == "undecided"
    too_small = [row._replace(strong=ck.seed_mean([0.1])) for row in found]
    assert claims.claims_of({}, too_small)[1].verdict.text == "fails"


def test_the_phases_add_up_to_the_whole_run_on_a_problem_without_chance():
    """The learner adds up what it has earned; the meter of the world computes expectations of policies."""
    pruning = {"runs": 1, "run_episodes": 2000, "compare": True, "compare_episodes": 2000, "use_min": 0.001}
    settings = {"eps_rho": 0.001, "K": 10_000, **pruning}
    record = ck.learn(GRID, "pri", episodes=30_000, **settings)
    found = growth.phases_of(*groups([record]))
    assert [name for name, *_ in found] == [name for name, _ in record.phases] and len(found) == 4
    lengths, regrets, violations = ([phase[i].mean for phase in found] for i in (1, 2, 3))
    starts = [*(k for _, k in record.phases), 30_000]
    assert lengths == np.diff(starts).tolist()
    assert sum(regrets) == pytest.approx(record.regret, abs=1e-6)
    assert sum(violations) == pytest.approx(record.violation[0], abs=1e-6)
    read = ck.learn(GRID, "pri", episodes=30_000, readings=starts[1:], **settings)
    at = np.isin(read.curves["episode"], starts)
    assert np.diff(read.curves["regret"][at], prepend=0.0) == pytest.approx(regrets, abs=1e-6)


# -- the application ---------------------------------------------------------------------------------------------------


def shorter(part, seeds):
    """The published lengths divided by four thousand; the numbers mean nothing then, the way there is the same."""
    asked = planned(part, seeds)
    algorithms = []
    for algo in asked.algorithms:
        episodes = (algo.episodes or asked.episodes) // 4000 or 25
        params = {**algo.params}
        params |= {"K": [1250], "run_episodes": [50], "compare_episodes": [50]} if "K" in params else {}
        readings = [k // 4000 or 1 for k in algo.readings]
        algorithms.append(replace(algo, episodes=episodes, params=params, readings=readings))
    return replace(asked, algorithms=algorithms, episodes=(asked.episodes or 100_000) // 4000 or 25)


@pytest.mark.long
def test_the_command_prints_the_tables_writes_report_and_figures_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "planned", shorter)
    few = lower_bound.measured((100, 200), 20)
    monkeypatch.setattr(lower_bound, "measured", lambda: few)
    for env, k in READ_AT.items():
        monkeypatch.setitem(READ_AT, env, k // 4000)
    application.main(["--quick", "--workers", "1"])
    first = capsys.readouterr()
    out = tmp_path / "runs/paper"
    assert "68,900" in first.out and "169,000" in first.out and "3 seeds" in first.out
    written = (out / "reproduction.md").read_text(encoding="utf-8")
    assert written in first.out and written.count("**\n") >= 7
    pictures = {path.name: path.read_bytes() for path in (out / "figures").iterdir()}
    assert len(pictures) == 9 and all(data.startswith(b"\x89PNG") and len(data) > 3_000 for data in pictures.values())
    assert (out / "report.html").exists() and "of" in first.err
    (out / "figures" / "mine.png").write_bytes(b"mine")
    application.main(["--quick", "--workers", "1"])
    again = capsys.readouterr()
    assert again.out == first.out and again.err == "", "nothing is run twice"
    assert (out / "figures" / "mine.png").read_bytes() == b"mine"


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        application.main(["--what", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
