"""Rounded probabilities: accepted as far as their precision explains, divided by their sum, and said once."""

import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli.shared import app
from cmdpkit.io.formats.sheet import tolerance_of
from cmdpkit.io.formats.source import Written

THIRDS = np.full((3, 1, 3), 1 / 3)
R = np.zeros((3, 1))


def single(seed: int, S: int = 40) -> np.ndarray:
    """Rows of single precision whose sums are not 1, as they come out of many programs."""
    P = np.random.default_rng(seed).random((S, 2, S)).astype(np.float32)
    return P / P.sum(axis=-1, keepdims=True)


# -- arrays --------------------------------------------------------------------------------------------------


def test_single_precision_is_accepted_divided_by_its_sum_and_said_once():
    P = single(1)
    largest = np.abs(P.astype(float).sum(axis=-1) - 1).max()
    assert 1e-9 < largest < 1e-5
    with pytest.warns(ck.RoundingWarning, match=f"off by at most {largest:.3g}") as caught:
        cmdp = ck.CMDP(P, np.zeros((40, 2)), horizon=3)
    assert len(caught) == 1 and cmdp.notes == (str(caught[0].message),)
    sums = P.astype(float).sum(axis=-1, keepdims=True)
    expected = np.where(np.abs(sums - 1) > 1e-9, P.astype(float) / sums, P.astype(float))
    assert np.abs(cmdp.P[0] - expected).max() < 1e-16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cmdp.with_bounds().notes == cmdp.notes  # not said again, not lost


def test_sparse_matrices_lists_and_starts_of_single_precision_are_accepted_too():
    P, mu = single(2), np.full(40, np.float32(1 / 40))
    assert abs(mu.astype(float).sum() - 1) > 1e-9
    with pytest.warns(ck.RoundingWarning):
        dense = ck.CMDP(P, np.zeros((40, 2)), mu=mu, horizon=3)
    with pytest.warns(ck.RoundingWarning):
        sparse = ck.CMDP([scipy.sparse.csr_array(P[:, a]) for a in (0, 1)], np.zeros((40, 2)), mu=mu, horizon=3)
    with pytest.warns(ck.RoundingWarning):
        listed = ck.CMDP(list(P), np.zeros((40, 2)), mu=dict(enumerate(mu, 1)), horizon=3)
    assert dense == sparse == listed
    assert dense.mu.sum() == pytest.approx(1, abs=1e-15)


def test_functions_that_return_single_precision_are_accepted():
    row = {x: np.float32(0.1) for x in range(10)}
    with pytest.warns(ck.RoundingWarning, match="off by at most 1.49e-08"):
        cmdp = ck.CMDP.from_function(
            start=0, horizon=2, actions=["go"], step=lambda s, a: row, reward=lambda s, a, s_next: float(s_next)
        )
    assert cmdp.P[0, 0, 0].tolist() == [0.1] * 10 and cmdp.r[0, 0, 0] == pytest.approx(4.5, abs=1e-14)


def test_double_precision_is_not_given_more_room():
    P = THIRDS.copy()
    P[0, 0, 0] += 1e-8
    with pytest.raises(ck.CmdpkitError, match=r"sums to 1\.00000001, expected 1 within 1e-09"):
        ck.CMDP(P, R, horizon=2)
    with pytest.raises(ck.CmdpkitError, match=r"sum to 1\.00000001, expected 1 within 1e-09"):
        ck.CMDP.from_function(
            start=0, horizon=2, actions=["go"], step=lambda s, a: {0: 0.5, 1: 0.5 + 1e-8}, reward=lambda s, a: 0.0
        )


def test_single_precision_beyond_its_precision_is_refused():
    P = THIRDS.astype(np.float32)
    P[1, 0, 2] += 3e-5
    with pytest.raises(ck.CmdpkitError, match=r"P\[s=1, a=0\] sums to 1\.00003"):
        ck.CMDP(P, R, horizon=2)
    with pytest.raises(ck.CmdpkitError, match=r"mu sums to 0\.999000012875, expected 1 within 1e-05"):
        ck.CMDP(THIRDS, R, mu=np.array([0.333, 0.333, 0.333], dtype=np.float32), horizon=2)


def test_rows_that_need_no_correction_keep_their_bits_and_nothing_is_said():
    P = np.array([[[0.25, 0.75]], [[0.5, 0.5]]], dtype=np.float32)
    cmdp = ck.CMDP(P, np.zeros((2, 1)), horizon=2)
    assert cmdp.notes == () and cmdp == ck.CMDP(P.astype(float), np.zeros((2, 1)), horizon=2)
    almost = THIRDS * (1 + 5e-10)
    assert (ck.CMDP(almost, R, horizon=2).P[0] == almost).all()


def test_renormalise_divides_rows_and_start_whatever_they_sum_to():
    cmdp = ck.CMDP(THIRDS * 2.5, R, mu=[2.0, 1.0, 1.0], horizon=2, renormalise=True)
    assert np.abs(cmdp.P - 1 / 3).max() < 1e-15 and cmdp.mu.tolist() == [0.5, 0.25, 0.25]
    made = ck.CMDP.from_function(
        start={0: 1.0, 1: 3.0},
        horizon=2,
        actions=["go"],
        step=lambda s, a: {0: 3, 1: 1},
        reward=lambda s, a: 0.0,
        renormalise=True,
    )
    assert made.P[0, 0, 0].tolist() == [0.75, 0.25] and made.mu.tolist() == [0.25, 0.75]
    with pytest.raises(ck.CmdpkitError, match="mu sums to 0, expected 1"):
        ck.CMDP(THIRDS, R, mu=[0.0, 0.0, 0.0], horizon=2, renormalise=True)


# -- text ----------------------------------------------------------------------------------------------------

HEADS = {
    ".toml": '[model]\nhorizon = 2\nstart = "s0"\n{more}\n',
    ".json": '{{"model": {{"horizon": 2, "start": "s0"{more}}}, "transition": [\n',
    ".csv": '# horizon = 2\n# start = "s0"\n{more}\nstate,action,next_state,probability,reward\n',
}


def written(folder: Path, suffix: str, row: list[str], more: str = "") -> Path:
    """A model in which s0 has this row, as it stands, and every other state stays where it is."""
    path = folder / f"model{suffix}"
    rows = {"s0": {f"s{i}": p for i, p in enumerate(row)}} | {f"s{i}": {f"s{i}": "1"} for i in range(1, len(row))}
    if suffix == ".csv":
        lines = [f"{s},go,{x},{p},0" for s, given in rows.items() for x, p in given.items()]
        body = "\n".join(lines) + "\n"
    elif suffix == ".toml":
        tables = ["{" + ", ".join(f"{x} = {p}" for x, p in given.items()) + "}" for given in rows.values()]
        head = '[[transition]]\nstate = "{}"\naction = "go"\nreward = 0\nnext = {}\n'
        body = "\n".join(head.format(s, table) for s, table in zip(rows, tables, strict=True))
    else:
        tables = ["{" + ", ".join(f'"{x}": {p}' for x, p in given.items()) + "}" for given in rows.values()]
        body = ",\n".join(
            f'{{"state": "{s}", "action": "go", "reward": 0, "next": {table}}}'
            for s, table in zip(rows, tables, strict=True)
        )
        body += "]}"
    path.write_text(HEADS[suffix].format(more=more) + body, encoding="utf-8")
    return path


each_suffix = pytest.mark.parametrize("suffix", HEADS)


@each_suffix
def test_thirds_of_two_decimals_are_accepted_divided_and_said_once(suffix, tmp_path):
    path = written(tmp_path, suffix, ["0.33"] * 3)
    with pytest.warns(ck.RoundingWarning, match=r"model\..*: probabilities were .* off by at most 0\.01$") as caught:
        cmdp = ck.read_model(path)
    assert len(caught) == 1 and len(cmdp.notes) == 1
    assert np.abs(cmdp.P[0, 0, 0] - 1 / 3).max() < 1e-15


@each_suffix
def test_what_sums_to_one_as_it_is_written_is_taken_without_a_word(suffix, tmp_path):
    cmdp = ck.read_model(written(tmp_path, suffix, ["0.333", "0.333", "0.334"]))
    assert cmdp.P[0, 0, 0].tolist() == [0.333, 0.333, 0.334] and cmdp.notes == ()


ACCEPTED = [["0.3", "0.3", "0.3"], ["0.1667"] * 6, ["3.33e-1", "3.33e-1", "3.33e-1"]]
REFUSED = [
    ["0.5", "0.4"],  # two numbers rounded to the nearest cannot miss by a whole unit
    ["0.75", "0.2"],  # 0.2 stands for 0.20 beside 0.75
    ["0.33", "0.33", "0.32"],
    ["0.9"],
    ["1", "1"],  # whole numbers are exact
    ["1", "0.1"],
    ["0.5", *["0.00"] * 100],  # zeros are exact, however many
    ["0.333", "0.333", "0.333", "1e-9"],  # as precise as the most precise of them
    ["0", "0"],
]  # fmt: skip


@each_suffix
@pytest.mark.parametrize("row", ACCEPTED, ids=str)
def test_rows_within_half_a_unit_per_entry_are_accepted(suffix, row, tmp_path):
    with pytest.warns(ck.RoundingWarning):
        cmdp = ck.read_model(written(tmp_path, suffix, row))
    exact = [Fraction(x) for x in row]
    assert cmdp.P[0, 0, 0].tolist() == pytest.approx([float(x / sum(exact)) for x in exact], abs=1e-15)


@each_suffix
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: str(row[:4]))
def test_rows_beyond_that_are_refused_with_the_line_and_both_ways_out(suffix, row, tmp_path):
    with pytest.raises(ck.CmdpkitError, match=r"model\..*sum to .*, expected 1 within 1e-09.*renormalise = true"):
        ck.read_model(written(tmp_path, suffix, row))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=12), st.integers(1, 6))
def test_every_row_that_was_rounded_to_the_nearest_is_within_its_tolerance(weights, decimals):
    total = sum(weights)
    row = [Fraction(w, total) for w in weights]
    texts = [f"{float(round(p, decimals)):.{decimals}f}" for p in row]
    miss = abs(sum(map(Fraction, texts)) - 1)
    ties = all(abs(p - Fraction(x)) == Fraction(1, 2 * 10**decimals) for p, x in zip(row, texts, strict=True))
    # What was rounded to zero is lost, and nothing tells a row in which every number was a tie from a mistake.
    if all(map(Fraction, texts)) and not ties:
        assert miss <= tolerance_of(map(Written, texts))


@each_suffix
def test_a_file_can_ask_to_be_renormalised(suffix, tmp_path):
    more = {".toml": "renormalise = true", ".json": ', "renormalise": true', ".csv": "# renormalise = true"}[suffix]
    row = ["0.5", "0.4"]
    cmdp = ck.read_model(written(tmp_path, suffix, row, more))
    assert cmdp.P[0, 0, 0].tolist() == [0.5 / 0.9, 0.4 / 0.9] and cmdp.notes == ()
    with pytest.raises(ck.CmdpkitError, match=r"'renormalise' is 1, expected true or false"):
        ck.read_model(written(tmp_path, suffix, row, more.replace("true", "1")))
    with pytest.raises(ck.CmdpkitError, match=r"sum to 0\.9,"):
        ck.read_model(written(tmp_path, suffix, row, more.replace("true", "false")))


def test_a_start_may_be_rounded_and_renormalised(tmp_path):
    path = written(tmp_path, ".toml", ["0.25", "0.25", "0.5"])
    text = path.read_text()
    path.write_text(text.replace('"s0"', "{s0 = 0.33, s1 = 0.33, s2 = 0.33}", 1))
    with pytest.warns(ck.RoundingWarning, match="off by at most 0.01"):
        assert ck.read_model(path).mu.tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    path.write_text(text.replace('"s0"', "{s0 = 3, s1 = 1}", 1))
    with pytest.raises(ck.CmdpkitError, match=r"'start' sums to 4"):
        ck.read_model(path)
    assert ck.read_model(path, renormalise=True).mu.tolist() == [0.75, 0.25, 0]


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_a_policy_of_few_decimals_is_accepted_and_corrected(suffix, tmp_path):
    policy = ck.Policy([[[0.25, 0.25, 0.5]]], ("on",), ("a", "b", "c"))
    path = ck.write_policy(policy, tmp_path / f"policy{suffix}")
    path.write_text(path.read_text().replace("0.25", "0.33").replace("0.5", "0.33"))
    with pytest.warns(ck.RoundingWarning, match="off by at most 0.01"):
        assert ck.read_policy(path).pi.tolist() == [[pytest.approx([1 / 3] * 3, abs=1e-15)]]
    path.write_text(path.read_text().replace("0.33", "0.32"))
    with pytest.raises(ck.CmdpkitError, match=r"sum to 0\.96, expected 1 within 1e-09 \(or off by less than 0\.015"):
        ck.read_policy(path)


# -- the command line ----------------------------------------------------------------------------------------


def run(*arguments: object):
    return CliRunner().invoke(app, [str(x) for x in arguments])


def model_file(folder: Path, row: list[str]) -> Path:
    """A model with a constraint, so that every command has something to do."""
    path = folder / "model.csv"
    lines = [f"s0,go,s{i},{p},0,1" for i, p in enumerate(row)] + [f"s{i},go,s{i},1,1,0" for i in range(1, len(row))]
    head = '# horizon = 2\n# start = "s0"\n# constraint wear <= 9\nstate,action,next_state,probability,reward,wear\n'
    path.write_text(head + "\n".join(lines) + "\n")
    return path


def commands(path: Path, folder: Path) -> list[list[object]]:
    return [
        ["check", path],
        ["solve", path],
        ["tradeoff", path, "wear", "--points", 2],
        ["convert", path, folder / "out.npz", "--force"],
        ["learn", path, "--algo", "triple-q", "--episodes", 50],
    ]


def test_every_command_that_reads_a_model_tells_its_corrections_once(tmp_path):
    path = model_file(tmp_path, ["0.33"] * 3)
    for command in commands(path, tmp_path):
        result = run(*command)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("note: ") == 1 and "off by at most 0.01" in result.stderr
        assert "note:" not in result.stdout


def test_convert_renormalises_and_every_command_that_reads_a_model_says_how(tmp_path):
    path = model_file(tmp_path, ["0.5", "0.4"])
    for command in commands(path, tmp_path):
        refused = run(*command)
        assert refused.exit_code == 1
        assert "sum to 0.9, expected 1" in refused.stderr and "renormalise = true under [model]" in refused.stderr
    accepted = run("convert", str(path), str(tmp_path / "out.npz"), "--renormalise")
    assert accepted.exit_code == 0, accepted.output
    assert ck.read_model(tmp_path / "out.npz").P[0, 0, 0].tolist() == [0.5 / 0.9, 0.4 / 0.9]


def test_an_environment_has_nothing_to_renormalise(tmp_path):
    result = run("convert", "queue", str(tmp_path / "out.npz"), "--renormalise")
    assert result.exit_code == 1 and "'queue' is not a file: renormalise is for model files" in result.stderr
