"""
From a log to a certified policy
================================

Often there is no model, but a log: what was done in which state, and what came of it. This notebook turns one
into a policy whose *true* totals meet the bounds with a chosen probability, and shows what happens when
the log has too little data for such a promise.
"""

# %%
# The log
# -------
#
# A pump runs for a season of eight weeks. It was serviced at random, 400 seasons long. One row is one week.

import random
import textwrap

import cmdpkit as ck

random.seed(1)
rows = []
for season in range(400):
    state = "good"
    for week in range(1, 9):
        action = random.choice(["run", "service"])
        fails = {"good": 0.05, "worn": 0.3}[state] * (0.2 if action == "service" else 1.0)
        failed = random.random() < fails
        worn = not failed and action == "run" and random.random() < 0.5
        after = "worn" if worn or (state == "worn" and action == "run" and not failed) else "good"
        rows.append((season, week, state, action, float(action == "run"), float(failed), after))
        state = after
for row in rows[:3]:
    print(row)

# %%
# Read it, with the bound that the policy has to meet. ``stationary=True`` says that every week works like the first,
# so that all weeks share their counts. The log is tested against it, and a note reports a contradiction.

names = ["episode", "step", "state", "action", "reward", "failures", "next_state"]
bound = ck.at_most("failures", 0.8)
log = ck.from_log(rows, columns=names, horizon=8, constraints=[bound], stationary=True)
log

# %%
# What was tried, and how often?

covered = log.coverage
print(f"{covered.tried} of {covered.pairs} pairs of state and action, {covered.transitions:,} transitions")

# %%
# The best policy of the estimate guarantees nothing
# --------------------------------------------------
#
# It meets the bound exactly in the estimated model, and therefore misses it in truth about every second time. (What
# it does in truth is shown below; this time it is lucky.)

estimated = ck.solve(log.cmdp)
print(f"weeks run: {estimated.value:.3f}, failures: {estimated.utilities[0]:.3f}")

# %%
# A promise
# ---------
#
# Half of the log proposes candidates, the other half tests them.

promise = log.solve(confidence=0.95)
promise

# %%
# We made the log ourselves, so we can look at the truth, which the promise never saw:

FAILS = {"good": 0.05, "worn": 0.3}


def step(state, action):
    fails = FAILS[state] * (0.2 if action == "service" else 1.0)
    if action == "service":
        return {"good": 1.0}
    wears = 1.0 if state == "worn" else 0.5
    return {"good": fails + (1 - fails) * (1 - wears), "worn": (1 - fails) * wears}


def failures(state, action):
    return FAILS[state] * (0.2 if action == "service" else 1.0)


truth = ck.CMDP.from_function(
    start="good",
    horizon=8,
    actions=["run", "service"],
    step=step,
    reward=lambda state, action: float(action == "run"),
    constraints=[ck.at_most("failures", 0.8, failures)],
)
for name, policy in (("promised", promise.policy), ("best of the estimate", estimated.policy)):
    by_name = [log.cmdp.states.index(state) for state in truth.states]
    in_truth = ck.Policy.of(truth, policy.pi[:, by_name])
    values = ck.evaluate(truth, in_truth)
    print(f"{name}: {values.v:.3f} weeks run, {values.w[0]:.3f} failures in truth (at most 0.8)")

# %%
# How much data does it take?
# ---------------------------
#
# The same question with the first seasons only. The bars are the 95 % confidence intervals of the promised
# policy: more data, narrower bars, and a policy that comes closer to the bound.

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for k, seasons in enumerate((100, 200, 400)):
    part = [row for row in rows if row[0] < seasons]
    found = ck.from_log(part, columns=names, horizon=8, constraints=[bound], stationary=True).solve(confidence=0.95)
    low, high = found.utilities[0].low, found.utilities[0].high
    ax.plot([low, high], [k, k], lw=6, solid_capstyle="butt")
ax.axvline(0.8, color="0.3", ls="--")
_ = ax.set(xlabel="failures per season (dashed: the bound)", yticks=range(3), yticklabels=["100 seasons", "200", "400"])

# %%
# When the log has too little data
# --------------------------------
#
# With 20 seasons no policy is certified, and the error explains what is missing.

few = [row for row in rows if row[0] < 20]
try:
    ck.from_log(few, columns=names, horizon=8, constraints=[bound], stationary=True).solve(confidence=0.95)
except ck.NoPromise as refused:
    print(textwrap.fill(str(refused), 100))
