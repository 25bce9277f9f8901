"""Learners and environments in a user's own files work wherever ours do, and nothing of ours is edited for them."""

import dataclasses
import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli, envs
from cmdpkit.experiments import backends, execute
from cmdpkit.experiments.execute import bench
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.io.loading import build
from cmdpkit.learners.registry import name_of, resolve
from cmdpkit.records.store import difference
from cmdpkit.results.study import Study
from cmdpkit.running import playing
from cmdpkit.running.gym import GymWorld
from cmdpkit.running.gym.world import GymRecipe

LEARNERS = """
import cmdpkit as ck

class Mine(ck.learners.load("triple-q")):
    '''Triple-Q under another name.'''
    edits = 0


class Half(ck.Learner):
    pass
"""
PLACES = """
import cmdpkit as ck
import gymnasium
from gymnasium.spaces import Discrete


class Line(gymnasium.Env):
    '''Earns 1 per step, plus or minus nothing; action 1 costs 1 with probability p.'''
    metadata = {"reward_range": (0.0, 1.0)}
    made, closed = [], []

    def __init__(self, p):
        self.p, self.observation_space, self.action_space = p, Discrete(2), Discrete(2)
        self.made.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, a):
        return int(a), 1.0, False, False, {"cost": float(a == 1 and self.np_random.random() < self.p)}

    def close(self):
        self.closed.append(self)


def line(p=0.5):
    return Line(p)


def world(H=4, p=0.5):
    return ck.gym.GymWorld(Line(p), [ck.at_most("falls", 1.0)], horizon=H)


def model(bound=1.9):
    return ck.load("paper/synthetic").with_bounds(utility=bound)


def nothing():
    return 3


FALLS = [ck.at_most("falls", 1.0)]
"""
TOML = """
episodes = 80
seeds = 2
algorithms = ["my_learners:Mine", "dual-q"]

[[environments]]
model = "my_places:world"
params = {p = 0.25}

[[environments]]
model = "my_places:model"
bounds = {utility = [1.8]}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a user's files, which is the current one."""
    (tmp_path / "my_learners.py").write_text(LEARNERS)
    (tmp_path / "my_places.py").write_text(PLACES)
    (tmp_path / "own.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("my_learners", "my_places"):
        sys.modules.pop(name, None)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(x) for x in arguments], prog_name="cmdpkit")


# -- learners ----------------------------------------------------------------------------------------------------------


def test_a_class_and_its_name_are_the_same_run_with_the_bits_of_what_it_does(project):
    named = ck.learn("paper/grid", "my_learners:Mine", episodes=100, seed=3)
    kind = sys.modules["my_learners"].Mine
    given = ck.learn("paper/grid", kind, episodes=100, seed=3)
    ours = ck.learn("paper/grid", "triple-q", episodes=100, seed=3)
    assert difference(named, given) is None and named.run == given.run and named.run.algo == "my_learners:Mine"
    assert all(np.array_equal(named.curves[name], x) for name, x in ours.curves.items())
    assert named.run.code != ours.run.code and named.run.key != ours.run.key


def test_the_command_line_takes_a_class_of_the_current_folder(project):
    found = run("learn", "paper/grid", "--algo", "my_learners:Mine", "--episodes", 50, "--json")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["algo"] == "my_learners:Mine"


@pytest.mark.parametrize(
    ("algo", "said"),
    [
        ("no_such:Mine", r"algorithm 'no_such:Mine': there is no module 'no_such' in the current folder"),
        ("my_learners:Yours", r"the module 'my_learners' has no 'Yours'; known are .*Mine"),
        ("my_learners:Mien", r"the module 'my_learners' has no 'Mien'; did you mean 'Mine'"),
        ("my_learners:Half", r"does not define first, last, next, recommend"),
        ("my_places:line", r"algorithm 'my_places:line' is not a class that inherits from cmdpkit.Learner"),
        (3, r"algo is 3, expected the name of an algorithm, 'module:Class' or a class"),
    ],
)
def test_a_learner_that_is_not_there_is_named(project, algo, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        ck.learn("paper/grid", algo, episodes=5)


def test_an_error_inside_of_a_users_module_is_shown_as_it_is(project):
    (project / "my_learners.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        ck.learn("paper/grid", "my_learners:Mine", episodes=5)


def test_a_class_of_the_script_itself_is_for_this_process_alone(monkeypatch):
    kind = type("Here", (resolve("triple-q"),), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Here", kind, raising=False)
    study = bench(["paper/grid"], [kind], episodes=20, seeds=1, executor="serial")
    assert [record.run.algo for record in study.records] == ["__main__:Here"]
    for executor in ("processes", "dask"):
        with pytest.raises(ck.CmdpkitError, match=r"Here is defined in the script or notebook itself.*into a file"):
            bench(["paper/grid"], [kind], episodes=20, seeds=1, executor=executor)


def test_a_class_inside_a_function_is_for_learn_alone():
    class Inner(resolve("triple-q")):
        pass

    assert ck.learn("paper/grid", Inner, episodes=20).run.algo == name_of(Inner)
    with pytest.raises(ck.CmdpkitError, match="define the class at the top level of a module"):
        bench(["paper/grid"], [Inner], episodes=20, seeds=1, executor="serial")


def test_packages_offer_learners_and_environments_by_entry_points(project, monkeypatch):
    about = project / "offering-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    groups = {"cmdpkit.learners": ["mine = my_learners:Mine", "dual-q = my_learners:Mine"]}
    groups["cmdpkit.envs"] = ["our/model = my_places:model", "our/line = my_places:world", "queue = my_places:model"]
    lines = [line for group, some in groups.items() for line in (f"[{group}]", *some)]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(project))
    envs._offered.cache_clear()
    try:
        assert envs.names()[-2:] == ["our/line", "our/model"], "ours hide theirs"
        assert ck.load("our/model:bound=1.7").constraints[0].bound == 1.7 and ck.load("queue").S > 3
        (record,) = bench(["our/line:p=0.25"], ["mine"], episodes=20, seeds=1, executor="serial").records
    finally:
        envs._offered.cache_clear()
    assert record.run.env == "our/line:p=0.25" and record.evaluation.value == 4.0
    assert resolve("mine") is sys.modules["my_learners"].Mine and resolve("dual-q").__module__.startswith("cmdpkit.")


# -- environments ------------------------------------------------------------------------------------------------------


def test_a_function_that_returns_a_model_is_an_environment(project):
    assert ck.load("my_places:model") == ck.load("paper/synthetic").with_bounds(utility=1.9)
    assert ck.load("my_places:model:bound=1.5").constraints[0].bound == 1.5
    found = run("solve", "my_places:model", "--json")
    assert json.loads(found.stdout)["value"] == pytest.approx(ck.solve(ck.load("my_places:model")).value)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("my_places:model:bund=3", r"got an unexpected keyword argument 'bund'; it is called as \(bound=1.9\)"),
        ("my_places:FALLS", r"environment 'my_places:FALLS' is a list, expected a function"),
        ("my_places:nothing", r"the function returns a int, expected a CMDP, a gymnasium.Env or a GymWorld"),
        ("my_places:line", r"my_places:line: the environment has no time limit: give a horizon"),
    ],
)
def test_an_environment_that_cannot_be_made_is_named(project, env, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        ck.learn(env, "triple-q", episodes=5)


def test_a_model_is_wanted_where_a_model_is_needed(project):
    with pytest.raises(ck.CmdpkitError, match="makes a Line, not a CMDP"):
        ck.load("my_places:line")


def test_an_edited_environment_is_another_one(project):
    recipe = GymRecipe("my_places:world")
    first = recipe.make().fingerprint
    assert recipe.make().fingerprint == first and GymRecipe("my_places:world:H=3").make().fingerprint != first
    (project / "my_places.py").write_text(PLACES.replace("< self.p", "<= self.p"))
    del sys.modules["my_places"]
    importlib.invalidate_caches()
    assert edited_fingerprint(project) != first


def edited_fingerprint(project):
    """The fingerprint in a process that has not read the file before."""
    text = "from cmdpkit.running.gym.world import GymRecipe; print(GymRecipe('my_places:world').make().fingerprint)"
    done = subprocess.run([sys.executable, "-c", text], cwd=project, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# -- many runs ---------------------------------------------------------------------------------------------------------


def test_other_processes_run_a_users_learner_on_a_users_environment_to_the_same_bits(project):
    experiment = Experiment.load(project / "own.toml")
    assert {r.env for r in experiment.runs()} == {"my_places:world:p=0.25", "my_places:model"}
    here = run("bench", "own.toml", "--executor", "serial", "--out", "here", "--json")
    assert here.exit_code == 0, here.stdout + here.stderr
    one = Study.load("here")
    for executor in ("processes", "dask"):
        there = run("bench", "own.toml", "--executor", executor, "--out", executor, "--workers", 1, "--json")
        assert there.exit_code == 0, there.stdout + there.stderr
        two = Study.load(executor)
        assert len(one) == len(two) == 8
        assert all(difference(a, b) is None for a, b in zip(one.records, two.records, strict=True))
    page = one.to_html(project / "report.html").read_text()
    assert "my_learners:Mine" in page and "fresh episodes" in page
    shown = run("bench", "own.toml", "--executor", "serial", "--out", "here").stdout
    assert "realised" in shown and "my_places:world:p=0.25" in shown


def test_an_edited_learner_is_run_again_and_shown_apart(project):
    asked = ["paper/grid"], ["my_learners:Mine"]
    small = {"episodes": 50, "seeds": 2, "out": "runs", "executor": "serial"}
    bench(*asked, **small)
    (project / "my_learners.py").write_text(LEARNERS.replace("edits = 0", "edits = 1  # done"))
    del sys.modules["my_learners"]
    importlib.invalidate_caches()
    study = bench(*asked, **small)
    assert len(study) == 2 and len(Study.load("runs")) == 4
    everything = Study.load("runs")
    assert [len(group.records) for group in everything.groups()] == [2, 2]
    labels = [group.label for group in everything.groups()]
    assert all(label.startswith("my_learners:Mine (") for label in labels) and len({*labels}) == 2
    assert "was run with different code" in everything.remarks()[0]


def test_a_worker_with_other_code_refuses_the_run(project, tmp_path):
    experiment = Experiment.load(project / "own.toml")
    run_asked = dataclasses.replace(experiment.runs()[0], code="0" * 16)
    (job,) = execute._jobs([run_asked], experiment.worlds, tmp_path / "runs")
    reason = backends.work(job)
    assert "is not the one that was asked for (0000000000000000)" in reason and "Start the workers again" in reason


def test_every_run_has_an_environment_of_its_own_which_is_closed_in_the_end(project):
    bench(["my_places:world"], ["triple-q"], episodes=10, seeds=3, executor="serial")
    line = sys.modules["my_places"].Line
    assert len(line.made) >= 4 and set(map(id, line.made)) == set(map(id, line.closed))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"horizon": 4}, "unknown key 'horizon'"),
        ({"model": "my_places:line"}, "my_places:line: the environment has no time limit: give a horizon, GymWorld"),
        ({"bounds": {"falls": 2.0}}, "my_places:world is no model: it has no bounds to change"),
    ],
)
def test_faults_of_a_users_environment_are_named(project, change, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        bench([{"model": "my_places:world", **change}], ["triple-q"], episodes=5, seeds=1, executor="serial")


# -- what is measured without a model ----------------------------------------------------------------------------------


def test_returns_and_utilities_are_recorded_where_there_is_no_model(project):
    """Reward is 1 per step whatever is done, and the cost of a policy that takes action 1 has mean p per step."""
    record = ck.learn("my_places:world", "triple-q", episodes=90, seed=2)
    episode = record.curves["episode"]
    assert np.array_equal(record.curves["realised_reward"], 4 * episode) and "regret" not in record.curves
    used, missed = record.curves["realised_utility"], record.curves["realised_violation"]
    assert used.shape == (1, len(episode)) and np.allclose(used - 1.0 * episode, missed, rtol=0, atol=1e-9)
    assert (np.diff(used[0]) >= 0).all() and used[0, -1] == round(used[0, -1])
    found = record.evaluation
    assert (found.value, found.value_interval, found.episodes) == (4.0, (4.0, 4.0), 1000)
    assert "realised_reward" not in ck.learn("paper/grid", "triple-q", episodes=5).curves


def test_fresh_episodes_give_the_true_means_of_a_policy_in_their_intervals(project, monkeypatch):
    """Action 1 with probability 0.3 costs 1 in half of the cases: an episode's cost has mean 0.6 and variance 0.51.

    Of 100 intervals of level 0.95 fewer than 86 cover the mean with probability 2e-4; the spread of 100 means is off by
    more than 30 % with probability 3e-5.
    """
    monkeypatch.setattr("cmdpkit.running.playing.EVALUATION_EPISODES", 400)
    world = GymRecipe("my_places:world").make()
    pi = np.zeros((4, 3, 2)) + np.array([0.7, 0.3])
    seen = [playing.evaluated(world, pi, seed) for seed in range(100)]
    assert sum(low <= 0.6 <= high for low, high in (x.utility_intervals[0] for x in seen)) >= 86
    assert np.std([x.utilities[0] for x in seen], ddof=1) == pytest.approx(np.sqrt(0.51 / 400), rel=0.3)
    width = np.mean([high - low for low, high in (x.utility_intervals[0] for x in seen)])
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.51 / 400), rel=0.02)


def test_an_evaluation_counts_for_nothing_and_is_shown(project):
    world = GymRecipe("my_places:world").make()
    record = ck.learn(world, "triple-q", episodes=30)
    assert world.tally().length == 30 and record.curves["episode"][-1] == 30
    shown = run("learn", "my_places:world", "--algo", "triple-q", "--episodes", 30)
    assert "1,000 fresh episodes of it: value 4, 95 % interval 4 to 4" in shown.stdout
    answer = json.loads(run("learn", "my_places:world", "--algo", "triple-q", "--episodes", 30, "--json").stdout)
    assert answer["runs"][0]["evaluation"]["value_interval"] == [4.0, 4.0]
    assert answer["runs"][0]["realised_reward"] == 120.0 and answer["runs"][0]["policy_value"] is None


def test_constraints_and_horizon_on_the_command_line_are_those_of_the_world(project):
    words = ("--constraint", "falls <= 0.5", "--horizon", 4, "--episodes", 20, "--json")
    answer = json.loads(run("learn", "my_places:line", "--algo", "triple-q", *words).stdout)
    assert answer["constraints"] == [
        {"name": "falls", "sense": "at_most", "bound": 0.5, "per_step": False, "bound_total": 0.5}
    ]
    refused = run("learn", "my_places:line", "--constraint", "falls = 3")
    assert refused.exit_code == 2 and "NAME<=BOUND" in refused.stderr
    other = run("learn", "my_places:line", "--algo", "triple-q", *words, "--bound", "falls=0.25")
    assert other.exit_code == 1 and "bounds are for models; give an environment's bounds in its" in other.stderr


def test_a_notebook_may_hand_over_a_world_but_not_ask_for_another_of_it(project):
    env = build("my_places:line")
    with pytest.raises(ck.CmdpkitError, match="Line cannot be made again: name a function"):
        GymWorld(env, [ck.at_most("falls", 1.0)], horizon=4).fresh()
