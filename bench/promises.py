"""Promises under pressure: rare costs, loggers that adapt, few episodes, worlds that are not what was declared.

Every setting is a small machine shop with bounds close to what its better policies reach, drawn 200 times. A promise is
*broken* if the promised policy misses a bound in the true model. Settings are run with declared ranges of single steps
and without; without, a promise is made on a condition ("if no single step ever costs more than ..."), and *condition
false* is the share of promises whose condition the true model contradicts. The last two settings, where the
declared assumption is wrong, count how often that is found out.

At the end come worlds in which a log does not show what matters: states that it never met, or met in one half only,
rare and costly starts, actions that were never tried, rare and costly steps. Their bounds are 3 % below the true total
of the only policy, so that every promise and every certificate is false. Where an action is the danger, running
costs nothing, and the bound is less than what boosting at the first step would cost.

`CMDPKIT_LOGS` is the number of logs of each setting; `CMDPKIT_PRESS` is "shop" or "unseen" for one of the two parts.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import cmdpkit as ck
from bench.from_log import in_truth, table_of
from cmdpkit.model.transitions import FloatArray

LOGS = int(os.environ.get("CMDPKIT_LOGS", "200"))
PRESS = os.environ.get("CMDPKIT_PRESS", "all")
Logger = Callable[[FloatArray], FloatArray]
BATCH = 10  # episodes after which an adaptive logger changes its mind
STATES, ACTIONS = ("ok", "worn", "down"), ("fast", "slow", "mend")


@dataclass(frozen=True)
class Shop:
    """A machine for 10 shifts: run it fast or slowly, or mend it; costs are 0 or 1, and rarely much more."""

    rare: float = 0.0  # probability of a rare cost in a step
    size: float = 0.0  # of the rare cost
    where: tuple[int, ...] = (0, 1, 2)  # actions with rare costs
    late: float = 0.0  # what is added to the probability of a cost in the second half of the steps
    rise: float = 0.0  # what is added to the probability of a cost at all steps
    H: int = 10

    def often(self, h: int) -> FloatArray:
        """[S, A]: probability of a cost of 1."""
        p = np.array([[0.30, 0.12, 0.05], [0.45, 0.25, 0.05], [0.05, 0.05, 0.10]])
        return np.clip(p + self.rise + (self.late if 2 * h >= self.H else 0.0), 0.0, 1.0)

    def model(self, bound: float, stock: float | None = None) -> ck.CMDP:
        """The true model."""
        P = np.zeros((self.H, 3, 3, 3))
        P[:] = [
            [[0.70, 0.25, 0.05], [0.85, 0.13, 0.02], [1.00, 0.00, 0.00]],
            [[0.00, 0.80, 0.20], [0.00, 0.92, 0.08], [0.80, 0.20, 0.00]],
            [[0.00, 0.10, 0.90], [0.00, 0.10, 0.90], [0.70, 0.00, 0.30]],
        ]
        r = np.array([[1.0, 0.6, 0.0], [0.8, 0.5, 0.0], [0.0, 0.0, 0.0]])
        hit = np.isin(np.arange(3), self.where) * self.rare * self.size
        cost = np.array([self.often(h) + hit for h in range(self.H)])
        bounds = [ck.at_most("cost", bound, cost)]
        if stock is not None:
            bounds.append(ck.at_least("made", stock, np.broadcast_to(r, cost.shape)))
        return ck.CMDP(P, r, mu=[1, 0, 0], constraints=bounds, horizon=self.H, states=STATES, action_names=ACTIONS)


UNIFORM = np.full((3, 3), 1 / 3)


def constant(seen: FloatArray) -> FloatArray:
    """A logger that chooses every action equally often."""
    return UNIFORM


def greedy(seen: FloatArray) -> FloatArray:
    """A logger that mostly does what looked cheapest so far; ``seen`` [S, A, 2] is the number and the sum of costs."""
    mean = np.where(seen[..., 0] > 0, seen[..., 1] / np.maximum(seen[..., 0], 1), 0.0)
    return 0.3 * UNIFORM + 0.7 * np.eye(3)[mean.argmin(axis=1)]


def shy(seen: FloatArray) -> FloatArray:
    """A logger that gives up, nearly, what was dearer than average: it stops looking after bad luck."""
    mean = np.where(seen[..., 0] > 0, seen[..., 1] / np.maximum(seen[..., 0], 1), 0.0)
    dear = mean > mean.mean(axis=1, keepdims=True)
    weight = np.where(dear, 0.08, 1.0)
    return weight / weight.sum(axis=1, keepdims=True)


def log_of(
    shop: Shop, truth: ck.CMDP, logger: Callable[[FloatArray], FloatArray], episodes: int, seed: int, after=None
):
    """Columns of a log; ``after`` is the shop of the second half of the episodes, if it is another one."""
    rng, seen, rows = np.random.default_rng([24, seed]), np.zeros((3, 3, 2)), []
    P, r = truth.P, truth.r
    for first in range(0, episodes, BATCH):
        k = np.arange(first, min(first + BATCH, episodes))
        world = after if after is not None and 2 * first >= episodes else shop
        pi, s = logger(seen), np.zeros(len(k), dtype=int)
        for h in range(shop.H):
            a = (np.cumsum(pi[s], axis=1) <= rng.random((len(k), 1))).sum(axis=1).clip(max=2)
            cost = (rng.random(len(k)) < world.often(h)[s, a]).astype(float)
            cost += world.size * np.isin(a, world.where) * (rng.random(len(k)) < world.rare)
            to = (np.cumsum(P[h, s, a], axis=1) <= rng.random((len(k), 1))).sum(axis=1).clip(max=2)
            np.add.at(seen, (s, a), np.stack((np.ones(len(k)), cost), axis=1))
            rows.append((k, np.full(len(k), h), s, a, r[h, s, a], cost, to))
            s = to
    columns = [np.concatenate(x).tolist() for x in zip(*rows, strict=True)]
    table = dict(zip(("episode", "step", "state", "action", "reward", "cost", "next_state"), columns, strict=True))
    table["made"] = table["reward"]
    for key, names in (("state", STATES), ("action", ACTIONS), ("next_state", STATES)):
        table[key] = [names[i] for i in table[key]]
    return table


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    name: str
    shop: Shop
    bound: float
    episodes: int
    logger: Logger = constant
    made: float | None = None  # a second bound, from below
    after: Shop | None = None  # another world in the second half of the time
    stationary: bool = True


RARE_500, RARE_100 = Shop(rare=1 / 500, size=100.0), Shop(rare=1 / 100, size=20.0)
SETTINGS = (
    Setting("1/500 costs 100", RARE_500, 3.5, 50),
    Setting("1/500 costs 100", RARE_500, 3.5, 500),
    Setting("1/500 costs 100", RARE_500, 3.5, 2_000),
    Setting("1/100 costs 20", RARE_100, 3.5, 50),
    Setting("1/100 costs 20", RARE_100, 3.5, 500),
    Setting("1/100 costs 20, by step", RARE_100, 4.0, 2_000, stationary=False),
    Setting("1/100 costs 20 if fast", Shop(rare=0.01, size=20.0, where=(0,)), 2.2, 200),
    Setting("1/500 costs 100, greedy logger", RARE_500, 3.5, 500, greedy),
    Setting("1/100 costs 20, shy logger", RARE_100, 3.5, 200, shy),
    Setting("no rare costs, 50 episodes", Shop(), 2.0, 50),
    Setting("no rare costs, greedy logger", Shop(), 1.7, 200, greedy),
    Setting("no rare costs, shy logger", Shop(), 1.7, 1_000, shy),
    Setting("two bounds", Shop(), 2.2, 300, made=6.7),
    Setting("by step, declared alike", Shop(late=0.25), 2.8, 200),
    Setting("by step, declared alike", Shop(late=0.15), 2.5, 1_000),
    Setting("changes halfway", Shop(), 3.0, 1_000, after=Shop(rise=0.1)),
)


def pressed(setting: Setting, seed: int, *, declared: bool) -> tuple[str, float]:
    """What one log led to (kept, broken, refused, or unconditional ...), and the value of the promised policy."""
    truth = setting.shop.model(setting.bound, setting.made)
    table = log_of(setting.shop, truth, setting.logger, setting.episodes, seed, setting.after)
    largest = 1.0 + setting.shop.size
    bounds = [ck.at_most("cost", setting.bound, range=(0.0, largest) if declared else None)]
    if setting.made is not None:
        bounds.append(ck.at_least("made", setting.made, range=(0.0, 1.0) if declared else None))
    log = ck.from_log(table, horizon=setting.shop.H, constraints=bounds, stationary=setting.stationary)
    try:
        promise = log.solve(0.95)
    except ck.NoPromise as refused:
        return ("contradicted" if refused.contradicted else "refused"), 0.0
    if setting.after is not None:  # the world as it is after the change
        truth = setting.after.model(setting.bound, setting.made)
    true = in_truth(truth, promise.policy)
    kept = all(c.sign * (w - c.bound) >= -1e-9 for c, w in zip(truth.constraints, true.w, strict=True))
    false = not declared and max(table["cost"]) < largest
    return ("kept" if kept else "broken") + (", condition false" if false else ""), true.v


@dataclass(frozen=True)
class Unseen:
    """A world in which costs rarely show; "ok" may lead to "trap", which costs 1 a step and is never left."""

    name: str
    falls: float = 0.0  # expected number of steps of a log that lead from "ok" to "trap",
    starts: float = 0.0  # and of its episodes that begin there
    boost: bool = False  # whether an action at the first step earns more and leads to the trap,
    danger: float = 0.5  # how often it does,
    tried: float = 0.0  # and in which share of the first steps it was tried
    claim: float = 0.0  # cost of a step in one of 250,
    pareto: bool = False  # or a cost with the exponent 1.5
    states: tuple[str, ...] | None = None  # what the user declares
    stationary: bool = True
    H: int = 20

    def model(self, episodes: int) -> ck.CMDP:
        """The true model; the bound on the cost is close to the total of running."""
        fall, begin = self.falls / (episodes * self.H), self.starts / episodes
        everyday = self.claim / 250 + 2.0 * self.pareto  # the mean of a Pareto variable with the exponent 1.5, less 1
        P = np.array([[[1 - fall, fall], [1 - self.danger, self.danger]], [[0.0, 1.0], [0.0, 1.0]]])
        r, cost = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[everyday, everyday], [1.0, 1.0]])
        actions = np.tile([[True, False], [True, False]], (self.H, 1, 1))
        actions[0, 0, 1] = self.boost
        made = {"mu": [1 - begin, begin], "horizon": self.H, "actions": actions, "states": ("ok", "trap")}
        made["action_names"] = ("run", "boost")
        truth = ck.CMDP(P, r, constraints=[ck.at_most("cost", 1.0, cost)], **made)
        total = ck.evaluate(truth, ck.Policy.of(truth, RUN)).w[0]
        boosted = self.danger * (self.H - 1)  # what boosting at the first step costs
        return truth.with_bounds(cost=0.97 * (boosted if self.boost else total))

    def log(self, truth: ck.CMDP, episodes: int, seed: int) -> ck.Estimate:
        """A log of running, with drawn costs."""
        rng = np.random.default_rng([37, seed])
        done = np.tile([[1.0, 0.0]], (self.H, 2, 1))
        done[0, 0] = [1 - self.tried, self.tried]
        table = table_of(truth, done, episodes, rng)
        cost = np.array(table["cost"])
        if self.claim:
            cost = np.where(rng.random(len(cost)) < 1 / 250, self.claim, 0.0)
        elif self.pareto:
            cost = rng.pareto(1.5, len(cost))
        table["cost"] = cost.tolist()
        bound = ck.at_most("cost", truth.constraints[0].bound,
                           range=None if self.pareto else (0.0, max(self.claim, 1.0)))  # fmt: skip
        return ck.from_log(table, horizon=self.H, constraints=[bound], stationary=self.stationary,
                           ranges={"reward": (0.0, 2.0)}, states=self.states)  # fmt: skip


RUN = {"ok": "run", "trap": "run"}
WORLDS = (
    Unseen("a trap, never met", falls=0.2),
    Unseen("a trap, never met, 200 steps", falls=0.2, H=200),
    Unseen("a trap, met in one half", falls=1.5),
    Unseen("a trap, met in one half, declared", falls=1.5, states=("ok", "trap")),
    Unseen("a trap, met in one half, by step", falls=1.5, stationary=False),
    Unseen("a rare costly start", starts=1.25),
    Unseen("a rare costly start, declared", starts=1.25, states=("ok", "trap")),
    Unseen("a trap behind an untried action", boost=True),
    Unseen("a trap behind a rarely tried one", boost=True, danger=0.05, tried=0.15, stationary=False),
    Unseen("claims of 40 in one of 250 steps", claim=40.0, states=("ok",)),
    Unseen("costs with a Pareto tail of 1.5", pareto=True, states=("ok",)),
)


def pressed_unseen(world: Unseen, episodes: int, seed: int) -> tuple[bool, bool, bool, bool, float]:
    """Whether a promise was made, was broken, named a condition, and a certificate was false; and the true value."""
    truth = world.model(episodes)
    log, bound = world.log(truth, episodes, seed), truth.constraints[0].bound
    certified = not world.pareto and log.certificate(lambda s: "run").within_bounds
    false = certified and not world.boost
    try:
        promise = log.solve(0.95)
    except ck.NoPromise:
        return False, False, False, false, 0.0
    true = in_truth(truth, promise.policy)
    return True, true.w[0] > bound + 1e-9, promise.condition is not None, false, true.v


def press_unseen() -> None:
    form = "{:36}{:>9}{:>7}{:>9}{:>17}{:>20}{:>10}"
    print(form.format("world", "episodes", "made", "broken", "condition named", "false certificates", "promised"))
    for world in WORLDS:
        for episodes in (100, 300, 1_000):
            found = np.array([pressed_unseen(world, episodes, seed) for seed in range(LOGS)])
            made, broken, named, false = found[:, :4].sum(axis=0).astype(int)
            value = f"{found[found[:, 0] > 0, 4].mean():.3f}" if made else "-"
            print(form.format(world.name, episodes, made, broken, named, false, value), flush=True)


def main() -> None:
    if PRESS != "unseen":
        press_shops()
    if PRESS != "shop":
        press_unseen()


def press_shops() -> None:
    print(
        f"{LOGS} logs each; shares of the promises made; the value is that of the true optimum and of what was promised"
    )
    head = ("setting", "episodes", "ranges", "made", "broken", "condition false", "contradicted", "optimum", "promised")
    form = "{:32}{:>9}{:>10}{:>7}{:>16}{:>17}{:>14}{:>9}{:>10}"
    print(form.format(*head))
    for setting in SETTINGS:
        best = ck.solve((setting.after or setting.shop).model(setting.bound, setting.made)).value
        for declared in (True, False):
            found = [pressed(setting, seed, declared=declared) for seed in range(LOGS)]
            made = [x for x in found if x[0].startswith(("kept", "broken"))]
            broken = sum(x[0].startswith("broken") for x in made)
            false = sum("condition" in x[0] for x in made)
            shares = (
                (f"{broken} = {broken / len(made):.1%}", f"{false} = {false / len(made):.1%}") if made else ("-", "-")
            )
            value = f"{np.mean([x[1] for x in made]):.3f}" if made else "-"
            contradicted = sum(x[0] == "contradicted" for x in found)
            row = (setting.name, setting.episodes, "declared" if declared else "none", len(made), shares[0],
                   "" if declared else shares[1], contradicted, f"{best:.3f}", value)  # fmt: skip
            print(form.format(*row), flush=True)
