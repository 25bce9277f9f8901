"""Parameters of PRI: what they mean, the two presets that set them from a `Spec`, and what those amount to.

K is the paper's: episodes of refinement, and about as many of identification, so a run has 2 K episodes and those of
pruning. A spec's K is the whole run and is called T here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Params, Spec
from cmdpkit.learners._note import Note


@dataclass(frozen=True)
class PRIParams(Params):
    """Numbers that do not change during a run. Values and utilities are totals of an episode in unit scale."""

    base: str  # name of the base learner, any registered algorithm
    base_random_ties: bool  # whether Triple-Q breaks ties at random even where its settings do not
    base_explore: float  # share of random actions to which Triple-Q's exploration fades; 0 means no exploration
    K: int  # number of episodes of refinement; identification has those that are left
    eps_rho: float | None  # what is added to every threshold; None means that it follows from an estimate of the slack
    slack_share: float  # a tightening that follows from the slack is at most this share of it
    slack_episodes: int  # number of episodes of the base run that estimates the slack
    runs: int  # number of base runs from which usage is counted
    run_episodes: int  # number of episodes of each of these runs
    use_min: float  # an action is under-used at (h, s) if its uses are at most count_min plus this share of the visits
    count_min: float  # see use_min
    reach_min: float  # all actions of (h, s) are under-used if at most this share of the episodes comes there
    quorum: int  # an action is removed if it was under-used in at least this many runs
    whole_usage: bool  # whether uses of the whole base run count; otherwise those of its last part, scaled to the whole
    compare: bool  # whether the actions that usage has left are tested by comparing base runs
    votes: int  # number of comparisons per test; the majority decides
    trials: int  # number of trials per comparison, each with two base runs; the majority decides
    literal_tests: bool  # whether tests follow the pseudo-code to the letter, see `prune`
    compare_episodes: int  # number of episodes of each base run of a comparison
    tol_value: float  # how much value a smaller action set may lose in a comparison
    tol_utility: float  # by how much a smaller action set may miss a tightened threshold in a comparison
    two_sided: bool  # whether a smaller set that gains more than tol_value is refused as well
    burn_in: float  # share of a base run that averages leave out
    early_stop: bool  # whether a comparison ends once the smaller set's regret or violation is too large to pass
    checks: int  # how many times early stop checks a comparison; ours, the paper does not say
    prune_max: int  # largest number of episodes that pruning may take
    floor: float  # smallest weight of a policy in refinement
    floor_total: float  # largest sum of all the smallest weights
    band: bool  # whether utilities have to be within rad_t of the tightened thresholds; otherwise at least at them
    first_block: bool  # whether estimates use only the first floor * sqrt K plays of a round; otherwise they use all
    release: bool  # whether the floor is given up in identification, where nothing is estimated any more
    pooled: bool  # whether visits of all policies are pooled to identify; otherwise each policy's shares are weighted
    draw_each: bool  # whether every episode draws its policy; otherwise the policies are played in turn
    max_policies: int  # largest number of policies that refinement takes

    def __post_init__(self) -> None:
        sizes = ("run_episodes", "compare_episodes", "max_policies", "prune_max")
        for name in ("K", "runs", "quorum", "votes", "trials", "checks", *sizes):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        for name in ("count_min", "tol_value", "tol_utility", "slack_episodes", "slack_share", "floor"):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("use_min", "reach_min", "burn_in", "base_explore"):
            self._expect(name, 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        self._expect("floor_total", 0 <= self.floor_total <= 1, "from 0 to 1")
        self._expect("quorum", self.quorum <= self.runs, f"at most runs = {self.runs}")
        self._expect("eps_rho", self.eps_rho is None or math.isfinite(self.eps_rho), "a finite number")

    def floor_of(self, M: int) -> float:
        """e', the smallest weight among M policies."""
        return min(self.floor, self.floor_total / M)

    def slack_run(self, N: int) -> int:
        """Episodes of the run that estimates the slack, 0 where none is needed."""
        return self.slack_episodes if N and self.eps_rho is None else 0


def paper_preset(spec: Spec) -> PRIParams:
    """The published synthetic experiment, scaled: of T = 15e6 episodes 10 runs of 1e5, then 7e6, then the rest."""
    T, K = spec.K, max(7 * spec.K // 15, 1)
    run = max(T // 150, 1)
    return PRIParams(
        base="triple-q",
        base_random_ties=False,
        base_explore=0.0,
        K=K,
        eps_rho=None,
        slack_share=0.18,
        slack_episodes=max(T // 500, 1),
        runs=10,
        run_episodes=run,
        use_min=0.02,
        count_min=0.0,
        reach_min=0.005,
        quorum=6,
        whole_usage=False,
        compare=False,
        votes=1,
        trials=1,
        literal_tests=False,
        compare_episodes=run,
        tol_value=0.01 * spec.H,
        tol_utility=0.01 * spec.H,
        two_sided=False,
        burn_in=0.5,
        early_stop=True,
        checks=100,
        prune_max=max(T // 5, 1),
        floor=min(0.01, floor(K)),
        floor_total=0.25,
        band=False,
        first_block=False,
        release=True,
        pooled=False,
        draw_each=False,
        max_policies=64,
    )


def theory_preset(spec: Spec) -> PRIParams:
    """Algorithms 1 to 5 as printed, with the constants of the paper's theorem."""
    K = theory_K(spec)
    votes = _votes(K)
    return PRIParams(
        base="triple-q",
        base_random_ties=False,
        base_explore=0.0,
        K=K,
        eps_rho=tightening(K),
        slack_share=0.0,
        slack_episodes=0,
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
        checks=100,
        prune_max=max(spec.K - 2 * K, 1),
        floor=floor(K),
        floor_total=1.0,
        band=True,
        first_block=True,
        release=False,
        pooled=True,
        draw_each=False,
        max_policies=64,
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
        f"which leaves the decision to its utility test. It would notice {small:.0%} of H from K = 1e{needed:.0f} "
        "on",
    ]
    said.append(_never_reached(p))
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
    eps = p.eps_rho if p.eps_rho is not None else tightening(p.K)
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
