"""What every learner promises, checked for each file in the folder: a new one is tested the day it lands."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cmdpkit.learners
from cmdpkit import CMDP, Policy, envs
from cmdpkit.learners import Source, Spec, about, load, names
from cmdpkit.simulate.random import stream
from told import told

pytestmark = pytest.mark.compiled

K = 400  # episodes of a run here
PROBLEMS = {
    "paper/synthetic": lambda: envs.build("paper/synthetic"),
    "paper/grid": lambda: envs.build("paper/grid"),  # some actions do not exist, a cost to keep below
    "two constraints": lambda: envs.build("random", S=5, A=3, H=3, N=2, conflict=0.5, seed=3),
    "none": lambda: envs.build("random", S=5, A=2, H=3, N=0, stationary=True, seed=4),
}

every = pytest.mark.parametrize("name", names())
everywhere = pytest.mark.parametrize("problem", PROBLEMS)


def begin(name, cmdp, allowed=None, episodes=K, of=None):
    """The learner for a model; what it must be told beside the spec is true of the model `of`, by default the same."""
    kind = load(name)
    needs = getattr(sys.modules[kind.__module__], "NEEDS", ())
    of = of or (cmdp if allowed is None else cmdp.restrict(allowed))
    given = {what: x for what, x in told(of).items() if what in needs} if needs else {}
    return kind(Spec.of(cmdp, episodes, allowed), **given)


def same_state(left, right):
    assert left.state().keys() == right.state().keys()
    for key, array in left.state().items():
        np.testing.assert_array_equal(array, right.state()[key], err_msg=key)


@every
def test_it_says_in_one_line_what_it_is(name):
    assert about(name).endswith(".")
    assert len(about(name)) <= 120


@every
@everywhere
def test_a_run_in_pieces_is_the_whole_run_to_the_bit(name, problem):
    cmdp = PROBLEMS[problem]()
    whole, pieces = begin(name, cmdp), begin(name, cmdp)
    one, other = Source.of(cmdp, 1.0), Source.of(cmdp, 1.0)
    rng, same = stream(1), stream(1)
    returns = whole.run(one, rng, K)
    parts = [pieces.run(other, same, n) for n in (1, 0, 7, 150, K - 158)]
    np.testing.assert_array_equal(returns.reward, np.concatenate([x.reward for x in parts]))
    np.testing.assert_array_equal(returns.utilities, np.concatenate([x.utilities for x in parts], axis=1))
    np.testing.assert_array_equal(rng, same)
    same_state(whole, pieces)
    for left, right in zip(one.meter, other.meter, strict=True):
        np.testing.assert_array_equal(left, right)


@every
@everywhere
def test_it_continues_from_a_saved_state_to_the_bit(name, problem):
    cmdp = PROBLEMS[problem]()
    whole, first, second = (begin(name, cmdp) for _ in range(3))
    whole.run(Source.of(cmdp), stream(2), K)
    rng = stream(2)
    first.run(Source.of(cmdp), rng, 173)
    saved = first.state()
    first.run(Source.of(cmdp), stream(9), 5)  # what was saved is a copy
    second.restore(saved)
    second.run(Source.of(cmdp), rng, K - 173)
    same_state(whole, second)
    np.testing.assert_array_equal(whole.recommend(), second.recommend())


@every
@everywhere
def test_its_policies_are_policies_of_the_model(name, problem):
    cmdp = PROBLEMS[problem]()
    learner = begin(name, cmdp)
    for n in (0, 3, K - 3):
        learner.run(Source.of(cmdp), stream(3), n)
        for pi in (learner.behaviour(), learner.recommend()):
            Policy.of(cmdp, pi)  # raises unless rows are distributions over actions that exist


@every
def test_returns_lie_between_nothing_and_the_horizon_and_there_is_one_per_episode(name):
    cmdp = PROBLEMS["two constraints"]()
    returns = begin(name, cmdp).run(Source.of(cmdp), stream(3), 50)
    assert returns.reward.shape == (50,)
    assert returns.utilities.shape == (2, 50)
    for x in (returns.reward, returns.utilities):
        assert x.min() >= 0
        assert x.max() <= cmdp.H


@every
def test_confined_to_an_action_set_it_uses_no_other_action(name):
    """A trap: every action that is not allowed earns 1 instead of 0.4, and leads to a state that keeps earning 1."""
    H, S, A = 3, 5, 3
    rng = np.random.default_rng(1)
    allowed = rng.random((H, S, A)) < 0.5
    allowed[..., 1] |= ~allowed.any(axis=-1)
    allowed[:, -1] = True  # the state that traps
    P = np.zeros((H, S, A, S))
    P[..., :-1] = rng.dirichlet(np.ones(S - 1), (H, S, A))
    P[~allowed] = P[:, -1] = np.eye(S)[-1]
    r = np.where(allowed, 0.4, 1.0)
    r[:, -1] = 1.0
    trap = CMDP(P, r, 1 - r, 0.1, renormalise=True)
    learner = begin(name, trap, allowed)
    np.testing.assert_allclose(learner.run(Source.of(trap), stream(4), K).reward, 0.4 * H, rtol=1e-12)
    for pi in (learner.behaviour(), learner.recommend()):
        assert np.all(pi[~allowed] == 0)


@every
def test_it_is_blind_to_what_it_has_not_seen(name):
    """Change kernel, reward and utility of a (h, s, a) that the run never used: nothing changes, to the bit."""
    rng = np.random.default_rng(2)
    H, S, A, n = 3, 12, 3, 25
    P = rng.dirichlet(np.full(S, 0.2), (H, S, A))
    r, g = 0.1 + 0.8 * rng.random((2, H, S, A))

    def model(P, r, g):
        return CMDP(P, r, g, 1.5, mu=np.full(S, 1 / S), renormalise=True)

    def run(*arrays):
        cmdp = model(*arrays)
        learner = begin(name, cmdp, episodes=n, of=model(P, r, g))
        return learner, learner.run(Source.of(cmdp), stream(5), n)

    def changed(x, cell, value):
        other = x.copy()
        other[cell] = value
        return other

    learner, returns = run(P, r, g)
    unseen = 0
    for cell in rng.permutation(list(np.ndindex(H, S, A))):  # 75 steps cannot have been to all 108
        cell = tuple(cell)
        _, probe = run(P, changed(r, cell, 1.0 if r[cell] < 0.5 else 0.0), g)
        if not np.array_equal(probe.reward, returns.reward):
            continue  # the run was there
        unseen += 1
        again, same = run(changed(P, cell, np.roll(P[cell], 1)), changed(r, cell, 0.0), changed(g, cell, 1.0))
        np.testing.assert_array_equal(same.reward, returns.reward)
        np.testing.assert_array_equal(same.utilities, returns.utilities)
        same_state(learner, again)
        if unseen == 3:
            break
    assert unseen == 3


@every
def test_the_seed_decides_the_run(name):
    cmdp = PROBLEMS["paper/synthetic"]()
    first, same, other = (begin(name, cmdp).run(Source.of(cmdp), stream(seed), 60).reward for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


@every
def test_a_source_of_another_size_is_refused(name):
    cmdp, other = PROBLEMS["paper/synthetic"](), PROBLEMS["two constraints"]()
    learner = begin(name, cmdp)
    before = learner.state()
    with pytest.raises(ValueError, match=r"the source has \(H, S, A, N\) = \(3, 5, 3, 2\)"):
        learner.run(Source.of(other), stream(1), 1)
    for key, array in learner.state().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


@every
def test_a_state_that_does_not_fit_is_refused_before_anything_changes(name):
    cmdp = PROBLEMS["paper/synthetic"]()
    learner, fresh = begin(name, cmdp), begin(name, cmdp)
    learner.run(Source.of(cmdp), stream(1), 50)
    state = learner.state()
    last = list(state)[-1]
    for bad, shape in (({}, "missing"), ({last: np.zeros((1, 2, 3, 4, 5))}, r"\(1, 2, 3, 4, 5\)")):
        with pytest.raises(ValueError, match=rf"state\['{re.escape(last)}'\] has shape {shape}"):
            fresh.restore({key: x for key, x in state.items() if key != last} | bad)
    same_state(fresh, begin(name, cmdp))


def test_an_algorithm_is_a_file_or_a_folder_and_all_of_them_are_listed():
    folder = Path(cmdpkit.learners.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    packages = {path.parent.name for path in folder.glob("[!_]*/__init__.py")}
    assert {"dope", "opt_dual"} <= modules and {"pri", "triple_q"} <= packages
    assert {name.replace("-", "_") for name in names()} == modules | packages
    for name in names():
        assert load(name).__module__ == f"cmdpkit.learners.{name.replace('-', '_')}"


def test_algorithms_stand_apart_and_what_they_share_knows_none_of_them():
    folder = Path(cmdpkit.learners.__file__).parent
    listed = {name.replace("-", "_") for name in names()}
    for path in folder.rglob("*.py"):
        owner = path.relative_to(folder).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cmdpkit.learners"):
                named = {*node.module.split("."), *(alias.name for alias in node.names)}
                assert named & listed <= {owner} | {"pri": {"dual_q"}}.get(owner, set()), path  # PRI begins with Dual-Q


def test_facts_are_read_and_nothing_is_imported():
    code = (
        "import sys; from cmdpkit import learners; before = set(sys.modules);"
        "assert all(learners.facts(name).line for name in learners.names());"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_those_of_the_files_and_unknown_ones_are_answered_with_the_nearest():
    assert "triple-q" in names()
    assert names() == sorted(names())
    assert not any("_" in name for name in names())
    with pytest.raises(ValueError, match="unknown algorithm 'tripleq'; did you mean 'triple-q'"):
        load("tripleq")


def test_a_spec_with_a_state_without_actions_is_refused():
    cmdp = PROBLEMS["paper/synthetic"]()
    allowed = cmdp.actions.copy()
    allowed[1, 2] = False
    with pytest.raises(ValueError, match=r"allowed\[h=1, s=2\] is empty"):
        Spec.of(cmdp, K, allowed)


@pytest.mark.parametrize("bad", [0, -3, 2.5, True])
def test_a_spec_without_a_whole_number_of_episodes_is_refused(bad):
    with pytest.raises(ValueError, match=r"K is .* expected a whole number of episodes"):
        Spec.of(PROBLEMS["paper/synthetic"](), bad)
