"""Logs as people have them: every kind of table, and every mistake with its place."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

import cmdpkit as ck
from small_log import BOUND, COLUMNS, ROWS


def test_every_kind_of_table_says_the_same(tmp_path):
    frame = pd.DataFrame(ROWS, columns=COLUMNS)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log [1].parquet")
    european = [";".join(COLUMNS)] + [
        f"{k};{h};{s};{a};{r};{100 * c} %;{t}".replace(".", ",") for k, h, s, a, r, c, t in ROWS
    ]
    (tmp_path / "europe.csv").write_text("\n".join(european))
    renamed = frame.rename(columns={"state": "where"}).sample(frac=1, random_state=1)
    given = {"horizon": 2, "constraints": BOUND}
    expected = ck.from_log(ROWS, columns=COLUMNS, **given).cmdp
    for log in ("log.csv", "log [1].parquet", "europe.csv"):
        assert ck.from_log(tmp_path / log, **given).cmdp == expected
    assert ck.from_log(frame, **given).cmdp == expected
    assert ck.from_log(renamed, columns={"state": "where"}, **given).cmdp == expected
    assert ck.from_log([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], **given).cmdp == expected
    assert ck.from_log(frame.drop(columns="step"), **given).cmdp == expected


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
def test_whatever_stands_for_nothing_in_a_data_frame_is_an_empty_next_state(missing):
    frame = pd.DataFrame(ROWS, columns=COLUMNS).astype({"next_state": object})
    frame.loc[frame.step == 1, "next_state"] = missing
    expected = ck.from_log(ROWS, columns=COLUMNS, horizon=2, constraints=BOUND).cmdp.fingerprint()
    assert ck.from_log(frame, horizon=2, constraints=BOUND).cmdp.fingerprint() == expected


def test_an_index_with_names_texts_of_numbers_and_rows_that_are_arrays_are_understood():
    expected = ck.from_log(ROWS, columns=COLUMNS, horizon=2, constraints=BOUND).cmdp.fingerprint()
    frame = pd.DataFrame(ROWS, columns=COLUMNS).astype({"reward": str})
    array = np.array(ROWS, dtype=object)
    for log in (frame.set_index(["episode", "step"]), array):
        columns = COLUMNS if log is array else None
        assert ck.from_log(log, columns=columns, horizon=2, constraints=BOUND).cmdp.fingerprint() == expected


def test_states_are_the_objects_of_the_log():
    day = {"a": date(2024, 1, 9), "b": date(2024, 1, 10)}
    rows = [(*row[:2], day[row[2]], *row[3:-1], day[row[-1]]) for row in ROWS]
    assert ck.from_log(rows, columns=COLUMNS, horizon=2, constraints=BOUND).cmdp.states == tuple(day.values())


def test_all_mistakes_of_a_file_are_told_at_once_with_their_lines(tmp_path):
    lines = [",".join(COLUMNS), "1,1,a,go,x,0,b", "1,2,b,go,1,,b", "2,1,,go,1,0,b"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    with pytest.raises(ck.CmdpkitError) as error:
        ck.from_log(tmp_path / "log.csv", horizon=2, constraints=BOUND)
    for place in ("log.csv:2: reward is 'x', expected a number", "log.csv:3: cost is ''", "log.csv:4: state is empty"):
        assert place in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: (2, 3, "b", "stay", 0.0, 0.0, "b")}, "row 4: episode 2 leaves out steps"),
        ({3: (2, 1, "b", "stay", 0.0, 0.0, "b")}, "row 4: episode 2 has a step twice"),
        ({0: (1, 1, "a", "go", 1.0, 0.5, "a")}, "row 1: next_state is 'a', but the next row of this episode is in"),
        ({0: (1, 1, "a", ["go"], 1.0, 0.5, "b")}, r"row 1: action is \['go'\], expected a name"),
        ({0: (1, 0.5, "a", "go", 1.0, 0.5, "b")}, "row 1: step is 0.5, expected a whole number"),
        ({0: (1, 1, "a", "go", float("nan"), 0.5, "b")}, "row 1: reward is nan, expected a number"),
        ({0: (1, 1, "a")}, "row 1 is .*, expected 7 values"),
        (
            {1: ROWS[0]},
            "^row 2: is the same row as row 1; leave one of them out, as duplicates=.drop. ",
        ),
        ({0: (1, -3, "a", "go", 1.0, 0.5, "b")}, "row 3: episode 2 begins 4 steps after the others"),
        ({2: (2, 1, None, "go", 3.0, 1.0, "b")}, "row 3: state is empty.*fill it in. bad=.drop episodes. "),
    ],
)
def test_a_log_that_contradicts_itself_is_refused_with_its_place(change, message):
    rows = [change.get(i, row) for i, row in enumerate(ROWS)]
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.from_log(rows, columns=COLUMNS, horizon=3, constraints=BOUND)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "horizon is missing"),
        ({"horizon": 1}, "has 2 steps, but the horizon is 1"),
        ({"criterion": "total"}, "give a horizon"),
        ({"discount": 0.9, "stationary": False}, "nothing may depend on the step"),
        ({"horizon": 2, "constraints": [ck.at_most("coast", 1)]}, "has no column 'coast'; did you mean 'cost'"),
        ({"horizon": 2, "columns": {"sate": "x"}}, "did you mean 'state'"),
        (
            {"horizon": 2, "constraints": [ck.at_most("cost", 1, [[1.0]])]},
            "has a signal of its own, expected it in the column",
        ),
    ],
)
def test_what_is_asked_of_a_log_is_checked(given, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.from_log(pd.DataFrame(ROWS, columns=COLUMNS), **{"constraints": BOUND, **given})
