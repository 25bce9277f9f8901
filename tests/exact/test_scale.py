"""Large models: passes on several threads, searches that report, end early or are interrupted."""

import threading
import time
import tracemalloc
from itertools import pairwise

import numpy as np
import oracle
import pytest

import cmdpkit as ck
from cmdpkit.exact.solver import Round, Watch, solve_fully
from cmdpkit.exact.sources import Induction, purify, read_off
from cmdpkit.model.decisions import Decisions, undrawn
from cmdpkit.model.showing import Field, StatusLines
from cmdpkit.operators import steps as backward
from cmdpkit.operators.steps import BLOCK, Steps, thread_count
from instances import sparse, tiny

pytestmark = pytest.mark.compiled


def random_model(rng: np.random.Generator, steps_of: tuple[int, int, int, int], N: int) -> ck.CMDP:
    """P, r, g and actions with 1 or H = 4 steps each; some actions are missing, and several states can be the first."""
    H, S, A = 4, 6, 3
    P, R, G, M = steps_of
    allowed = rng.random((M, S, A)) < 0.7
    allowed[..., 0] = True
    P_ = rng.dirichlet(np.full(S, 0.3), (P, S, A))
    r, g = rng.normal(size=(R, S, A)), rng.normal(size=(N, G, S, A))
    constraints = [ck.at_least(f"c{n}", 0.0, x) for n, x in enumerate(g)]
    return ck.CMDP(P_, r, mu=rng.dirichlet(np.ones(S)), actions=allowed, constraints=constraints, horizon=H)


def dense_values(cmdp: ck.CMDP, signal: np.ndarray, pi: np.ndarray | None) -> tuple[float, np.ndarray]:
    """The total of a signal [H, S, A] under pi, or the largest one if pi is None, and Q: written out with NumPy."""
    V, Q = np.zeros(cmdp.S), np.zeros(cmdp.actions.shape)
    for h in reversed(range(cmdp.H)):
        Q[h] = signal[h] + np.einsum("sat,t->sa", cmdp.P[h], V)
        V = np.where(cmdp.actions[h], Q[h], -np.inf).max(axis=1) if pi is None else (pi[h] * Q[h]).sum(axis=1)
    return float(cmdp.mu @ V), Q


@pytest.mark.parametrize("steps_of", [(1, 1, 1, 1), (4, 1, 1, 1), (1, 4, 1, 4), (4, 4, 4, 1), (1, 1, 4, 4)])
@pytest.mark.parametrize("chunk", [1, 10**9])
def test_choosing_and_evaluating_agree_with_dense_backward_induction(steps_of, chunk, monkeypatch):
    monkeypatch.setattr(backward, "CHUNK_WORK", chunk)
    monkeypatch.setattr(backward, "CALL_WORK", 150)  # a few steps in each call
    rng = np.random.default_rng(steps_of)
    cmdp = random_model(rng, steps_of, N=2)
    induction = Induction(cmdp, threads=3)
    assert len(induction.steps.chunks) == (cmdp.S if chunk == 1 else 1)
    best, choice, values = induction.best(cmdp.compact.r)
    assert best == pytest.approx(dense_values(cmdp, cmdp.r, None)[0], abs=1e-12)
    assert cmdp.actions[np.arange(cmdp.H)[:, None], np.arange(cmdp.S), choice].all()
    worst = -induction.best(-cmdp.compact.r)[0]
    assert worst == pytest.approx(-dense_values(cmdp, -cmdp.r, None)[0], abs=1e-12)
    *ends, again = induction.extremes(cmdp.compact.r)
    assert ends == [worst, best] and (again == choice).all(), "the same bits"
    assert values.tolist() == induction.evaluate(undrawn(choice, cmdp.A)).tolist(), "the same bits"

    pi = (choice[..., None] == np.arange(cmdp.A)).astype(float)
    where = [(0, 2), (0, 5), (3, 0)]  # here the policy draws among all actions
    p = rng.dirichlet(np.ones(cmdp.A), len(where))
    for (h, s), row in zip(where, p, strict=True):
        pi[h, s] = row
    drawn = Decisions(choice, np.array([0, 2, 2, 2, 3]), np.array([s for _, s in where], dtype=np.int32), p)
    values = np.zeros((3, 3, 3))
    totals = induction.evaluate(drawn, values)
    for n, x in enumerate((cmdp.r, *cmdp.g)):
        total, Q = dense_values(cmdp, x, pi)
        assert totals[n] == pytest.approx(total, abs=1e-12)
        assert values[..., n] == pytest.approx(np.array([Q[h, s] for h, s in where]), abs=1e-12)


def test_choosing_and_evaluating_together_gives_the_same_bits_in_every_block_of_states():
    cmdp = sparse(2 * BLOCK + 500, 3, 4, 3, 2)
    induction = Induction(cmdp)
    total, choice, values = induction.best(cmdp.compact.g[1])
    _, largest, again = induction.extremes(cmdp.compact.g[1])
    assert (
        total == largest
        and (again == choice).all()
        and values.tolist() == induction.evaluate(undrawn(choice, cmdp.A)).tolist()
    )


@pytest.mark.parametrize("N", [1, 3])
def test_the_number_of_threads_and_the_size_of_chunks_do_not_change_a_bit(N, monkeypatch):
    cmdp = sparse(60, 3, 8, 4, N, seed=N)
    whole = ck.solve(cmdp, threads=1)
    monkeypatch.setattr(backward, "CHUNK_WORK", 60)
    for threads in (1, 2, 4, None):
        parts = ck.solve(cmdp, threads=threads)
        assert parts.policy == whole.policy
        assert (parts.value, parts.gap) == (whole.value, whole.gap)
        assert (parts.shadow_prices == whole.shadow_prices).all() and (parts.utilities == whole.utilities).all()
    name = cmdp.constraints[0].name
    curves = [ck.tradeoff(cmdp, name, 3, threads=threads) for threads in (1, 3)]
    assert (curves[0].values == curves[1].values).all() and (curves[0].prices == curves[1].prices).all()
    found = [ck.diagnose(cmdp, separation=False, threads=threads) for threads in (1, 3)]
    assert found[0].ranges == found[1].ranges and found[0].slater_slack == found[1].slater_slack


def test_a_step_begins_when_the_next_one_is_complete_and_every_state_is_done_once():
    plan = Steps(H=5, S=1000, transitions=40 * backward.CHUNK_WORK, threads=4)
    done, lock, helpers = np.zeros((6, 1000), dtype=int), threading.Lock(), set()
    done[5] = 1

    def work(first: int, last: int, low: int, high: int) -> None:
        assert first == last and (done[last + 1] == 1).all(), "the next step is not complete"
        time.sleep(0.0005)  # so that others get their share
        with lock:
            done[last, low:high] += 1
            helpers.add(threading.get_ident())

    plan.backward(work)
    assert (done == 1).all()
    assert len(plan.chunks) == 40 and 1 < len(helpers) <= 4


def test_an_error_in_a_thread_is_raised_to_the_caller():
    plan = Steps(H=2, S=100, transitions=4 * backward.CHUNK_WORK, threads=2)

    def work(first: int, last: int, low: int, high: int) -> None:
        time.sleep(0.01)
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        plan.backward(work)


def test_small_models_are_solved_without_threads():
    assert Steps(H=20, S=500, transitions=12_500, threads=8)._executor is None
    assert thread_count(None) >= 1 and thread_count(np.int64(3)) == 3


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two", True])
def test_a_number_of_threads_that_is_none_is_refused(threads):
    with pytest.raises(ck.CmdpkitError, match=r"threads is .*, expected a whole number, at least 1"):
        ck.solve(sparse(5, 2, 3, 2, 1), threads=threads)


# -- searches that report and end early --------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 3])
def test_every_round_encloses_the_optimum_and_the_proved_gap_never_grows(N):
    cmdp = sparse(40, 3, 8, 4, N, seed=N)
    optimum = oracle.optimum(cmdp).value
    rounds: list[Round] = []
    solution = ck.solve(cmdp, progress=rounds.append)
    assert [x.number for x in rounds] == list(range(1, len(rounds) + 1)) and len(rounds) > 4
    for x in rounds:
        assert x.value - 1e-7 <= optimum <= x.value + x.gap + 1e-7  # the oracle is good to 1e-7
    gaps, seconds = [x.gap for x in rounds], [x.seconds for x in rounds]
    assert all(later <= gap + 1e-12 for gap, later in pairwise(gaps))
    assert seconds == sorted(seconds) and seconds[-1] <= solution.seconds
    assert gaps[0] > 1e-3 and gaps[-1] <= 1e-9 and solution.ended == "optimal" and solution.complete


@pytest.mark.parametrize("gap", [0.1, 1e-3])
@pytest.mark.parametrize("method", ["auto", "columns"])
def test_a_search_ends_as_soon_as_the_gap_asked_for_is_proved(gap, method):
    cmdp = sparse(40, 3, 8, 4, 2, seed=5)
    optimum = oracle.optimum(cmdp).value
    every: list[Round] = []
    ck.solve(cmdp, progress=every.append)
    some: list[Round] = []
    solution = ck.solve(cmdp, method, gap=gap, progress=some.append)
    enough = [x.gap <= gap * abs(x.value) for x in every]
    assert len(some) == 1 + enough.index(True) < len(every), "neither earlier nor later"
    assert solution.ended == "gap" and solution.complete and solution.method == "columns"
    assert 1e-9 < solution.gap <= gap * abs(solution.value) * (1 + 1e-9)
    assert solution.value - 1e-7 <= optimum <= solution.value + solution.gap + 1e-7
    assert (cmdp.signs * solution.utilities >= cmdp.rho - solution.tolerance).all()
    assert len(solution.stochastic_decisions()) <= cmdp.N
    exact = ck.evaluate(cmdp, solution.policy)
    assert (exact.v, *exact.w) == pytest.approx((solution.value, *solution.utilities), abs=1e-12)


def test_a_gap_of_zero_asks_for_the_optimum():
    assert ck.solve(sparse(40, 3, 8, 4, 1, seed=5), gap=0).ended == "optimal"


@pytest.mark.parametrize("gap", [-0.1, float("nan"), float("inf"), "1%"])
def test_a_gap_that_is_none_is_refused(gap):
    with pytest.raises(ck.CmdpkitError, match=r"gap is .*, expected a number of 0 or more"):
        ck.solve(sparse(5, 2, 3, 2, 1), gap=gap)


def test_options_for_models_with_a_horizon_are_refused_without_one():
    cmdp = ck.load("power-queue:discount=0.95")
    with pytest.raises(ck.CmdpkitError, match="threads is 2, which is for models with a horizon"):
        ck.solve(cmdp, threads=2)
    with pytest.raises(ck.CmdpkitError, match="threads is 2, which is for models with a horizon"):
        ck.diagnose(cmdp, threads=2)
    with pytest.raises(ck.CmdpkitError, match="threads is 2, which is for models with a horizon"):
        ck.tradeoff(cmdp, cmdp.constraints[0].name, threads=2)


def test_progress_is_a_line_that_is_rewritten_on_a_terminal_and_removed_at_the_end(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    watch = Watch(progress=True)
    watch.enough(1.5, 1e-3)
    time.sleep(0.3)  # twice as long as between two drawings
    watch.enough(1.75, 1e-4)
    time.sleep(0.3)
    watch.close()
    err = capsys.readouterr().err
    assert "0:00  round 1: value 1.5, proved to within 0.001, " in err and "round 2: value 1.75" in err
    assert err.count("\x1b[2K") >= 3, "written again, and erased at the end"


def test_without_a_terminal_progress_is_a_line_every_ten_seconds(monkeypatch):
    monkeypatch.setattr("cmdpkit.model.showing.BETWEEN_LINES", 10.0)
    lines = StatusLines(lambda: [(Field("round 2"),), (Field("more"), Field("", share=0.5), Field("of it"))])
    told = [lines.added(lines._began + seconds) for seconds in (1.0, 9.9, 10.1, 15.0, 20.0, 20.2)]
    assert told == [[], [], ["0:10, round 2", "more, of it"], [], [], ["0:20, round 2", "more, of it"]]


def test_a_progress_that_cannot_be_called_is_refused():
    with pytest.raises(ck.CmdpkitError, match="progress is 'yes', expected True or a function"):
        ck.solve(sparse(5, 2, 3, 2, 1), progress="yes")


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 3])
@pytest.mark.parametrize("at", [1, 4])
def test_an_interrupted_search_returns_a_feasible_extreme_point_with_a_gap_that_is_true(N, at):
    cmdp = sparse(40, 3, 8, 4, N, seed=N)

    def interrupt(x: Round) -> None:
        if x.number == at:
            raise KeyboardInterrupt

    solution = ck.solve(cmdp, progress=interrupt)
    assert solution.ended == "interrupted" and not solution.complete
    optimum = oracle.optimum(cmdp).value
    assert solution.value - 1e-7 <= optimum <= solution.value + solution.gap + 1e-7
    assert solution.gap > 1e-4, "a few rounds are not enough"
    assert (cmdp.signs * solution.utilities >= cmdp.rho - solution.tolerance).all()
    assert sum(len(d.probabilities) - 1 for d in solution.stochastic_decisions()) <= N
    assert ck.evaluate(cmdp, solution.policy).v == pytest.approx(solution.value, abs=1e-12)


def test_an_interrupt_before_any_policy_is_known_says_so(monkeypatch):
    def interrupt(self, rho):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmdpkit.exact.columns.Columns.thresholds", interrupt)
    with pytest.raises(KeyboardInterrupt, match="no policy that meets all bounds had been found yet"):
        ck.solve(sparse(5, 2, 3, 2, 1))


def test_an_interrupt_when_only_the_policy_is_to_be_read_off_changes_nothing_but_a_second_one_ends(monkeypatch):
    cmdp, calls = sparse(20, 3, 5, 3, 1), []
    usual = ck.solve(cmdp)

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) in (1, 3, 4):
            raise KeyboardInterrupt
        return purify(*arguments)

    monkeypatch.setattr("cmdpkit.exact.sources.purify", interrupted)
    solution = ck.solve(cmdp)
    assert solution.ended == "optimal" and solution.policy == usual.policy and solution.gap == usual.gap
    with pytest.raises(KeyboardInterrupt):
        ck.solve(cmdp)
    assert len(calls) == 4


def test_whoever_needs_the_optimum_is_interrupted_and_gets_no_half_of_it(monkeypatch):
    """The optimum that learners are measured against, ranges and curves: Ctrl-C ends them, as it ends anything else."""
    cmdp = sparse(20, 3, 5, 3, 1)

    def interrupt(self, value, gap):
        raise KeyboardInterrupt

    monkeypatch.setattr("cmdpkit.exact.solver.Watch.enough", interrupt)
    for ask in (
        lambda: solve_fully(cmdp),
        lambda: ck.diagnose(cmdp),
        lambda: ck.tradeoff(cmdp, cmdp.constraints[0].name, 3),
        lambda: ck.learn(cmdp, "triple-q", episodes=10, seed=1),
    ):
        with pytest.raises(KeyboardInterrupt):
            ask()


# -- memory ------------------------------------------------------------------------------------------------------------


def test_an_extreme_point_is_found_without_the_values_of_all_steps():
    """Only the decisions that draw need values: tables of all steps would be twice as large as what is allowed here."""
    H, S = 400, 50
    rng = np.random.default_rng(0)
    cmdp = ck.CMDP(
        rng.dirichlet(np.ones(3), (S, 2)) @ np.eye(S)[:3], np.zeros((S, 2)), rng.random((1, S, 2)), [0.0], horizon=H
    )
    pi = np.zeros((H, S, 2))
    pi[..., 0] = 1.0
    pi[[3, 200, 390], [0, 1, 2]] = 0.5
    policy = ck.Policy(pi)
    start = read_off(ck.occupancy(cmdp, policy), pi.argmax(axis=-1).astype(np.int16))
    rho = ck.evaluate(cmdp, policy).w
    induction = Induction(cmdp)
    purify(induction, start, rho, np.ones(1))
    tracemalloc.start()
    found = purify(induction, start, rho, np.ones(1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.s) <= 1 and induction.evaluate(found)[1] >= rho[0] - 1e-9
    assert peak < H * S * (1 + cmdp.N) * 8 / 2


def test_tiny_models_with_every_shape_of_ties_still_agree_across_chunkings(monkeypatch):
    rng = np.random.default_rng(11)
    models = [tiny(rng, int(rng.integers(0, 4)), ties=True) for _ in range(20)]
    plain = [_answer(cmdp) for cmdp in models]
    monkeypatch.setattr(backward, "CHUNK_WORK", 1)
    assert [_answer(cmdp) for cmdp in models] == plain


def _answer(cmdp: ck.CMDP) -> tuple[float, ...] | str:
    try:
        solution = ck.solve(cmdp, threads=2)
    except ck.Infeasible as error:
        return str(error)
    return (solution.value, solution.gap, *solution.utilities)
