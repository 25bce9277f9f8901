"""What users do with models by functions: other verbs, files, folders, refusals, rounding, threads and ranks."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.exact.large.sweeps import Sweeps

M, DEMAND, ODDS = 7, [0, 1, 3], [0.3, 0.5, 0.2]


def move(x, a):
    return min(x[0] + 2 * a, M - 1), x[1]


def paid(x, a):
    return -0.7 * a - 0.1 * x[0], 1.0 * (a > 0)


def after(y):
    return 1.3 * min(y[0], 2) + 0.5 * y[1], 0.0


def step(x, a, e):
    left = max(x[0] - 2 * a, 0)
    return (min(left + e, 9),), 0.3 if e == 2 else 0.35


def waiting(x, a):
    return -1.0 * x[0] * x[0], 1.0 * a


@pytest.fixture(scope="module")
def stock():
    parts = [ck.Part.demand(M, DEMAND, ODDS), ck.Part([[0, 1], [1, 0]], [0.8, 0.2])]
    bound = ck.at_most("orders", 4.0)
    return ck.FactoredModel(
        {"pieces": M, "mood": 2}, ["none", "two", "four"], move, parts, paid, after,
        constraints=[bound], start={(0, 0): 0.5, (3, 1): 0.5}, discount=0.9,
    )  # fmt: skip


@pytest.fixture(scope="module")
def queue():
    bound = ck.at_most("served", 5.0)
    return ck.EventModel((10,), 2, 3, step, waiting, constraints=[bound], start=(4,), horizon=8)


def in_arrays(model, policy):
    """The mixture in the arrays of the model, part by part: its totals [1 + N], by an evaluation of its own."""
    arrays = model.arrays()
    totals = 0.0
    for weight, part in zip(policy.weights, policy.parts, strict=True):
        pi = np.zeros((arrays.n_steps, arrays.S, arrays.A))
        for h in range(arrays.n_steps):
            for s in range(arrays.S):
                for a, p in part.decision(h, s):
                    pi[h, s, a] = p
        found = ck.evaluate(arrays, ck.Policy.of(arrays, pi if arrays.criterion.has_horizon else pi[0]))
        totals = totals + weight * np.append(found.v, found.w)
    return totals


@pytest.mark.parametrize("name", ["stock", "queue"])
def test_evaluate_and_simulate_agree_with_the_arrays(name, request):
    model = request.getfixturevalue(name)
    for how in ("mixture", "one"):
        policy = ck.solve(model, policy=how).policy
        v, w = ck.evaluate(model, policy)
        assert np.append(v, w) == pytest.approx(in_arrays(model, policy), rel=1e-8)
        n = 20_000
        played = ck.simulate_policy(model, policy, n, seed=5)
        for k, totals in enumerate(played.totals.values()):  # 4.5 standard errors: wrong by chance with odds of 1e-5
            error = totals.std() / n**0.5 + 2e-6 * np.abs(totals).max()
            assert abs(totals.mean() - np.append(v, w)[k]) <= 4.5 * error


@pytest.mark.parametrize("name", ["stock", "queue"])
def test_a_tradeoff_is_that_of_the_arrays(name, request):
    model = request.getfixturevalue(name)
    bound = model.constraints[0].name
    found = ck.tradeoff(model, bound, 5, low=-0.5, high=6.0)
    exact = ck.tradeoff(model.arrays(), bound, 5, low=-0.5, high=6.0)
    assert found.infeasible.tolist() == exact.infeasible.tolist() == [-0.5]
    assert found.values == pytest.approx(exact.values, rel=2e-6)
    ends = ck.tradeoff(model, bound, 2)
    assert not len(ends.infeasible)
    assert ends.bounds[0] == pytest.approx(0.0, abs=1e-4)
    free = ck.solve(model.arrays().with_bounds(**{bound: 100.0}))
    assert ends.bounds[1] == pytest.approx(free.utilities[0], rel=1e-3)


def test_learning_ends_near_the_optimum_and_names_states(queue):
    run = ck.learn(queue, "triple-q", episodes=20_000, seed=1)
    assert run.policy.states[3] == (3,)
    found = ck.evaluate(queue.arrays(), run.policy)
    best, worst = ck.solve(queue).value, ck.solve(queue.with_bounds(served=0.0)).value
    assert found.v >= best - 0.2 * (best - worst)
    assert found.w[0] <= 5.5


def test_a_saved_policy_acts_alike_in_a_process_of_its_own(stock, tmp_path):
    sol = ck.solve(stock, policy="one")
    folder = sol.save(tmp_path / "best")
    with pytest.raises(ck.CmdpkitError, match="exists"):
        sol.save(folder)
    about = json.loads((folder / "policy.json").read_text())
    assert about["coordinates"] == ["pieces", "mood"]
    certain = next(x for x in ((i, 1) for i in range(M)) if len(sol.policy(x)) == 1)
    words = [sys.executable, str(folder / "controller.py"), *map(str, certain)]
    assert subprocess.check_output(words, text=True).strip() == sol.policy(certain)[0][0]


class Stop(Exception):
    """Stands for a crash."""


def bits(sol):
    """All that a solution says, as bytes."""
    numbers = [sol.value, sol.gap, *sol.utilities, *sol.shadow_prices, *sol.errors, *sol.policy.weights]
    return np.array(numbers).tobytes() + b"".join(np.ascontiguousarray(p.choice).tobytes() for p in sol.policy.parts)


@pytest.mark.parametrize("name", ["stock", "queue"])
def test_a_solve_that_crashed_continues_to_the_same_bytes(name, request, tmp_path):
    model = request.getfixturevalue(name)
    whole = bits(ck.solve(model))
    for last in (1, 2, 4):

        def crash(at, last=last):
            if at.number == last:
                raise Stop

        folder = tmp_path / str(last)
        with pytest.raises(Stop):
            ck.solve(model, folder=folder, progress=crash)
        with open(folder / "journal.jsonl", "a") as file:
            file.write('{"price": [1.0')  # a line that was being written
        again = ck.solve(model, folder=folder)
        assert bits(again) == whole
    kept = sorted(x.name for x in folder.iterdir())
    journal, text = folder / "journal.jsonl", (folder / "journal.jsonl").read_text()
    for older in (text.replace('"version": "', '"version": "0.1', 1), text.replace('"version"', '"other"', 1)):
        journal.write_text(older)
        with pytest.raises(ck.CmdpkitError, match=r"begun with another version; .* continue with what began it"):
            ck.solve(model, folder=folder)
        assert journal.read_text() == older
    journal.write_text(text)
    assert sorted(x.name for x in folder.iterdir()) == kept
    with pytest.raises(ck.CmdpkitError, match="begun with another model;"):
        ck.solve(model.with_bounds(**{model.constraints[0].name: 3.0}), folder=folder)


def test_actions_of_a_horizon_are_mapped_from_the_folder(queue, tmp_path):
    parts = ck.solve(queue, folder=tmp_path / "kept").policy.parts
    for part, plain in zip(parts, ck.solve(queue).policy.parts, strict=True):
        assert isinstance(part.choice.base, np.memmap)
        assert np.array_equal(part.choice, plain.choice)
    assert len(list((tmp_path / "kept").glob("actions-*.bin"))) == len(parts)


def test_after_an_interrupt_the_best_so_far_is_returned(stock):
    def interrupt(at):
        if at.number == 2:
            raise KeyboardInterrupt

    found, best = ck.solve(stock, gap=1e-9, progress=interrupt), ck.solve(stock.arrays())
    assert not found.complete
    assert found.utilities[0] <= 4.0 + found.tolerance[0]
    assert found.value <= best.value + 1e-9 <= found.value + found.gap + 2e-9


def test_an_interrupt_while_one_policy_is_made_leaves_the_mixture(stock, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmdpkit.exact.large.single", interrupt)
    found, best = ck.solve(stock, policy="one"), ck.solve(stock)
    assert not found.complete
    assert found.value == pytest.approx(best.value, rel=1e-6)
    assert found.gap <= 1e-5 * found.value


def test_errors_of_values_hold_against_exact_fractions():
    """A chain with awkward numbers, solved in fractions: 1 + discount + ... of a signal that depends on the state."""
    n, p, discount = 5, 0.1, 0.999

    def chain(x, a, e):
        return ((x[0] + 1) % 5 if e == 0 else 0,), 0.9 if e == 0 else 0.1

    model = ck.EventModel((n,), 1, 2, chain, lambda x, a: (1e6 / (x[0] + 3.0) - 2e5,), start=(2,), discount=discount)
    values, errors = ck.solve(model).policy.totals(model)
    P = [[Fraction(0)] * n for _ in range(n)]
    odds = [Fraction(0.9), Fraction(p)]
    for i in range(n):
        P[i][(i + 1) % n] += odds[0] / sum(odds)
        P[i][0] += odds[1] / sum(odds)
    rows = [[Fraction(int(i == j)) - Fraction(discount) * P[i][j] for j in range(n)] for i in range(n)]
    rows = [[*row, Fraction(1e6 / (i + 3.0) - 2e5)] for i, row in enumerate(rows)]
    for i in range(n):  # Gauss and Jordan
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(n):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    assert abs(Fraction(float(values[0])) - rows[2][n]) <= Fraction(float(errors[0]))
    assert errors[0] <= 1e-5 * abs(values[0])


def test_rounding_counts_values_that_are_large_far_from_the_start(stock):
    sweeps = Sweeps(stock)
    near, far = sweeps.rounding(np.eye(2), np.ones(2)), sweeps.rounding(np.eye(2), np.array([1e9, 1.0]))
    assert far[0] > 1e8 * near[0]
    assert far[1] == near[1]


@pytest.mark.parametrize(
    "use",
    [
        lambda m, p: ck.diagnose(m),
        lambda m, p: ck.occupancy(m, p),
        lambda m, p: ck.time_course(m, p),
        lambda m, p: ck.exact_distribution(m, p, "served"),
        lambda m, p: ck.compare_policies(m, {"it": p}),
    ],
)
def test_verbs_that_need_arrays_name_them(use, queue):
    with pytest.raises(ck.CmdpkitError, match=r"model\.arrays\(\)"):
        use(queue, ck.solve(queue).policy)


def test_a_policy_of_another_kind_is_refused(queue, stock):
    with pytest.raises(ck.CmdpkitError, match=r"expected one of ck\.solve\(model\)\.policy"):
        ck.evaluate(queue, ck.Policy.uniform(queue.arrays()))
    with pytest.raises(ck.CmdpkitError, match="was made for"):
        ck.evaluate(queue, ck.solve(stock).policy)


def test_averages_are_solved_where_the_span_closes_and_refused_elsewhere():
    def settle(x, a, e):
        return (min(x[0] + a, 3) if e == 0 else 0,), 0.5

    model = ck.EventModel((4,), 2, 2, settle, lambda x, a: (1.0 * x[0] - 0.6 * a,), start=(0,), criterion="average")
    found = ck.solve(model, gap=1e-8)
    assert abs(found.value - ck.solve(model.arrays()).value) <= found.gap + 1e-9
    still = ck.EventModel((2,), 1, 1, lambda x, a, e: (x, 1.0), lambda x, a: (x[0],), start=(0,), criterion="average")
    with pytest.raises(ck.CmdpkitError, match="several classes"):
        ck.solve(still)


FILE = """
import numpy as np
import cmdpkit as ck
from cmdpkit.model.functions import FunctionModel

def model():
    def step(x, a, e):
        left = max(x[0] - 2 * a, 0)
        return (min(left + e, 39), (x[1] + x[0] + e) % 3), 0.3 if e == 2 else 0.35
    def collect(x, a):
        return -0.1 * x[0] * x[0] - x[1], 1.0 * a
    return ck.EventModel((40, 3), ["rest", "serve"], 3, step, collect, discount=0.9, start=(4, 0),
                         constraints=[ck.at_most("served", 4.0)])
"""


def command(folder, *words, ranks=0):
    """Run the command in a folder, perhaps on ranks; what it prints as JSON, without what is measured."""
    (folder / "mymodel.py").write_text(FILE)
    start = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)] if ranks else []
    words = [*start, sys.executable, "-m", "cmdpkit", "solve", "mymodel.py", "--json", *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    return {key: x for key, x in json.loads(done.stdout).items() if key != "seconds"}


@pytest.mark.long
def test_ranks_and_threads_give_the_same_bytes(tmp_path):
    pytest.importorskip("mpi4py")
    alone = command(tmp_path, "--threads", "1", "--controller", "c0")
    assert command(tmp_path, "--threads", "2", "--controller", "c1") == alone
    for ranks in (2, 3):
        assert command(tmp_path, "--ranks", "--controller", f"c{ranks}", ranks=ranks) == alone
    one = command(tmp_path, "--one-policy", "--controller", "o0")
    assert command(tmp_path, "--one-policy", "--ranks", "--controller", "o2", ranks=2) == one
    assert (tmp_path / "o2" / "actions-0.npy").read_bytes() == (tmp_path / "o0" / "actions-0.npy").read_bytes()
    files = sorted((tmp_path / "c0").glob("*.npy"))
    for other in ("c1", "c2", "c3"):
        assert [x.read_bytes() for x in files] == [(tmp_path / other / x.name).read_bytes() for x in files]


def test_the_command_takes_a_python_file_and_continues_in_a_folder(tmp_path):
    first = command(tmp_path, "--folder", "kept")
    again = command(tmp_path, "--folder", "kept")
    assert {**again, "sweeps": 0} == {**first, "sweeps": 0}
    assert again["sweeps"] < first["sweeps"]
    assert first["constraints"][0]["value"] <= 4.0
