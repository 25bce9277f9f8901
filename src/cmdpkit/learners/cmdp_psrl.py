"""CMDP-PSRL: posterior sampling for long-run averages under constraints.

Agarwal, Bai, Aggarwal, "Regret guarantees for model-based reinforcement learning with long-term average constraints"
(arXiv 2106.06680, UAI 2022).

    epoch: P(s, a, .) ~ Dirichlet(counts(s, a, .) + prior) for all (s, a);  signals = observed means
           pi = optimum of that model under the bounds
           play pi until some (s, a) has been visited in this epoch as often as before it (at least once)

Guarantee, as claimed: expected regret and violation of order T_M S sqrt(A T log(A T)), with T_M the largest expected
*hitting* time, for ergodic models whose slack is at least 2 S T_M sqrt(14 A log(A T) / T) plus a term for mixing; that
draws are feasible is proved for epochs of at least sqrt(T) steps. Chen, Jain and Luo (arXiv 2202.00150, appendix A)
dispute the proof, because of the span of a bias. Per plan: column generation in a model of S states. Memory O(S^2 A).

Departures. Where the bounds are impossible in the drawn model the paper ignores them for that epoch; here the plan is
the policy that misses the worst bound by least. The paper knows reward and costs; here they are learned. Discounted
problems are learned with a new start after each step with probability 1 - discount, and planned as discounted problems
of the drawn model. "practical": once a pair was tried `few` times, the prior is only on states to which some action has
led from the same state; with a prior on all states drawn models of a queue jump, and often have no policy within the
bounds. With both presets the signals of an action count as 1, the best there is, until it was tried `unsure` times. The
returned policy, of which the paper does not speak is the best one of the mean model that does not rely on luck
(`proven_model` of `cmdpkit.estimate.continuing`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cmdpkit.estimate.continuing import drawn_model
from cmdpkit.learners._continuing import Player, planned
from cmdpkit.learners.params import NEVER, Params, above_zero, at_least_one, at_least_zero
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class PosteriorParams(Params):
    """Numbers that do not change during a run; the default is the practical preset."""

    prior: float = above_zero(1.0)  # added to the counts of all transitions of a pair tried fewer than `few` times
    # Tries after which the prior is only on states seen from the same state; very large: always on all states.
    few: int = at_least_one(5)
    unsure: int = at_least_zero(5)  # tries up to which the signals of an action count as 1, the best there is


class CMDPPSRL(Player):
    """CMDP-PSRL at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> ck.learn("machine-two", "cmdp-psrl", steps=1000).policy.pi.shape
    (1, 2, 3)
    """

    title = "CMDP-PSRL: plans in a model drawn from the posterior, for averages and discounted totals."
    guarantee = (
        "regret and violation of order T_M S sqrt(A T) for ergodic models with slack, T_M the largest expected hitting "
        "time; claimed, and disputed in arXiv 2202.00150"
    )
    paper = "arXiv 2106.06680"
    source = "text"
    anytime = True
    presets = {"practical": PosteriorParams(), "theory": PosteriorParams(few=NEVER)}
    params: PosteriorParams

    def decide(self, rng: Stream) -> None:
        """Draw a model and plan in it, until the visits of a pair have doubled."""
        self.begin_epoch()
        drawn = drawn_model(self.seen(), rng, unsure=self.params.unsure, few=self.params.few, prior=self.params.prior)
        self.follow(planned(drawn, self.spec.rho))
        self.wait(NEVER)
