"""Numbers far too large, in files, on the command line and in calls: an error that names them, at once."""

import time

import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.experiments.experiment import MAX_RUNS, Experiment
from cmdpkit.io.formats.source import MAX_KEY_PARTS

HEAD = 'environments = ["paper/synthetic"]\nalgorithms = ["triple-q"]\n'
HUGE = ["1000000000000", "1e18", "99999999999999999999999", "1e300"]


@pytest.fixture(autouse=True)
def at_once():
    began = time.process_time()
    yield
    assert time.process_time() - began < 10


def experiment(folder, text):
    (folder / "study.toml").write_text(text)
    return Experiment.load(folder / "study.toml").runs()


@pytest.mark.parametrize("many", HUGE)
def test_a_number_of_seeds_that_cannot_be_meant_is_refused(many, tmp_path):
    with pytest.raises(
        ck.CmdpkitError, match=r"study\.toml:3: seeds: [\d.]+ seeds are asked for, expected at most 1,000,000"
    ):
        experiment(tmp_path, HEAD + f"seeds = {many}\nepisodes = 5\n")


@pytest.mark.parametrize("many", HUGE[2:])
@pytest.mark.parametrize("unit", ["episodes", "steps"])
def test_a_length_that_cannot_be_counted_is_refused(unit, many, tmp_path):
    with pytest.raises(ck.CmdpkitError, match=rf"study\.toml:3: {unit} is [\d.e+]+, expected a whole .* to 1,000"):
        experiment(tmp_path, HEAD + f"{unit} = {many}\nseeds = 2\n")
    call = {unit: int(float(many))}
    with pytest.raises(ck.CmdpkitError, match=rf"{unit} is [\d.]+, expected at most 1,000,000,000,000,000"):
        ck.learn("paper/synthetic" if unit == "episodes" else "machine-two", "cl-pri", **call)
    with pytest.raises(ck.CmdpkitError, match=r"stop is \d+.*, expected at most"):
        ck.learn("paper/synthetic", "cl-pri", stop=many)


def test_lists_whose_combinations_are_too_many_are_refused_before_they_are_listed(tmp_path):
    lists = ", ".join(f"p{i} = {list(range(1000))}" for i in range(6))
    text = 'episodes = 5\nseeds = 2\nenvironments = ["paper/synthetic"]\n[[algorithms]]\nname = "triple-q"\n'
    with pytest.raises(
        ck.CmdpkitError, match=r"1 environments x 1,000,000,000,000,000,000 settings .* x 2 seeds are more"
    ):
        experiment(tmp_path, f"{text}params = {{{lists}}}\n")
    text = f'episodes = 5\nalgorithms = ["triple-q"]\n[[environments]]\nmodel = "random"\nparams = {{{lists}}}\n'
    with pytest.raises(ck.CmdpkitError, match=f"more than {MAX_RUNS:,} runs; every list"):
        experiment(tmp_path, text)


@pytest.mark.parametrize(
    "words",
    [
        ("learn", "paper/synthetic", "--seeds", "1000000000000"),
        ("learn", "paper/synthetic", "--episodes", "1e300"),
        ("learn", "paper/synthetic", "--stop", "1e300"),
        ("learn", "machine-two", "--steps", "99999999999999999999999"),
        ("simulate", "treatment", "--policy", "plan.csv", "--episodes", "99999999999999999999999"),
    ],
    ids=" ".join,
)
def test_commands_with_huge_numbers_end_with_a_message(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    ck.write_policy(ck.solve(ck.load("treatment")), "plan.csv")
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, SystemExit) and done.exit_code in (1, 2), done.exception
    assert any(sign in done.stderr for sign in ("expected at most", "less than or equal to")), done.stderr


def test_running_out_of_memory_is_said_in_a_sentence(monkeypatch):
    def fail(*given, **more):
        raise MemoryError

    monkeypatch.setattr("cmdpkit.io.loading.build", fail)
    done = CliRunner().invoke(app, ["solve", "queue"])
    assert done.exit_code == 1 and "not enough memory" in done.stderr


@pytest.mark.parametrize(
    "key",
    [
        ".".join("a" * 30_000),
        ".".join(['"a"'] * 30_000),
        " . ".join(["'a b'", "c-d"] * 15_000),
        ".".join("a" * (MAX_KEY_PARTS + 1)),
    ],
    ids=["bare", "quoted", "mixed", "just too many"],
)
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{{} = 1}}"])
def test_a_key_of_thousands_of_parts_is_refused_with_its_line(key, form, tmp_path):
    with pytest.raises(ck.CmdpkitError, match=r"study\.toml:3: a dotted key has more than 50 parts: "):
        experiment(tmp_path, HEAD + form.format(key))
    (tmp_path / "model.toml").write_text(form.format(key))
    with pytest.raises(ck.CmdpkitError, match=r"model\.toml:1: a dotted key has more than 50 parts: "):
        ck.read_model(tmp_path / "model.toml")


def test_ordinary_dots_and_long_words_are_no_long_keys(tmp_path):
    text = f"# {'word. ' * 1000}\n# {'.' * 100_000} {'a' * 1_000_000} {'1.5, ' * 100_000}\nepisodes = 5\nseeds = 1\n"
    assert len(experiment(tmp_path, text + HEAD)) == 1


def test_a_key_that_is_given_twice_among_very_many_is_found_at_once(tmp_path):
    keys = ", ".join(f'"k{i}": 1' for i in range(60_000))
    (tmp_path / "model.json").write_text(f'{{{keys}, "k59999": 2}}')
    with pytest.raises(ck.CmdpkitError, match="key 'k59999' is given twice"):
        ck.read_model(tmp_path / "model.json")
