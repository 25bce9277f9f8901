"""What a report tells to type makes the same runs, and it says what is proved about a policy."""

import cmdpkit as ck
from cmdpkit.results.report import problems, render
from cmdpkit.results.study import Study, model_of
from cmdpkit.running.learning import learn_many


def test_the_command_of_the_box_makes_the_same_runs():
    """Bounds, noise and parameters included: what the command asks for has the keys of the records."""
    asked = {"bounds": {"utility": 1.9}, "noise": "bernoulli", "eta": 4.0}
    made = learn_many("paper/synthetic", "triple-q", episodes=50, seeds=(2, 3), **asked)
    (command,) = problems(Study(tuple(made)))[0]["reproduction"]["commands"]
    loop, call = command.split(": ", 1)
    assert loop == "for seed in [2, 3]"
    assert [eval(call, {"ck": ck, "seed": seed}).run.key for seed in (2, 3)] == [r.run.key for r in made]
    assert model_of(made[0].run) is not None


def test_the_command_of_a_run_with_readings_or_of_unknown_length_has_its_key():
    """Both were given as plain runs of so many episodes, which have other keys; and imported runs got commands too."""
    made = ck.learn("paper/synthetic", "cl-pri", stop=40)
    theirs = ck.import_run("paper/synthetic", "theirs", policies=[(5, made.policy)])
    (command,) = problems(Study((made, theirs)))[0]["reproduction"]["commands"]
    assert command == "for seed in [0]: ck.learn('paper/synthetic', 'cl-pri', seed=seed, stop=40, preset='practical')"
    assert "Reproduce" not in render(Study((theirs,))) and "Reproduce" in render(Study((made,)))
    read = ck.learn("paper/synthetic", "dual-q", episodes=40, readings=[7])
    (command,) = problems(Study((read,)))[0]["reproduction"]["commands"]
    again = eval(command.partition(": ")[2], {"ck": ck, "seed": 0})
    assert again.run == read.run and 7 in again.curves["episode"]


def test_the_command_names_a_baseline_and_not_its_digest():
    safe = ck.solve(ck.load("paper/synthetic").with_bounds(utility=2.05)).policy
    made = ck.learn("paper/synthetic", "dope", episodes=20, baseline=safe)
    (command,) = problems(Study((made,)))[0]["reproduction"]["commands"]
    assert command.endswith(", baseline=baseline)")


def test_what_is_proved_about_a_policy_is_on_the_page():
    record = ck.learn("paper/synthetic", "opt-cmdp", episodes=2000, seed=1)
    assert record.certificate.sentence.startswith("at most ")
    assert record.certificate.sentence in render(Study((record,)))
