"""Arrays in every form that people have, wherever the public API takes one: the same numbers give the same result.

`CALLS` has a call for every parameter that takes an array, and `NO_ARRAY` the other parameters whose annotation would
allow one, with the reason; the name of a function alone stands for all of its parameters. A parameter in neither of
them fails the first test, so that no new function escapes.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cmdpkit as ck
import gym_line
from cmdpkit.learners import Spec
from public_api import array_parameters

H, S, A = 3, 4, 2
RNG = np.random.default_rng(5)
# All numbers are multiples of 1/16, which every precision holds exactly.
P = RNG.multinomial(16, np.full(S, 1 / S), size=(H, S, A)) / 16
R = RNG.integers(0, 17, size=(H, S, A)) / 16
G = RNG.integers(0, 17, size=(2, H, S, A)) / 16
PI = RNG.multinomial(16, np.full(A, 1 / A), size=(H, S)) / 16
PI[0, 1], PI[2, 3] = (1, 0), (0, 1)
MASK = np.array([[[True, s % 3 > 0] for s in range(S)]] * 2 + [[[True, True]] * S])
CHOICE = RNG.integers(0, A, size=(H, S))
BOUNDS = [ck.at_most("cost", 3.0, G[0]), ck.at_least("use", 0.5, G[1])]
MODEL = ck.CMDP(P, R, constraints=BOUNDS)
DISCOUNTED = ck.CMDP(P[0], R[0], discount=0.5)
LONG_RUN = ck.CMDP(P[0], R[0], discount=0.5, states=["n", "e", "s", "w"])
POLICY = ck.Policy.of(MODEL, PI)
KERNEL = MODEL.kernel
ENTRIES = KERNEL.rows, KERNEL.successors.astype(np.int64), KERNEL.prob
FIRST = P[0].reshape(S * A, S)
LOG = {
    "episode": np.repeat(np.arange(40), 2),
    "state": np.tile([3, 5], 40),
    "action": np.repeat([0, 1, 1, 0], 20),
    "reward": np.tile([0.25, 1.0, 0.5], 27)[:80],
    "next_state": np.tile([5, 3], 40),
}


def _list(x: Any) -> Any:
    return x.tolist()


def _fortran(x: Any) -> Any:
    return np.array(x, order="F")


def _strided(x: Any) -> Any:
    """Every second entry along every axis of a larger array that holds something else in between."""
    large = np.full([2 * n for n in x.shape], x.reshape(-1)[0], dtype=x.dtype)
    every_second = tuple(slice(None, None, 2) for _ in x.shape)
    large[every_second] = x
    return large[every_second]


def _reversed(x: Any) -> Any:
    """The array as a view with negative strides."""
    backwards = tuple(slice(None, None, -1) for _ in x.shape)
    return np.array(x[backwards])[backwards]


def _read_only(x: Any) -> Any:
    copy = np.array(x)
    copy.flags.writeable = False
    return copy


def _smaller(x: Any) -> Any:
    return x.astype({"f": np.float32, "i": np.int32}.get(x.dtype.kind, x.dtype))


def _other_bytes(x: Any) -> Any:
    """The byte order that this machine does not have, as files may."""
    return x.astype(x.dtype.newbyteorder())


FORMS: dict[str, Callable[[Any], Any]] = {
    "a list": _list,
    "Fortran order": _fortran,
    "strided": _strided,
    "reversed": _reversed,
    "read-only": _read_only,
    "single precision": _smaller,
    "other byte order": _other_bytes,
}


def _line(**given: Any) -> Any:
    """A world with two states, an action to walk and one to wait, and a cost."""
    ranges = {"reward_range": (0.0, 2.0), **given}
    return ck.gym.GymWorld(gym_line.Line(), [ck.at_most("cost", 2.0)], horizon=3, **ranges)


def _function(**given: Any) -> ck.CMDP:
    described = {"start": 0, "horizon": 2, "actions": [0, 1], "states": [0, 1, 2], **given}
    return ck.CMDP.from_function(step=lambda s, a: {(s + a) % 3: 1.0}, reward=lambda s, a: float(s == a), **described)


def _learned(w: Any) -> Any:
    """A run of an algorithm that must be told the totals of a safe policy."""
    safe = ck.Policy.deterministic(np.zeros((H, S), int), A)
    w_safe = {"baseline": safe, "baseline_utility": w}
    run = ck.learn(MODEL.with_bounds(cost=12.0, use=0.0), "opt-pess-lp", episodes=2, seed=1, **w_safe)
    return run.curves["regret"]


RETURNS = np.array([[1.0, 0.5, 0.25], [0.75, 1.5, 0.5]])
OTHER = RNG.integers(0, 17, size=(H, S, A)) / 16
ROWS = np.array([[0, 1], [2, 3], [1, 0], [1, 3]]), np.array([[0.25, 0.75], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])


# For every parameter: arrays, and what is called with each of them.
def _plan_of(today):
    with tempfile.TemporaryDirectory() as folder:
        return ck.plan_report(MODEL, f"{folder}/plan.html", {"mine": today}, episodes=10).read_text(encoding="utf-8")


CALLS: dict[str, tuple[Callable[[Any], Any], list[np.ndarray]]] = {
    "CMDP(P)": (lambda x: ck.CMDP(x, R, constraints=BOUNDS), [P]),
    "CMDP(P) without steps": (lambda x: ck.CMDP(x, R[0], horizon=2), [P[0]]),
    "CMDP(r)": (lambda x: ck.CMDP(P, x), [R]),
    "CMDP(r) without steps": (lambda x: ck.CMDP(P, x), [R[0]]),
    "CMDP(g)": (lambda x: ck.CMDP(P, R, x, [0.5, 0.25]), [G]),
    "CMDP(rho)": (lambda x: ck.CMDP(P, R, G, x), [np.array([0.5, 0.25])]),
    "CMDP(mu)": (lambda x: ck.CMDP(P, R, mu=x), [np.array([0.5, 0.25, 0.0, 0.25])]),
    "CMDP(actions)": (lambda x: ck.CMDP(P, R, actions=x), [MASK, MASK[0]]),
    "CMDP(states)": (lambda x: ck.CMDP(P, R, states=x), [np.array([7, 5, 3, 1]), np.array(["n", "e", "s", "w"])]),
    "CMDP(action_names)": (lambda x: ck.CMDP(P, R, action_names=x), [np.array([7, 5]), np.array(["up", "down"])]),
    "CMDP.from_function(actions)": (lambda x: _function(actions=x), [np.array([1, 0])]),
    "CMDP.from_function(actions) of a state": (lambda x: _function(actions=lambda s: x), [np.array([1, 0])]),
    "CMDP.from_function(states)": (lambda x: _function(states=x), [np.array([2, 0, 1])]),
    "CMDP.reformulated(r)": (lambda x: MODEL.reformulated(r=x), [R]),
    "CMDP.reformulated(g)": (lambda x: MODEL.reformulated(g=x), [MODEL.g[:, :, ::-1].copy()]),
    "CMDP.reformulated(allowed)": (lambda x: MODEL.reformulated(allowed=x), [MASK]),
    "CMDP.restrict(actions)": (MODEL.restrict, [MASK, MASK[0]]),
    "Constraint(signal)": (lambda x: ck.CMDP(P, R, constraints=[ck.Constraint("c", "<=", 2.0, x)]), [G[0], G[0, 0]]),
    "Estimate.evaluate(policy)": (lambda x: _promised().evaluate(x).value, [np.array([[0.5, 0.5], [0.0, 1.0]])]),
    "Estimate.certificate(policy)": (
        lambda x: _promised(ranges={"reward": (-10.0, 10.0)}).certificate(x),
        [np.array([[0.5, 0.5], [0.0, 1.0]])],
    ),
    "Grid(cells)": (lambda x: repr(ck.Grid(2, 2, x)), [np.array([[0, 0], [0, 1], [1, 0], [1, 1]])]),
    "Kernel(indptr)": (lambda x: _kernel(indptr=x), [KERNEL.indptr]),
    "Kernel(successors)": (lambda x: _kernel(successors=x), [KERNEL.successors]),
    "Kernel(prob)": (lambda x: _kernel(prob=x), [KERNEL.prob]),
    "Kernel.check(allowed)": (lambda x: KERNEL.check(x, lambda *place: ""), [MASK]),
    "Kernel.from_dense(P)": (ck.Kernel.from_dense, [P]),
    "Kernel.from_entries(rows)": (lambda x: ck.Kernel.from_entries((H, S, A), x, *ENTRIES[1:]), [ENTRIES[0]]),
    "Kernel.from_entries(successors)": (
        lambda x: ck.Kernel.from_entries((H, S, A), ENTRIES[0], x, ENTRIES[2]),
        [ENTRIES[1]],
    ),
    "Kernel.from_entries(prob)": (lambda x: ck.Kernel.from_entries((H, S, A), *ENTRIES[:2], x), [ENTRIES[2]]),
    "Kernel.masked(allowed)": (KERNEL.masked, [MASK]),
    "Mixture(weights)": (lambda x: ck.evaluate(MODEL, ck.Mixture((POLICY, _first()), x)), [np.array([0.25, 0.75])]),
    "Outcomes.from_entries(rows)": (lambda x: _drawn(rows=x), [ENTRIES[0]]),
    "Outcomes.from_entries(successors)": (lambda x: _drawn(successors=x), [ENTRIES[1]]),
    "Outcomes.from_entries(prob)": (lambda x: _drawn(prob=x), [ENTRIES[2]]),
    "Outcomes.from_entries(signals)": (lambda x: _drawn(signals=x), [np.arange(2.0 * len(ENTRIES[0])).reshape(-1, 2)]),
    "Outcomes.masked(allowed)": (lambda x: _drawn().masked(x).entries, [MASK]),
    "Policy(pi)": (ck.Policy, [PI]),
    "Policy(states)": (lambda x: ck.Policy(PI, states=x), [np.array([7, 5, 3, 1])]),
    "Policy(action_names)": (lambda x: ck.Policy(PI, action_names=x), [np.array([7, 5])]),
    "Policy.act_many(steps)": (
        lambda x: POLICY.act_many(x, [1, 2, 3, 4], np.random.default_rng(1)),
        [np.array([1, 2, 3, 1])],
    ),
    "Policy.act_many(states)": (lambda x: POLICY.act_many(1, x, np.random.default_rng(1)), [np.array([4, 2, 2, 1])]),
    "Policy.deterministic(choice)": (lambda x: ck.Policy.deterministic(x, A), [CHOICE]),
    "Policy.of(rule)": (lambda x: ck.Policy.of(MODEL, x), [PI, PI[1]]),
    "Policy.of_choices(choice)": (lambda x: ck.Policy.of_choices(x, ROWS), [CHOICE]),
    "Policy.of_choices(rows)": (lambda x: ck.Policy.of_choices(CHOICE, (x, ROWS[1])), [ROWS[0]]),
    "Policy.of_choices(rows), probabilities": (lambda x: ck.Policy.of_choices(CHOICE, (ROWS[0], x)), [ROWS[1]]),
    "Policy.of_choices(states)": (lambda x: ck.Policy.of_choices(CHOICE, ROWS, states=x), [np.array([7, 5, 3, 1])]),
    "Policy.of_choices(action_names)": (
        lambda x: ck.Policy.of_choices(CHOICE, ROWS, action_names=x),
        [np.array([7, 5])],
    ),
    "Policy.stationary(pi)": (ck.Policy.stationary, [PI[1]]),
    "Policy.stationary(states)": (lambda x: ck.Policy.stationary(PI[1], states=x), [np.array([7, 5, 3, 1])]),
    "Policy.stationary(action_names)": (lambda x: ck.Policy.stationary(PI[1], action_names=x), [np.array([7, 5])]),
    "Policy.stochastic_decisions(reach)": (
        POLICY.stochastic_decisions,
        [(np.arange(H * S).reshape(H, S) % 3 > 0).astype(float)],
    ),
    "at_least(signal)": (lambda x: ck.CMDP(P, R, constraints=[ck.at_least("c", 0.25, x)]), [G[0], G[0, 0]]),
    "at_most(signal)": (lambda x: ck.CMDP(P, R, constraints=[ck.at_most("c", 2.0, x)]), [G[0], G[0, 0]]),
    "Constraint(range)": (lambda x: ck.Constraint("c", "<=", 2.0, range=x).range, [np.array([0.0, 2.0])]),
    "at_least(range)": (lambda x: ck.at_least("c", 2.0, range=x).range, [np.array([0.0, 2.0])]),
    "at_most(range)": (lambda x: ck.at_most("c", 2.0, range=x).range, [np.array([0.0, 2.0])]),
    "compare_policies(policies)": (
        lambda x: ck.compare_policies(MODEL, {"mine": x}).policies[0].value,
        [PI, PI[1]],
    ),
    "operators.bellman(V)": (lambda x: ck.operators.bellman(MODEL, x), [np.array([0.5, -1.0, 0.0, 2.0])]),
    "operators.bellman(x)": (lambda x: ck.operators.bellman(MODEL, np.zeros(S), x), [R, R[0]]),
    "operators.evaluate(policy)": (lambda x: ck.operators.evaluate(MODEL, x), [PI, PI[1], CHOICE, CHOICE[1]]),
    "operators.evaluate(x)": (lambda x: ck.operators.evaluate(MODEL, PI, x), [R, R[0]]),
    "operators.greedy(V)": (lambda x: ck.operators.greedy(MODEL, x), [np.array([0.5, -1.0, 0.0, 2.0])]),
    "operators.greedy(x)": (lambda x: ck.operators.greedy(MODEL, np.zeros(S), x), [R, R[0]]),
    "operators.occupancy(policy)": (lambda x: ck.operators.occupancy(MODEL, x), [PI, PI[1], CHOICE, CHOICE[1]]),
    "operators.push_forward(d)": (
        lambda x: ck.operators.push_forward(MODEL, x, PI),
        [np.array([0.5, 0.25, 0.0, 0.25])],
    ),
    "operators.push_forward(policy)": (
        lambda x: ck.operators.push_forward(MODEL, [1.0, 0.0, 0.0, 0.0], x),
        [PI, PI[1], CHOICE, CHOICE[1]],
    ),
    "operators.resolvent(policy)": (
        lambda x: ck.operators.resolvent(DISCOUNTED, x, np.arange(4.0)),
        [PI[1], CHOICE[1]],
    ),
    "operators.resolvent(x)": (
        lambda x: ck.operators.resolvent(DISCOUNTED, PI[1], x),
        [np.array([0.5, -1.0, 0.0, 2.0])],
    ),
    "plan_report(today)": (lambda x: _plan_of(x), [PI, PI[1]]),
    "from_log(ranges)": (
        lambda x: _promised(ranges={"reward": x}).evaluate(np.eye(2)[[1, 1]]).value,
        [np.array([0.0, 2.0])],
    ),
    "from_log(log)": (lambda x: _promised(reward=x).cmdp, [LOG["reward"]]),
    "from_log(log), states": (lambda x: _promised(state=x).cmdp, [LOG["state"]]),
    "from_log(log), actions": (lambda x: _promised(action=x).cmdp, [LOG["action"]]),
    "gym.GymWorld(allowed)": (
        lambda x: _line(allowed=x).spec(2).allowed,
        [np.array([[True, False], [True, True], [False, True]])],
    ),
    "gym.GymWorld(cost_ranges)": (lambda x: _line(cost_ranges=x).scales, [np.array([[0.0, 2.0]])]),
    "gym.GymWorld(reward_range)": (lambda x: _line(reward_range=x).scales, [np.array([0.0, 2.0])]),
    "import_run(returns)": (
        lambda x: ck.import_run(MODEL, "theirs", returns=x, policy=POLICY).curves["realised_violation"],
        [RETURNS],
    ),
    "learn(baseline_utility)": (_learned, [np.array([0.25, 1.0])]),
    "learn(readings)": (
        lambda x: ck.learn("paper/synthetic", "pri", episodes=40, seed=1, readings=x).curves["episode"],
        [np.array([7, 13])],
    ),
    "learners.Spec(allowed)": (lambda x: Spec(H, S, A, 5, [0.5], x).allowed, [MASK]),
    "learners.Spec(rho)": (lambda x: Spec(H, S, A, 5, x, MASK).rho, [np.array([0.5, 0.25])]),
    "learners.Spec.of(allowed)": (lambda x: Spec.of(MODEL, 5, x).allowed, [MASK]),
    "seed_mean(values)": (ck.seed_mean, [np.array([1.0, 1.25, 1.5])]),
}

NO_ARRAY = {
    "names of states": "from_log(states)",
    "a name, not an array": """
        CMDP.action_index(name) CMDP.state_index(name) Policy.act(state) Policy.probabilities(state) explain(state)
        gym.WithCost.step(action)""",
    "a state or a mapping from states to probabilities": """
        CMDP.from_function(start) read_explicit(start) read_model(start)""",
    "a list of constraints, whose signals are tested with Constraint, at_least and at_most": """
        CMDP(constraints) CMDP.from_function(constraints) CMDP.reformulated(constraints) from_log(constraints)
        gym.GymWorld(constraints) learn(constraints) read_explicit(constraints)
        read_model(constraints) testing.check_env(constraints)""",
    "options of a figure, among them its size in inches": """
 Policy.plot(size) Simplified.plot(options) Solution.plot(options)""",
    "a list of objects that are no numbers": """
        Experiment(algorithms) Experiment(environments) Experiment.of(document) Mixture(policies) bench(algorithms)
        bench(environments) execute(runs) import_run(policies) Study(failures) Study(records)
        Study.only(algos) Study.only(envs) read_explicit(rewards)""",
    "an environment": """
        continue_run(env) gym.GymWorld(env) gym.WithCost(env) learn(env)""",
    "whole numbers that are written to a file": """
        Experiment(seeds) Run(readings) bench(seeds)""",
    "a policy, or for models by functions a solution or a function": """
        EventModel.check_policy(policy) FactoredModel.check_policy(policy) evaluate(policy) simulate_policy(policy)""",
    "three sizes": "Kernel.from_entries(shape) Outcomes.from_entries(shape)",
    "models by functions, whose parts tests/exact/test_large.py compares with arrays": """
        EventModel FactoredModel EventModel.state_index(x) FactoredModel.state_index(x) Part(p) Part(to)
        Part.demand(demand) Part.demand(p) solve(comm)""",
    "True or names": "CMDP(exact) CMDP.from_function(exact)",
    "a file or a data frame, whose kinds are tested with the readers": "read_model(path)",
    "options by name": """
        Learner(params) Study.plot(options) gym.CMDPEnv.reset(options)
        gym.WithCost.reset(options) learners.Episodic(args) learners.Episodic(kwargs) learners.Learner(params)
        testing.Case(params) testing.check_env(options) testing.check_learner(params)""",
    "called by the package with its own arrays": """
        Constraint.without_range(allowed) Constraint.without_range(ends) Constraint.check_size(signal)
        Kernel.in_order Kernel.owning(arrays) Kernel.with_prob(prob) Outcomes(signals)
        Learner.end(actions) Learner.end(signals) Learner.end(states) Learner.last(signals) Learner.next(signals)
        learners.Learner.end(actions) learners.Learner.end(signals) learners.Learner.end(states)
        gym.GymWorld.policy(pi) gym.GymWorld.restore(state)
        gym.GymWorld.sample(pi) learners.Episodic.end(actions) learners.Episodic.end(signals)
        learners.Episodic.end(states) learners.Learner.last(signals) learners.Learner.next(signals)
        learners.Returns(reward) learners.Returns(utilities) testing.Case.learner(allowed)""",
    "results, which the package makes": """
        Certificate Infeasible LargeSolution NoPromise Promise RunRecord Simplified Solution Values""",
}


def _kernel(**given: Any) -> ck.Kernel:
    made = {"indptr": KERNEL.indptr, "successors": KERNEL.successors, "prob": KERNEL.prob} | given
    return ck.Kernel(H, S, A, **made)


def _drawn(**given: Any) -> ck.Outcomes:
    entries = {
        "rows": ENTRIES[0],
        "successors": ENTRIES[1],
        "prob": ENTRIES[2],
        "signals": np.ones((len(ENTRIES[0]), 2)),
    }
    return ck.Outcomes.from_entries((H, S, A), **(entries | given))


def _first() -> ck.Policy:
    return ck.Policy.deterministic(np.zeros((H, S), int), A)


def _promised(ranges: Any = None, **columns: Any) -> ck.Estimate:
    return ck.from_log({**LOG, **columns}, horizon=2, **({} if ranges is None else {"ranges": ranges}))


def _shown(result: Any) -> Any:
    """A result as something that can be compared."""
    if isinstance(result, ck.CMDP):
        solved = ck.solve(result)
        return result.fingerprint(), solved.value, solved.policy.pi.tolist(), list(map(str, result.states))
    if isinstance(result, ck.Policy):
        return result.pi.tolist(), result.choice.tolist(), list(result.states), list(result.action_names)
    if isinstance(result, ck.Outcomes):
        return _shown(result.entries), result.signals.tolist()
    if isinstance(result, ck.Kernel):
        arrays = result.indptr, result.successors, result.prob
        return [(x.dtype, x.flags.c_contiguous, x.flags.writeable, x.tolist()) for x in arrays]
    return result.tolist() if isinstance(result, np.ndarray) else repr(result)


def test_every_parameter_of_the_public_api_that_can_hold_an_array_is_covered():
    called = {name.split(")")[0] + ")" for name in CALLS}
    excused = [name for names in NO_ARRAY.values() for name in names.split()]
    assert len(excused) == len(set(excused)) and not called & set(excused)
    whole = {x for x in array_parameters() if x.split("(")[0] in excused}  # all parameters of a function are excused
    new = array_parameters() - called - set(excused) - whole
    assert not new, f"{sorted(new)}: give each a call in CALLS, or a reason in NO_ARRAY"
    there = array_parameters() | {x.split("(")[0] for x in array_parameters()}
    gone = (called | set(excused)) - there
    assert not gone, f"{sorted(gone)} do not exist any more"


@pytest.mark.parametrize("name", CALLS)
def test_the_form_of_an_array_does_not_matter(name):
    call, arrays = CALLS[name]
    for array in arrays:
        expected = _shown(call(array.copy()))
        for form, made in FORMS.items():
            given = made(array)
            before = given if isinstance(given, list) else given.copy()
            writeable = isinstance(given, np.ndarray) and given.flags.writeable
            result = call(given)
            if writeable:
                assert given.flags.writeable, f"{form}: the caller's array was made read-only"
                assert (given == before).all(), f"{form}: the caller's array was changed"
                if not name.startswith("CMDP.reformulated"):  # which says that it shares its arrays
                    given[...] = given.reshape(-1)[0]  # a result that still looked at it would change now
            assert _shown(result) == expected, f"{name} as {form}"


def _random_decisions(rng, only):
    """Random probabilities of actions: certain ones and draws; ``only`` [S] are the states that have one action."""
    pi = np.zeros((5, 6, 3))
    for h, s in np.ndindex(5, 6):
        pi[h, s] = np.eye(3)[rng.integers(3)] if rng.random() < 0.5 else rng.multinomial(8, [0.5, 0.3, 0.2]) / 8
    pi[:, only] = (1, 0, 0)
    return pi


def _answer(row, names, rng):
    """A decision as a rule may answer: a name where nothing is drawn (or not), or probabilities by name."""
    used = {names[a]: float(row[a]) for a in np.flatnonzero(row)}
    return next(iter(used)) if len(used) == 1 and rng.random() < 0.5 else used


@pytest.mark.parametrize("seed", range(20))
def test_a_rule_of_every_accepted_form_means_the_same_array(seed):
    rng = np.random.default_rng(seed)
    allowed = np.ones((6, 3), dtype=bool)
    only = rng.random(6) < 0.3
    allowed[only] = (True, False, False)
    names = ["x", "y", "z"]
    transitions = rng.dirichlet(np.ones(6), size=(6, 3))
    model = ck.CMDP(transitions, np.zeros((6, 3)), horizon=5, actions=allowed, states=[*"abcdef"], action_names=names)
    pi = _random_decisions(rng, only)
    place = {s: i for i, s in enumerate(model.states)}
    by_step = [[_answer(row, names, rng) for row in rows] for rows in pi]
    steps = [
        pi,
        pi.tolist(),
        lambda s, h: by_step[h][place[s]],
        lambda s, step: by_step[step][place[s]],
        lambda s, h: dict(zip(names, pi[h, place[s]], strict=True)),
        ck.Policy(pi),
        ck.Policy.of_choices(np.asfortranarray(pi.argmax(axis=-1)), _rows(pi)),
    ]
    for i, rule in enumerate(steps):
        assert (ck.Policy.of(model, rule).pi == pi).all(), f"form {i}"
    first = pi[0]
    for i, rule in enumerate((first, lambda s: by_step[0][place[s]], dict(zip(model.states, by_step[0], strict=True)))):
        assert (ck.Policy.of(model, rule).pi == first).all(), f"form {i} without steps"
    choice = pi.argmax(axis=-1)
    sure = np.eye(3)[choice]
    named = dict(zip(model.states, np.array(names)[choice[0]].tolist(), strict=True))
    for i, rule in enumerate((sure[0], sure[0].tolist(), np.asfortranarray(sure[0]), named)):
        assert (ck.Policy.of(model, rule).pi == sure[0]).all(), f"form {i} without draws and steps"
    assert (ck.Policy.deterministic(np.asfortranarray(choice), 3).pi == sure).all()


def _rows(pi):
    """Where probabilities are drawn, and by which, in a random order."""
    where = np.random.default_rng(0).permutation(np.argwhere(pi.max(axis=-1) < 1))
    return where, pi[where[:, 0], where[:, 1]]


def test_a_rule_of_state_and_step_that_names_probabilities_plays_them():
    model = ck.CMDP.from_function(
        start="a",
        horizon=4,
        actions=["x", "y", "z"],
        step=lambda s, a: {"a": 0.5, "b": 0.5},
        reward=lambda s, a: float(a == "y"),
    )
    assert ck.evaluate(model, ck.Policy.of(model, lambda s: {"y": 1.0})).v == 4.0
    assert ck.evaluate(model, ck.Policy.of(model, lambda s, h: {"y": 1.0})).v == 4.0
