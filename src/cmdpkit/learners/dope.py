"""DOPE: never unsafe; optimistic about rewards and the kernel, pessimistic about utilities.

Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "DOPE: Doubly Optimistic and Pessimistic Exploration for Safe
Reinforcement Learning" (NeurIPS 2022, arXiv 2112.00885). The extended LP of OptCMDP with utilities lowered by H B, so
that the bounds hold whatever model of the box is the true one, and rewards raised by (H^2 / slack_b) B, so that the
plan still promises at least the optimum; B = sum_s' beta_p. While the LP is infeasible, the baseline is played.

Needs: a safe policy `baseline` and its utilities `baseline_utility`. Output: the current policy. Per plan: column
generation, each column O(H S^2 A). Memory O(H S^2 A).

Symbols: L = ln(2 S A H K / delta) = `kernel_log`; beta_p = 2 sqrt(p_hat (1 - p_hat) L / n) + (14/3) L / n; beta_l =
radius of unknown signals; slack_b = `margin`; K0 = S^2 A H^4 / slack_b^2 = `warm_up`.

Departures: does not plan before every episode, as the paper does, but when a count has doubled, or by need in
"practical" (`_model_based.cadence`); N constraints, with the least of the baseline's margins; the paper
gives K0 up to logarithms; rewards and utilities are unknown, their radius has the weights 3 H / slack_b and 1; the
start distribution is unknown, has its own box and raises the thresholds by its own term; `bonus` multiplies what the
reward is raised by, so that optimism and pessimism can be scaled apart.
"practical": no warm-up (whether the LP is feasible is test enough); c = 1e-3 and bonus = 0.1 by the common rule of
choice (docs/algorithms/model-based.md). Nothing promises that it is safe elsewhere.
"""

from __future__ import annotations

from cmdpkit.learners._model_based.safe_planner import SafeBoxPlanner, SafeBoxPlanning


class DOPE(SafeBoxPlanner):
    """DOPE at work; keyword arguments other than preset and baseline change single settings.

    >>> import cmdpkit as ck
    >>> from cmdpkit.learners import Source, Spec
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = ck.load("paper/synthetic")
    >>> safe = ck.solve(cmdp.with_bounds(utility=2.08))
    >>> learner = DOPE(Spec.of(cmdp, K=500), preset="theory", baseline=safe.policy.pi, baseline_utility=safe.utilities)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 500)
    >>> learner.explain()["baseline_episodes"]
    500
    """

    title = "DOPE: never unsafe; optimistic about rewards and the kernel, pessimistic about utilities."
    guarantee = (
        "with probability 1 - delta no policy played is ever unsafe; regret of order (H^3 / slack_b) S sqrt(A K)"
    )
    paper = "arXiv 2112.00885"
    source = "authors' code"
    presets = {"practical": SafeBoxPlanning(replan="need", c=1e-3, bonus=0.1, warm_up=0.0), "theory": SafeBoxPlanning()}
    raises_by_transitions = True
