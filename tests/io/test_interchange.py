"""Models in the explicit files of PRISM, there and back, and what they mean."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app

# A machine that is kept or repaired, by hand in PRISM's format: keeping it earns 1 (2 where it stays good), and it
# breaks with probability 0.25; repairing costs one hour of work.
TRA = """\
2 3 4
0 0 0 0.75 keep
0 0 1 0.25 keep
1 0 1 1 keep
1 1 0 1 repair
"""
STA = "(s)\n0:(good)\n1:(broken)\n"
LAB = '0="init" 1="deadlock"\n0: 0\n'
STATE_REWARD = "2 1\n0 1\n"
TRANSITION_REWARD = "2 3 1\n0 0 0 1\n"
WORK = "2 3 1\n1 1 0 1\n"


def written(folder: Path, **changed: str) -> Path:
    files = {"m.tra": TRA, "m.sta": STA, "m.lab": LAB, "m.srew": STATE_REWARD, "m.trew": TRANSITION_REWARD}
    for name, text in {**files, "work.rew": WORK, **changed}.items():
        (folder / name).write_text(text)
    return folder / "m.tra"


def read(folder: Path, start=None, **changed: str) -> ck.CMDP:
    path = written(folder, **changed)
    rewards = {"money": [folder / "m.srew", folder / "m.trew"], "work": folder / "work.rew"}
    bound = [ck.at_most("work", 0.5)]
    return ck.read_explicit(path, rewards=rewards, reward="money", constraints=bound, start=start, horizon=4)


@pytest.mark.parametrize("states", [[7, 3], ["a b", "c"], [(0, 1), (1, 0)], [-1, 0]], ids=str)
def test_names_come_back_from_the_files_of_prism(states, tmp_path):
    """They were in brackets in PRISM's files, so that a policy for the model did not fit what was read back."""
    cmdp = ck.CMDP(np.full((2, 1, 2), 0.5), np.ones((2, 1)), horizon=3, states=states)
    ck.write_explicit(cmdp, tmp_path / "m.tra")
    again = ck.read_explicit(tmp_path / "m.tra", reward="reward", horizon=3)
    assert list(map(str, again.states)) == list(map(str, states))
    assert ck.evaluate(again, ck.Policy.uniform(cmdp)).v == pytest.approx(3.0)


def test_prism_files_written_by_hand_give_the_model_they_describe(tmp_path):
    cmdp = read(tmp_path)
    assert list(cmdp.states) == ["good", "broken"] and list(cmdp.action_names) == ["keep", "repair"]
    assert cmdp.actions[0].tolist() == [[True, False], [True, True]]
    assert cmdp.P[0, 0, 0].tolist() == [0.75, 0.25] and cmdp.P[0, 1, 1].tolist() == [1.0, 0.0]
    assert cmdp.r[0].tolist() == [[1.75, 0.0], [0.0, 0.0]]  # 1 for the state, and 1 with probability 0.75
    assert (-cmdp.g[0, 0]).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert cmdp.mu.tolist() == [1.0, 0.0] and str(cmdp.constraints[0]) == "work ≤ 0.5"


def test_probabilities_of_a_foreign_file_are_divided_by_their_sum_on_request(tmp_path):
    """The error said so, but neither the function nor the command could do it."""
    path = written(tmp_path, **{"m.tra": TRA.replace("0.75", "0.5")})
    rewards = {"reward": tmp_path / "m.srew"}
    with pytest.raises(ck.CmdpkitError, match=r"sums to 0\.75.*renormalise=True"):
        ck.read_explicit(path, rewards=rewards, reward="reward", horizon=4)
    cmdp = ck.read_explicit(path, rewards=rewards, reward="reward", horizon=4, renormalise=True)
    assert cmdp.P[0, 0, 0].tolist() == pytest.approx([2 / 3, 1 / 3])
    (tmp_path / "m.reward.rew").write_text(STATE_REWARD)
    told = CliRunner().invoke(app, ["convert", str(path), str(tmp_path / "m.npz"), "--horizon", "4", "--renormalise"])
    assert told.exit_code == 0 and ck.read_model(tmp_path / "m.npz").P[0, 0, 0, 1] == pytest.approx(1 / 3)


def test_choices_without_names_and_states_without_a_file_are_numbered(tmp_path):
    path = written(tmp_path, **{"m.tra": TRA.replace(" keep", "").replace(" repair", "")})
    (tmp_path / "m.sta").unlink()
    (tmp_path / "m.lab").unlink()
    cmdp = ck.read_explicit(path, rewards={"r": tmp_path / "m.srew"}, reward="r", discount=0.9)
    assert list(cmdp.states) == [0, 1] and list(cmdp.action_names) == [0, 1] and cmdp.mu.tolist() == [1.0, 0.0]


def test_two_choices_of_a_state_with_one_name_stay_two(tmp_path):
    cmdp = read(tmp_path, **{"m.tra": TRA.replace("repair", "keep")})
    assert list(cmdp.action_names) == ["keep", "keep (2)"]


@pytest.mark.parametrize("name", ["treatment", "streaming"])  # the names of streaming have spaces
def test_a_model_comes_back_as_it_was_and_with_the_same_optimum(tmp_path, name):
    cmdp = ck.load(name)
    path = ck.write_explicit(cmdp, tmp_path / "model.tra")
    assert len(list(tmp_path.iterdir())) == 4 + cmdp.N
    again = ck.read_explicit(path, reward="reward", constraints=cmdp.constraints, horizon=cmdp.H)
    order = [list(map(str, again.action_names)).index("_".join(str(a).split())) for a in cmdp.action_names]
    assert np.array_equal(again.P[:, :, order], cmdp.P) and np.array_equal(again.actions[..., order], cmdp.actions)
    for mine, theirs in ((again.r, cmdp.r), (again.g, cmdp.g)):  # rewards of transitions are averaged
        assert mine[..., order] == pytest.approx(theirs, rel=1e-14, abs=0)
    assert ck.solve(again).value == pytest.approx(ck.solve(cmdp).value, abs=1e-9)


BAD = {
    "cut short": (
        {"m.tra": TRA[: TRA.rindex("1 1")]},
        r"m\.tra: 2, 3, 4 states, .* the file has 2, 2, 3 .*; is it complete\?",
    ),
    "not a number": ({"m.tra": TRA.replace("0.75", "most")}, r"m\.tra:2: 'most', expected a finite number"),
    "a chain": ({"m.tra": "2 2\n0 0 1\n1 1 1\n"}, r"m\.tra:1: '2 2', expected the numbers of states, choices and"),
    "too few words": ({"m.tra": TRA.replace("0 0 1 0.25 keep", "0 0 1")}, r"m\.tra:3: '0 0 1', expected state, choice"),
    "a sum": ({"m.tra": TRA.replace("0.25", "0.35")}, r"sums to 1\.1, expected 1"),
    "reward of nowhere": ({"m.srew": "2 1\n7 1\n"}, r"m\.srew:2: '7 1', expected a state of the model"),
    "state name": ({"m.sta": "(s)\n0:(good)\nbroken\n"}, r"m\.sta:3: 'broken', expected a number below 2, a colon"),
    "more states than choices": (
        {"m.tra": "9" * 15 + TRA[TRA.index(" ") :]},
        r"m\.tra: 9{15}, 3, 4 states, .* the file has 2, 3, 4 .*every state needs",
    ),
    "a state beyond counting": (
        {"m.tra": "9" * 400 + TRA[TRA.index(" ") :]},
        r"m\.tra:1: .*, expected the numbers of states",
    ),
    "a start beyond counting": ({"m.lab": f'0="init"\n{"9" * 400}: 0\n'}, r"m\.lab:2: .*, expected a state below 2"),
    "a state beyond the others": ({"m.tra": TRA.replace("0 0 1", "0 0 2")}, r"m\.tra:3: .*expected states below 2, as"),
    "a digit of another script": ({"m.tra": TRA.replace("0 0 1", "0 0 ²")}, r"m\.tra:3: '²', expected a whole number"),
    "several starts": (
        {"m.lab": '0="init"\n0: 0\n1: 0\n'},
        r"m\.lab: the label .init. names 2 initial states, expected one; give .* start=",
    ),
    "no start": ({"m.lab": '0="init"\n'}, r"m\.lab: the label .init. names 0 initial states, expected one; .* start="),
}


@pytest.mark.parametrize(("changed", "said"), BAD.values(), ids=BAD)
def test_broken_files_are_refused_with_place_value_and_rule(tmp_path, changed, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        read(tmp_path, **changed)


@pytest.mark.parametrize(("start", "mu"), [({"good": 0.25, "broken": 0.75}, [0.25, 0.75]), ("broken", [0.0, 1.0])])
def test_a_start_that_is_given_settles_what_several_initial_states_leave_open(start, mu, tmp_path):
    assert read(tmp_path, start, **{"m.lab": '0="init"\n0: 0\n1: 0\n'}).mu.tolist() == mu


def test_the_binary_format_is_refused_with_what_replaces_it(tmp_path):
    machine, told = ck.load("machine"), r"m\.umb: \.umb is not read or written; use model\.tra, which PRISM converts"
    calls = (lambda path: ck.write_explicit(machine, path), lambda path: ck.read_explicit(path, reward="r", horizon=3))
    for call in (*calls, ck.read_model):
        with pytest.raises(ck.CmdpkitError, match=told):
            call(tmp_path / "m.umb")


def test_unknown_structures_and_files_without_any_are_refused(tmp_path):
    path = written(tmp_path)
    with pytest.raises(ck.CmdpkitError, match=r"unknown reward structure 'mony'; did you mean 'money'\?"):
        ck.read_explicit(path, rewards={"money": tmp_path / "m.srew"}, reward="mony", horizon=3)
    with pytest.raises(ck.CmdpkitError, match=r"there is no reward structure; give files"):
        ck.read_explicit(path, reward="money", horizon=3)


def test_what_the_formats_cannot_say_is_refused(tmp_path):
    timed = ck.CMDP(np.ones((1, 1, 1)), [[[1.0]], [[2.0]]], horizon=2)
    with pytest.raises(ck.CmdpkitError, match="depends on the step"):
        ck.write_explicit(timed, tmp_path / "m.tra")
    spread = ck.CMDP(np.full((2, 1, 2), 0.5), [[1.0], [0.0]], mu=[0.5, 0.5], horizon=2)
    with pytest.raises(ck.CmdpkitError, match="starts in several states"):
        ck.write_explicit(spread, tmp_path / "m.tra")


def test_the_command_line_converts_there_and_back(tmp_path):
    out, back = tmp_path / "t.tra", tmp_path / "t.toml"
    assert CliRunner().invoke(app, ["convert", "treatment", str(out)]).exit_code == 0
    bounds = ["--constraint", "toxicity<=6", "--constraint", "spending<=20", "--horizon", "12"]
    done = CliRunner().invoke(app, ["convert", str(out), str(back), *bounds])
    assert done.exit_code == 0, done.stderr
    assert ck.solve(ck.read_model(back)).value == pytest.approx(ck.solve(ck.load("treatment")).value, abs=1e-9)
    assert CliRunner().invoke(app, ["convert", "treatment", str(tmp_path / "x.toml"), "--horizon", "3"]).exit_code == 2


def test_nothing_is_replaced_unless_asked_for(tmp_path):
    cmdp = read(tmp_path)
    (tmp_path / "n.lab").write_text("mine")
    with pytest.raises(ck.CmdpkitError, match=r"n\.lab exists already"):
        ck.write_explicit(cmdp, tmp_path / "n.tra")
    assert not (tmp_path / "n.tra").exists() and (tmp_path / "n.lab").read_text() == "mine"
