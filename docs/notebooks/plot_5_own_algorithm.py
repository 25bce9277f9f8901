"""
Your algorithm in your own package
==================================

An algorithm is a class with four methods. It stays in your package, and every command and function takes it by
its name. This notebook writes one, tests that it keeps the contract, and compares it with others.
"""

# %%
# Write it
# --------
#
# ``mylab/learners.py`` in a folder of its own. The learner below plays random actions for the first tenth of the
# run, counts what it sees, and then plays the best policy of the estimated model. It is short because the exact
# solver does the planning.

import sys
import tempfile
from pathlib import Path

home = Path(tempfile.mkdtemp())
(home / "mylab").mkdir()
(home / "mylab" / "__init__.py").touch()
source = """
import numpy as np

import cmdpkit as ck
from cmdpkit.learners import uniform


class ExploreThenCommit(ck.Learner):
    title = "Explore for a tenth of the run, then commit to the best policy of the estimated model."

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        H, S, A = spec.H, spec.S, spec.A
        self.seen = np.zeros((H, S, A, S))  # transitions
        self.total = np.zeros((1 + spec.N, H, S, A))  # reward and utilities
        self.visits = np.zeros((H, S, A))
        self.starts = np.zeros(S)
        self.policy = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.episodes = 0
        self.at = (0, 0, 0)

    def act(self, h, s, rng):
        chances = self.policy[h, s].cumsum()
        self.at = (h, s, int(np.searchsorted(chances / chances[-1], uniform(rng), side="right")))
        return self.at[2]

    def first(self, s, rng):
        if self.episodes == self.spec.K // 10:
            self.policy = self.plan()
        self.starts[s] += 1
        return self.act(0, s, rng)

    def next(self, signals, s, rng):
        self.count(signals)
        self.seen[(*self.at, s)] += 1
        return self.act(self.at[0] + 1, s, rng)

    def last(self, signals):
        self.count(signals)
        self.episodes += 1

    def count(self, signals):
        self.visits[self.at] += 1
        self.total[(slice(None), *self.at)] += signals

    def plan(self):
        P = self.seen + 1e-9
        signals = self.total / np.maximum(self.visits, 1)
        bounds = [ck.at_least(f"utility {n + 1}", rho) for n, rho in enumerate(self.spec.rho)]
        model = ck.CMDP(
            P / P.sum(axis=-1, keepdims=True),
            signals[0],
            signals[1:],
            mu=self.starts / self.starts.sum(),
            horizon=self.spec.H,
            actions=self.spec.allowed,
            constraints=bounds,
        )
        try:
            return np.array(ck.solve(model).policy.pi)
        except ck.Infeasible:
            return self.policy

    def behaviour(self):
        return self.policy

    def recommend(self):
        return self.policy
"""
(home / "mylab" / "learners.py").write_text(source, encoding="utf-8")
sys.path.insert(0, str(home))  # an installed package needs no such line
import mylab.learners

# %%
# Does it keep the contract?
# --------------------------
#
# ``check_learner`` tests that it is blind to the model, does the same in pieces and after a resume, and plays only
# allowed actions. It raises an error if not.

import cmdpkit as ck
from cmdpkit.testing import check_learner

NAME = "mylab.learners:ExploreThenCommit"
check_learner(NAME, episodes=20)

# %%
# Compare
# -------
#
# The same name works on the command line (``cmdpkit learn paper/synthetic --algo
# mylab.learners:ExploreThenCommit``) and in an experiment file. With an entry point in your ``pyproject.toml`` it
# even has a short one::
#
#     [project.entry-points."cmdpkit.learners"]
#     explore-then-commit = "mylab.learners:ExploreThenCommit"

study = ck.bench(["paper/synthetic"], [NAME, "opt-cmdp", "cl-pri"], episodes=5_000, seeds=3, executor="serial")
study.plot("overview")

# %%
# The table has what a paper needs, with 95 % intervals over seeds; ``study.to_latex()`` writes it for LaTeX.

for row in study.table():
    print(f"{row['algo']}: strong regret {row['strong_regret']:,.0f}, optimality gap {row['policy_gap']:.4f}")
