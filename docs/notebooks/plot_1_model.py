"""
From a model to a policy
========================

A bakery decides every hour how many loaves to put into the oven. Unsold bread is given away in the evening, and
the owner has promised that on average at most one loaf a day is given away. How much can be sold within that
promise, what does the promise cost, and what should the baker do?
"""

# %%
# Describe
# --------
#
# The state is how many loaves lie on the shelf. An action is how many are baked, and they are ready in the next
# hour. Describe the outcomes by plain functions; the reachable states are
# found automatically.

import cmdpkit as ck

DEMAND = {0: 0.2, 1: 0.35, 2: 0.3, 3: 0.15}  # customers in an hour
SHELF, HOURS = 8, 10


def step(stock, baked):
    chances = {}
    for customers, p in DEMAND.items():
        after = min(max(stock - customers, 0) + baked, SHELF)
        chances[after] = chances.get(after, 0.0) + p
    return chances


def sold(stock, baked):
    return sum(p * min(stock, customers) for customers, p in DEMAND.items())


def left_over(stock, baked, h):
    """Loaves that are given away: what is on the shelf when the last hour is over."""
    return sum(p * after for after, p in step(stock, baked).items()) if h == HOURS - 1 else 0.0


bakery = ck.CMDP.from_function(
    start=4,
    horizon=HOURS,
    actions=[0, 1, 2, 3],
    step=step,
    reward=sold,
    constraints=[ck.at_most("given away", 1.0, left_over)],
)
bakery

# %%
# Solve
# -----
#
# One call finds the best policy, the price of the bound and a proof. The gap bounds how much better another policy
# could be, with rounding included.

plan = ck.solve(bakery)
print(f"{plan.value:.3f} loaves sold, {plan.utilities[0]:.3f} given away")
print(f"price of the promise: {plan.shadow_prices[0]:.3f} loaves sold per loaf given away")
print(f"proved: no policy within the bound sells {plan.gap:.1e} more")

# %%
# With one bound, the policy randomises in at most one place. Everywhere else it names one action.

plan.stochastic_decisions()

# %%
# What does the promise cost?
# ---------------------------
#
# The best value for every bound is a concave curve, and its slope is the price. Where the curve is flat, the
# promise is free.

ck.tradeoff(bakery, "given away", n=15, low=0.0, high=6.0).plot()

# %%
# Compare with today
# ------------------
#
# Today the baker fills the shelf up to four loaves. Both policies in one table, by exact evaluation:

import numpy as np

rule = np.array([[min(max(4 - stock, 0), 3) for stock in bakery.states] for _ in range(HOURS)])
today = ck.Policy.deterministic(rule, A=4)
ck.compare_policies(bakery, {"today": today, "best": plan.policy})

# %%
# An average hides single days. How many loaves are given away on a bad one?

days = ck.simulate_policy(bakery, plan.policy, episodes=2_000, seed=1)
days.plot()

# %%
# A policy that is easy to follow
# -------------------------------
#
# Ten tables of nine numbers are hard to put on a wall. ``simplify`` looks for a policy with few changes that loses
# little.

simple = ck.simplify(plan, within=0.01)
simple

# %%
# Hand over
# ---------
#
# As a table to print, or as a Python file that needs nothing else.

import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
ck.write_policy(plan, folder / "plan.csv")
print((folder / "plan.csv").read_text(encoding="utf-8")[:300])
