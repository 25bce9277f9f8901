"""The contract of every environment in the folder: a new file is tested the day it lands."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from oracle import optimum, slater_slack

from cmdpkit import envs
from cmdpkit.running.gym import make_env
from cmdpkit.testing import check_env

HEADINGS = ("States", "Actions", "Reward", "Constraints", "Start", "Parameters", "Reference")
DOCS = Path(__file__).parents[2] / "docs" / "environments"

every_env = pytest.mark.parametrize("name", envs.names())
every_parameter = pytest.mark.parametrize(
    ("name", "parameter"), [(name, parameter) for name in envs.names() for parameter in envs.parameters(name)]
)


def docstring(name: str) -> str:
    module = importlib.import_module("cmdpkit.envs." + name.replace("/", ".").replace("-", "_"))
    return inspect.getdoc(module) or ""


def sections(name: str) -> dict[str, str]:
    """What the docstring says below its first line: the description, and the text after every heading, in order."""
    text = docstring(name).partition("\n\n")[2]
    described, *rest = re.split(rf"^({'|'.join(HEADINGS)}):\s", text, flags=re.MULTILINE)
    return {"Description": described, **dict(zip(rest[::2], rest[1::2], strict=True))}


@every_env
def test_every_row_is_a_distribution_every_state_has_an_action_and_signals_are_finite_and_vary(name):
    cmdp = envs.build(name)
    assert cmdp.actions.any(axis=-1).all()
    np.testing.assert_allclose(cmdp.P.sum(axis=-1)[cmdp.actions], 1.0, rtol=0, atol=1e-12)
    assert cmdp.P.min() >= 0
    assert cmdp.mu.sum() == pytest.approx(1.0, abs=1e-12)
    for signal in (cmdp.r, *cmdp.g):
        assert np.isfinite(signal).all()
        assert np.ptp(signal[cmdp.actions]) > 0


@every_env
def test_it_keeps_the_promises_of_an_environment(name):
    check_env(name)


@pytest.mark.parametrize("name", [name for name in envs.names() if name.startswith("gym/")])
def test_played_in_gymnasium_it_keeps_them_too(name):
    check_env(lambda: make_env(name))


def test_a_fresh_process_builds_the_same_problems():
    """Guards against anything that depends on the order of a set or on what ran before."""
    code = "from cmdpkit import envs; print(*(envs.build(name).fingerprint() for name in envs.names()))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [envs.build(name).fingerprint() for name in envs.names()]


@every_env
def test_the_global_random_state_is_neither_read_nor_moved(name):
    before = np.random.get_state()
    reference = envs.build(name).fingerprint()
    after = np.random.get_state()
    assert np.array_equal(before[1], after[1]) and before[2:] == after[2:]
    try:
        np.random.seed(12345)
        assert envs.build(name).fingerprint() == reference
    finally:
        np.random.set_state(before)


@every_env
def test_the_defaults_are_strictly_feasible_and_some_bound_binds(name):
    cmdp = envs.build(name)
    best = optimum(cmdp)
    assert slater_slack(cmdp) > 1e-3
    assert best is not None
    assert (best.prices > 1e-3).any()


@every_env
def test_the_docstring_begins_with_a_full_line_has_every_heading_and_names_every_constraint_and_parameter(name):
    line, found = envs.describe(name), sections(name)
    assert line == docstring(name).splitlines()[0]
    assert line.endswith(".") and 20 <= len(line) <= 118
    assert tuple(found) == ("Description", *HEADINGS) and all(text.strip() for text in found.values())
    for constraint in envs.build(name).constraints:
        assert constraint.name in found["Constraints"]
    for parameter in envs.parameters(name):
        assert re.search(rf"^[\w, ]*\b{parameter}\b[\w, ]* : ", found["Parameters"], re.MULTILINE)


@every_env
def test_the_page_is_in_the_index_solves_the_environment_and_lists_every_parameter_with_its_default(name):
    text = (DOCS / f"{name.replace('/', '-')}.md").read_text(encoding="utf-8")
    assert f"# {name}\n" in text
    assert "```{run}\ncmdpkit solve " + name in text
    for parameter, default in envs.parameters(name).items():
        assert default is not inspect.Parameter.empty
        assert re.search(rf"^\| `{parameter}` \| `{re.escape(str(default))}` \| ", text, re.MULTILINE)
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"\n{name.replace('/', '-')}\n" in index.split("{toctree}")[1]


@every_parameter
def test_no_parameter_is_accepted_and_ignored(name, parameter):
    value = envs.parameters(name)[parameter]
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int):
        other = value + 1
    elif isinstance(value, float):
        other = 0.9 * value if value else 0.5
    else:
        other = {"successors": 2, "rewards": "bernoulli", "board": "large"}[parameter]
    assert envs.build(name, **{parameter: other}) != envs.build(name)


@every_parameter
@pytest.mark.parametrize("value", ["nonsense", float("nan"), float("inf"), [1]])
def test_a_senseless_parameter_is_named_with_its_value(name, parameter, value):
    with pytest.raises(ValueError, match=rf"^{parameter} is {re.escape(repr(value))}, expected "):
        envs.build(name, **{parameter: value})


@every_parameter
def test_a_truth_value_is_not_a_number(name, parameter):
    if isinstance(envs.parameters(name)[parameter], bool):
        with pytest.raises(ValueError, match=rf"^{parameter} is 1, expected true or false"):
            envs.build(name, **{parameter: 1})
    else:
        with pytest.raises(ValueError, match=rf"^{parameter} is True, expected "):
            envs.build(name, **{parameter: True})
