"""What the interpreter runs before anything is compiled gives the same bits, and only as long as the work is small."""

import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import cmdpkit as ck
from cmdpkit.model import compiled
from cmdpkit.operators.policies import action_values
from cmdpkit.simulate.simulator import Simulator


@pytest.fixture
def interpreted(monkeypatch):
    """Let the interpreter run everything, although compiled forms exist, and count the calls of each function."""
    calls = {}

    def always(function, work, args):
        calls[function.__name__] = calls.get(function.__name__, 0) + 1
        return True

    monkeypatch.setattr(compiled.Compiled, "is_interpreted", always)
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
        "expectations",
        "_low_end",
    } <= calls.keys()


def test_rows_whose_numbers_do_not_fit_into_the_16_bits_of_an_action_are_found(request):
    rng = np.random.default_rng(0)
    cmdp = ck.CMDP(rng.dirichlet(np.ones(2), (900, 2, 20)), rng.random((900, 2, 20)))
    policy = ck.Policy.of(cmdp, np.eye(20)[rng.integers(20, size=(900, 2))])
    expected = ck.evaluate(cmdp, policy).v, ck.occupancy(cmdp, policy).tobytes()
    assert request.getfixturevalue("interpreted") == {}
    assert (ck.evaluate(cmdp, policy).v, ck.occupancy(cmdp, policy).tobytes()) == expected


class Numbers(NamedTuple):
    x: NDArray[np.float64]


@compiled.compiled
def one(x, i):
    x[i] += 1.0


def fresh(monkeypatch, folder):
    """A function that is made of two, for which nothing is compiled yet; the interpreter may do 100 loops for each."""
    monkeypatch.setattr(compiled, "INTERPRETED_WORK", 100)
    monkeypatch.setattr("numba.config.CACHE_DIR", str(folder))

    @compiled.compiled
    def all_of(numbers):
        for i in range(len(numbers.x)):
            one(numbers.x, i)

    return all_of


def test_the_interpreter_runs_a_function_until_its_work_would_have_paid_for_compiling_it(monkeypatch, tmp_path):
    function, numbers = fresh(monkeypatch, tmp_path), Numbers(np.zeros(150))
    compiled.call(function, 150, numbers)
    assert not list(tmp_path.rglob("*.nbc"))
    compiled.call(function, 50, numbers)
    assert not list(tmp_path.rglob("*.nbc")), "200 loops for two functions"
    compiled.call(function, 1, numbers)
    assert list(tmp_path.rglob("*.nbc"))
    assert numbers.x.tolist() == [3.0] * 150


def test_work_is_counted_for_every_type_of_the_first_argument(monkeypatch, tmp_path):
    class Others(NamedTuple):
        x: NDArray[np.float64]

    function = fresh(monkeypatch, tmp_path)
    compiled.call(function, 201, Numbers(np.zeros(201)))
    before = len(list(tmp_path.rglob("*.nbc")))
    compiled.call(function, 200, Others(np.zeros(200)))
    assert len(list(tmp_path.rglob("*.nbc"))) == before


def test_what_is_on_disk_is_not_interpreted(monkeypatch, tmp_path):
    numbers = Numbers(np.zeros(3))
    fresh(monkeypatch, tmp_path)(numbers)
    again = fresh(monkeypatch, tmp_path)
    assert not again.is_interpreted(1, (numbers,))
    assert again.is_interpreted(1, (1.0,)), "for other arguments there is nothing on disk"


def test_the_first_command_of_an_installation_compiles_nothing(tmp_path):
    """The cache is empty: 3.6 seconds of compilation before."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "cmdpkit", "solve", "paper/synthetic", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert '"value": 1.573' in done.stdout
    assert not list(tmp_path.rglob("*.nbc")), "compiled code was kept, so something was compiled"
