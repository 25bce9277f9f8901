"""One test for every interface that we use although nobody promises to keep it.

When one of these fails after an update of a package, the docstring says what depends on it and what to do.
"""

import multiprocessing.spawn
import sys

import gymnasium
import highspy
import numpy as np
import pytest
import typer
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from numba import njit, typeof
from numba.core.errors import NumbaError
from typer.testing import CliRunner

from cmdpkit.cli.shared import Verbs
from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.backends import without_main
from cmdpkit.model.compiled import OPTIONS, PART_OPTIONS, CodeOnDisk, compiled


def test_numba_compiles_without_reference_counts_and_then_refuses_an_allocation():
    """`_nrt=False`: passing a NamedTuple of arrays to another compiled function costs nothing because of it.

    Without the option everything still works, but episode loops run several times slower: measure `python -m bench
    steps`, and pass arrays one by one in the inner loops if there is no other switch.
    """

    def total(n):
        return np.zeros(n).sum()

    assert OPTIONS["_nrt"] is False and PART_OPTIONS["_nrt"] is False
    given = {name: value for name, value in OPTIONS.items() if name != "_nrt"}
    assert njit(**given)(total)(3) == 0.0  # the function itself is fine
    with pytest.raises(NumbaError):
        compiled(total)(3)
    part = compiled(total)
    with pytest.raises(NumbaError):  # even if a function with reference counts calls it
        njit(lambda n: part(n))(3)


def test_numba_marks_inlined_functions_for_llvm_to_inline_always():
    """`forceinline`: drawing a random number and taking a step are inlined into every episode loop.

    Without it results stay the same and `python -m bench steps` tells what is lost.
    """

    def marked(function):
        given = {"forceinline": function.part.targetoptions.get("forceinline", False)}
        made = njit(**OPTIONS, **given)(lambda x: x + 1)
        assert made(1) == 2
        [text] = made.inspect_llvm().values()
        return "alwaysinline" in text

    assert marked(compiled(lambda x: x, inline=True)) and not marked(compiled(lambda x: x))


def test_numba_leaves_parts_of_functions_unfinished():
    """`JITCodeLibrary`, `Compiler.define_pipelines`: no part is optimised or turned into machine code by itself.

    If Numba refuses, leave `pipeline_class` out of `PART_OPTIONS`: everything still works, but compiling takes a fifth
    longer and exploring runs more slowly. Then look at what has changed in `numba.core.codegen.CPUCodeLibrary`. Numba
    learns the type of a `Compiled` from `typeof_impl`; if it refuses that, let `compiled` return dispatchers.
    """

    @compiled
    def half(x):
        return x / 2

    @compiled
    def both(x):
        return half(x) + half(x + 2.0)

    outer = njit(lambda x: both(x) + half(x))
    assert outer(3.0) == 1.5 + 2.5 + 1.5 and half(3.0) == 1.5
    [result] = both.part.overloads.values()
    assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0, "no machine code"
    [text] = outer.inspect_llvm().values()
    assert "cpython" in text and "cfunc" in text


def test_numba_keeps_what_a_cache_of_ours_gives_it(tmp_path, monkeypatch):
    """`Dispatcher._cache`, `IndexDataCacheFile`, `CompileResult._reduce` and `_rebuild`: code is kept by these.

    If one is gone, give `Compiled.entry` the option ``cache=True``: all works, but edits of parts are not noticed.
    """
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert compiled(lambda x: x + 1)(1) == 2
    assert len(list(tmp_path.rglob("*.nbi"))) == len(list(tmp_path.rglob("*.nbc"))) == 1
    again = compiled(lambda x: x + 1)
    assert CodeOnDisk(again.plain).holds((typeof(1),)) and not CodeOnDisk(again.plain).holds((typeof(1.0),))
    assert again(1) == 2 and sum(again.entry.stats.cache_hits.values()) == 1


def test_the_time_limit_of_a_gymnasium_wrapper_can_be_read():
    """`TimeLimit._max_episode_steps`: the horizon of an environment that was wrapped by hand and has no spec.

    If it is gone, `running/gym/env.py` has to ask the user for a horizon in that case.
    """
    env = gymnasium.wrappers.TimeLimit(FrozenLakeEnv(), 17)
    assert env._max_episode_steps == 17


@pytest.mark.parametrize(("kind", "S", "A"), [(FrozenLakeEnv, 16, 4), (CliffWalkingEnv, 48, 4), (TaxiEnv, 500, 6)])
def test_gymnasium_toy_environments_show_their_tables(kind, S, A):
    """`P` and `initial_state_distrib`: the exact models of FrozenLake, CliffWalking and Taxi are read off them.

    If they are gone or have another form, `envs/gym/__init__.py` has to follow.
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


def solved():
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
    highs.run()
    return highs


def test_highs_gives_duals_in_the_sign_we_read_them_in():
    """The sign of `row_dual` is that of d objective / d row: shadow prices and the gap rest on it (`exact/`)."""
    highs = solved()
    assert np.allclose(highs.getSolution().col_value, [1, 3])
    assert np.allclose(highs.getSolution().row_dual, [1, 1])
