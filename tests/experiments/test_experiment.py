"""An experiment says exactly which runs it asks for, and what is wrong with it is said with the file, line and key."""

import re
from pathlib import Path

import pytest

import cmdpkit as ck
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.learners.registry import resolve
from cmdpkit.running.request import run_of
from cmdpkit.running.worlds import ModelWorld, world_of

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PLAIN = {"name": "x", "environments": ["paper/synthetic"], "algorithms": ["triple-q"], "episodes": 1000, "seeds": 2}


def asked(**changes):
    return Experiment.of({**PLAIN, **changes}, "x").runs()


def keys(runs):
    return [run.key for run in runs]


def written(folder, text):
    path = folder / "table.toml"
    path.write_text(text)
    return path


# -- which runs --------------------------------------------------------------------------------------------------------


def test_the_suffix_of_a_model_file_may_be_in_capitals(tmp_path):
    ck.write_model(ck.load("paper/synthetic"), tmp_path / "M.TOML")
    (run,) = asked(environments=[str(tmp_path / "M.TOML")], seeds=1)
    assert run.fingerprint == ck.load("paper/synthetic").fingerprint()


def test_a_list_is_several_settings_and_the_order_is_that_of_the_file():
    runs = asked(
        environments=["paper/grid", {"model": "random", "params": {"S": [3, 4], "seed": 7}}],
        algorithms=[
            {"name": "triple-q", "params": {"eta": [1.0, 2.0], "keep": 0.5}},
            {"name": "pri", "preset": ["printed", "theory"], "episodes": 2e3},
        ],
        seeds=[5, 1],
    )
    settings = [("triple-q", "practical", {"eta": x, "keep": 0.5}, 1000) for x in (1.0, 2.0)]
    settings += [("pri", preset, {}, 2000) for preset in ("printed", "theory")]
    expected = [
        (env, algo, preset, params, episodes, seed)
        for env in ("paper/grid", "random:S=3,seed=7", "random:S=4,seed=7")
        for algo, preset, params, episodes in settings
        for seed in (5, 1)
    ]
    assert [(r.env, r.algo, r.preset, r.params, r.episodes, r.seed) for r in runs] == expected


def test_a_run_is_the_one_that_learn_would_make():
    world = ModelWorld(ck.load("paper/synthetic"), "paper/synthetic", "bernoulli")
    alone = run_of(world, resolve("triple-q"), 1000, seed=1, params={"eta": 2.0})
    assert asked(algorithms=[{"name": "triple-q", "params": {"eta": 2.0}}], noise="bernoulli")[1] == alone


def test_whatever_is_added_or_moved_the_other_runs_stay_what_they_were():
    before = set(keys(asked()))
    for changes in (
        {"algorithms": ["dual-q", "triple-q"]},
        {"environments": ["paper/grid", "paper/synthetic"]},
        {"seeds": [7, 1, 0]},
        {"algorithms": [{"name": "triple-q", "preset": ["theory", "practical"]}]},
        {"name": "another", "out": "elsewhere"},
    ):
        assert before <= set(keys(asked(**changes))), changes


def test_every_part_of_a_request_counts():
    changes = ({"episodes": 1001}, {"noise": "bernoulli"}, {"algorithms": ["dual-q"]}, {"environments": ["paper/grid"]})
    changes += ({"environments": [{"model": "paper/synthetic", "bounds": {"utility": 1.9}}]},)
    found = [key for change in ({}, *changes) for key in keys(asked(**change))]
    assert len(set(found)) == len(found) == 12


def test_bounds_change_the_model_and_are_a_part_of_the_run_not_of_its_name():
    first, second = Experiment.of(
        {**PLAIN, "environments": [{"model": "paper/synthetic", "bounds": {"utility": [1.9, 1]}}]}, "x"
    ).problems
    assert (first.name, first.bounds, second.bounds) == ("paper/synthetic", {"utility": 1.9}, {"utility": 1.0})
    assert first.world.constraints[0].bound == 1.9
    runs = asked(environments=[{"model": "paper/synthetic", "bounds": {"utility": 1}}])
    assert {(run.env, run.problem) for run in runs} == {("paper/synthetic", "paper/synthetic with utility = 1")}
    world = world_of("paper/synthetic", bounds={"utility": 1.0})
    assert runs[1] == run_of(world, resolve("triple-q"), 1000, seed=1)


def test_files_are_relative_to_the_toml_and_their_runs_do_not_depend_on_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    ck.write_model(ck.load("paper/grid"), tmp_path / "models" / "grid.json")
    text = 'environments = ["models/grid.json"]\nalgorithms = ["triple-q"]\nepisodes = 10\nout = "records"\n'
    path = written(tmp_path, text)
    found = []
    for place in (tmp_path, tmp_path / "models"):
        monkeypatch.chdir(place)
        experiment = Experiment.load(path)
        found.append(keys(experiment.runs()))
        assert experiment.name == "table" and experiment.output == tmp_path / "records"
    assert found[0] == found[1] and len(found[0]) == 10


def test_models_in_memory_are_named_by_what_they_are_not_by_their_place():
    one, two = ck.load("paper/grid"), ck.load("paper/synthetic")
    assert set(keys(asked(environments=[one]))) <= set(keys(asked(environments=[two, one])))


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_experiments_that_come_along_are_valid(path):
    assert Experiment.load(path).runs()


# -- what is wrong -----------------------------------------------------------------------------------------------------

HEAD = 'environments = ["paper/grid"]\n'
TAIL = '[[algorithms]]\nname = "triple-q"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + TAIL, "table.toml: episodes is missing"),
        (HEAD + "episode = 5\n" + TAIL, "table.toml:2: unknown key 'episode'; did you mean 'episodes'?"),
        (HEAD + "episodes = 1.5\n" + TAIL, "table.toml:2: episodes is 1.5, expected a whole number from 1 to"),
        (HEAD + "episodes = 0\n" + TAIL, "table.toml:2: episodes is 0, expected a whole number from 1 to"),
        (HEAD + 'episodes = "10"\n' + TAIL, "table.toml:2: episodes is '10', expected a whole number from 1 to"),
        (HEAD + "episodes = 5\nseeds = 0\n" + TAIL, "table.toml:3: seeds: 0 seeds are asked for, expected at least 1"),
        (HEAD + "episodes = 5\nseeds = [1, -2]\n" + TAIL, "seeds[1] is -2, expected a whole number from 0 to"),
        (HEAD + "episodes = 5\nseeds = [1, 1]\n" + TAIL, "triple-q on paper/grid with seed 1 is asked for twice"),
        (HEAD + 'episodes = 5\nnoise = "loud"\n' + TAIL, "table.toml:3: noise is 'loud', expected 'none' or"),
        (
            HEAD + "episodes = 5\n" + TAIL + "param = {eta = 1}\n",
            "table.toml:5: algorithms[0]: unknown key 'param'",
        ),
        (HEAD + "episodes = 5\n" + TAIL + "params = {eta = []}\n", "algorithms[0]: 'params': eta is an empty list"),
        (HEAD + "episodes = 5\n" + TAIL + "params = {eta = {a = 1}}\n", "eta is {'a': 1}, expected a number, a text"),
        (
            HEAD + 'episodes = 5\n[[algorithms]]\nname = "triple-p"\n',
            "table.toml:4: algorithms[0]: 'name': unknown al",
        ),
        (HEAD + 'episodes = 5\nalgorithms = ["pri"]\nfolder = "x"\n', "table.toml:4: unknown key 'folder'"),
        ('environments = ["papr/grid"]\nepisodes = 5\n' + TAIL, "environment 'papr/grid'; did you mean 'paper/grid'"),
        ('environments = ["a/b.json"]\nepisodes = 5\n' + TAIL, "/a/b.json': no such file"),
        ("environments = [3]\nepisodes = 5\n" + TAIL, "table.toml:1: environments[0] is 3, expected an environment"),
        ("environments = []\nepisodes = 5\n" + TAIL, "table.toml:1: environments is [], expected a list with"),
        ('environments = ["a", "a"]\nepisodes =\n', "table.toml:2: not valid TOML"),
        (
            'episodes = 5\nenvironments = [{model = "random", params = {Q = 3}}]\n' + TAIL,
            "environments[0]: environment 'random' has no parameter 'Q'",
        ),
    ],
)
def test_a_mistake_is_named_with_its_file_line_and_key(tmp_path, text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Experiment.load(written(tmp_path, text)).runs()


def test_all_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)episodes is missing.*seeds|seeds.*episodes is missing"):
        Experiment.load(written(tmp_path, HEAD + 'seeds = "many"\n' + TAIL))


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match=r"cannot read nowhere\.toml"):
        Experiment.load("nowhere.toml")


@pytest.mark.parametrize("name", ["seed", "noise", "preset", "episodes", "baseline", "progress"])
def test_settings_of_the_whole_run_are_refused_among_the_parameters(name):
    """Among them, noise would be taken for the noise of the run, and a preset would be given twice."""
    with pytest.raises(ck.CmdpkitError, match=rf"algorithms\[0\]: 'params': {name} is not a parameter of an algorithm"):
        asked(algorithms=[{"name": "triple-q", "params": {name: 1}}])
