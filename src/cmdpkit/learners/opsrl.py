"""OPSRL: never unsafe; optimistic about the kernel and unknown rewards, pessimistic about utilities.

Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "Safe Exploration for Constrained Reinforcement Learning with
Provable Guarantees" (arXiv 2112.00885v1), which became DOPE (`cmdpkit.learners.dope`): the same pessimistic utilities
and the same box of kernels, but no bonus on the reward for unknown transitions.

Needs: a safe policy `baseline` and its utilities `baseline_utility`. Output: the current policy. Per plan: column
generation, each column O(H S^2 A). Memory O(H S^2 A).

Symbols: L = ln(2 S A H K / delta) = `kernel_log`; beta_p = 2 sqrt(p_hat (1 - p_hat) L / n) + (14/3) L / n; beta_l =
radius of unknown signals; slack_b = `margin`; K0 = S^2 A H^4 / slack_b^2 = `warm_up`.

Departures: those of DOPE. The objective is inferred from the published code, without the text of the first version. Its
theory assumes that rewards are known. Here they are not, so the reward gets the bonus (3 H / slack_b) beta_l, as in
DOPE: without it, an action that the baseline never takes has estimated reward 0 and a pessimistic utility. It is then
never tried, and the regret grows linearly for ever.
"practical": no warm-up (whether the LP is feasible is test enough); c = 1e-3 and bonus = 1 by the common rule of
choice (docs/algorithms/model-based.md). Nothing promises that it is safe elsewhere.
"""

from __future__ import annotations

from cmdpkit.learners._model_based.safe_planner import SafeBoxPlanner, SafeBoxPlanning


class OPSRL(SafeBoxPlanner):
    """OPSRL at work; keyword arguments other than preset and baseline change single settings.

    >>> import cmdpkit as ck
    >>> from cmdpkit.learners import Source, Spec
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = ck.load("paper/synthetic")
    >>> safe = ck.solve(cmdp.with_bounds(utility=2.08))
    >>> learner = OPSRL(Spec.of(cmdp, K=500), preset="theory", baseline=safe.policy.pi, baseline_utility=safe.utilities)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 500)
    >>> learner.explain()["baseline_episodes"]
    500
    """

    title = "OPSRL: never unsafe; optimistic about the kernel and unknown rewards, pessimistic about utilities."
    guarantee = (
        "with probability 1 - delta no policy played is ever unsafe; regret of order S^2 sqrt(A H^7 K) as "
        "published, though later versions prove theirs with a bonus on the reward"
    )
    paper = "arXiv 2112.00885"
    source = "authors' code"
    presets = {"practical": SafeBoxPlanning(replan="need", c=1e-3, warm_up=0.0), "theory": SafeBoxPlanning()}
    raises_by_transitions = False  # unknown transitions are covered by the box
