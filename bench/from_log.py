"""Promises from logs: are they kept, what do they cost, and how often is none made?

For each of three problems, 200 simulated logs of 500 and of 5,000 episodes in which every action was equally likely.
For every log, the policy promised at 95 % and the best policy of the plug-in model are evaluated in the true model.

`CMDPKIT_DECLARE` is "nothing", so that promises name a condition, "ranges" (of the signals in a step), so that they
make room for states that the log never met, or "states", which declares both the ranges and that there are no others.
"""

import os
from math import comb
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from cmdpkit.model.transitions import FloatArray

LOGS = int(os.environ.get("CMDPKIT_LOGS", "200"))
SIZES = tuple(int(x) for x in os.environ.get("CMDPKIT_EPISODES", "500,5000").split(","))
DECLARE = os.environ.get("CMDPKIT_DECLARE", "nothing")


# -- The problems, and logs of them -----------------------------------------------------------------------------------


def ward() -> ck.CMDP:
    """Four beds, urgent and elective patients, two weeks: admit many electives, yet seldom turn an urgent one away."""
    beds = 4

    def step(state, action):
        urgent, elective = state
        moves: dict = {}
        room = beds - urgent - elective
        wanted = {0: 0.5, 1: 0.35, 2: 0.15}
        for arrive, p in wanted.items():
            come = min(arrive, room)
            more = 1 if action == "admit" and room - come >= 1 else 0
            for left_u, q in _binomial(urgent, 0.3).items():
                for left_e, r in _binomial(elective, 0.5).items():
                    to = (urgent - left_u + come, elective - left_e + more)
                    moves[to] = moves.get(to, 0.0) + p * q * r
        return moves

    def turned_away(state, action):
        room = beds - sum(state)
        return sum(p * max(n - room, 0) for n, p in {0: 0.5, 1: 0.35, 2: 0.15}.items())

    return ck.CMDP.from_function(
        start=(0, 0),
        horizon=14,
        actions=["admit", "wait"],
        step=step,
        reward=lambda s, a: float(s[1]),
        constraints=[ck.at_most("turned away", 1.3, turned_away)],
    )


def _binomial(n: int, p: float) -> dict[int, float]:
    return {k: comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}


def asset() -> ck.CMDP:
    """A pump that ages over 20 quarters: run, service or replace it, within a bound on failures."""
    fails = [0.01, 0.03, 0.06, 0.10, 0.16, 0.24, 0.34]

    def step(age, action):
        if age == "down" or action == "replace":
            return {0: 1.0}
        older = max(age - 2, 0) if action == "service" else min(age + 1, len(fails) - 1)
        p = fails[age] * (0.5 if action == "service" else 1.0)
        return {"down": p, older: 1 - p}

    return ck.CMDP.from_function(
        start=0,
        horizon=20,
        actions=lambda s: ["mend"] if s == "down" else ["run", "service", "replace"],
        step=step,
        reward=lambda s, a: {"run": 1.0, "service": 0.6, "replace": -1.0, "mend": -2.0}[a],
        constraints=[ck.at_most("failures", 0.45, lambda s, a: float(s == "down"))],
    )


def funnel() -> ck.CMDP:
    """Ten contacts with a customer: do nothing, mail or give a discount, within a budget; two states end the story."""
    onward = {
        "new": (0.05, 0.15, 0.25),
        "visited": (0.10, 0.20, 0.35),
        "interested": (0.10, 0.25, 0.45),
        "cart": (0.3, 0.4, 0.6),
    }
    after = {"new": "visited", "visited": "interested", "interested": "cart", "cart": "bought"}
    lost = (0.03, 0.06, 0.05)
    offers = ["nothing", "mail", "discount"]

    def step(state, action):
        if state in ("bought", "lost"):
            return {state: 1.0}
        i = offers.index(action)
        return {after[state]: onward[state][i], "lost": lost[i], state: 1 - onward[state][i] - lost[i]}

    return ck.CMDP.from_function(
        start="new",
        horizon=10,
        actions=lambda s: offers if s not in ("bought", "lost") else ["nothing"],
        step=step,
        reward=lambda s, a, s_next: 10.0 * (s_next == "bought" and s != "bought"),
        constraints=[ck.at_most("spent", 6.0, lambda s, a: {"nothing": 0.0, "mail": 0.3, "discount": 1.5}[a])],
    )


PROBLEMS = {"ward": ward, "asset": asset, "funnel": funnel}


def behaviour(cmdp: ck.CMDP) -> FloatArray:
    """Every action that exists, equally likely, [H, S, A]."""
    return np.asarray(ck.Policy.uniform(cmdp).pi)


def table_of(cmdp: ck.CMDP, pi: FloatArray, episodes: int, rng: np.random.Generator, noise: float = 0.0):
    """Columns of a log of so many episodes of the policy pi [H, S, A]; signals get normal noise of this deviation."""
    H, S, _ = pi.shape
    P = cmdp.P
    s = rng.choice(S, size=episodes, p=cmdp.mu)
    rows = []
    for h in range(H):
        a = _drawn(pi[h, s], rng)
        s_next = _drawn(P[h, s, a], rng)
        x = [cmdp.r[h, s, a], *(c.sign * g for c, g in zip(cmdp.constraints, cmdp.g[:, h, s, a], strict=True))]
        x = [y + noise * rng.standard_normal(episodes) for y in x]
        rows.append((np.arange(episodes), np.full(episodes, h), s, a, *x, s_next))
        s = s_next
    columns: list = [np.concatenate(column).tolist() for column in zip(*rows, strict=True)]
    for column, called in ((2, cmdp.states), (3, cmdp.action_names), (-1, cmdp.states)):
        columns[column] = [called[i] for i in columns[column]]
    names = ["episode", "step", "state", "action", "reward", *(c.name for c in cmdp.constraints), "next_state"]
    return dict(zip(names, columns, strict=True))


def _drawn(p: FloatArray, rng: np.random.Generator):
    """One index per row of p [n, k]."""
    u = rng.random(len(p)) * p.sum(axis=1)
    return np.minimum((np.cumsum(p, axis=1) <= u[:, None]).sum(axis=1), p.shape[1] - 1)


def in_truth(cmdp: ck.CMDP, policy: ck.Policy) -> ck.Values:
    """What a policy for a log's states and actions is worth; where it says nothing, all actions are equally likely."""
    pi = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    s = [cmdp.state_index(x) for x in policy.states]
    a = [cmdp.action_index(x) for x in policy.action_names]
    pi[np.ix_(range(cmdp.H), s, a)] = policy.pi
    pi = np.where(cmdp.actions, pi, 0.0)
    nothing = pi.sum(axis=-1) < 0.5
    pi[nothing] = behaviour(cmdp)[nothing]
    return ck.evaluate(cmdp, ck.Policy.of(cmdp, pi / pi.sum(axis=-1, keepdims=True)))


# -- What logs lead to ------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What one log led to."""

    plug_in_kept: bool
    plug_in_value: float
    kept: bool | None  # None: no promise was made
    value: float = 0.0
    covered: tuple[bool, ...] = ()  # whether the range of each total holds


def outcome(cmdp: ck.CMDP, episodes: int, stationary: bool, seed: int) -> Outcome:
    table = table_of(cmdp, behaviour(cmdp), episodes, np.random.default_rng([16, seed]))
    bounds = [ck.Constraint(c.name, c.sense, c.bound, per_step=c.per_step) for c in cmdp.constraints]
    declared: dict = {} if DECLARE == "nothing" else {"ranges": ranges_of(cmdp)}
    if DECLARE == "states":
        declared["states"] = "complete"
    estimate = ck.from_log(table, horizon=cmdp.H, constraints=bounds, stationary=stationary, **declared)
    try:
        plain = ck.solve(estimate.cmdp).policy
    except ck.Infeasible as infeasible:
        plain = infeasible.policy
    naive = in_truth(cmdp, plain)
    try:
        promise = estimate.solve(0.95)
    except ck.NoPromise:
        return Outcome(_kept(cmdp, naive), naive.v, None)
    true = in_truth(cmdp, promise.policy)
    ranges = zip((promise.value, *promise.utilities), (true.v, *true.w), strict=True)
    covered = tuple(x.low - 1e-9 <= y <= x.high + 1e-9 for x, y in ranges)
    return Outcome(_kept(cmdp, naive), naive.v, _kept(cmdp, true), true.v, covered)


def ranges_of(cmdp: ck.CMDP) -> dict[str, tuple[float, float]]:
    """The smallest and the largest value of every signal in the true model."""
    signals = [cmdp.r, *(c.sign * g for c, g in zip(cmdp.constraints, cmdp.g, strict=True))]
    names = ["reward", *(c.name for c in cmdp.constraints)]
    there = cmdp.actions
    return {name: (float(x[there].min()), float(x[there].max())) for name, x in zip(names, signals, strict=True)}


def _kept(cmdp: ck.CMDP, values: ck.Values) -> bool:
    return all(c.sign * (w - c.bound_on_total) >= -1e-9 for c, w in zip(cmdp.constraints, values.w, strict=True))


def main() -> None:
    print(
        f"{LOGS} logs each, declared: {DECLARE}; optimum, then what the promised and the plug-in policies are truly "
        "worth, on average"
    )
    head = (
        "problem",
        "counts",
        "episodes",
        "made",
        "kept",
        "ranges hold",
        "optimum",
        "promised",
        "plug-in",
        "plug-in keeps",
    )
    print(("{:9}{:9}" + "{:>15}" * 8).format(*head))
    for name, build in PROBLEMS.items():
        cmdp = build()
        best = ck.solve(cmdp).value
        for stationary in (False, True):
            for episodes in SIZES:
                found = [outcome(cmdp, episodes, stationary, seed) for seed in range(LOGS)]
                made = [x for x in found if x.kept is not None]
                kept = sum(bool(x.kept) for x in made)
                share = f"{kept} = {kept / len(made):.1%}" if made else "-"
                ranges = f"{np.mean([x.covered for x in made]):.1%}" if made else "-"
                value = f"{np.mean([x.value for x in made]):.3f}" if made else "-"
                plain = f"{np.mean([x.plug_in_value for x in found]):.3f}"
                keeps = f"{np.mean([x.plug_in_kept for x in found]):.1%}"
                counts = "shared" if stationary else "by step"
                row = (
                    name,
                    counts,
                    episodes,
                    f"{len(made)} of {LOGS}",
                    share,
                    ranges,
                    f"{best:.3f}",
                    value,
                    plain,
                    keeps,
                )
                print(("{:9}{:9}" + "{:>15}" * 8).format(*row), flush=True)
