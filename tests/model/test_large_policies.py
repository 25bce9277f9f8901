"""Policies stored as choices and the few decisions that draw: the same numbers as a table, in the memory they need."""

import csv
import tracemalloc

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.operators.policies import action_uses, reach
from cmdpkit.simulate.distribution import play_episodes
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator

pytestmark = pytest.mark.compiled


def random_model(rng: np.random.Generator, H: int, S: int, A: int, *, stationary: bool) -> ck.CMDP:
    T = 1 if stationary else H
    P = rng.dirichlet(np.full(S, 0.4), (T, S, A))
    P[P < 0.05] = 0.0
    P /= P.sum(axis=-1, keepdims=True)
    r, g = rng.normal(size=(T, S, A)), rng.normal(size=(H, S, A))
    return ck.CMDP(
        P[0] if stationary else P, r, constraints=[ck.at_most("cost", 100, g)], mu=rng.dirichlet(np.ones(S)), horizon=H
    )


def random_table(rng: np.random.Generator, H: int, S: int, A: int) -> np.ndarray:
    """Probabilities of which about half are certain; one row is nearly certain, which is not the same."""
    pi = np.eye(A)[rng.integers(0, A, (H, S))]
    drawn = rng.random((H, S)) < 0.5
    pi[drawn] = rng.dirichlet(np.full(A, 0.5), int(drawn.sum()))
    pi[0, 0] = np.eye(A)[0] * (1 - 1e-13)
    return pi


def ring(S: int, A: int, H: int) -> ck.CMDP:
    """A large model that costs little: action a moves a + 1 states on, or two."""
    s, a = np.divmod(np.arange(S * A), A)
    rows = np.concatenate((np.arange(S * A),) * 2)
    kernel = ck.Kernel.from_entries(
        (1, S, A), rows, np.concatenate(((s + a + 1) % S, (s + 2) % S)), np.full(2 * S * A, 0.5)
    )
    return ck.CMDP(
        kernel, np.tile(np.arange(A) / A, (S, 1)), constraints=[ck.at_most("x", H, np.ones((S, A)))], horizon=H
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_table_comes_back_to_the_bit_however_it_is_stored(seed):
    rng = np.random.default_rng(seed)
    pi = random_table(rng, 4, 7, 3)
    policy = ck.Policy(pi)
    assert policy.pi.tobytes() == pi.tobytes() and not policy.pi.flags.writeable
    again = ck.Policy.of_choices(policy.choice, policy.rows)
    assert again == policy and again.pi.tobytes() == pi.tobytes()
    order = rng.permutation(len(policy.rows[0]))
    assert ck.Policy.of_choices(np.zeros_like(policy.choice), tuple(x[order] for x in policy.rows)) != policy
    wrong = policy.choice.copy()
    wrong[tuple(policy.rows[0].T)] = 2  # what stands where a row draws does not matter
    assert ck.Policy.of_choices(wrong, tuple(x[order] for x in policy.rows)) == policy
    certain = (pi == 1).any(axis=-1)
    assert len(policy.rows[0]) == (~certain).sum()
    for h, s in np.ndindex(4, 7):
        np.testing.assert_array_equal(policy.row(h, s), pi[h, s])


def by_hand(cmdp: ck.CMDP, signal: np.ndarray, pi: np.ndarray) -> float:
    """The expected total by the definition, one sum after the other in the order of the arrays."""
    V = [0.0] * cmdp.S
    P = cmdp.P
    for h in reversed(range(cmdp.H)):
        now = []
        for s in range(cmdp.S):
            total = 0.0
            for a in range(cmdp.A):
                value = float(signal[h, s, a])
                for s_next in np.flatnonzero(P[h, s, a]) if h < cmdp.H - 1 else ():
                    value += float(P[h, s, a, s_next]) * V[s_next]
                total += float(pi[h, s, a]) * value
            now.append(total)
        V = now
    return float(cmdp.mu @ np.array(V))


@pytest.mark.parametrize("stationary", [True, False])
def test_values_are_those_of_the_definition_to_the_bit(stationary):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        cmdp = random_model(rng, 3, 5, 4, stationary=stationary)
        pi = random_table(rng, 3, 5, 4)
        v, w = ck.evaluate(cmdp, ck.Policy(pi))
        assert v == by_hand(cmdp, cmdp.r, pi)
        assert w[0] == -by_hand(cmdp, cmdp.g[0], pi)


def test_the_occupancy_is_the_product_of_where_one_is_and_what_one_does():
    rng = np.random.default_rng(3)
    cmdp, pi = random_model(rng, 4, 6, 3, stationary=False), random_table(rng, 4, 6, 3)
    policy = ck.Policy(pi)
    d = cmdp.mu
    for h in range(4):
        np.testing.assert_allclose(reach(cmdp, policy)[h], d, atol=1e-14)
        np.testing.assert_allclose(ck.occupancy(cmdp, policy)[h], d[:, None] * pi[h], atol=1e-14)
        d = np.einsum("s,sa,sat->t", d, pi[h], cmdp.P[h])
    np.testing.assert_allclose(action_uses(cmdp, policy), ck.occupancy(cmdp, policy).sum(axis=(0, 1)), atol=1e-13)


def test_a_repeated_policy_is_stored_once_and_equals_the_one_written_out():
    rng = np.random.default_rng(5)
    pi = random_table(rng, 1, 6, 3)[0]
    once = ck.Policy.stationary(pi).repeated(50)
    full = ck.Policy(np.tile(pi, (50, 1, 1)))
    assert once == full and once.pi.shape == (50, 6, 3) and len(once.decisions.choice) == 1
    assert once != ck.Policy(np.concatenate((np.tile(pi, (49, 1, 1)), pi[None, ::-1])))
    cmdp = random_model(rng, 50, 6, 3, stationary=True)
    assert ck.evaluate(cmdp, once) == ck.evaluate(cmdp, full)
    assert once.stochastic_decisions() == full.stochastic_decisions()
    assert repr(once) == repr(full)


def test_an_episode_takes_the_same_random_numbers_whether_a_decision_draws_or_not():
    rng = np.random.default_rng(6)
    cmdp = random_model(rng, 5, 6, 3, stationary=True)
    pi = np.eye(3)[rng.integers(0, 3, (5, 6))]
    nearly = pi.copy()
    nearly[2, :4] = np.where(pi[2, :4] > 0, 1 - 1e-15, 1e-15 / 2)  # drawn, but never otherwise in so few episodes
    sim = Simulator.of(cmdp)
    one, other = (play_episodes(sim, ck.Policy(x), stream(1), 2000) for x in (pi, nearly))
    assert len(ck.Policy(nearly).rows[0]) == 4
    np.testing.assert_array_equal(one.reward, other.reward)
    np.testing.assert_array_equal(one.utilities, other.utilities)


def test_nothing_of_the_size_of_the_table_is_made_from_solver_to_file(tmp_path):
    H, S, A = 20, 2000, 40
    table = H * S * A * 8  # 12.8 MB
    cmdp = ring(S, A, H)
    rng = np.random.default_rng(7)
    choice = rng.integers(0, A, (H, S)).astype(np.int16)
    p = np.zeros((2, A))
    p[:, [1, 4, 39]] = rng.dirichlet(np.ones(3), 2)
    rows = np.array([[0, 0], [3, 5]]), p
    policy = ck.Policy.of_choices(choice, rows)
    ck.evaluate(cmdp, policy)  # compiles
    reach(cmdp, policy)
    tracemalloc.start()
    try:
        policy = ck.Policy.of_choices(choice, rows)
        assert sum(x.nbytes for x in policy.decisions) < 2 * H * S + 4000
        ck.evaluate(cmdp, policy)
        policy.stochastic_decisions(reach(cmdp, policy))
        mixture = ck.decompose(cmdp, policy)
        markov = ck.markov(cmdp, mixture)
        read = ck.read_policy(ck.write_policy(policy, tmp_path / "p.npz"))
        ck.write_policy(policy, tmp_path / "p.py")
        uniform = ck.Policy.uniform(cmdp)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < table / 2
    assert read == policy
    assert ck.evaluate(cmdp, markov).v == pytest.approx(ck.evaluate(cmdp, policy).v, abs=1e-12)
    assert uniform.horizon == H and uniform.row(3, 4).tolist() == [1 / A] * A


def test_the_solver_returns_the_compact_form():
    cmdp = ring(300, 4, 12).with_bounds(x=30)
    solution = ck.solve(cmdp)
    assert len(solution.policy.rows[0]) <= 1 and solution.policy.decisions.choice.dtype == np.int16
    assert solution.used == (solution.occupancy > 1e-12).sum()
    assert "_pi" not in vars(solution.policy)


@pytest.mark.parametrize(
    ("choice", "where", "p", "message"),
    [
        ([[0, 2]], [], np.zeros((0, 2)), r"choice\[h=0, s=1\] is 2, expected the index of an action in 0..1"),
        ([[0, -1]], [], np.zeros((0, 2)), r"choice\[h=0, s=1\] is -1"),
        ([[0.5, 1]], [], np.zeros((0, 2)), r"choice is float64 of shape \(1, 2\), expected action indices \(H, S\)"),
        ([[0, 1]], [[0, 2]], [[0.5, 0.5]], r"where\[0\] is \[0, 2\], expected a step in 0..0 and a state in 0..1"),
        ([[0, 1]], [[0, 1], [0, 1]], [[0.5, 0.5]] * 2, r"where lists \[0, 1\] twice"),
        ([[0, 1]], [[0, 1]], [[0.5, 0.6]], r"pi\[h=0, s=1\] sums to 1.1, expected 1"),
        ([[0, 1]], [[0, 1]], [[1.5, -0.5]], r"pi\[h=0, s=1, a=1\] is -0.5, expected a probability"),
        ([[0, 1]], [[0, 1]], [[0.5, 0.5]] * 2, r"rows are .* of shape \(1, 2\) and numbers of shape \(2, 2\)"),
    ],
)
def test_broken_choices_are_refused_with_their_place(choice, where, p, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.Policy.of_choices(choice, (where, p))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("as it is", None),
        ("percent", None),
        ("NULL", r"\*.csv:\d+: state is '', expected a name"),
        ("twice", r"\*.csv:\d+: .* has this decision already, in line \d+; leave one of them out"),
        ("missing", r"\*.csv:\d+: head: \d+ rows are announced, but the file has"),
        ("above one", r"\*.csv:\d+: decision at step 2 in state '1e3': the probabilities sum to"),
        ("sign", r"\*.csv:\d+: probability is -0.5, expected at least 0"),
        ("cell", r"\*.csv:\d+: has 5 cells, expected 4: step, state, action, probability"),
        ("quote", r"\*.csv:\d+: not valid CSV"),
    ],
)
def test_names_in_a_csv_policy_mean_what_they_say_and_mistakes_are_told(change, message, tmp_path):
    """Names that could mean something else, in a path that could be a pattern."""
    names = ["NULL", "#1", '"', "a b", "nan", "=1+1", "é,", "1e3"]
    policy = ck.Policy(random_table(np.random.default_rng(4), 2, 8, 3), names, ["x", "NA", "1"])
    path = ck.write_policy(policy, tmp_path / "p[1]*.csv")
    *head, last = path.read_text(encoding="utf-8").splitlines(keepends=True)
    step, state, action, p = next(csv.reader([last]))
    last = {
        "NULL": f"{step},,{action},{p}\n",
        "percent": f"{step},{state},{action},{100 * float(p)!r}%\n",
        "twice": head[-1],
        "missing": "",
        "above one": f"{step},{state},{action},1.5\n",
        "sign": f"{step},{state},{action},-0.5\n",
        "cell": f"{step},{state},{action},{p},\n",
        "quote": f'{step},"{state},{action},{p}\n',
    }.get(change, last)
    path.write_text("".join([*head, last]), encoding="utf-8")
    if message is None:
        np.testing.assert_allclose(ck.read_policy(path).pi, policy.pi, rtol=1e-15)
    else:
        with pytest.raises(ck.CmdpkitError, match=message):
            ck.read_policy(path)


def test_the_lines_of_a_csv_policy_may_be_in_any_order(tmp_path):
    rng = np.random.default_rng(8)
    policy = ck.Policy(random_table(rng, 3, 50, 4), [f"a, {s}" for s in range(50)], ["x", 'y"', "z", "2"])
    path = ck.write_policy(policy, tmp_path / "p.csv")
    lines = path.read_text().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("".join([*lines[:5], *rng.permutation(lines[5:]).tolist()]))
    spaced = tmp_path / "spaced.csv"
    spaced.write_text("".join([*lines[:5], "\n", *(line.replace("1,", "01,", 1) for line in lines[5:])]))
    assert ck.read_policy(path) == ck.read_policy(shuffled) == ck.read_policy(spaced) == policy


def test_a_horizon_that_the_lines_cannot_fill_is_refused_before_memory_is_taken(tmp_path):
    policy = ck.Policy([[[0.25, 0.75]]], ("on",), ("stay", "leave"))
    text = ck.write_policy(policy, tmp_path / "p.csv").read_text().replace("horizon = 1", "horizon = 900000000")
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(ck.CmdpkitError, match=r"there is no decision at step 2 in state 'on'"):
        ck.read_policy(tmp_path / "long.csv")
