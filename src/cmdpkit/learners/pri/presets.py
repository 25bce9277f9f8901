"""Parameters of PRI: what they mean, the two presets that set them from a `Spec`, and the settings of its base learner.

K is the paper's: episodes of refinement, and about as many of identification, so a run has 2 K episodes and those of
pruning. A spec's K is the whole run and is called T here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Params, Spec, resolve
from cmdpkit.learners.params import at_least_one, at_least_zero, below_one, finite
from cmdpkit.model.transitions import BoolArray, FloatArray


@dataclass(frozen=True, kw_only=True)
class PRIParams(Params):
    """Numbers that do not change during a run; the defaults are those of preset "printed".

    Values and utilities are totals of an episode in unit scale.
    """

    base: str = "triple-q"  # the base learner: the name of any algorithm, or "package.module:Class"
    K: int = at_least_one()  # number of episodes of refinement; identification has those that are left
    eps_rho: float = finite()  # added to every threshold in refinement
    eps_prune: float = finite(0.0)  # added to every threshold in pruning
    runs: int = at_least_one(10)  # number of base runs from which usage is counted
    run_episodes: int = at_least_one()  # number of episodes of each of these runs
    use_min: float = below_one(0.02)  # under-used: at most count_min plus this share of the visits of (h, s)
    count_min: float = at_least_zero(0.0)  # see use_min
    reach_min: float = below_one(0.005)  # all actions of (h, s) are under-used if at most this share goes there
    quorum: int = at_least_one(6)  # an action is removed if it was under-used in at least this many runs
    whole_usage: bool = False  # whether uses of the whole base run count; otherwise its last part, scaled to the whole
    compare: bool = False  # whether the actions that usage has left are tested by comparing base runs
    votes: int = at_least_one(1)  # number of comparisons per test; the majority decides
    trials: int = at_least_one(1)  # number of trials per comparison, each with two base runs; the majority decides
    literal_tests: bool = False  # whether tests follow the pseudo-code to the letter, see `prune`
    compare_episodes: int = at_least_one()  # number of episodes of each base run of a comparison
    tol_value: float = at_least_zero()  # how much value a smaller action set may lose in a comparison
    tol_utility: float = at_least_zero()  # by how much it may miss a tightened threshold
    two_sided: bool = False  # whether a smaller set that gains more than tol_value is refused as well
    burn_in: float = below_one(0.5)  # share of a base run that averages leave out
    early_stop: bool = True  # whether a comparison ends once the smaller set's regret or violation is too large to pass
    checks: int = at_least_one(100)  # how many times early stop checks a comparison; ours, the paper does not say
    prune_max: int = at_least_one()  # largest number of episodes that pruning may take
    floor: float = at_least_zero()  # smallest weight of a policy in refinement, at most 1 / M
    band: bool = True  # whether utilities must be within rad_t of the tightened thresholds; otherwise at least at them
    draw_each: bool = False  # whether every episode draws its policy; otherwise the policies are played in turn
    max_policies: int = at_least_one(64)  # largest number of policies that refinement takes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("quorum", self.quorum <= self.runs, f"at most runs = {self.runs}")


def printed_preset(spec: Spec) -> PRIParams:
    """The published synthetic experiment, scaled: of T = 15e6 episodes 10 runs of 1e5, then 7e6, then the rest.

    Refinement and identification are as printed. Pruning is not tightened, because the printed eps_rho can exceed the
    slack, and then the base learner has no policy to find.
    """
    T, K = spec.K, max(7 * spec.K // 15, 1)
    run = max(T // 150, 1)
    return PRIParams(
        K=K,
        eps_rho=tightening(K),
        run_episodes=run,
        compare_episodes=run,
        tol_value=0.01 * spec.H,
        tol_utility=0.01 * spec.H,
        prune_max=max(T // 5, 1),
        floor=floor(K),
    )


def theory_preset(spec: Spec) -> PRIParams:
    """Algorithms 1 to 5 as printed, with the constants of the paper's theorem; a third of the run may be pruning."""
    K = max(spec.K // 3, 1)
    votes = _votes(K)
    return PRIParams(
        K=K,
        eps_rho=tightening(K),
        eps_prune=tightening(K),
        runs=votes,
        run_episodes=_run(K),
        use_min=0.0,
        count_min=K**0.2,
        reach_min=0.0,
        quorum=max(math.ceil(2 * math.log(K)), 1),
        whole_usage=True,
        compare=True,
        votes=votes,
        trials=votes,
        literal_tests=True,
        compare_episodes=_run(K),
        tol_value=4 / K**0.03,
        tol_utility=0.0,
        two_sided=True,
        burn_in=0.0,
        early_stop=False,
        prune_max=max(spec.K - 2 * K, 1),
        floor=floor(K),
    )


def tightening(K: int) -> float:
    """The paper's eps_rho."""
    return math.log(K) ** 2 / math.sqrt(K)


def floor(K: int) -> float:
    """The paper's e' = 1 / ln K, at most 1."""
    return 1 / max(math.log(K), 1.0)


def rad(H: int, K: int, e: float, t: int) -> float:
    """rad_t: by how much Decomposition-Opt may miss the tightened thresholds after t rounds."""
    return H * math.sqrt(max(math.log(t * e * K), 0.0) / (e * t * math.sqrt(K)))


def notes(spec: Spec, preset: str, p: PRIParams) -> tuple[str, ...]:
    """What the theory's constants amount to at this K, as (changed) parameters have them."""
    if preset != "theory":
        return ()
    most = math.floor(1 / p.floor)
    return (
        f"base runs have K^0.25 = {p.run_episodes} episodes, too few to learn from, and an action used at most "
        f"K^0.2 = {p.count_min:.1f} times is pruned: unless two actions of a state share {2 * p.count_min:.1f} visits "
        "evenly, only the most used one is kept, and Compare and refinement are never reached",
        f"Compare's tolerance 4 / K^0.03 = {p.tol_value:.3g} is {p.tol_value / spec.H:.0%} of the largest conceivable "
        f"gap, H = {spec.H}: smaller differences pass, which leaves the decision to its utility test",
        f"thresholds are tightened by eps_rho = (ln K)^2 / sqrt K, {p.eps_rho / spec.H:.1%} of the largest total. "
        "Where the slack is smaller the tightened problem is infeasible: then Compare keeps every action it tests, and "
        "refinement maximises the smallest margin",
        f"the floor e' = 1 / ln K = {p.floor:.3g} keeps every policy's weight above it, whatever the optimum is, and "
        f"exceeds 1 / M for more than {most} policies: then all weights are 1 / M",
    )


def _votes(K: int) -> int:
    return max(math.ceil(4 * math.log(K)), 1)


def _run(K: int) -> int:
    return math.ceil(math.sqrt(math.sqrt(K)))


# -- The base learner.


def base_learner(p: PRIParams, preset: str, spec: Spec) -> Learner:
    """The algorithm called p.base for this spec.

    Triple-Q has the constants of its theory (preset "theory" of PRI), or the settings with which PRI seems to have been
    published (preset "printed"). Other algorithms have their default preset.
    """
    name = p.base
    if name == "pri":
        raise CmdpkitError("base is 'pri': PRI cannot be its own base learner")
    kind = resolve(name)
    if kind.needs:
        raise CmdpkitError(f"base {name!r} needs {', '.join(kind.needs)}, which PRI does not know")
    if name == "triple-q":
        return kind(spec, preset="theory") if preset == "theory" else kind(spec, **published(spec))
    return kind(spec)


def published(spec: Spec) -> dict[str, Any]:
    """Triple-Q as PRI's experiments seem to have run it: its theory's rates, small bonuses, warm start, realised queue.

    The paper prints no settings. These reproduce its usage pattern on the synthetic instance: bonus
    0.02 sqrt((chi + 1) / (chi + t)), eta = 0.1 K^0.2, tables lifted by 0.05 at the end of a frame.
    """
    K, chi = spec.K, spec.K**0.2
    frame = math.ceil(K**0.6)
    bonus, lift = 0.02 * math.sqrt(chi + 1), 0.05 * K / frame
    return {
        "frame": frame,
        "eta": 0.1 * K**0.2,
        "steady": math.inf,
        "chi": chi,
        "keep": 0.0,
        "reward_bonus": bonus,
        "utility_bonus": bonus,
        "bonus_offset": chi,
        "reward_lift": lift,
        "utility_lift": lift,
        "lift_power": 1.0,
        "eps_low": 0.0,
        "eps_high": 0.0,
        "margin": 0.0,
    }


def within(spec: Spec, K: int, rho: FloatArray, allowed: BoolArray) -> Spec:
    """The same problem for K episodes, with other thresholds and fewer actions."""
    return Spec(spec.H, spec.S, spec.A, K, rho, allowed.copy())
