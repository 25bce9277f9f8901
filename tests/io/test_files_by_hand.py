"""Model files written by hand, by a spreadsheet or by another system mean what people think."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from buffer_model import BUFFER, assert_same, buffer
from cmdpkit.io.models import read_model
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least, at_most
from cmdpkit.model.outcomes import Outcomes

SHEET = """\
# Two machines, measured in spring
# horizon = 4
# start = {empty = 1.0}
# constraint backlog <= 2.5
# constraint served well >= 0.5
## p = 3 is only a remark

state,action,next_state,probability,reward,backlog,served well
empty,rest,empty,0.25,0,0,0.125
busy,serve,empty,0.5,2,1,1
empty,rest,busy,0.75,0,0,0.125
busy,serve,busy,0.5,1,1,1

busy,rest,busy,1,0,1,0
"""


def sheet():
    """What SHEET says: `buffer`, with a reward for serving of 2 or 1 with equal odds, by the next state."""
    rows, successors, prob = [0, 0, 2, 3, 3], [0, 1, 1, 0, 1], [0.25, 0.75, 1.0, 0.5, 0.5]
    signals = [[0, 0, 0.125], [0, 0, 0.125], [0, 1, 0], [2, 1, 1], [1, 1, 1]]
    means = buffer()
    made = CMDP(
        Outcomes.from_entries((1, 2, 2), rows, successors, prob, signals),
        horizon=4,
        actions=means.actions[0],
        constraints=means.constraints,
        states=means.states,
        action_names=means.action_names,
    )
    assert np.array_equal(made.r, means.r) and np.array_equal(made.g, means.g) and np.array_equal(made.P, means.P)
    return made


@pytest.mark.parametrize(("suffix", "text"), [(".toml", BUFFER), (".csv", SHEET)])
def test_a_hand_written_file_means_what_it_says(suffix, text, tmp_path):
    path = tmp_path / f"buffer{suffix}"
    path.write_text(text)
    assert_same(read_model(path), sheet() if suffix == ".csv" else buffer())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace(",", " , ").replace(" ,", ","),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("<=", "≤").replace(">=", "≥"),
        # what a spreadsheet makes of the head: padded with commas, quoted where there are quotes or commas
        lambda text: "".join(
            f"{line},,,,,,\n" if line.startswith("#") or not line else f"{line}\n" for line in text.split("\n")
        ),
        lambda text: text.replace("# start = {empty = 1.0}", '"# start = ""empty""",,,,,,'),
        lambda text: text.replace("# start = {empty = 1.0}", '"# start = {""empty"" = 1.0"," ""busy"" = 0}",,,,,'),
    ],
)
def test_csv_files_of_spreadsheets_and_other_systems_are_understood(change, tmp_path):
    path = tmp_path / "buffer.csv"
    path.write_bytes(change(SHEET).encode())
    assert_same(read_model(path), sheet())


def test_the_mean_over_next_states_is_exact_where_all_are_equal(tmp_path):
    path = tmp_path / "model.csv"
    rows = "".join(f"{s},a,{t},{1 / 3!r},0.1\n" for s, t in itertools.product("xyz", repeat=2))
    path.write_text(f'# horizon = 2\n# start = "x"\nstate,action,next_state,probability,reward\n{rows}')
    assert set(read_model(path).r.ravel()) == {0.1}  # whereas 3 * (1/3 * 0.1) is not 0.1


def test_csv_keywords_replace_the_head(tmp_path):
    path = tmp_path / "buffer.csv"
    path.write_text("".join(line for line in SHEET.splitlines(keepends=True) if not line.startswith("#")))
    given = [at_most("backlog", 2.5), at_least("served well", 0.5)]
    assert_same(read_model(path, horizon=4, start="empty", constraints=given), sheet())
    assert_same(read_model(path, horizon=4, start={"empty": 1, "busy": 0}, constraints=given), sheet())
    path.write_text(SHEET)
    changed = read_model(path, horizon=9, start="busy", constraints=given[::-1])
    assert (changed.H, changed.mu.tolist()) == (9, [0, 1])
    assert [c.name for c in changed.constraints] == ["served well", "backlog"]
    assert np.array_equal(changed.g[:, 8], buffer().g[::-1, 0])


def test_columns_may_come_in_any_order_and_steps_in_a_column(tmp_path):
    path = tmp_path / "model.csv"
    path.write_text(
        '# horizon = 2\n# start = "x"\nreward,step,next_state,state,probability,action\n'
        "1,,x,x,1,stay\n5,2,y,x,1,go\n3,1,y,y,1,stay\n4,2,y,y,1,stay\n"
    )
    cmdp = read_model(path)
    assert cmdp.actions.tolist() == [[[True, False], [True, False]], [[True, True], [True, False]]]
    assert cmdp.r.tolist() == [[[1, 0], [3, 0]], [[1, 5], [4, 0]]]
    assert cmdp.kernel.T == 1  # the transitions do not depend on the step


def test_an_action_exists_at_the_steps_it_is_given_for(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(
        "[model]\nhorizon = 3\nstart = 1\n"
        "[[transition]]\nstate = 1\naction = 'wait'\nnext = {1 = 1}\nreward = 0\n"
        "[[transition]]\nstate = 1\naction = 'jump'\nnext = {1 = 1}\nreward = 7\nstep = 2\n"
    )
    cmdp = read_model(path)
    assert cmdp.actions[:, 0].tolist() == [[True, False], [True, True], [True, False]]
    assert cmdp.states == (1,) and cmdp.action_names == ("wait", "jump")
    assert len(cmdp.compact.r) == 1 and cmdp.compact.r[0, 0].tolist() == [0, 7]


def test_renormalise_divides_rounded_rows_by_their_sum(tmp_path):
    path = tmp_path / "model.csv"
    path.write_text(
        '# horizon = 2\n# start = "x"\nstate,action,next_state,probability,reward\n'
        "x,a,x,0.3,3\nx,a,y,0.3,6\nx,a,z,0.30,9\ny,a,x,2,0\nz,a,z,1,0\n"
    )
    with pytest.raises(ValueError, match=r"model.csv:4: transition from 'x' under 'a': .* sum to 0.9, expected 1"):
        read_model(path)
    cmdp = read_model(path, renormalise=True)
    assert np.allclose(cmdp.P[0, 0, 0], 1 / 3) and cmdp.P[0, 1, 0].tolist() == [1, 0, 0]
    assert cmdp.r[0, 0, 0] == pytest.approx(6)


def test_examples_of_the_pages_are_valid_and_describe_one_model(tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    models = []
    for kind, page in (("toml", "guide"), ("json", "reference"), ("csv", "guide")):
        text = (docs / page / "files.md").read_text(encoding="utf-8")
        path = tmp_path / f"model.{kind}"
        path.write_text(text.split(f"```{kind}\n")[1].split("```")[0], encoding="utf-8")
        models.append(read_model(path))
    assert_same(models[0], models[1])
    assert_same(models[0], models[2])
