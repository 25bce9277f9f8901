"""The search for an optimum ends: small average models with several classes, where it once went round in circles.

Two families of models with whole-number rewards: in one, runs settle in single states that are never left; in the
other, in classes of one or more states, between which some actions move.
"""

import contextlib
import time

import numpy as np
import pytest
from stationary_adversarial import examine, made_of

import cmdpkit as ck
from cmdpkit.exact.columns import Columns, PolicyColumn

pytestmark = pytest.mark.compiled

MAX_ROUNDS = 40  # of column generation; a model with one bound and a hundred policies takes fewer than ten
MAX_SECONDS = 1.0  # of CPU for one solve
CHECKED = 25  # one model in this many is also compared with exact fractions


def settling_model(rng: np.random.Generator, single: bool) -> ck.CMDP:
    """Three or four states, of which two or more are never left, and one bound; perhaps one policy."""
    S, A = int(rng.integers(3, 5)), 1 if single else int(rng.integers(1, 4))
    P = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            successors = rng.choice(S, int(rng.integers(1, 3)), replace=False)
            weights = rng.integers(1, 5, len(successors))
            P[s, a, successors] = weights / weights.sum()
    closed = range(S - int(rng.integers(2, S)), S)
    P[closed] = np.eye(S)[closed, None]
    return with_whole_numbers(rng, P)


def grouped_model(rng: np.random.Generator, single: bool) -> ck.CMDP:
    """Three or four states in up to three groups that most actions do not leave, and one bound; perhaps one policy."""
    S, A = int(rng.integers(3, 5)), 1 if single else int(rng.integers(2, 4))
    group, P = rng.integers(0, 3, S), np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            near = np.flatnonzero(group == group[s]) if rng.random() < 0.7 else np.arange(S)
            successors = rng.choice(near, min(len(near), int(rng.integers(1, 4))), replace=False)
            weights = rng.integers(1, 6, len(successors))
            P[s, a, successors] = weights / weights.sum()
    return with_whole_numbers(rng, P)


def with_whole_numbers(rng: np.random.Generator, P: np.ndarray) -> ck.CMDP:
    """Whole-number rewards and costs from 0 to 9, and a bound on the average cost."""
    S, A, _ = P.shape
    start = rng.integers(0, 5, S) + np.eye(S, dtype=int)[0]
    r, g = rng.integers(0, 10, (2, S, A)).astype(float)
    bound = ck.at_most("g", float(rng.integers(0, 10)), g)
    return ck.CMDP(P, r, mu=start / start.sum(), criterion="average", constraints=[bound])


def longest(models: list[ck.CMDP]) -> tuple[int, float]:
    """The most rounds and the most CPU time that any of the models takes; verdicts and values are compared."""
    rounds, seconds = 0, 0.0
    for k, cmdp in enumerate(models):
        told: list[int] = []
        began = time.process_time()
        with contextlib.suppress(ck.Infeasible):
            ck.solve(cmdp, progress=lambda report, told=told: told.append(report.number))
        seconds = max(seconds, time.process_time() - began)
        rounds = max(rounds, len(told))
        if k % CHECKED == 0:
            assert examine(made_of(cmdp)).faults == [], k
    return rounds, seconds


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("family", [settling_model, grouped_model])
@pytest.mark.parametrize("count", [40, pytest.param(2_000, marks=pytest.mark.long)])
def test_models_that_settle_in_one_of_several_classes_are_answered_at_once(family, single, count):
    models = [family(np.random.default_rng([37, single, k]), single) for k in range(count)]
    longest(models[:5])  # loads and compiles what all need
    rounds, seconds = longest(models)
    assert rounds <= MAX_ROUNDS
    assert seconds <= MAX_SECONDS


@pytest.mark.parametrize("start", [0.2, 0.2 - 2.0**-55, 0.7])
def test_the_last_digit_of_the_start_does_not_decide_whether_there_is_an_answer(start):
    """One policy and two states that are never left: the start divides the time, and one step earns 6 or 5."""
    bound = ck.at_most("g", 9.0, [[5.0], [9.0]])
    cmdp = ck.CMDP(np.eye(2)[:, None], [[6.0], [5.0]], mu=[start, 1 - start], criterion="average", constraints=[bound])
    solution = ck.solve(cmdp)
    assert solution.value == pytest.approx(5 + start, abs=1e-12)
    assert solution.utilities == pytest.approx([9 - 4 * start], abs=1e-12)


def test_a_policy_that_comes_back_with_slightly_other_values_is_not_a_new_column():
    """The source evaluates its only policy with errors that it names; every second time they have the other sign."""

    class Noisy:
        N, exact, first = 1, False, ()
        units, offsets, noise, best = np.ones(2), np.zeros(2), np.zeros(2), np.full(1, np.inf)
        sign, asked = 1.0, 0

        def price(self, weights, slack):
            self.sign, self.asked = -self.sign, self.asked + 1
            off = 2e-13 * self.sign * self.asked
            column = PolicyColumn(np.zeros(1, dtype=int), 0.5 + off, np.array([0.5 - off]), weights, 0.0, 1e-11)
            return float(weights.sum()) / 2 + 1e-9, [column]

        def refine(self, column):
            return column._replace(v=0.5, w=np.array([0.5]), error=0.0)

    pool = Columns(Noisy())
    best = pool.maximise(np.array([0.25]))
    assert len(pool.columns) == 1
    assert pool.source.asked <= 4
    assert best.value == 0.5
    assert 0 <= best.bound - best.value <= 2e-9


def test_an_optimum_that_is_reached_exactly_is_proved_even_where_a_state_only_passes_on_equal_values():
    """From every state the best is to end in the third one, so that all values are 9; rounding tells them apart."""
    P = [[[1 / 2, 1 / 3, 1 / 6], [1, 0, 0]], [[0.2, 0.8, 0], [0, 0.4, 0.6]], [[0, 0, 1], [0, 0, 1]]]
    bound = ck.at_most("g", 4.0, [[1.0, 1.0], [9.0, 9.0], [3.0, 7.0]])
    r = [[0.0, 6.0], [6.0, 4.0], [9.0, 1.0]]
    solution = ck.solve(ck.CMDP(P, r, mu=[0.2, 0.8, 0.0], criterion="average", constraints=[bound]))
    assert solution.value == 9.0
    assert solution.gap < 1e-10
