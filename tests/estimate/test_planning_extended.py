"""The extended LP by columns against the same LP written out, and against the exact solver where the box is a point."""

import box_oracle
import numpy as np
import pytest
from box_oracle import Problem, Sides, point

import cmdpkit as ck
from cmdpkit.estimate.boxes import ExtendedPlan, PairSource
from instances import synthetic, tiny, with_rho

pytestmark = pytest.mark.compiled


def count_calls(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """A list that grows by one entry with every call of a method."""
    calls: list[int] = []
    method = getattr(owner, name)

    def counted(*args: object) -> object:
        calls.append(1)
        return method(*args)

    patch.setattr(owner, name, counted)
    return calls


def check_model(x: Problem, found: ExtendedPlan) -> None:
    """The policy is one, and its values are those that it has in some model of the box."""
    allowed = np.broadcast_to(x.allowed, found.pi.shape)
    assert found.pi.sum(axis=-1) == pytest.approx(np.ones(found.pi.shape[:2]), abs=1e-12)
    assert (found.pi >= 0).all() and allowed[found.pi > 0].all()
    assert box_oracle.distance(x, found.pi, np.append(found.value, found.utilities)) < 1e-8


def check_optimal(x: Problem, found: ExtendedPlan, optimum: float) -> None:
    assert found.value == pytest.approx(optimum, abs=1e-7)
    assert (found.utilities >= x.rho - 1e-8).all()
    assert (found.lam >= 0).all()
    lagrangian = box_oracle.optimum(x, np.append(1.0, found.lam), bounded=False) - found.lam @ x.rho
    assert lagrangian == pytest.approx(optimum, abs=1e-6), "the multipliers prove the optimum"


def check_compromise(x: Problem, found: ExtendedPlan) -> None:
    """Nobody misses the bounds by less, measured by the range of each utility."""
    per = np.array([x.H * np.abs(signal).max() or 1.0 for signal in x.g])
    reached = ((found.utilities - x.rho) / per).min()
    assert reached == pytest.approx(box_oracle.compromise(x, per), abs=1e-8)
    most = box_oracle.optimum(x, np.append(0.0, found.lam), bounded=False) - found.lam @ x.rho
    assert most == pytest.approx(reached, abs=1e-7) and reached < 0, "the multipliers prove that nothing reaches rho"


def guess(rng: np.random.Generator, N: int) -> np.ndarray | None:
    """Multipliers to begin with, good, bad or none: they may change the time that a plan takes, and nothing else."""
    return None if rng.random() < 0.3 else rng.random(N) * 10.0 ** rng.integers(-3, 3)


@pytest.mark.parametrize("N", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_columns_agree_with_the_extended_lp_written_out(N, seed):
    rng = np.random.default_rng([N, seed])
    infeasible = mixed = 0
    for _ in range(25):  # 8 x 25 = 200 instances
        x = box_oracle.problem(rng, N)
        found, optimum = x.plan(guess=guess(rng, N)), box_oracle.optimum(x, np.eye(1 + N)[0], bounded=True)
        check_model(x, found)
        assert found.feasible == (optimum is not None)
        if optimum is None:
            infeasible += 1
            check_compromise(x, found)
        else:
            mixed += bool((found.lam > 1e-9).any())
            check_optimal(x, found, optimum)
    if N:
        assert infeasible >= 4 and mixed >= 4, "both kinds must be among the instances"


@pytest.mark.parametrize("N", [0, 1, 2, 3])
def test_with_one_kernel_in_the_box_the_plan_is_the_exact_optimum(N):
    rng = np.random.default_rng([5, N])
    feasible = 0
    for i in range(20):
        cmdp = tiny(rng, N, ties=i % 3 == 0)
        pi = rng.dirichlet(np.ones(cmdp.A), (cmdp.H, cmdp.S)) * cmdp.actions
        cmdp = with_rho(cmdp, ck.evaluate(cmdp, ck.Policy(pi / pi.sum(axis=-1, keepdims=True))).w + 0.2 * (i % 2))
        found = Problem(point(cmdp.P, cmdp.mu), cmdp.r, cmdp.g, cmdp.rho, cmdp.actions, cmdp.H).plan()
        try:
            solution = ck.solve(cmdp)
        except ck.Infeasible:
            assert not found.feasible
            continue
        feasible += 1
        values = ck.evaluate(cmdp, ck.Policy.of(cmdp, found.pi))
        assert found.feasible
        assert values.v == pytest.approx(solution.value, abs=1e-9)
        assert values.w == pytest.approx(found.utilities, abs=1e-9)
        assert (cmdp.signs * values.w >= cmdp.rho - 1e-9).all()
    assert feasible >= 5


def test_a_wider_box_never_makes_the_plan_worse():
    cmdp = synthetic()
    values = []
    for width in (0.0, 0.01, 0.05, 0.2, 1.0):
        lo, up = np.maximum(cmdp.P - width, 0.0), np.minimum(cmdp.P + width, 1.0)
        values.append(
            Problem(Sides(lo, up, cmdp.mu, cmdp.mu), cmdp.r, cmdp.g, cmdp.rho, cmdp.actions, cmdp.H).plan().value
        )
    assert (np.diff(values) > 0).all()


def test_a_bound_at_the_very_edge_is_met_and_one_beyond_it_is_not():
    # Two states, one action, two steps; the box lets the second state have probability at most 3/4, and it pays 1.
    P_lo, P_up = np.full((1, 2, 1, 2), 0.25), np.full((1, 2, 1, 2), 0.75)
    g = np.array([[[[0.0], [1.0]]]])
    box = Sides(P_lo, P_up, np.eye(2)[0], np.eye(2)[0])
    allowed = np.ones((1, 2, 1), dtype=bool)
    edge = Problem(box, -g[0], g, np.array([0.75]), allowed, 2).plan()
    assert edge.feasible and edge.utilities == pytest.approx([0.75], abs=1e-12)
    beyond = Problem(box, -g[0], g, np.array([0.75 + 1e-6]), allowed, 2).plan()
    assert not beyond.feasible and beyond.utilities == pytest.approx([0.75], abs=1e-12)
    assert Problem(box, -g[0], g, np.array([0.0]), allowed, 2).plan().value == pytest.approx(-0.25, abs=1e-12)


def test_a_plan_is_the_same_every_time_and_leaves_its_inputs_alone():
    x = box_oracle.problem(np.random.default_rng(8), 2)
    before = [np.array(part) for part in (*x.box, x.r, x.g, x.rho, x.allowed)]
    first, second = x.plan(), x.plan()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(before, (*x.box, x.r, x.g, x.rho, x.allowed), strict=True):
        np.testing.assert_array_equal(a, b)
        assert b.flags.writeable


def test_a_plan_that_may_lack_something_lacks_no_more_than_that_and_takes_less_work():
    rng, work = np.random.default_rng(5), {0.0: 0, 0.05: 0}
    for _ in range(10):
        x = box_oracle.problem(rng, 2)
        optimum = box_oracle.optimum(x, np.eye(3)[0], bounded=True)
        for gap in work:
            with pytest.MonkeyPatch.context() as patch:
                priced = count_calls(patch, PairSource, "price")
                found = x.plan(gap=gap)
            work[gap] += len(priced)
            if optimum is not None:
                check_model(x, found)
                assert (found.utilities >= x.rho - 1e-8).all()
                assert optimum - 1e-7 - gap * x.H * np.abs(x.r).max() <= found.value <= optimum + 1e-7
    assert work[0.05] < work[0.0]
