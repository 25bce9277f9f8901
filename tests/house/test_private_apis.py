"""One test for every interface that we use although nobody promises to keep it.

When one of these fails after an update of a package, the docstring says what depends on it and what to do.
"""

import multiprocessing.spawn
import os
import sys

import gymnasium
import highspy
import numpy as np
import pytest
import typer
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from numba import njit
from numba.core.errors import NumbaError
from typer.testing import CliRunner

from cmdpkit.cli.shared import Verbs
from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.backends import without_main
from cmdpkit.model.compiled import compiled, embedded, inlined, internal


def options(decorator):
    """The options that a decorator gives to Numba, without its cache: what comes from there cannot be inspected."""
    made = decorator(lambda x: x)
    given = getattr(made, "within", made).targetoptions
    left_out = ("nopython", "boundscheck", "cache", "no_cpython_wrapper", "no_cfunc_wrapper")
    return {name: value for name, value in given.items() if name not in left_out}


@pytest.mark.parametrize("decorator", [compiled, inlined], ids=["compiled", "inlined"])
def test_numba_compiles_without_reference_counts_and_then_refuses_an_allocation(decorator):
    """`_nrt=False`: passing a NamedTuple of arrays to another compiled function costs nothing because of it.

    Without the option everything still works, but episode loops run several times slower: measure `python -m bench
    steps`, and pass arrays one by one in the inner loops if there is no other switch.
    """

    def total(n):
        return np.zeros(n).sum()

    given = options(decorator)
    assert given.pop("_nrt") is False
    assert njit(**given)(total)(3) == 0.0  # the function itself is fine
    with pytest.raises(NumbaError):
        njit(**given, _nrt=False)(total)(3)


def test_numba_marks_inlined_functions_for_llvm_to_inline_always():
    """`forceinline`: drawing a random number and taking a step are inlined into every episode loop.

    Without it results stay the same and `python -m bench steps` tells what is lost.
    """

    def marked(**given):
        function = njit(**given)(lambda x: x + 1)
        assert function(1) == 2
        [text] = function.inspect_llvm().values()
        return "alwaysinline" in text

    assert marked(**options(inlined)) and not marked(**options(compiled))


def test_numba_compiles_no_form_for_python_of_functions_that_are_parts_of_others():
    """`no_cpython_wrapper` and `no_cfunc_wrapper`: such functions take half the time to compile.

    Without these options everything still works. Numba learns the type of a `CompiledPart`, the dispatcher in it, from
    `typeof_impl`; if it refuses that, let `embedded`, `internal` and `inlined` return that dispatcher.
    """

    @internal
    def half(x):
        return x / 2

    outer = njit(lambda x: half(x))
    assert outer(3.0) == half(3.0) == 1.5
    [text] = half.within.inspect_llvm().values()
    assert "cpython" not in text and "cfunc" not in text
    [text] = outer.inspect_llvm().values()
    assert "cpython" in text and "cfunc" in text


def test_numba_compiles_embedded_functions_with_options_of_their_own():
    """`_nrt=False` holds for a part of its own: even if a function with reference counts calls it, it cannot allocate.

    If it does not, the parts of Triple-Q become slow: decorate them with `inlined`, and they only compile slowly.
    """

    @embedded
    def total(n):
        return np.zeros(n).sum()

    assert total(3) == 0.0  # for Python it is the plain function
    with pytest.raises(NumbaError):
        njit(lambda n: total(n))(3)


def test_the_time_limit_of_a_gymnasium_wrapper_can_be_read():
    """`TimeLimit._max_episode_steps`: the horizon of an environment that was wrapped by hand and has no spec.

    If it is gone, `running/gym/env.py` has to ask the user for a horizon in that case.
    """
    env = gymnasium.wrappers.TimeLimit(FrozenLakeEnv(), 17)
    assert env._max_episode_steps == 17


@pytest.mark.parametrize(("kind", "S", "A"), [(FrozenLakeEnv, 16, 4), (CliffWalkingEnv, 48, 4), (TaxiEnv, 500, 6)])
def test_gymnasium_toy_environments_show_their_tables(kind, S, A):
    """`P` and `initial_state_distrib`: the exact models of FrozenLake, CliffWalking and Taxi are read off them.

    If they are gone or have another form, `envs/gym/_tables.py` has to follow.
    """
    env = kind()
    assert env.initial_state_distrib.shape == (S,) and env.initial_state_distrib.sum() == pytest.approx(1)
    assert set(env.P) == set(range(S)) and all(set(row) == set(range(A)) for row in env.P.values())
    for row in env.P.values():
        for outcomes in row.values():
            assert sum(p for p, _, _, _ in outcomes) == pytest.approx(1)
            assert all(0 <= s_next < S and over in (True, False) for _, s_next, _, over in outcomes)


def test_typer_runs_verbs_through_invoke_of_its_group():
    """`typer.core.TyperGroup.invoke`: where errors of all verbs become one sentence and an exit code.

    If Typer calls something else, errors show as tracebacks, and `cli/shared.py` has to override that instead.
    """
    app = typer.Typer(cls=Verbs, add_completion=False)

    @app.command()
    def one():
        raise CmdpkitError("the bound is 3, expected less")

    @app.command()
    def two():
        """A second verb, as a single one makes no group."""

    done = CliRunner().invoke(app, ["one"])
    assert done.exit_code == 1 and done.stderr == "error: the bound is 3, expected less\n"


def test_new_processes_are_told_nothing_of_the_script_while_main_is_away():
    """`multiprocessing.spawn` reads `sys.modules["__main__"]`: taken away, workers do not run the user's script again.

    If this fails, scripts without a main guard start experiments within experiments
    (`experiments/backends.py`).
    """
    main = sys.modules["__main__"]
    with without_main():
        told = multiprocessing.spawn.get_preparation_data("worker")
    assert not {"init_main_from_name", "init_main_from_path"} & set(told)
    assert sys.modules["__main__"] is main


def solved(basis=None):
    """maximise x + 2 y with x + y <= 4, y <= 3, x, y >= 0: (1, 3), with dual prices 1 and 1."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("presolve", "off")
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_, lp.sense_ = 2, 2, highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array([1.0, 2.0]), np.zeros(2), np.full(2, highspy.kHighsInf)
    lp.row_lower_, lp.row_upper_ = np.full(2, -highspy.kHighsInf), np.array([4.0, 3.0])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = np.array([0, 2, 3], np.int32), np.array([0, 1, 1], np.int32)
    lp.a_matrix_.value_ = np.ones(3)
    highs.passModel(lp)
    if basis is not None:
        highs.setBasis(basis)
    highs.run()
    return highs


def test_highs_gives_duals_in_the_sign_we_read_them_in():
    """The sign of `row_dual` is that of d objective / d row: shadow prices and the gap rest on it (`exact/`)."""
    highs = solved()
    assert np.allclose(highs.getSolution().col_value, [1, 3])
    assert np.allclose(highs.getSolution().row_dual, [1, 1])


def test_highs_takes_a_basis_back_that_was_kept_as_whole_numbers():
    """`int(HighsBasisStatus)` and back: a run that is resumed continues from the same basis, to the same bits.

    If it is refused, learners that keep a basis (the published PRI) lose bit-exact resume: keep the names instead.
    """
    before = solved().getBasis()
    kept = [int(x) for x in (*before.col_status, *before.row_status)]
    basis = highspy.HighsBasis()
    listed = [highspy.HighsBasisStatus(x) for x in kept]
    basis.col_status, basis.row_status, basis.valid = listed[:2], listed[2:], True
    again = solved(basis)
    assert again.getInfo().simplex_iteration_count == 0
    assert np.allclose(again.getSolution().col_value, [1, 3])


def test_numba_says_where_a_compiled_function_is_kept(tmp_path, monkeypatch):
    """`_cache._cache_file._index_path`: a function that is kept there is loaded and not interpreted (`compiled.call`).

    If this is gone, ask whether any file with the function's name is in its cache folder.
    """
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    function = compiled(lambda x: x + 1)
    path = function._cache._cache_file._index_path
    assert path.startswith(str(tmp_path)) and not os.path.exists(path)
    assert function(1) == 2 and os.path.exists(path)
