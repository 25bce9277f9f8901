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
from cmdpkit.learners._note import Note
from cmdpkit.learners.params import at_least_one, at_least_zero, below_one, finite
from cmdpkit.model.transitions import BoolArray, FloatArray


@dataclass(frozen=True, kw_only=True)
class PRIParams(Params):
    """Numbers that do not change during a run; the defaults are those of preset "printed".

    Values and utilities are totals of an episode in unit scale.
    """

    base: str = "triple-q"  # name of the base learner, any registered algorithm
    base_random_ties: bool = False  # whether Triple-Q breaks ties at random even where its settings do not
    base_explore: float = below_one(0.0)  # share of random actions to which Triple-Q's exploration fades; 0: none
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

    def floor_of(self, M: int) -> float:
        """e', the smallest weight among M policies."""
        return min(self.floor, 1 / M)


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
    """Algorithms 1 to 5 as printed, with the constants of the paper's theorem."""
    K = theory_K(spec)
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


def theory_K(spec: Spec) -> int:
    """The largest K with 2 K and the episodes of pruning in T; where pruning would take more than a third, T / 3."""
    low, high = 1, spec.K
    while low < high:
        K = (low + high + 1) // 2
        low, high = (K, high) if 2 * K + min(pruning_episodes(spec, K), K) <= spec.K else (low, K - 1)
    return low


def pruning_episodes(spec: Spec, K: int) -> int:
    """The largest number: usage runs, and for every action two tests of votes of trials, each with two base runs."""
    votes = _votes(K)
    return (1 + 4 * spec.H * spec.S * spec.A * votes) * votes * _run(K)


def tightening(K: int) -> float:
    """The paper's eps_rho."""
    return math.log(K) ** 2 / math.sqrt(K)


def floor(K: int) -> float:
    """The paper's e' = 1 / ln K, at most 1."""
    return 1 / max(math.log(K), 1.0)


def rad(H: int, K: int, e: float, t: int) -> float:
    """rad_t: by how much Decomposition-Opt may miss the tightened thresholds after t rounds."""
    return H * math.sqrt(max(math.log(t * e * K), 0.0) / (e * t * math.sqrt(K)))


def notes(spec: Spec, preset: str, p: PRIParams) -> tuple[str | Note, ...]:
    """What the theory's constants amount to at this K, as (changed) parameters have them."""
    if preset != "theory":
        return ()
    H, small = spec.H, 0.01  # a difference in value, as a share of H, that a comparison should notice
    needed = math.log10(4 / (small * H)) / 0.03
    said: list[str | Note] = [
        f"base runs have K^0.25 = {p.run_episodes} episodes, too few to learn from, and an action used at most "
        f"K^0.2 = {p.count_min:.1f} times is pruned: every action of a state that fewer than "
        f"{p.count_min / p.run_episodes:.0%} of the episodes reach. The most used one is kept",
        f"Compare's tolerance 4 / K^0.03 = {p.tol_value:.3g} is {_against(p.tol_value, H)}: smaller differences pass, "
        f"which leaves the decision to its utility test. It would notice {small:.0%} of H from K = 1e{needed:.0f} on",
        _never_reached(p),
    ]
    if spec.N:
        said += _about_bounds(spec, p)
    most = math.floor(1 / p.floor)
    said.append(
        f"the floor e' = 1 / ln K = {p.floor:.3g} keeps every policy's weight above it, whatever the optimum is, and "
        f"exceeds 1 / M for more than {most} policies: then all weights are 1 / M"
    )
    if most < 2**spec.N:
        said.append(
            f"with N = {spec.N} constraints even a pruned instance may have 2^N = {2**spec.N} > {most} policies"
        )
    return tuple(said)


def _never_reached(p: PRIParams) -> str:
    """Which phases have nothing to do, because two actions of a state rarely both survive usage."""
    share = 2 * p.count_min / p.run_episodes
    never = "usage leaves one policy, and Compare and refinement are never reached"
    if share >= 1:
        return (
            f"two actions of a state need {2 * p.count_min:.1f} visits to be both kept, more than a base run has "
            f"episodes: {never}"
        )
    return (
        f"two actions of a state are both kept only if at least {share:.0%} of the episodes come by, and share it "
        f"evenly: otherwise {never}"
    )


def _about_bounds(spec: Spec, p: PRIParams) -> list[str | Note]:
    """What the tightening and the band do to the thresholds."""
    eps = p.eps_rho
    rounds = math.isqrt(p.K)
    radii = [rad(spec.H, p.K, p.floor, t) for t in range(1, rounds + 1)]
    said: list[str | Note] = [
        f"thresholds are tightened by eps_rho = (ln K)^2 / sqrt K, {eps / spec.H:.1%} of the largest total. Where the "
        "slack is smaller the tightened problem is infeasible: then Compare keeps every action it tests, and "
        "refinement maximises the smallest margin"
    ]
    for n in range(spec.N):
        if spec.rho[n] + eps > spec.H:
            said.append(Note("tightened too far", n))
    said.append(
        f"Decomposition-Opt may miss these thresholds by rad_t, {sum(radii) / rounds / spec.H:.1%} of the "
        f"largest total on average and {radii[-1] / spec.H:.1%} in its last round, and does"
    )
    return said


def _against(x: float, H: int) -> str:
    return f"above every possible gap (H = {H})" if x >= H else f"{x / H:.0%} of the largest conceivable gap, H = {H}"


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
        settings = {"preset": "theory"} if preset == "theory" else published(spec)
        return kind(spec, **settings, **_habits(p))
    if _habits(p):
        raise CmdpkitError(
            f"base_random_ties and base_explore are settings of Triple-Q, but base is {name!r}: leave them out"
        )
    return kind(spec)


def _habits(p: PRIParams) -> dict[str, Any]:
    """Further settings of Triple-Q that were asked for: how ties are broken, and random actions as in its public code.

    There, every action is random at first, which fades by 5 % every 20 episodes, and a share of 3 % stays random.
    """
    asked: dict[str, Any] = {"random_ties": True} if p.base_random_ties else {}
    if p.base_explore > 0:
        asked |= {"explore": p.base_explore, "explore_start": 1.0, "explore_decay": 0.95 ** (1 / 20)}
    return asked


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
