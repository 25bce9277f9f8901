"""What every learner promises, checked for each algorithm of the folder: a new one is tested the day it lands.

The promises themselves are in `cmdpkit.testing`, for everybody. Here all of ours are held to them, and the promises are
shown to be broken by learners that are wrong in a known way.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
import cmdpkit.learners
from cmdpkit import envs
from cmdpkit.learners import Learner, Source, Spec, facts, load, name_of, names, names_for
from cmdpkit.learners.registry import SHARED
from cmdpkit.simulate.random import stream
from cmdpkit.testing import CHECKS, PROBLEMS, Case, ContractBroken, check_learner
from cmdpkit.testing.learners import WITH_OWN_MODEL

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tutorial"))
from mine import Mine

K = 150  # episodes of a run here
every = pytest.mark.parametrize("name", names_for("horizon"))  # test_steps.py is about the others
PAIRS = [(p, c) for p in PROBLEMS for c in CHECKS if c not in WITH_OWN_MODEL or p == "paper/synthetic"]
# Together these call all compiled functions of a learner; the other checks and problems call the same ones again.
CALL_ALL = (*WITH_OWN_MODEL, "run_does_what_single_steps_do", "it_continues_from_a_saved_state")
CALLED_ON = ("paper/synthetic", "paper/grid", "two constraints")


def contract():
    """All pairs of learner, check and problem at least; `make long` has the other combinations."""
    for i, name in enumerate(names_for("horizon")):
        for problem, check in PAIRS:
            if check in CALL_ALL and problem in CALLED_ON:
                yield pytest.param(name, problem, check, marks=pytest.mark.compiled)
            else:
                shift = list(PROBLEMS).index(problem) + list(CHECKS).index(check)
                chosen = (shift + i) % len(PROBLEMS) == 0
                yield pytest.param(name, problem, check, marks=() if chosen else pytest.mark.long)


@cache
def shared_case(name, problem):
    """One for all checks, because they share a run."""
    return Case(load(name), PROBLEMS[problem](), K)


@pytest.mark.parametrize(("name", "problem", "check"), list(contract()))
def test_it_keeps_the_promises_of_a_learner(name, problem, check):
    CHECKS[check](shared_case(name, problem))


@pytest.mark.compiled
@every
def test_with_the_other_presets_too_run_does_what_single_steps_do(name):
    for preset in list(load(name).presets)[1:]:
        CHECKS["run_does_what_single_steps_do"](Case(load(name), PROBLEMS["paper/synthetic"](), 150, preset=preset))


@pytest.mark.compiled
@every
def test_another_seed_is_another_run(name):
    case = Case(load(name), PROBLEMS["paper/synthetic"](), 60)
    one, other = (case.learner().run(case.source(), stream(seed), 60).reward for seed in (1, 2))
    assert not np.array_equal(one, other)


@every
def test_it_says_what_it_is(name):
    said = facts(name)
    assert said.title.endswith(".") and len(said.title) <= 125
    assert said.guarantee and set(said.needs) <= {"slack", "baseline", "baseline_utility"}
    assert said.presets[0] == ("printed" if name == "pri" else "practical")
    assert said.criteria == (("horizon", "average", "discounted") if name == "cl-pri" else ("horizon",))


@every
def test_an_unknown_preset_or_parameter_is_answered_in_the_same_words_everywhere(name):
    case = Case(load(name), PROBLEMS["paper/synthetic"](), 100)
    case.preset = "theroy"
    with pytest.raises(ck.CmdpkitError, match="unknown preset 'theroy'; "):
        case.learner()
    case.preset, case.params = None, {"no_such_thing": 1.0}
    with pytest.raises(ck.CmdpkitError, match="unknown parameter 'no_such_thing'; known are "):
        case.learner()
    known = next(iter(vars(Case(load(name), PROBLEMS["paper/synthetic"](), 100).learner().params)))
    case.params = {known + "x": 1.0}
    with pytest.raises(ck.CmdpkitError, match=f"unknown parameter '{known}x'; did you mean '"):
        case.learner()


@pytest.mark.parametrize(
    ("algo", "given", "said"),
    [
        ("triple-q", {"eta": 0.0}, "eta is 0.0, expected more than 0"),
        ("triple-q", {"keep": 1.5}, "keep is 1.5, expected from 0 to 1"),
        ("triple-q", {"frame": 2.5}, "frame is 2.5, expected a whole number"),
        ("triple-q", {"margin": -1.0}, "margin is -1.0, expected at least 0"),
        ("triple-q", {"eps_high": -1.0}, "eps_high is -1.0, expected at least eps_low = -0.015"),
        ("triple-q", {"realised": 1.0}, "realised is 1.0, expected a value like True"),
        ("triple-q", {"eta": True}, "eta is True, expected a value like 3.0"),
        ("dual-q", {"frame": 0}, "frame is 0, expected more than 0"),
        ("dual-q", {"frame": 2.5}, "frame is 2.5, expected a whole number"),
        ("dual-q", {"eta": -1.0}, "eta is -1.0"),
        ("dual-q", {"lam_start": 11.0}, "lam_start is 11.0, expected a number from 0 to lam_max"),
        ("dual-q", {"explore": 1.5}, "explore is 1.5, expected a probability"),
        ("pri", {"runs": 0}, "runs is 0, expected at least 1"),
        ("pri", {"runs": 2.5}, "runs is 2.5, expected a whole number"),
        ("pri", {"base": "triple-p"}, "unknown algorithm 'triple-p'; did you mean 'triple-q'"),
        ("pri", {"base": "opt-dual"}, "base 'opt-dual' needs slack, which PRI does not know"),
        ("pri", {"base": "pri"}, "PRI cannot be its own base learner"),
        ("pri", {"compare": 1}, "compare is 1, expected a value like False"),
        ("pri", {"burn_in": 1.0}, "burn_in is 1.0, expected at least 0 and below 1"),
        ("pri", {"quorum": 11}, "quorum is 11, expected at most runs = 10"),
        ("pri", {"eps_rho": np.inf}, "eps_rho is inf, expected a finite number"),
        ("pri", {"floor": "low"}, "floor is 'low', expected a value like 0.1"),
        ("opt-dual", {}, "slack is missing"),
        ("opt-dual", {"slack": -1}, r"slack is -1, expected more than 0"),
        ("dope", {"baseline_utility": [2.08]}, "baseline is missing"),
        ("opt-pess-primal-dual", {}, "baseline_utility is missing"),
        ("opt-pess-primal-dual", {"baseline_utility": [1.9]}, r"\[0\] is 1.9, expected more than rho = 2.0"),
        (
            "dope",
            {"baseline": np.full((1, 3, 3), 1 / 3), "baseline_utility": [2.08]},
            r"shape \(1, 3, 3\), expected \(3, 3, 3\)",
        ),
        ("opt-cmdp", {"c": "small"}, "c is 'small', expected a value like"),
        ("opt-cmdp", {"c": -1.0}, r"c is -1\.0, expected a finite number, at least 0"),
        ("opt-cmdp", {"replan": "never"}, "unknown replan 'never'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(algo, given, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        load(algo)(Spec.of(PROBLEMS["paper/synthetic"](), 1000), **given)


# -- learners from outside ---------------------------------------------------------------------------------------------


def test_a_learner_of_plain_numpy_keeps_the_contract():
    check_learner(Mine, episodes=40)


def test_the_tutorial_learner_is_short_and_learns():
    lines = Path(sys.modules["mine"].__file__).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    cmdp = envs.build("paper/synthetic")
    learner, source = Mine(Spec.of(cmdp, 3000)), Source.of(cmdp, ck.solve(cmdp).value)
    returns = learner.run(source, stream(1), 3000)
    assert abs(returns.utilities[0, 1500:].mean() - 2.0) < 0.1
    assert source.meter.tally().weak.regret / 3000 < 0.2


def test_the_meter_is_told_every_policy_that_a_learner_of_plain_numpy_plays():
    cmdp, n = envs.build("random", S=5, A=3, H=3, N=2, conflict=0.5, seed=3), 40
    learner, source, rng = Mine(Spec.of(cmdp, n)), Source.of(cmdp, 1.5), stream(3)
    regret = np.zeros(1 + cmdp.N)
    for k in range(n):
        values = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.behaviour()))
        regret += (1.5 - values.v, *(cmdp.rho - values.w))
        learner.run(source, rng, 1)
        if k == n // 2:  # a fresh object that goes on has not shown anything yet
            state, learner = learner.state(), Mine(Spec.of(cmdp, n))
            learner.restore(state)
    tally = source.meter.tally()
    assert tally.length == n
    np.testing.assert_allclose([tally.weak.regret, *tally.weak.violation], regret, rtol=1e-9)


class Peeks(Mine):
    """Reads the rewards of the first step off the simulator's arrays."""

    def run(self, source, rng, n):
        source.check(self.spec)
        self.Q[0, ..., 0] = source.simulator.signals[: self.spec.S * self.spec.A, 0].reshape(self.spec.S, -1)
        return super().run(source, rng, n)


class Differs(Mine):
    """Learns faster when it is run than when it is driven step by step."""

    def run(self, source, rng, n):
        self.fast = True
        returns = super().run(source, rng, n)
        self.fast = False
        return returns

    def learn(self, signals, ahead):
        super().learn(signals, ahead)
        if getattr(self, "fast", False):
            super().learn(signals, ahead)


class Cut(Mine):
    """Begins with fresh prices whenever `run` is called."""

    def run(self, source, rng, n):
        self.prices = np.ones(self.spec.N)
        return super().run(source, rng, n)


class Forbidden(Mine):
    """Plays every action now and then, whether it is allowed or not."""

    def act(self, h, s, rng):
        a = super().act(h, s, rng)
        self.at = (h, s, (a + int(ck.learners.uniform(rng) < 0.2)) % self.spec.A)
        return self.at[2]


class Forgets(Mine):
    """Does not save its prices."""

    fixed = (*Mine.fixed, "prices")


class Liar(Mine):
    """Says that it plays what it recommends, and explores."""

    def behaviour(self):
        return self.recommend()

    def act(self, h, s, rng):
        self.at = (h, s, int(Mine.behaviour(self)[h, s].cumsum().searchsorted(ck.learners.uniform(rng), side="right")))
        return self.at[2]


class Global(Mine):
    """Draws from NumPy's global random numbers."""

    def act(self, h, s, rng):
        self.at = (h, s, int(np.random.choice(np.flatnonzero(self.spec.allowed[h, s]))))
        return self.at[2]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Peeks, "It looks at the model, which was changed where the run has never been: "),
        (Differs, r"run\(\) (does not do what|earns other returns)"),
        (Cut, "A run in pieces is not the whole run: "),
        (Forbidden, "It plays action . at step . in state .+, which is not allowed"),
        (Forgets, "Restored from its state, it goes on in another way: "),
        (Liar, r"to which behaviour\(\) gives probability 0"),
        (Global, "Two runs with the same seed are not the same: "),
    ],
)
def test_a_learner_that_breaks_a_promise_is_told_which(wrong, sentence):
    with pytest.raises(ContractBroken, match=sentence):
        check_learner(wrong, episodes=40)


def test_the_simulator_refuses_an_action_that_is_none():
    cmdp = envs.build("paper/grid")
    with pytest.raises(ck.CmdpkitError, match=r"Forbidden chose action . at step .+ state .+ only these are allowed"):
        Forbidden(Spec.of(cmdp, 50)).run(Source.of(cmdp), stream(1), 50)


def test_what_cannot_be_saved_is_refused_by_name():
    learner = Mine(Spec.of(envs.build("paper/synthetic"), 10))
    learner.generator = np.random.default_rng(1)
    with pytest.raises(ck.CmdpkitError, match=r"Mine\.generator is a Generator, which cannot be saved by itself"):
        learner.state()


def test_attributes_of_all_plain_kinds_are_saved_and_restored_in_their_kind():
    spec = Spec.of(envs.build("paper/synthetic"), 10)
    one, other = Mine(spec), Mine(spec)
    for learner in (one, other):
        learner.count, learner.name, learner.flag = 0, "", False
        learner.seen, learner.maybe, learner.log = [], None, None
        learner.nested = ck.learners.Returns(np.zeros(2), np.zeros((1, 2)))
    one.count, one.name, one.flag, one.seen, one.maybe, one.log = 7, "warm", True, [1, 2], 0.5, np.arange(3)
    one.nested.reward[1] = 4.0
    shared = other.nested.reward
    other.restore(one.state())
    assert (other.count, other.name, other.flag, other.seen, other.maybe) == (7, "warm", True, [1, 2], 0.5)
    assert type(other.count) is int and type(other.flag) is bool
    assert other.log.tolist() == [0, 1, 2] and shared.tolist() == [0.0, 4.0]  # filled where it is
    other.restore(Mine.state(other) | {"maybe": np.zeros(0, dtype=bool)})
    assert other.maybe is None


def test_the_comparison_has_every_algorithm_for_episodes():
    """In the experiment of Table 1, and with rows in the tables of "Which algorithm?"."""
    root = Path(__file__).parents[2]
    asked = {run.algo for run in ck.Experiment.load(root / "experiments" / "table1.toml").runs()}
    assert asked == set(names_for("horizon"))
    for table in ("summary", "waking", "growth", "practical"):
        text = (root / "docs" / "algorithms" / "measured" / f"{table}.inc").read_text(encoding="utf-8")
        assert {line.split()[1] for line in text.splitlines() if line.startswith("| ")} >= asked, table


# -- names -------------------------------------------------------------------------------------------------------------


def test_an_algorithm_is_a_file_or_a_folder_and_all_of_them_are_listed():
    folder = Path(cmdpkit.learners.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")} - set(SHARED)
    packages = {path.parent.name for path in folder.glob("[!_]*/__init__.py")}
    assert {"dope", "opt_dual"} <= modules and {"cl_pri", "pri", "triple_q"} <= packages
    assert {name.replace("-", "_") for name in names()} == modules | packages
    assert names() == sorted(names())
    for name in names():
        assert load(name).__module__ == f"cmdpkit.learners.{name.replace('-', '_')}"
        assert name_of(load(name)) == name and load(load(name)) is load(name)


def test_algorithms_stand_apart_and_what_they_share_knows_none_of_them():
    """One algorithm does not import another, unless it is an earlier version of it that differs in one term."""
    folder, earlier = Path(cmdpkit.learners.__file__).parent, {"opsrl": {"dope"}}
    listed = {name.replace("-", "_") for name in names()}
    for path in folder.rglob("*.py"):
        owner = path.relative_to(folder).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cmdpkit.learners"):
                named = {*node.module.split("."), *(alias.name for alias in node.names)}
                assert named & listed <= {owner} | earlier.get(owner, set()), path


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown algorithm 'tripleq'; did you mean 'triple-q'"):
        load("tripleq")
    with pytest.raises(ValueError, match="algorithm 'Spec' is not a class that inherits from"):
        load(Spec)


def test_help_needs_no_compiler():
    code = "import sys; from cmdpkit.cli import app; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- spec --------------------------------------------------------------------------------------------------------------


def test_a_spec_with_a_state_without_actions_is_refused():
    cmdp = PROBLEMS["paper/synthetic"]()
    allowed = cmdp.actions.copy()
    allowed[1, 2] = False
    with pytest.raises(ValueError, match=r"allowed\[h=1, s=2\] is empty"):
        Spec.of(cmdp, K, allowed)


@pytest.mark.parametrize("bad", [0, -3, 2.5, True])
def test_a_spec_without_a_whole_number_of_episodes_is_refused(bad):
    with pytest.raises(ValueError, match=r"K is .* expected a whole number, at least 1"):
        Spec.of(PROBLEMS["paper/synthetic"](), bad)


def test_a_learner_without_presets_of_its_own_takes_no_parameters():
    class Plain(Mine):
        presets = Learner.presets

    spec = Spec.of(PROBLEMS["paper/synthetic"](), 10)
    with pytest.raises(ck.CmdpkitError, match="unknown parameter 'rate'; this algorithm has none"):
        Plain(spec, rate=0.5)


def test_every_algorithm_says_what_its_constants_were_taken_from_and_none_from_memory_is_recommended():
    page = (Path(__file__).parents[2] / "docs" / "algorithms" / "which.md").read_text(encoding="utf-8")
    recommended = page[: page.index("## At a glance")]
    for name in names():
        source = facts(name).source
        assert source in ("text", "authors' code", "restatement", "memory", "ours"), name
        for line in recommended.splitlines():
            assert source != "memory" or f"`{name}`" not in line or "memory" in line, line
