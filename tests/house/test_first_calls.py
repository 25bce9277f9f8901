"""What the interpreter runs before anything is compiled gives the same bits, and only as long as the work is small."""

import os
import subprocess
import sys

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.model import compiled
from cmdpkit.operators import steps
from cmdpkit.operators.policies import action_values
from cmdpkit.simulate.simulator import Simulator


@pytest.fixture
def interpreted(monkeypatch):
    """Let the interpreter run everything, although compiled forms exist, and count the calls of each function."""
    calls = {}

    def always(function, work):
        calls[function.py_func.__name__] = calls.get(function.py_func.__name__, 0) + 1
        return True

    monkeypatch.setattr(compiled, "_is_interpreted", always)
    return calls


def bits(cmdp, policy):
    """Everything that functions of `compiled.call` have a part in, as bytes."""
    sol = ck.solve(cmdp)
    found = [sol.value, *sol.utilities, *sol.shadow_prices, sol.gap, *ck.evaluate(cmdp, policy).w]
    arrays = [
        sol.policy.pi,
        sol.occupancy,
        sol.reach,
        ck.occupancy(cmdp, policy),
        *action_values(cmdp, cmdp.compact.r, policy.pi),
    ]
    arrays += [x for x in Simulator.of(cmdp) if isinstance(x, np.ndarray)]
    return np.array(found).tobytes(), [np.asarray(x).tobytes() for x in arrays]


MODELS = ["paper/synthetic", "queue", "treatment", "random:S=12,A=40,H=6,N=2,successors=5,seed=3,slack=0.2"]


@pytest.mark.parametrize("name", MODELS)
def test_the_interpreter_computes_the_same_bits(name, request):
    uniform = ck.Policy.uniform(ck.load(name))
    expected = bits(ck.load(name), uniform)
    calls = request.getfixturevalue("interpreted")
    assert bits(ck.load(name), uniform) == expected
    assert {
        "induction",
        "evaluation",
        "_blend",
        "flow",
        "lookaheads",
        "_fill",
    } <= calls.keys()


def test_the_interpreter_proves_the_same_certificates_in_a_run(request):
    def certificate():
        record = ck.learn("paper/synthetic", "cl-pri", episodes=300, seed=2)
        return repr(record.certificate), np.asarray(record.policy.pi).tobytes()

    expected = certificate()
    calls = request.getfixturevalue("interpreted")
    assert certificate() == expected
    assert {
        "update_box",
        "update_ranges",
        "best_pair",
        "evaluation",
        "expectations",
        "_low_end",
        "_variance_ahead",
        "owners",
    } <= calls.keys()


def test_rows_whose_numbers_do_not_fit_into_the_16_bits_of_an_action_are_found(request):
    rng = np.random.default_rng(0)
    cmdp = ck.CMDP(rng.dirichlet(np.ones(2), (900, 2, 20)), rng.random((900, 2, 20)))
    policy = ck.Policy.of(cmdp, np.eye(20)[rng.integers(20, size=(900, 2))])
    expected = ck.evaluate(cmdp, policy).v, ck.occupancy(cmdp, policy).tobytes()
    assert request.getfixturevalue("interpreted") == {}
    assert (ck.evaluate(cmdp, policy).v, ck.occupancy(cmdp, policy).tobytes()) == expected


def test_small_work_is_interpreted_only_before_a_compiled_form_exists(monkeypatch):
    monkeypatch.setattr(compiled, "INTERPRETED_SECONDS", 0.1)
    monkeypatch.setattr(compiled, "_spent", {})
    fresh = type(steps.induction)(steps.induction.py_func)
    monkeypatch.setattr(compiled, "_is_kept", lambda function: False)
    assert compiled._is_interpreted(fresh, compiled.MOST_WORK)
    assert not compiled._is_interpreted(fresh, compiled.MOST_WORK + 1), "too much work"
    compiled._spent[fresh] = 0.11
    assert not compiled._is_interpreted(fresh, 1), "it has taken long enough by now"
    monkeypatch.setattr(compiled, "_spent", {})
    monkeypatch.setattr(compiled, "_is_kept", lambda function: True)
    assert not compiled._is_interpreted(fresh, 1), "it is on disk"
    monkeypatch.setattr(compiled, "_is_kept", lambda function: False)
    ck.solve(ck.load("paper/synthetic"))
    assert not compiled._is_interpreted(steps.induction, 1), "it is compiled in this process"
    assert not compiled._is_interpreted(lambda: None, 1), "a plain function, as with NUMBA_DISABLE_JIT"


def test_time_is_counted_until_a_function_is_compiled(monkeypatch):
    monkeypatch.setattr(compiled, "INTERPRETED_SECONDS", 0.05)
    monkeypatch.setattr(compiled, "_spent", {})
    monkeypatch.setattr(compiled, "_is_kept", lambda function: False)

    @compiled.compiled
    def slow(x):
        for i in range(len(x)):
            x[i] += 1.0

    x = np.zeros(20_000)
    for k in range(1, 100):
        compiled.call(slow, len(x), x)
        assert x[0] == k
        if slow.signatures:
            break
    assert 2 <= k < 99 and compiled._spent[slow] >= 0.05


def test_the_first_command_of_an_installation_compiles_nothing(tmp_path):
    """The cache is empty: 3.6 seconds of compilation before."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "cmdpkit", "solve", "paper/synthetic", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert '"value": 1.573' in done.stdout
    assert not list(tmp_path.rglob("*.nbc")), "compiled code was kept, so something was compiled"
