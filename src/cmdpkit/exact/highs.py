"""HiGHS, the solver of linear programs, set up in one place: nothing else in the package imports `highspy`."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.transitions import FloatArray

INFINITY: float = highspy.kHighsInf
Basis = NDArray[np.int64]  # HiGHS's status of every column, then of every row


def configured(
    *, solver: str = "simplex", tolerance: float = 1e-10, presolve: bool = True, primal: bool = False
) -> highspy.Highs:
    """A silent HiGHS that ends at a vertex.

    ``solver`` is "simplex" or "ipm" (interior point with crossover). The tolerance holds for primal and dual
    feasibility; HiGHS takes no smaller one than 1e-10. ``primal`` asks for the primal simplex, which keeps an old basis
    when columns are added.
    """
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("run_crossover", "on")
    highs.setOptionValue("primal_feasibility_tolerance", tolerance)
    highs.setOptionValue("dual_feasibility_tolerance", tolerance)
    if not presolve:
        highs.setOptionValue("presolve", "off")
    if primal:
        highs.setOptionValue("simplex_strategy", 4)
    return highs


def program(
    costs: FloatArray,
    columns: tuple[FloatArray, FloatArray],
    rows: tuple[FloatArray, FloatArray],
    matrix: tuple[Any, Any, Any],
    *,
    maximise: bool = False,
    by_rows: bool = False,
) -> highspy.HighsLp:
    """A linear program: costs, (lower, upper) of columns and rows, and the matrix as (start, index, value)."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(rows[0])
    lp.sense_ = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
    lp.col_cost_ = costs
    lp.col_lower_, lp.col_upper_ = columns
    lp.row_lower_, lp.row_upper_ = rows
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise if by_rows else highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix
    return lp


def empty_maximisation(highs: highspy.Highs, rows: tuple[FloatArray, FloatArray]) -> None:
    """Begin a maximisation that has rows with these (lower, upper) bounds and no columns yet."""
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for lower, upper in zip(*rows, strict=True):
        highs.addRow(float(lower), float(upper), 0, np.zeros(0, dtype=np.int32), np.zeros(0))


def run(highs: highspy.Highs) -> str:
    """Solve what is loaded: "optimal", "infeasible", or whatever else HiGHS calls the end it came to."""
    highs.run()
    status = highs.getModelStatus()
    names = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kInfeasible: "infeasible"}
    return names.get(status) or str(highs.modelStatusToString(status))


def answer(highs: highspy.Highs) -> tuple[FloatArray, FloatArray]:
    """Values of the columns and dual values of the rows, after `run`."""
    solution = highs.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)


def basis_of(highs: highspy.Highs) -> Basis:
    """The basis as numbers: columns first, then rows."""
    basis = highs.getBasis()
    return np.array([int(x) for x in (*basis.col_status, *basis.row_status)], dtype=np.int64)


def start_from(highs: highspy.Highs, statuses: Basis, columns: int) -> None:
    """Let the next run begin from a basis that `basis_of` returned, of a program with that many columns."""
    basis = highspy.HighsBasis()
    listed = [highspy.HighsBasisStatus(int(x)) for x in statuses]
    basis.col_status, basis.row_status, basis.valid = listed[:columns], listed[columns:], True
    highs.setBasis(basis)
