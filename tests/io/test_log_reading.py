"""Logs as people have them: every kind of table, and every mistake with its place."""

from datetime import date

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

import cmdpkit as ck
from small_log import BOUND, COLUMNS, ROWS


def test_every_kind_of_table_says_the_same(tmp_path):
    frame = pd.DataFrame(ROWS, columns=COLUMNS)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log [1].parquet")
    frames = [
        frame,
        pd.read_parquet(tmp_path / "log [1].parquet"),
        polars.from_pandas(frame),
        pyarrow.Table.from_pandas(frame),
    ]
    european = [";".join(COLUMNS)] + [
        f"{k};{h};{s};{a};{r};{100 * c} %;{t}".replace(".", ",") for k, h, s, a, r, c, t in ROWS
    ]
    (tmp_path / "europe.csv").write_text("\n".join(european))
    renamed = frame.rename(columns={"state": "where"}).sample(frac=1, random_state=1)
    given = {"horizon": 2, "constraints": BOUND}
    expected = ck.from_log(ROWS, columns=COLUMNS, **given).cmdp
    for log in ("log.csv", "europe.csv"):
        assert ck.from_log(tmp_path / log, **given).cmdp == expected
    for log in frames:
        assert ck.from_log(log, **given).cmdp == expected
    assert ck.from_log(frames[2].lazy(), **given).cmdp == expected
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
        ({1: ROWS[0]}, "^row 2: episode 1 has a step twice: 0 after the row before, expected 1; correct"),
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
def test_arguments_of_from_log_are_checked(given, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.from_log(pd.DataFrame(ROWS, columns=COLUMNS), **{"constraints": BOUND, **given})


# -- messy logs --------------------------------------------------------------------------------------------------------


def messy():
    """60 episodes of 4 steps; nine of them have one mistake each, and one row stands there twice."""
    rows = [[k, h, "ab"[h % 2], "go", 1.0, 0.5, "ba"[h % 2]] for k in range(60) for h in range(4)]
    for i, column, value in [
        (3, 4, "n/a"), (17, 4, None), (33, 4, "x"), (50, 4, "y"),  # rewards of episodes 0, 4, 8, 12
        (20, 5, "1,5"), (70, 2, None), (90, 1, 1e23), (121, 6, "zz"), (160, 4, 1e308),  # 5, 17, 22, 30, 40
    ]:  # fmt: skip
        rows[i][column] = value
    return [*rows, list(rows[140])]


def test_mistakes_are_grouped_by_kind_with_their_number_and_three_lines():
    with pytest.raises(ck.CmdpkitError) as error:
        ck.from_log(messy(), columns=COLUMNS, horizon=4, constraints=BOUND)
    told = str(error.value).splitlines()
    assert told[0] == "the log has 10 mistakes of 7 kinds:"
    assert told[1:6] == [
        "4 x reward is not a number (correct it):",
        "  row 4: reward is 'n/a', expected a number such as 1000.5",
        "  row 18: reward is None, expected a number such as 1000.5",
        "  row 34: reward is 'x', expected a number such as 1000.5",
        "  ... and 1 more",
    ]
    assert "  row 91: step is 1e+23, expected a number of at most 1e+12 in size" in told
    assert "  row 161: reward is 1e+308, expected a number of at most 1e+60 in size" in told
    assert told[-1] == 'bad="drop episodes" (--drop-bad-episodes) leaves 10 episodes with mistakes out'


def test_episodes_with_mistakes_can_be_dropped():
    given = {"columns": COLUMNS, "horizon": 4, "constraints": BOUND}
    found = ck.from_log(messy()[:240], **given, bad="drop episodes")
    assert found.cleaned.episodes == 9 and found.cleaned.rows == 36
    assert dict(found.cleaned.reasons)["reward is not a number"] == 4 and "9 episodes with 36 rows" in found.notes[0]
    faulty = {0, 4, 8, 12, 5, 17, 22, 30, 40}
    clean = [row for row in messy()[:240] if row[0] not in faulty]
    assert found.cmdp == ck.from_log(clean, **given).cmdp and found.episodes == 51
    with pytest.raises(ck.CmdpkitError, match="bad is 'drop', expected 'error' or 'drop episodes'"):
        ck.from_log(clean, **given, bad="drop")


def test_a_row_without_an_episode_spoils_the_episodes_around_it():
    """Without its row the episode would be joined over a gap, which nobody would notice."""
    rows = messy()[40:60]
    rows[10] = [None, *rows[10][1:]]  # in episode 12
    frame = pd.DataFrame(rows, columns=COLUMNS).drop(columns="step")
    found = ck.from_log(frame, horizon=4, constraints=BOUND, bad="drop episodes")
    assert found.episodes == 4 and found.cleaned.rows == 4


def test_a_continuing_log_needs_neither_episodes_nor_next_states():
    rows = [("a", "go", 1.0, 0.5, "b"), ("b", "go", 0.0, 0.1, "a"), ("a", "stay", 1.0, 0.2, "a")] * 3
    columns = ["state", "action", "reward", "cost", "next_state"]
    given = {"criterion": "average", "constraints": BOUND}
    whole = ck.from_log([(0, *row) for row in rows[:-1]], columns=["episode", *columns], **given)
    short = ck.from_log([row[:-1] for row in rows], columns=columns[:-1], **given)
    assert short.cmdp == whole.cmdp and short.cleaned.unfinished == 1 and not short.notes
    with pytest.raises(ck.CmdpkitError, match="has no column 'episode'"):
        ck.from_log([row[:-1] for row in rows], columns=columns[:-1], horizon=3)


def test_rows_with_too_few_cells_are_mistakes_like_others(tmp_path):
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in ROWS), "3,1,a,go", "3,2,b,go,1,0,b"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    with pytest.raises(ck.CmdpkitError, match=r"log.csv:6: has 4 cells, expected 7"):
        ck.from_log(tmp_path / "log.csv", horizon=2, constraints=BOUND)
    found = ck.from_log(tmp_path / "log.csv", horizon=2, constraints=BOUND, bad="drop episodes")
    assert found.cmdp == ck.from_log(ROWS, columns=COLUMNS, horizon=2, constraints=BOUND).cmdp


def test_ranges_are_declared_with_a_constraint_or_by_name():
    given = {"columns": COLUMNS, "horizon": 2}
    logs = [
        ck.from_log(ROWS, **given, constraints=[ck.at_most("cost", 1.5, range=(0, 7))]),
        ck.from_log(ROWS, **given, constraints=BOUND, ranges={"cost": (0, 7)}),
    ]
    assert [x.log.ranges[1].tolist() for x in logs] == [[0, 7]] * 2
    frame = pd.DataFrame(ROWS, columns=COLUMNS).assign(**{"cost min": 0, "cost max": 7})
    with pytest.raises(ck.CmdpkitError, match=r"the log has a column 'cost min', which is not read; .* ranges=\{NAME"):
        ck.from_log(frame, horizon=2, constraints=BOUND)
    assert ck.from_log(ROWS, **given, constraints=BOUND, ranges={"reward": (-1, 9)}).log.ranges[0].tolist() == [-1, 9]
    for wrong, message in [
        ({"cost": (0, 0.6)}, "row 3: cost is 1, outside of its declared range 0 to 0.6; correct the row or the range"),
        ({"coast": (0, 1)}, "ranges names 'coast'; did you mean 'cost'"),
        ({"cost": (1, 0)}, r"the range of 'cost' is \(1, 0\), expected the smallest and the largest value"),
    ]:
        with pytest.raises(ck.CmdpkitError, match=message):  # also where other mistakes would be dropped
            ck.from_log(ROWS, **given, constraints=BOUND, ranges=wrong, bad="drop episodes")


def test_a_time_column_orders_the_episodes():
    rows = [
        (*row, when) for row, when in zip(ROWS, ["2024-05-02", "2024-05-03", "2024-04-30", "2024-05-01"], strict=True)
    ]
    found = ck.from_log(rows, columns=[*COLUMNS, "time"], horizon=2, constraints=BOUND).log
    assert found.x[0].tolist() == [3.0, 0.0, 1.0, 2.0] and found.place[0] == "2024-04-30"
    rows[0] = (*ROWS[0], "soon")
    with pytest.raises(ck.CmdpkitError, match="row 1: time is 'soon', expected a number, or a date"):
        ck.from_log(rows, columns=[*COLUMNS, "time"], horizon=2, constraints=BOUND)
