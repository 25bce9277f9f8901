"""Thirty mistakes that users make: each message names the place, the value, the rule and the next step.

Where the rule says what to give ("at least 1"), it is the next step as well.
"""
# ruff: noqa: E501 - a table of cases reads best with a case per line

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.results.figures.style import save

pytestmark = pytest.mark.compiled

P = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]])
HEAT = np.array([[0.0, 1.0], [0.0, 0.0]])
NAMES = {"states": ["cold", "hot"], "action_names": ["run", "cool"]}
COLUMNS = ["episode", "step", "state", "action", "reward", "cost", "next_state"]
ROWS = [(1, 1, "a", "go", 1.0, 0.5, "b"), (1, 2, "b", "go", 1.0, 0.5, "a"), (2, 1, "a", "stay", 0.0, 0.0, "a")]


def model(**changes):
    heat = [ck.at_most("heat", 2.0, HEAT)]
    return ck.CMDP(**{"P": P, "r": [[1.0, 3.0], [2.0, 0.0]], "horizon": 10, "constraints": heat, **NAMES, **changes})


def made(**changes):
    given = {"start": 0, "horizon": 5, "actions": ["serve", "rest"], "step": lambda s, a: {min(s + 1, 3): 1.0}}
    return ck.CMDP.from_function(**{**given, "reward": lambda s, a: 1.0, **changes})


def log(rows=ROWS, columns=COLUMNS, **changes):
    return ck.from_log(rows, **{"columns": columns, "horizon": 2, "constraints": [ck.at_most("cost", 1.0)], **changes})


def csv(line, separator=","):
    head = '# horizon = 5\n# start = "on"\n'
    columns = separator.join(["state", "action", "next_state", "probability", "reward"])
    Path("model.csv").write_text(f"{head}{columns}\n{line}\n", encoding="utf-8")
    return ck.read_model("model.csv")


def experiment(text):
    Path("try.toml").write_text(text, encoding="utf-8")
    return ck.Experiment.load("try.toml")


def over_a_file():
    Path("plan.json").write_text("mine", encoding="utf-8")
    ck.write_policy(ck.Policy.uniform(MODEL), "plan.json")


MODEL = model()
EXPERIMENT = 'episodes = 5\nseeds = 1\nenvironments = ["paper/synthetic"]\nalgorithms = ["triple-q"]\n'
FROZEN = {"episodes": 3, "constraints": [ck.at_most("falls", 0.5)]}

MISTAKES = {
    "P with an axis too few": (lambda: model(P=P[0]), ["P has shape", "(2, 2)", "expected (S, A, S)", "P[s, a] is the distribution of the next state"]),
    "r transposed": (lambda: ck.CMDP(np.full((2, 3, 2), 0.5), np.zeros((3, 2)), horizon=5), ["S = 3 and A = 2 as in r", "expected (S, A, S)", "np.swapaxes(r"]),
    "P in the order of older toolboxes": (lambda: ck.CMDP(np.full((3, 2, 2), 0.5), np.zeros((2, 3)), horizon=5), ["P has shape (3, 2, 2)", "expected (S, A, S)", "np.swapaxes(P"]),
    "probabilities that do not sum to 1": (lambda: model(P=P * 0.97), ["state 'cold', action 'run'", "sums to 0.97", "expected 1", "renormalise=True"]),
    "probabilities in percent": (lambda: made(step=lambda s, a: {0: 70, 1: 30}), ["step(0, 'serve')", "sum to 100", "expected 1", "it returned {0: 70, 1: 30}", "renormalise=True"]),
    "a misspelt state": (lambda: model(mu="clod"), ["unknown state", "'clod'", "did you mean 'cold'"]),
    "a constraint without a signal": (lambda: model(constraints=[ck.at_most("heat", 2.0)]), ["constraint 'heat'", "needs a signal array (S, A)", "at_most('heat', 2, signal)"]),
    "a bound in another unit": (lambda: ck.solve(model(constraints=[ck.at_least("heat", 2000.0, HEAT)])), ["heat ≥ 2000", "cannot be met", "the best any policy reaches is 6.88867"]),
    "horizon and discount together": (lambda: model(discount=0.9), ["horizon = 10 and discount = 0.9", "expected exactly one", "leave the others out"]),
    "a discount in percent": (lambda: model(horizon=None, discount=95), ["discount is 95", "above 0 and below 1", "criterion='average'"]),
    "a rule with an unknown action": (lambda: ck.Policy.of(MODEL, lambda s: "colo"), ["rule('cold')", "'colo'", "expected the name of an action", "did you mean 'cool'"]),
    "a rule that leaves a state out": (lambda: ck.Policy.of(MODEL, {"cold": "run"}), ["the rule has no action", "'hot'", "name one for every state"]),
    "a step out of the listed states": (lambda: made(states=[0, 1], step=lambda s, a: {s + 1: 1.0}), ["step(1, 'serve')", "leads to 2", "not among the states", "list it in states"]),
    "a reward that is not a number": (lambda: made(reward=lambda s, a: float("nan")), ["reward(0, 'serve')", "is nan", "expected a finite number", "left out of the actions"]),
    "a reward with an unknown parameter": (lambda: made(reward=lambda s, a, z: 1.0), ["reward takes (s, a, z)", "z could be anything", "expected (state, action)", "s_next"]),
    "a log with a missing column": (lambda: log([x[:4] + x[5:] for x in ROWS], [c for c in COLUMNS if c != "reward"]), ["the log has no column 'reward'", "known are episode", "columns={'reward': ...}"]),
    "a log with text for a number": (lambda: log([(1, 1, "a", "go", "n/a", 0.5, "b")]), ["row 1: reward", "'n/a'", "expected a number", "correct"]),
    "a log without the constraint's column": (lambda: log(constraints=[ck.at_most("coast", 1.0)]), ["no column 'coast'", "did you mean 'cost'", "columns={'coast': ...}"]),
    "a log that jumps over a step": (lambda: log([ROWS[0], (1, 3, "b", "go", 1.0, 0.5, "a")], horizon=3), ["row 2: episode 1", "2 after the row before", "expected 1", "correct the steps"]),
    "a log whose states do not follow": (lambda: log([(1, 1, "a", "go", 1.0, 0.5, "a"), *ROWS[1:]]), ["row 1: next_state is 'a'", "next row of this episode is in state 'b'", "correct one of them"]),
    "confidence in percent": (lambda: log().solve(confidence=95), ["confidence is 95", "expected a number from 0.5", "such as 0.95"]),
    "the policy of another model": (lambda: ck.evaluate(MODEL, ck.Policy.uniform(ck.load("paper/synthetic"))), ["the policy has shape (3, 3, 3)", "(H, S, A) = (10, 2, 2)", "made for this model"]),
    "a stationary policy for a horizon": (lambda: ck.evaluate(MODEL, ck.Policy.stationary([[1.0, 0.0], [0.0, 1.0]])), ["the policy is stationary", "totals over 10 steps", "one for every step", "policy.repeated(H)"]),
    "policies to compare without names": (lambda: ck.compare_policies(MODEL, [ck.Policy.uniform(MODEL)]), ["policies is a list", "expected a mapping", "{'my rule': policy}"]),
    "a state missing in a rule to compare": (lambda: ck.compare_policies(MODEL, {"mine": {"cold": "run"}}), ["policies['mine']", "no action for state", "name one for every state"]),
    "a percentage without its sign": (lambda: csv("on,run,on,100,1"), ["model.csv:4", "sum to 100", "expected 1 within", "renormalise=True"]),
    "thousands separators": (lambda: csv("on;run;on;1;1.000,5", ";"), ["model.csv:4", "reward is '1.000,5'", "expected a number such as 1000.5"]),
    "a file that exists": (over_a_file, ["plan.json", "exists already", "overwrite=True"]),
    "an unknown environment": (lambda: ck.load("paper/gird"), ["'paper/gird'", "no such file and no such environment", "did you mean 'paper/grid'"]),
    "an unknown algorithm": (lambda: ck.learn("paper/synthetic", "triple_qq", episodes=5), ["unknown algorithm 'triple_qq'", "did you mean 'triple-q'"]),
    "no episodes": (lambda: ck.simulate_policy(MODEL, ck.Policy.uniform(MODEL), 0), ["episodes is 0", "expected a whole number, at least 1"]),
    "a negative seed": (lambda: ck.simulate_policy(MODEL, ck.Policy.uniform(MODEL), 5, seed=-1), ["seed is -1", "expected a whole number from 0"]),
    "an experiment with an unknown key": (lambda: experiment(EXPERIMENT + "episods = 3\n"), ["try.toml:5", "unknown key 'episods'", "did you mean 'episodes'"]),
    "a Gymnasium environment without cost": (lambda: ck.learn(gymnasium.make("FrozenLake-v1"), "triple-q", **FROZEN), ["episode 1, step 1", 'info has no "cost"', "for 1 constraints", "cmdpkit.gym.WithCost"]),
}  # fmt: skip


SOLUTION = ck.solve(MODEL)
PLAYED = ck.simulate_policy(MODEL, SOLUTION.policy, 10)
RNG = np.random.default_rng(0)


def policy_file(text):
    Path("rule.csv").write_text(text, encoding="utf-8")
    return ck.read_policy("rule.csv", MODEL)


def log_file(text):
    Path("log.csv").write_text(text, encoding="utf-8")
    return ck.from_log("log.csv", horizon=2)


def illegal_action():
    env = ck.load("queue").to_gym()
    env.reset(seed=0)
    env.step(5)


MORE = {
    "evaluating a function": (lambda: ck.evaluate(MODEL, lambda s: "run"), ["the policy is a function", "expected a Policy", "Policy.of(cmdp, rule)"]),
    "simulating a solution": (lambda: ck.simulate_policy(MODEL, SOLUTION, 10), ["the policy is a Solution", "expected a Policy", "in its attribute policy"]),
    "explaining a mapping": (lambda: ck.explain(MODEL, "cold", 1, {"cold": "run"}), ["the policy is a dict", "expected a Policy", "Policy.of(cmdp, rule)"]),
    "simulating a mixture": (lambda: ck.simulate_policy(MODEL, SOLUTION.mixture, 10), ["the policy is a Mixture", "expected a Policy", "cmdpkit.markov"]),
    "solving a name": (lambda: ck.solve("queue"), ["the model is 'queue'", "expected a CMDP", "cmdpkit.load("]),
    "diagnosing an estimate": (lambda: ck.diagnose(log()), ["the model is Estimate", "expected a CMDP", "in its attribute cmdp"]),
    "the trade-off of a file": (lambda: ck.tradeoff("m.toml", "heat"), ["the model is 'm.toml'", "expected a CMDP", "cmdpkit.load"]),
    "explaining a name": (lambda: ck.explain("queue", "empty", 1), ["the model is 'queue'", "expected a CMDP", "cmdpkit.load"]),
    "half a point": (lambda: ck.tradeoff(MODEL, "heat", 2.5), ["n is 2.5", "expected a whole number of points, at least 1"]),
    "an unknown bound": (lambda: MODEL.with_bounds(haet=1.0), ["unknown constraint 'haet'", "did you mean 'heat'"]),
    "name and bound exchanged": (lambda: ck.at_most(2.0, "heat", HEAT), ["a constraint's name", "got 2.0", "non-empty string", "at_most(name, bound, signal)"]),
    "the same next state twice": (lambda: made(step=lambda s, a: {min(s + 1, 3): 0.5, min(s + 2, 3): 0.5}), ["step(2, 'serve')", "sum to 0.5", "expected 1", "{3: 0.5}", "add their probabilities up"]),
    "more steps than states": (lambda: SOLUTION.policy.act_many([1, 2, 3], ["cold"] * 2, RNG), ["3 steps for 2 states", "expected one step, or one for each state"]),
    "one state for many": (lambda: SOLUTION.policy.act_many(1, "cold", RNG), ["states is 'cold'", "expected a list or array"]),
    "an action without a generator": (lambda: ck.Policy.uniform(MODEL).act(1, "cold"), ["rng is missing", "randomises in state 'cold'", "rng=np.random.default_rng(seed)"]),
    "a limit as text": (lambda: PLAYED.above("heat", "2"), ["limit is '2'", "expected a number", "units of the total"]),
    "nothing to compare": (lambda: ck.compare_policies(MODEL, {}), ["policies is empty", "expected a mapping", "{'my rule': policy}"]),
    "simplifying a model": (lambda: ck.simplify(MODEL), ["solution is a CMDP", "expected what cmdpkit.solve(model) returns"]),
    "simplifying by a percentage": (lambda: ck.simplify(SOLUTION, 5), ["within is 5", "expected a share", "0.01 for 1 %"]),
    "a rule with two actions in a state": (lambda: policy_file("state,action\ncold,run\ncold,cool\nhot,run\n"), ["rule.csv:3", "'cold'", "in line 2", "leave one of them out"]),
    "a rule without a state": (lambda: policy_file("state,action\ncold,run\n"), ["rule.csv", "no decision in state 'hot'", "add one for every state"]),
    "a rule with a misspelt action": (lambda: policy_file("state;action\ncold;run\nhot;coll\n"), ["rule.csv:3", "unknown action 'coll'", "did you mean 'cool'"]),
    "a rule with other columns": (lambda: policy_file("State,action\ncold,run\n"), ["rule.csv:1", "unknown key 'State'", "did you mean 'state'"]),
    "a folder that is not there": (lambda: ck.write_policy(SOLUTION, "plans/best.csv"), ["cannot write plans/best.csv", "No such file", "make the folder plans first"]),
    "a policy for a word processor": (lambda: ck.write_policy(SOLUTION, "best.docx"), ["best.docx", "unknown suffix '.docx'", "expected one of .json"]),
    "a figure as text": (lambda: save(SOLUTION.plot(), Path("best.txt")), ["best.txt", "unknown suffix '.txt'", "expected one of .png"]),
    "an empty log": (lambda: log_file(""), ["log.csv: there is no line of column names", "expected one above the rows"]),
    "a log with a short row": (lambda: log_file("episode,state,action,reward,next_state\n1,a,go,1\n"), ["log.csv:2", "has 4 cells", "expected 5", "episode, state"]),
    "a log with a decimal comma in a frame": (lambda: log([(1, 1, "a", "go", "1,5", 0.5, "b")]), ["row 1: reward", "'1,5'", "expected a number such as 1000.5", "correct it"]),
    "a log with a row twice": (lambda: log([*ROWS, ROWS[0]]), ["row 4", "episode 1 has a step twice", "correct the steps"]),
    "a constraint as text": (lambda: log(constraints=["cost<=1"]), ["'cost<=1'", "at_least(...) or at_most(...)"]),
    "a model without a start": (lambda: csv_without_head(), ["plain.csv", "'start' is missing", "# start = ..."]),
    "an action that does not exist": (illegal_action, ["step 1, state 'empty'", "no action 'refuse fast'", "info['action_mask']"]),
}  # fmt: skip


def csv_without_head():
    Path("plain.csv").write_text("state,action,next_state,probability,reward\non,run,on,1,1\n", encoding="utf-8")
    return ck.read_model("plain.csv")


ALL = {**MISTAKES, **MORE}


@pytest.mark.parametrize(("attempt", "words"), ALL.values(), ids=ALL)
def test_a_mistake_is_answered_with_place_value_rule_and_next_step(attempt, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ck.CmdpkitError, ck.RunFailed)) as error:
        attempt()
    for word in words:
        assert word in str(error.value)
