"""Large models as people have them: matrices per action, columns of entries, files that stay on disk, Parquet."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import scipy.sparse

import cmdpkit as ck
from cmdpkit.model.transitions import assembled

pytestmark = pytest.mark.compiled

H, S, A = 3, 4, 2


@pytest.fixture
def dense() -> np.ndarray:
    """Transitions [H, S, A, S], about half of them zero."""
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.full(S, 0.5), (H, S, A))
    P[P < 0.1] = 0.0
    return P / P.sum(axis=-1, keepdims=True)


R = np.arange(S * A, dtype=float).reshape(S, A)


def test_one_matrix_per_action_is_the_same_model_as_a_dense_array(dense):
    P = dense[0]
    per_action = [scipy.sparse.csr_array(P[:, a]) for a in range(A)]
    assert ck.CMDP(per_action, R, horizon=5) == ck.CMDP(P, R, horizon=5)
    assert ck.CMDP(tuple(scipy.sparse.coo_matrix(x) for x in per_action), R, horizon=5) == ck.CMDP(P, R, horizon=5)


def test_entries_in_any_order_are_the_same_model(dense):
    order = np.random.default_rng(2).permutation(np.count_nonzero(dense[0]))
    s, a, s_next = (x[order] for x in np.nonzero(dense[0]))
    p = dense[0][s, a, s_next]
    kernel = ck.Kernel.from_entries((1, S, A), s * A + a, s_next, p)
    assert ck.CMDP(kernel, R, horizon=5) == ck.CMDP(dense[0], R, horizon=5)
    h, s, a, s_next = np.nonzero(dense)
    timed = ck.Kernel.from_entries((H, S, A), (h * S + s) * A + a, s_next, dense[h, s, a, s_next])
    assert ck.CMDP(timed, R, horizon=H) == ck.CMDP(dense, R)
    for columns in ((s, a, s_next, p), (h, s, a, s_next, p)):
        with pytest.raises(ck.CmdpkitError, match=r"P must be an array of numbers|P has shape"):
            ck.CMDP(columns, R, horizon=H)


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ([scipy.sparse.eye_array(S)] * 3, r"P is 3 matrices, expected a list with one sparse matrix \(4, 4\) for each"),
        ([[scipy.sparse.eye_array(S)] * A] * 3, r"P must be an array of numbers"),
        ([scipy.sparse.eye_array(S), np.eye(S)], r"P\[a=1\] is float64 of shape \(4, 4\), expected a sparse matrix of"),
        ([scipy.sparse.eye_array(S), scipy.sparse.eye_array(3)], r"P\[a=1\] is float64 of shape \(3, 3\)"),
        ([scipy.sparse.eye_array(S), "eye"], r"P\[a=1\] is str, expected a sparse matrix of numbers \(4, 4\)"),
        ([scipy.sparse.eye_array(S) * 1j] * 2, r"P\[a=0\] is complex128 of shape \(4, 4\), expected a sparse"),
        (scipy.sparse.eye_array(S * A, S), r"P is a sparse matrix of shape \(8, 4\), .*\[P\[a::A\] for a in"),
    ],
)
def test_broken_lists_of_matrices_are_refused(P, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.CMDP(P, R, horizon=5)


def test_entries_become_rows_with_equal_ones_added_up_in_their_order():
    rng = np.random.default_rng(3)
    for n_rows, states, n in ((5, 300, 2000), (5, 30, 2000), (200, 7, 900), (3, 4, 0)):  # long rows, short ones, none
        rows, nexts = rng.integers(0, n_rows, n), rng.integers(0, states, n)
        for prob in (rng.integers(-2, 3, n).astype(float), rng.random(n)):  # some sums of whole numbers are zero
            sums: dict[tuple[int, int], float] = {}
            for row, s, p in zip(rows.tolist(), nexts.tolist(), prob.tolist(), strict=True):
                sums[row, s] = sums.get((row, s), 0.0) + p
            expected = [(row, s, p) for (row, s), p in sorted(sums.items()) if p]
            begins, successors, probabilities = assembled((n_rows, states), rows, nexts, prob)
            owner = np.repeat(np.arange(n_rows), np.diff(begins)).tolist()
            assert list(zip(owner, successors.tolist(), probabilities.tolist(), strict=True)) == expected


NAMES = ["state", "action", "next_state", "probability", "reward", "backlog"]
LINES = [
    ("empty", "rest", "empty", 0.4, 0, 0.0),
    ("empty", "rest", "busy", 0.6, 0, 0.0),
    ("busy", "rest", "busy", 1.0, 0, 1.0),
    ("busy", "serve", "empty", 0.7, 1, 1.0),
    ("busy", "serve", "busy", 0.3, 2, 1.0),
]


def stored(path, frame):
    """The frame as a Parquet file brings it back."""
    frame.to_parquet(path)
    return pd.read_parquet(path)


@pytest.mark.parametrize(
    "library", [lambda x: x, polars.from_pandas, pyarrow.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_a_data_frame_is_the_same_model_as_the_csv_file_with_the_same_lines(library, tmp_path):
    frame = stored(tmp_path / "m.parquet", pd.DataFrame(LINES, columns=NAMES))
    frame.to_csv(tmp_path / "m.csv", index=False)
    rest = {"start": "empty", "constraints": [ck.at_most("backlog", 12)]}
    head = '# states = ["busy", "empty"]\n# actions = ["rest", "serve"]\n'
    (tmp_path / "m.csv").write_text(head + (tmp_path / "m.csv").read_text())
    for judged in ({"horizon": 20}, {"discount": 0.9}):
        found = ck.read_model(library(frame), **judged, **rest)
        assert found == ck.read_model(tmp_path / "m.csv", **judged, **rest)
    # Serving earns 1 or, where it fails, 2: 0.7 * 1 + 0.3 * 2 on average. An action exists where a line says so.
    assert found.r[0].tolist() == [[0.0, pytest.approx(1.3)], [0.0, 0.0]]
    assert found.actions[0].tolist() == [[True, True], [True, False]]


STEPS = [(1, 10, 0, 10, 1.0, 5), (1, 9, 0, 10, 1.0, 5), (2, 10, 0, 9, 1.0, 6), (2, 9, 0, 9, 1.0, 7)]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "uint64", "float64", "Int8"])
def test_steps_and_names_may_be_whole_numbers_of_any_type(kind, tmp_path):
    """Data frame libraries can store small numbers as small integers, whose products overflow."""
    frame = pd.DataFrame(STEPS, columns=["step", *NAMES[:5]]).astype({"step": kind})
    if not kind.startswith("float"):
        frame = frame.astype({"state": kind, "next_state": kind, "action": kind})
    found = ck.read_model(stored(tmp_path / "m.parquet", frame), horizon=2, start=10)
    assert tuple(found.states) == (9, 10)
    assert found.r[:, :, 0].tolist() == [[5, 5], [7, 6]]
    assert ck.solve(found).value == 11  # 10 -> 10 earns 5, then 6


def test_many_actions_and_steps_in_small_integers_do_not_overflow():
    lines = [(h, s, a, (s + 1) % 3, 1.0, h * a) for h in range(1, 121) for s in range(3) for a in range(60)]
    frame = pd.DataFrame(lines, columns=["step", *NAMES[:5]])
    small = frame.astype(dict.fromkeys(["step", "state", "action", "next_state"], "int8"))
    assert ck.solve(ck.read_model(small, horizon=120, start=0)).value == 59 * 120 * 121 / 2


@pytest.mark.parametrize("step", [2**31, 10**9, 121, 0, -1, 1.5])
def test_a_step_that_the_horizon_does_not_have_is_refused_before_memory_is_taken(step):
    frame = pd.DataFrame([*STEPS, (step, 10, 0, 9, 1.0, 6)], columns=["step", *NAMES[:5]])
    with pytest.raises(ck.CmdpkitError, match=r"row 5: step is .*, expected a whole number, from 1 to 120"):
        ck.read_model(frame, horizon=120, start=10)
    if step == 10**9:
        with pytest.raises(ck.CmdpkitError, match=r"1,000,000,000 steps, 2 states and 1 action.* than memory holds"):
            ck.read_model(frame, horizon=step, start=10)
    with pytest.raises(ck.CmdpkitError, match=r"column 'step', but the model has no horizon"):
        ck.read_model(frame, discount=0.9, start=10)


def test_a_constraint_in_a_data_frame_may_have_any_name():
    frame = pd.DataFrame([("on", "go", "on", 1.0, 2.0, 3.0, 4.0, 5.0)], columns=[*NAMES[:5], "p", "s", "c0"])
    bounds = [ck.at_most("p", 9), ck.at_least("c0", 1, per_step=True), ck.at_most("s", 9)]
    cmdp = ck.read_model(frame, horizon=2, start="on", constraints=bounds)
    assert cmdp.r[0].item() == 2.0 and (cmdp.signs * cmdp.g[:, 0].ravel()).tolist() == [3.0, 5.0, 4.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.rename(columns={"backlog": "back_log"}), r"unknown key 'back_log'; did you mean 'backlog'"),
        (lambda x: x.drop(columns="reward"), r"the data frame: columns: 'reward' is missing"),
        (
            lambda x: x.astype({"reward": object}).replace({"reward": {1: "x"}}),
            r"row 4: reward is 'x', expected a number",
        ),
        (lambda x: x.assign(reward=x.reward.where(x.reward != 2)), r"row 5: reward is nan"),
        (
            lambda x: x.assign(probability=0.5 * x.probability),
            r"row 1: transition from 'empty' under 'rest': the probabilities sum to 0.5, expected 1",
        ),
        (
            lambda x: x.assign(state=x.state.where(x.state == "busy")),
            r"row 1: state is .*, expected a name",
        ),
        (lambda x: x.assign(state=[[s] for s in x.state]), r"row 1: state is \['empty'\], expected a name"),
        (lambda x: pd.concat([x, x[["reward"]]], axis=1), r"the data frame cannot be read: .*reward.* 2 times"),
        (
            lambda x: x.assign(next_state=range(len(x))),
            r"actions\[s=0\].* is empty: every state needs at least one action",
        ),
        (lambda x: x[:0], r"there are no rows below them"),
    ],
)
def test_faults_of_a_data_frame_are_named(change, message):
    frame = pd.DataFrame(LINES, columns=NAMES)
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.read_model(change(frame), horizon=3, start="empty", constraints=[ck.at_most("backlog", 12)])
    with pytest.raises(ck.CmdpkitError, match=r"holds transitions only; give start= and one of"):
        ck.read_model(frame)
    with pytest.raises(ck.CmdpkitError, match=r"the model is \[3\], expected a file or a data frame"):
        ck.read_model([3])


def test_a_parquet_file_is_left_to_the_library_of_the_frame(tmp_path):
    for read in (ck.read_model, lambda x: ck.from_log(x, horizon=2)):
        with pytest.raises(ck.CmdpkitError, match=r"m.parquet: .*give the data frame .*pandas.read_parquet\(path\)"):
            read(tmp_path / "m.parquet")
