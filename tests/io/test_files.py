"""Model files: what is written comes back to the last bit, takes no more space than needed, and spares other files."""

import csv
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buffer_model import BUFFER, assert_same, buffer
from cmdpkit.io.formats.document import RESERVED
from cmdpkit.io.loading import load
from cmdpkit.io.models import SUFFIXES, read_model, write_model
from cmdpkit.io.policies import read_policy, write_policy
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import at_least, at_most
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import Kernel

TEXT = (".toml", ".json", ".csv")
WITH_STEPS = ("paper/synthetic", "paper/grid", "paper/lower-bound", "treatment", "queue")
ENVIRONMENTS = (*WITH_STEPS, "power-queue", "power-queue:discount=0.95", "mud-grid", "machine")


@cache
def samples() -> dict[str, CMDP]:
    rng = np.random.default_rng(5)
    H, S, A = 4, 3, 2
    P, P_h = rng.dirichlet(np.ones(S), size=(S, A)), rng.dirichlet(np.ones(S), size=(H, S, A))
    r, r_h = rng.normal(size=(S, A)), rng.normal(size=(H, S, A))
    g, g_h = rng.normal(size=(S, A)), rng.normal(size=(H, S, A))
    mask, mask_h = np.array([[True, False], [True, True], [False, True]]), rng.random((H, S, A)) < 0.6
    mask_h[..., 0] |= ~mask_h.any(axis=-1)
    cost, gain = at_most("cost, in €", 1 / 3, g), at_least('the "gain"', -2.5e-7, g_h)
    grid = Grid(2, 2, ((0, 0), (1, 1), (0, 1)), {1: "G", 2: "|"}, ("←", "→"))
    mu = rng.dirichlet(np.ones(S))
    stationary = CMDP(P, r, constraints=[cost], horizon=H, mu=2, actions=mask, grid=grid)
    return {
        "buffer": buffer(),
        "no constraint": CMDP(P, r, horizon=H),
        "stationary with masks and a drawing": stationary,
        "start distribution": CMDP(P, r, g, 0.5, mu, horizon=H, states=["ä", "#", " x "], action_names=[7, "7 "]),
        "everything per step": CMDP(P_h, r_h, constraints=[gain], mu=mu, actions=mask_h),
        "transitions per step": CMDP(P_h, r, constraints=[cost]),
        "reward per step": CMDP(P, r_h, constraints=[cost], horizon=H, actions=mask),
        "signals per step": CMDP(P, r, constraints=[cost, gain], horizon=H),
        "actions per step": CMDP(P, r, constraints=[cost], horizon=H, actions=mask_h),
        "per step but alike": CMDP(np.broadcast_to(P, (H, S, A, S)), np.broadcast_to(r, (H, S, A))),
        "one row differs": CMDP(P, np.where(np.arange(H * S * A).reshape(H, S, A) == 9, 0.0, r), horizon=H),
        "one step": CMDP(P, r, horizon=1, constraints=[cost]),
        "restricted": stationary.restrict(mask & [[True, True], [False, True], [True, True]]),
        "restricted per step": CMDP(P, r, constraints=[cost], horizon=H).restrict(mask_h),
        "names that look alike": CMDP(P, r, horizon=2, states=[1, "01", "1.0"], action_names=["true", "nan"]),
        **{name: load(name) for name in ENVIRONMENTS},
        "tiny and large": CMDP(P, [[5e-324, 1e300], [-0.0, 0.1], [1 / 3, 2**53]], horizon=2),
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", samples())
def test_a_model_comes_back_equal(name, suffix, tmp_path):
    cmdp = samples()[name]
    path = write_model(cmdp, tmp_path / f"model{suffix}")
    assert_same(read_model(path), cmdp)


def test_changing_any_part_by_the_least_changes_the_model_read_back(tmp_path):
    # Guards the tests above: a reader or an equality that looks away from some part would make them empty.
    def changed(before: str, after: str) -> CMDP:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
        path.write_text(BUFFER.replace(before, after, 1))
        return read_model(path)

    ulp = repr(np.nextafter(0.75, 0.0).item()), repr(np.nextafter(1.5, 2.0).item())
    versions = [
        buffer(),
        changed("busy = 0.75", f"busy = {ulp[0]}"),
        changed("reward = 1.5", f"reward = {ulp[1]}"),
        changed("bound = 2.5", "bound = 2.50001"),
        changed("at_most", "at_least"),
        changed('served well" = 1', 'served well" = 1.0001'),
        changed("horizon = 4", "horizon = 5"),
        changed('start = "empty"', 'start = "busy"'),
        changed('start = "empty"', 'start = "empty"\nper_step = ["reward"]'),
        changed('start = "empty"', 'start = "empty"\nstates = ["busy", "empty"]'),
        changed('start = "empty"', 'start = "empty"\nactions = ["serve", "rest"]'),
        changed('action = "serve"', 'action = "service"'),
        changed('action = "serve"', 'step = 1\naction = "serve"'),
        CMDP(buffer().P[0], buffer().r[0], horizon=4, actions=buffer().actions[0]),
    ]
    for suffix in SUFFIXES:
        read = [read_model(write_model(x, tmp_path / f"version {i}{suffix}")) for i, x in enumerate(versions)]
        assert all((x == y) == (i == j) for i, x in enumerate(read) for j, y in enumerate(versions))


names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip),
    st.integers(-(10**20), 10**20),
    st.sampled_from(
        ['"', "'", "a,b", "#x", "x = 1", "[model]", "\\", "a\nb", "a\r", "\x00", "🙂", "nan", "<=", " a", "|"]
    ),
)
numbers = st.floats(-1e300, 1e300)
limits = st.floats(-1e200, 1e200)  # larger bounds are refused unless signals are as large


@st.composite
def models(draw) -> CMDP:
    H, S, A, N = (draw(st.integers(1, n)) for n in (3, 3, 3, 2))
    N = draw(st.integers(0, 2))

    def array(*shape):
        T = (H,) if draw(st.booleans()) else ()
        values = st.lists(numbers, min_size=int(np.prod(T + shape)), max_size=int(np.prod(T + shape)))
        return np.array(draw(values)).reshape(T + shape)

    weights = st.integers(0, 1000)
    T = (H,) if draw(st.booleans()) else ()
    size = int(np.prod(T, dtype=int)) * S * A * S
    P = np.array(draw(st.lists(weights, min_size=size, max_size=size)), dtype=float).reshape(*T, S, A, S)
    P[..., 0] += P.sum(axis=-1) == 0
    P /= P.sum(axis=-1, keepdims=True)
    T = (H,) if draw(st.booleans()) else ()
    size = int(np.prod(T, dtype=int)) * S * A
    allowed = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(*T, S, A)
    allowed[..., -1] |= ~allowed.any(axis=-1)
    mu = np.array(draw(st.lists(weights, min_size=S, max_size=S)), dtype=float)
    mu[-1] += mu.sum() == 0
    distinct = [draw(st.none() | st.lists(names, min_size=n, max_size=n, unique_by=str)) for n in (S, A)]
    titles = st.lists(names.map(str).filter(lambda x: x not in RESERVED), min_size=N, max_size=N, unique=True)
    kinds = st.sampled_from([at_most, at_least])
    return CMDP(
        P,
        array(S, A),
        mu=mu / mu.sum(),
        horizon=H,
        actions=allowed,
        constraints=[draw(kinds)(name, draw(limits), array(S, A)) for name in draw(titles)],
        states=distinct[0],
        action_names=distinct[1],
    )


@given(cmdp=models(), suffix=st.sampled_from(SUFFIXES))
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_model_with_any_names_comes_back_equal(cmdp, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"model{suffix}"
    assert_same(read_model(write_model(cmdp, path)), cmdp)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_numbers_of_numpy_in_a_drawing_are_written_as_numbers(suffix, tmp_path):
    one = np.int64(1)
    grid = Grid(one, one * 2, ((one - 1, one - 1), (one - 1, one)), {one: "G"}, ("a", "b"))
    cmdp = CMDP(buffer().P[0], buffer().r[0], horizon=2, actions=buffer().actions[0], grid=grid)
    assert_same(read_model(write_model(cmdp, tmp_path / f"model{suffix}")), cmdp)


def test_the_suffix_counts_whatever_its_case(tmp_path):
    assert read_model(write_model(buffer(), tmp_path / "MODEL.JSON")) == buffer()


def test_text_files_have_a_line_per_transition_and_no_more_digits_than_needed(tmp_path):
    text = write_model(buffer(), tmp_path / "model.json").read_text()
    assert '{"state": "busy", "action": "serve", "reward": 1.5, "backlog": 1.0' in text
    text = write_model(buffer(), tmp_path / "model.toml").read_text()
    assert text.count("[[transition]]") == 3
    assert '"served well" = 0.125\nnext = {empty = 0.25, busy = 0.75}\n' in text


def test_a_large_sparse_model_takes_space_for_its_nonzeros_only(tmp_path):
    S, A, rng = 20_000, 3, np.random.default_rng(0)
    rows = np.repeat(np.arange(S * A), 4)
    prob = np.full(len(rows), 0.25)
    kernel = Kernel.from_entries((1, S, A), rows, rng.integers(0, S, len(rows)), prob)
    cmdp = CMDP(kernel, rng.random((S, A)), rng.random((S, A)), 1.0, horizon=50)
    path = write_model(cmdp, tmp_path / "model.npz")
    assert path.stat().st_size < 12 * kernel.nonzeros + 8 * 5 * S * A  # S x S doubles would be 3.2 GB
    assert_same(read_model(path), cmdp)


def test_constraints_called_like_a_column_need_npz(tmp_path):
    cmdp = CMDP(buffer().P[0], np.zeros((2, 2)), horizon=2, constraints=[at_most("reward", 1, np.ones((2, 2)))],
                actions=buffer().actions[0])  # fmt: skip
    for suffix in TEXT:
        with pytest.raises(ValueError, match="constraint 'reward' is called like a key or column"):
            write_model(cmdp, tmp_path / f"model{suffix}")
    assert list(tmp_path.iterdir()) == []
    assert_same(read_model(write_model(cmdp, tmp_path / "model.npz")), cmdp)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_half_a_character_in_a_name_is_refused_and_nothing_is_left_behind(suffix, tmp_path):
    cmdp = CMDP([[[1.0]]], [[0.0]], horizon=1, states=["a\ud800"])
    with pytest.raises(ValueError, match="half a character"):
        write_model(cmdp, tmp_path / f"model{suffix}")
    assert list(tmp_path.iterdir()) == []


WRITERS = [*((write_model, x) for x in SUFFIXES), *((write_policy, x) for x in (".json", ".csv", ".npz", ".py"))]


@pytest.mark.parametrize(("write", "suffix"), WRITERS)
def test_an_existing_file_is_kept_unless_overwriting_is_asked_for(write, suffix, tmp_path):
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(b"somebody's work")
    what = buffer() if write is write_model else Policy.uniform(buffer())
    with pytest.raises(ValueError, match=rf"mine\{suffix} exists already; pass overwrite=True"):
        write(what, path)
    assert path.read_bytes() == b"somebody's work"
    assert write(what, path, overwrite=True) == path
    assert b"somebody" not in path.read_bytes() and [x.name for x in tmp_path.iterdir()] == [path.name]


def test_no_cell_of_a_csv_file_is_a_formula_for_a_spreadsheet(tmp_path):
    names = ["=1+1", "+a", "@x", "-2+3", "'=1", "''-x", "-5", "'-5", "-"]
    n = len(names)
    cmdp = CMDP(np.eye(n)[:, None].repeat(n, axis=1), -np.ones((n, n)), horizon=2, states=names, action_names=names)
    policy = Policy.uniform(cmdp)
    written = write_model(cmdp, tmp_path / "model.csv"), write_policy(policy, tmp_path / "policy.csv")
    for path in written:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        cells = [cell for row in csv.reader(lines) for cell in row]
        assert {cell for cell in cells if cell.startswith(("=", "+", "@", "-"))} == {
            "-5",
            *["-1.0"] * (path == written[0]),
        }
    assert read_model(written[0]) == cmdp and read_policy(written[1]) == policy
