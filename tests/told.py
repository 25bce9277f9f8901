"""Small models for model-based learners, and what some must be told: how far a policy can exceed all bounds."""

from typing import Any

import numpy as np

import cmdpkit as ck
from cmdpkit.estimate.boxes import Known, plan
from cmdpkit.learners import Source, Spec, resolve
from cmdpkit.simulate.random import stream
from counted import counts_of

MODEL_BASED = (
    "conrl",
    "dope",
    "opdop",
    "opsrl",
    "opt-cmdp",
    "opt-cmdp-bonus",
    "opt-dual",
    "opt-pess-lp",
    "opt-pess-primal-dual",
    "opt-primal-dual",
    "reload",
)
SAFE = ("dope", "opsrl", "opt-pess-lp")
PLANNERS = ("conrl", "opt-cmdp", "opt-cmdp-bonus")


def told(cmdp: ck.CMDP) -> dict[str, Any]:
    """baseline [H, S, A], baseline_utility [N] and slack, in unit scale."""
    spec = Spec.of(cmdp, K=1)
    g = np.array([scale.to_unit(x) for scale, x in zip(cmdp.utility_scales, cmdp.g, strict=True)]).reshape(cmdp.g.shape)
    bounds = np.full(cmdp.N, float(cmdp.H + 1))  # out of reach: the plan misses them least, all by the same amount
    x = np.concatenate((np.zeros((1, *cmdp.r.shape)), g))
    found = plan(Known.of(cmdp.kernel, cmdp.mu), x, spec.rho + bounds, cmdp.actions, cmdp.H)
    slack = float((found.utilities - spec.rho).min()) if cmdp.N else None
    return {"baseline": found.pi, "baseline_utility": found.utilities, "slack": slack}


def make(algo: str, cmdp: ck.CMDP, K: int, preset: str = "practical", **changes: Any) -> Any:
    """The algorithm for a model, told what it needs."""
    kind = resolve(algo)
    given = {name: x for name, x in told(cmdp).items() if name in kind.needs}
    return kind(Spec.of(cmdp, K), preset=preset, **{**given, **changes})


def know(learner: Any, cmdp: ck.CMDP, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Let it have seen every pair n times, exactly as expected; returns the moves and the signals of these visits."""
    T, scales = learner.T, (cmdp.reward_scale, *cmdp.utility_scales)
    visits = np.where(cmdp.actions, n, 0)[:T]
    signals = np.array([scale.to_unit(x)[:T] for scale, x in zip(scales, (cmdp.r, *cmdp.g), strict=True)])
    moves = np.rint(cmdp.P[:T] * visits[..., None]).astype(np.int64)
    moves[cmdp.H - 1 :] = 0
    starts = np.rint(cmdp.mu * n).astype(np.int64)
    learner.counts = counts_of(moves, visits, signals * visits, np.zeros_like(signals), starts)
    learner.restore(learner.state())
    return moves, signals


def varied(N: int = 2) -> ck.CMDP:
    """Three steps, four states, up to three actions, some missing, rewards beyond [0, 1], N bounds that bind."""
    rng = np.random.default_rng(5)
    actions = rng.random((3, 4, 3)) < 0.8
    actions[..., 0] = True
    P, r, g = rng.dirichlet(np.ones(4), (3, 4, 3)), 5 * rng.random((3, 4, 3)) - 1, rng.random((N, 3, 4, 3))
    free = ck.CMDP(P, r, g, np.zeros(N), rng.dirichlet(np.ones(4)), actions=actions)
    if N == 0:
        return ck.CMDP(P, r, mu=free.mu, actions=actions)
    most, least = told(free)["baseline_utility"], ck.solve(free).utilities
    return free.with_bounds(**{c.name: x for c, x in zip(free.constraints, 0.4 * least + 0.6 * most, strict=True)})


def two_arms() -> ck.CMDP:
    """Two states that take turns at random, an arm that pays and an arm that is safe."""
    r, g = np.array([[1.0, 0.2], [0.8, 0.0]]), np.array([[0.1, 1.0], [0.0, 0.9]])
    return ck.CMDP(np.full((2, 2, 2), 0.5), r, g, rho=0.6, horizon=2)


def played(learner: Any, cmdp: ck.CMDP, episodes: int, seed: int = 0) -> Any:
    """What the meter says after so many episodes."""
    source = Source.of(cmdp, ck.solve(cmdp).value)
    learner.run(source, stream(seed), episodes)
    return source.meter.tally()
