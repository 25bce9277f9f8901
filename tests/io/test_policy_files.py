"""Policy files: exact round trips, a readable table, and a module that acts like the policy without any dependency."""
# ruff: noqa: E501 - a table of cases reads best with a case per line

import ast
import random
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmdpkit.io.policies import read_policy, write_policy
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Mixture, Policy

READABLE = (".json", ".csv", ".npz")
ODD = ("it's", 'a "quoted" | name', "{0} $x %s \\n", "two\nlines", '"""', "# état", 7)


def sample() -> Policy:
    """Three steps, the first two alike; odd names; rows that are almost certain, certain and even."""
    first = np.eye(7)[[0, 1, 2, 3, 4, 5, 6]]
    first[1] = [1 / 3, 0, 2 / 3, 0, 0, 0, 0]
    first[2] = np.full(7, 1 / 7)
    last = np.eye(7)[[6, 6, 6, 6, 6, 6, 6]]
    last[0] = [1e-12, 0, 0, 0, 0, 0, 1 - 1e-12]
    return Policy(np.array([first, first, last]), ODD, ODD[::-1])


def assert_same(a: Policy, b: Policy) -> None:
    assert a == b and a.pi.tobytes() == b.pi.tobytes() and a.is_stationary == b.is_stationary
    for names, others in ((a.states, b.states), (a.action_names, b.action_names)):
        assert isinstance(names, range) == isinstance(others, range)
        assert [(type(x), x) for x in names] == [(type(x), x) for x in others]


def load(path: Path) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(path)))


@pytest.mark.parametrize("suffix", READABLE)
@pytest.mark.parametrize(
    "policy",
    [sample(), Policy(sample().pi), Policy([[[1.0]]]), Policy.stationary(sample().table(0), ODD)],
    ids=["odd", "default", "one", "stationary"],
)
def test_a_policy_comes_back_equal(policy, suffix, tmp_path):
    assert_same(read_policy(write_policy(policy, tmp_path / f"policy{suffix}")), policy)


names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5).filter(str.strip), st.integers()
)


@st.composite
def policies(draw) -> Policy:
    H, S, A = (draw(st.integers(1, 3)) for _ in range(3))
    weights = draw(st.lists(st.floats(0, 1), min_size=H * S * A, max_size=H * S * A))
    pi = np.array(weights).reshape(H, S, A)
    pi[..., 0] += pi.sum(axis=-1) == 0
    pi /= pi.max(axis=-1, keepdims=True)  # so that tiny weights do not divide to nothing
    distinct = [draw(st.none() | st.lists(names, min_size=n, max_size=n, unique_by=str)) for n in (S, A)]
    return Policy(pi / pi.sum(axis=-1, keepdims=True), distinct[0] or (), distinct[1] or ())


@given(policy=policies(), suffix=st.sampled_from(READABLE))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_policy_with_any_names_comes_back_equal(policy, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("policies") / f"policy{suffix}"
    assert_same(read_policy(write_policy(policy, path)), policy)


@given(policy=policies())
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_module_holds_the_same_probabilities_for_any_names(policy, tmp_path_factory):
    module = load(write_policy(policy, tmp_path_factory.mktemp("modules") / "policy.py"))
    for step in range(1, policy.horizon + 1):
        for state in policy.states:
            assert module.probabilities(step, state) == policy.probabilities(step, state)
            assert module.probabilities(step, str(state)) == policy.probabilities(step, state)


def test_a_hand_written_csv_policy_means_what_it_says(tmp_path):
    path = tmp_path / "policy.csv"
    path.write_text(
        '# horizon = 2\n# states = ["x", "y"]\n# actions = ["a", "b"]\nstate,step,probability,action\n'
        "x,1,0.25,b\ny,1,1,a\ny,2,1,b\nx,1,0.75,a\nx,2,1,b\n"
    )
    policy = read_policy(path)
    assert policy.pi.tolist() == [[[0.75, 0.25], [1, 0]], [[0, 1], [0, 1]]]
    assert policy.states == ("x", "y")


def test_a_rule_may_leave_out_states_with_one_action(tmp_path):
    """Resting is all that can be done in the empty state."""
    cmdp = CMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3, states=["empty", "busy"],
                action_names=["rest", "serve"], actions=[[True, False], [True, True]])  # fmt: skip
    path = tmp_path / "policy.csv"
    path.write_text("state,action\nbusy,serve\n")
    assert read_policy(path, cmdp).choice.tolist() == [[0, 1]] * 3
    path.write_text("state,action,probability\nbusy,serve,0.25\nbusy,rest,0.75\n")
    assert read_policy(path, cmdp).pi.tolist() == [[[1, 0], [0.75, 0.25]]] * 3


def test_the_module_runs_without_any_package_and_prints_an_action(tmp_path):
    path = write_policy(sample(), tmp_path / "policy.py")

    def run(*arguments: str) -> tuple[int, str, str]:
        # -I -S: no site packages, no environment, so the standard library is all there is.
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-W", "error", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
        return done.returncode, done.stdout, done.stderr

    assert run("1", "it's") == (0, "7\n", "")
    assert run("3", "two\nlines") == (0, "it's\n", "")
    assert run("3", "7") == (0, "it's\n", "")
    assert run("2", 'a "quoted" | name')[1] in ("7\n", '"""\n')
    code, out, error = run("4", "it's")
    assert (code, out) == (1, "") and "step is 4, expected a whole number from 1 to 3" in error
    code, out, error = run("1", "elsewhere")
    assert (code, out) == (1, "") and "unknown state 'elsewhere'" in error
    for wrong in ((), ("1",), ("one", "it's"), ("1", "it's", "more"), ("-1", "it's")):
        code, out, error = run(*wrong)
        assert (code, out) == (2, "") and error.startswith("usage: ")
    tree = ast.parse(path.read_text())
    imports = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert imports <= sys.stdlib_module_names


def test_the_module_draws_actions_with_their_probabilities(tmp_path):
    policy = sample()
    module = load(write_policy(policy, tmp_path / "policy.py"))
    n, rng = 20_000, random.Random(11)
    for state in (ODD[1], ODD[2]):
        expected = policy.probabilities(1, state)
        drawn = [module.act(2, state, rng) for _ in range(n)]
        assert set(drawn) <= set(expected)
        for action, p in expected.items():
            # 9 comparisons at 5 standard deviations: wrongly red with probability 5e-6, and the seed is fixed.
            assert abs(drawn.count(action) - n * p) < 5 * np.sqrt(n * p * (1 - p))
    random.seed(3)
    assert {module.act(1, ODD[2]) for _ in range(200)} == set(ODD)


def test_the_module_takes_any_source_of_uniform_numbers_even_at_its_ends(tmp_path):
    class Fixed:
        def __init__(self, u: float) -> None:
            self.u = u

        def random(self) -> float:
            return self.u

    policy = sample()
    module = load(write_policy(policy, tmp_path / "policy.py"))
    assert module.act(1, ODD[1], Fixed(0.0)) == 7
    assert module.act(1, ODD[1], Fixed(np.nextafter(1 / 3, 0))) == 7
    assert module.act(1, ODD[1], Fixed(1 / 3 + 1e-15)) == '"""'
    assert module.act(1, ODD[1], Fixed(np.nextafter(1, 0))) == '"""'
    assert module.act(3, ODD[0], Fixed(np.nextafter(1, 0))) == "it's"
    assert module.act(1, ODD[0], np.random.default_rng(0)) == 7


@pytest.mark.parametrize("step", [0, 4, "1", 1.5, None, -1])
def test_the_module_refuses_steps_outside_the_horizon(step, tmp_path):
    module = load(write_policy(sample(), tmp_path / "policy.py"))
    with pytest.raises(ValueError, match=r"step is .*, expected a whole number from 1 to 3"):
        module.act(step, "it's")


def test_only_policies_are_written(tmp_path):
    with pytest.raises(ValueError, match=r"writes a Policy, got Mixture .*markov"):
        write_policy(Mixture((sample(),), np.ones(1)), tmp_path / "policy.json")  # type: ignore[arg-type]


JSON = """{
  "format": "cmdpkit policy",
  "version": 1,
  "horizon": 2, "states": ["x"], "actions": ["a", "b"],
  "decisions": [
    {"step": 1, "state": "x", "probabilities": {"a": 0.5, "b": 0.5}},
    {"step": 2, "state": "x", "probabilities": {"b": 1.0}}
  ]
}
"""
CSV = """# horizon = 2
# states = ["x"]
# actions = ["a", "b"]
# rows = 3
step,state,action,probability
1,x,a,0.5
1,x,b,0.5
2,x,b,1.0
"""


@pytest.mark.parametrize(
    ("suffix", "before", "after", "message"),
    [
        (".json", '"step": 2', '"step": 1', r"policy.json: decision 2: 'x' has this decision already, in decision 1"),
        (".json", '"step": 2', '"step": 3', r"policy.json: decision 2: step is 3, expected .* from 1 to 2"),
        (".json", '"b": 1.0', '"b": 0.9', r"policy.json: decision 2: decision at step 2 in state 'x': .* sum to 0.9, expected 1"),
        (".json", '"b": 1.0', '"c": 1.0', r"policy.json: decision 2: unknown action 'c'; known are a, b"),
        (".json", '"b": 1.0', '"a": 2, "b": -1', r"policy.json: decision 2: .*'b' has probability -1, expected at least 0"),
        (".json", '{"a": 0.5, "b": 0.5}', "[1, 2]", r"policy.json: decision 1: .*'probabilities' is \[1, 2\], expected a table"),
        (".json", '"state": "x"', '"state": "z"', r"policy.json has 2 mistakes:\ndecision 1: unknown state 'z'; known are x"),
        (".json", '"horizon": 2', '"horizon": 3', r"policy.json: .*: there is no decision at step 3 in state 'x'"),
        (".json", "cmdpkit policy", "policy", r"'format' is 'policy', expected 'cmdpkit policy'"),
        (".json", '"version": 1', '"version": 2', r"'version' is 2; this cmdpkit reads version 1"),
        (".json", '"version": 1,', "", r"policy.json: policy: 'version' is missing"),
        (".csv", "2,x,b,1.0\n", "", r"policy.csv:4: head: 3 rows are announced, but the file has 2"),
        (".csv", "# rows = 3\nstep,state", "state,state", r"policy.csv:4: columns: 'state' is given twice"),
        (".csv", "1,x,b,0.5", "1,x,a,0.5", r"policy.csv:7: 'x' has this decision already, in line 6"),
        (".csv", "1,x,b,0.5", "1,x,b,half", r"policy.csv:7: probability is 'half', expected a number"),
        (".csv", "# horizon = 2\n", "", r"policy.csv: head: 'horizon' is missing"),
        (".csv", "# horizon = 2", "# constraint x <= 2", r"policy.csv:1: head: a policy has no constraints"),
        (".csv", "state,action", "state,act", r"policy.csv:5: columns: unknown key 'act'; did you mean 'action'"),
    ],
)  # fmt: skip
def test_faults_of_a_policy_file_are_named_with_their_line(suffix, before, after, message, tmp_path):
    text = JSON if suffix == ".json" else CSV
    assert text.count(before) >= 1
    path = tmp_path / f"policy{suffix}"
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=message):
        read_policy(path)


@pytest.mark.parametrize("suffix", READABLE)
def test_a_policy_cut_short_anywhere_is_refused_or_still_the_same(suffix, tmp_path):
    # The last digits of 1/3 and 2/3 matter less than the tolerance of a sum: a digit cut off must be noticed otherwise.
    policy = Policy([[[0, 1], [1 / 3, 2 / 3]]], ("é", "y"))
    data = write_policy(policy, tmp_path / f"whole{suffix}").read_bytes()
    path = tmp_path / f"policy{suffix}"
    complete = 0
    for n in range(len(data)):
        path.write_bytes(data[:n])
        try:
            assert_same(read_policy(path), policy)
            complete += 1
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017
    assert complete <= 1  # only the very last line end can be missed


@pytest.mark.parametrize("suffix", [".py", ".toml", ""])
def test_exports_cannot_be_read_back(suffix, tmp_path):
    with pytest.raises(ValueError, match=r"unknown suffix .*, expected one of .json, .csv, .npz"):
        read_policy(tmp_path / f"policy{suffix}")


def test_a_model_is_not_taken_for_a_policy(tmp_path):
    from cmdpkit.io.models import read_model, write_model

    model = CMDP([[[1.0]]], [[0.0]], horizon=1)
    with pytest.raises(ValueError, match=r"model.npz: not a policy written by cmdpkit"):
        read_policy(write_model(model, tmp_path / "model.npz"))
    with pytest.raises(ValueError, match=r"policy.npz: not a model written by cmdpkit"):
        read_model(write_policy(sample(), tmp_path / "policy.npz"))
    with pytest.raises(ValueError, match=r"model.json: policy: unknown key 'model'"):
        read_policy(write_model(model, tmp_path / "model.json"))
    with pytest.raises(ValueError, match=r"policy.json: the file: unknown key 'format'"):
        read_model(write_policy(sample(), tmp_path / "policy.json"))
