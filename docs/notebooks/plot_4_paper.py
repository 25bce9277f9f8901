"""
Reproduce and extend the paper
==============================

``make reproduce`` (in a clone) runs all experiments of Zhou, Wei and Ying (2023) again, which takes a while. This
notebook runs a small part of the synthetic one, compares algorithms, and then asks a question that the paper
does not: what if the bound is moved?
"""

# %%
# The problem and its optimum
# ---------------------------

import cmdpkit as ck

cmdp = ck.load("paper/synthetic")
ck.solve(cmdp)

# %%
# The published algorithm, ours, and Triple-Q
# -------------------------------------------
#
# Three seeds of 10,000 episodes each. The paper has millions; ``out="runs/..."`` keeps records, and the same call
# continues after an interruption.

algorithms = ["pri", "cl-pri", {"name": "triple-q", "preset": "authors"}]
study = ck.bench({"synthetic": cmdp}, algorithms, episodes=10_000, seeds=3, executor="serial")

# %%
# Regret and violation, exact, with the band over seeds:

study.plot("overview")

# %%
# A negative regret is nothing but the price of a violation: a learner that misses the bound can earn more than the
# optimum. What nobody can make small in this way is the *strong* regret, which adds up losses only.

for group in study.groups():
    strong = ck.curve(group, "strong_regret")
    print(f"{group.label}: strong regret {strong.mean[-1]:,.0f} after {strong.episode[-1]:,.0f} episodes")

# %%
# Extend: another bound
# ---------------------
#
# The largest utility that any policy reaches is 2.09. The closer the bound, the higher its price, and the
# smaller the slack that the published algorithm relies on.

for bound in (1.6, 1.8, 2.0, 2.05):
    tighter = cmdp.with_bounds(utility=bound)
    price = ck.solve(tighter).shadow_prices[0]
    run = ck.learn(tighter, "cl-pri", episodes=10_000, seed=1)
    gap, misses = run.optimum - run.policy_value, max(0, bound - run.policy_utilities[0])
    print(f"bound {bound}: price {price:.2f}, optimality gap {gap:.4f}, violation {misses:.4f}")

# %%
# Extend: your own instance
# -------------------------
#
# Random problems with the slack you ask for, to see whether a finding holds elsewhere:

for seed in (1, 2, 3):
    run = ck.learn(f"random:S=6,A=3,H=5,slack=0.05,seed={seed}", "cl-pri", episodes=5_000, seed=1)
    gap = run.optimum - run.policy_value
    print(f"random problem {seed}: optimum {run.optimum:.3f}, optimality gap {gap:.4f}")
