"""Tables as spreadsheets and people write them: other separators, decimal commas, percentages, signs; and all
mistakes of a file at once."""

import re
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.io.formats.sheet import number, tolerance_of
from cmdpkit.io.formats.source import Written

PLAIN = """\
# horizon = 20
# start = "empty"
# constraint backlog <= 12.5
state,action,next_state,probability,reward,backlog
empty,rest,empty,0.4,0,0
empty,rest,busy,0.6,0,0
busy,rest,busy,1,0,1
busy,serve,empty,0.7,1.5,1
busy,serve,busy,0.3,1.5,1
"""


def read(folder: Path, text: str, name: str = "model.csv") -> ck.CMDP:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return ck.read_model(path)


def changed(*pairs: tuple[str, str]) -> str:
    """The plain file with every pair's first text replaced by its second, which must be there."""
    text = PLAIN
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def with_decimal_commas(separator: str) -> str:
    head, table = PLAIN.split("state,", 1)
    table = "state," + table
    table = table.replace(",", separator).replace(".", ",")
    return head.replace("12.5", "12,5") + table


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_tabs_and_decimal_commas_give_the_same_model(tmp_path, separator):
    assert read(tmp_path, with_decimal_commas(separator)) == read(tmp_path, PLAIN, "plain.csv")


def test_a_spreadsheet_pads_the_head_with_its_own_separator(tmp_path):
    text = with_decimal_commas(";").replace("# horizon = 20", "# horizon = 20;;;;;").replace('"empty"', '"empty";;;;;')
    assert read(tmp_path, text) == read(tmp_path, PLAIN, "plain.csv")


def test_semicolons_with_decimal_points_are_read_too(tmp_path):
    head, table = PLAIN.split("state,", 1)
    assert read(tmp_path, head + ("state," + table).replace(",", ";")) == read(tmp_path, PLAIN, "plain.csv")


def test_a_comma_in_a_number_is_refused_where_commas_separate(tmp_path):
    text = changed(("busy,serve,empty,0.7", 'busy,serve,empty,"0,7"'))
    with pytest.raises(ck.CmdpkitError, match=r"model.csv:8: probability is '0,7', expected a number"):
        read(tmp_path, text)


def test_percentages_are_hundredths_and_count_their_decimals_when_rounded(tmp_path):
    assert read(tmp_path, changed(("0.4,0,0", "40%,0,0"), ("0.6,0,0", "60 %,0,0"))) == read(
        tmp_path, PLAIN, "plain.csv"
    )
    thirds = changed(("0.4,0,0", "33.3%,0,0"), ("0.6,0,0", "66.7%,0,0"))
    assert read(tmp_path, thirds).P[0, 0, 0, 0] == 0.333
    third = number("33.3 %", Written)  # half a unit in the third decimal for each of three numbers
    assert tolerance_of([third] * 3) == pytest.approx(0.0015, rel=1e-6)
    with pytest.raises(ck.CmdpkitError, match=r"the probabilities sum to 0\.98"):
        read(tmp_path, changed(("0.4,0,0", "33.0%,0,0"), ("0.6,0,0", "65.0%,0,0")))


def test_percentages_may_have_decimal_commas(tmp_path):
    thirds = changed(("0.4,0,0", "33.3%,0,0"), ("0.6,0,0", "66.7%,0,0"))
    text = with_decimal_commas(";").replace("0,4;0;0", "33,3 %;0;0").replace("0,6;0;0", "66,7 %;0;0")
    assert "33,3 %" in text and "66,7 %" in text
    assert read(tmp_path, text) == read(tmp_path, thirds, "plain.csv")


@pytest.mark.parametrize(
    ("sign", "sense"), [("<=", "at_most"), ("≤", "at_most"), (">=", "at_least"), ("≥", "at_least")]
)
def test_signs_are_senses_in_python_and_in_files(tmp_path, sign, sense):
    assert ck.Constraint("x", sign, 3.0) == ck.Constraint("x", sense, 3.0)
    toml = f"""
[model]
horizon = 3
start = "a"
[[constraint]]
name = "x"
sense = "{sign}"
bound = 1
[[transition]]
state = "a"
action = "go"
reward = 1
x = 0
next = {{a = 1}}
"""
    assert read(tmp_path, toml, "model.toml").constraints[0].sense == sense


def test_a_reward_of_minus_infinity_is_refused_with_what_to_give_in_its_place(tmp_path):
    P, r = np.full((2, 2, 2), 0.5), np.array([[1.0, -np.inf], [0.0, 2.0]])
    with pytest.raises(ck.CmdpkitError, match=r"r\[s=0, a=1\] is -inf, .*not allowed, give actions=np\.isfinite\(r\)"):
        ck.CMDP(P, r, horizon=3)
    assert ck.CMDP(P, r, horizon=3, actions=np.isfinite(r)).r[0].tolist() == [[1.0, 0.0], [0.0, 2.0]]
    with pytest.raises(ck.CmdpkitError, match=r"reward\(0, 'go'\) is -inf, expected a finite number; what is not"):
        ck.CMDP.from_function(
            start=0, horizon=3, actions=["go"], step=lambda s, a: {s: 1.0}, reward=lambda s, a: -np.inf
        )
    with pytest.raises(ck.CmdpkitError, match=r"model.csv:8: reward is '-inf', expected a number"):
        read(tmp_path, changed(("0.7,1.5", "0.7,-inf")))


def test_all_mistakes_of_a_csv_file_are_told_at_once_in_the_order_of_their_kinds(tmp_path):
    text = changed(
        ("empty,rest,empty,0.4,0,0", "empty,rest,empty,many,0,0"),  # line 5
        ("busy,rest,busy,1,0,1", "busy,rest,bussy,1,0,1"),  # line 7
        ("busy,serve,empty,0.7,1.5,1", "busy,serve,empty,-1,1.5,1"),  # line 8
    )
    text += "empty,serve,empty,1,0\n"  # line 10: a cell is missing
    with pytest.raises(ck.CmdpkitError) as caught:
        read(tmp_path, text)
    first, *rest = str(caught.value).splitlines()
    assert first.endswith("model.csv has 4 mistakes of 3 kinds:")
    lines = [int(found[1]) for line in rest if (found := re.search(r"model\.csv:(\d+): ", line))]
    assert sorted(lines) == [5, 7, 8, 10]
    said = "\n".join(rest)
    for words in (
        "'many', expected a number",
        "did you mean 'busy'?",
        "is -1, expected at least 0",
        "has 5 cells, expected 6",
    ):
        assert words in said


def test_a_damaged_line_causes_no_second_complaint(tmp_path):
    with pytest.raises(ck.CmdpkitError) as caught:  # without line 5, empty would have a sum of 0.6
        read(tmp_path, changed(("empty,rest,empty,0.4,0,0", "empty,rest,empty,many,0,0")))
    assert str(caught.value).endswith(
        "model.csv:5: probability is 'many', expected a number such as 1000.5; correct it"
    )


def test_at_most_twenty_mistakes_are_told_and_the_others_counted(tmp_path):
    rows = "".join(f"empty,rest {i},empty,0.4,0,0\n" for i in range(50))
    with pytest.raises(ck.CmdpkitError) as caught:
        read(tmp_path, PLAIN + rows)
    first, *rest = str(caught.value).splitlines()
    assert first.endswith("has 50 mistakes:") and len(rest) == 21 and rest[-1] == "... and 30 more"


def test_all_mistakes_of_a_toml_file_are_told_at_once(tmp_path):
    path = ck.write_model(ck.read_model(_written(tmp_path)), tmp_path / "model.toml")
    text = (
        path.read_text(encoding="utf-8").replace("reward = 1.5", 'reward = "much"').replace("busy = 0.6", "buzy = 0.6")
    )
    with pytest.raises(ck.CmdpkitError, match=r"model\.toml has 2 mistakes:\n.*'buzy'.*\n.*'much'.*"):
        read(tmp_path, text, "model.toml")


def _written(folder: Path) -> Path:
    path = folder / "plain.csv"
    path.write_text(PLAIN, encoding="utf-8")
    return path


def test_a_policy_with_semicolons_and_decimal_commas_is_read(tmp_path):
    path = tmp_path / "policy.csv"
    path.write_text(
        '# states = ["a"]\n# actions = ["x", "y"]\n# horizon = 1\nstep;state;action;probability\n'
        "1;a;x;0,25\n1;a;y;75 %\n",
        encoding="utf-8",
    )
    assert ck.read_policy(path).pi.tolist() == [[[0.25, 0.75]]]
