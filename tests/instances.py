"""Small random models for tests, generic and full of ties."""

import itertools

import numpy as np

import cmdpkit as ck
from cmdpkit.model.policy import one_hot


def synthetic(rho: float = 2.0) -> ck.CMDP:
    """The paper's synthetic CMDP straight from its stream, independent of the shipped environment."""
    stream = np.random.RandomState(3)
    r, g = stream.rand(3, 3, 3), stream.rand(3, 3, 3)
    P = stream.rand(3, 3, 3, 3)
    mu = stream.rand(3)
    return ck.CMDP(P / P.sum(-1, keepdims=True), r, g, rho, mu / mu.sum())


def tiny(rng: np.random.Generator, N: int, *, ties: bool) -> ck.CMDP:
    """At most 729 deterministic policies; with ties, all numbers are 0, 1/2 or 1 and states may be unreachable."""
    H, S, A = ((1, 3, 3), (2, 2, 3), (3, 2, 2), (2, 3, 2), (3, 1, 3), (2, 3, 3))[rng.integers(6)]
    if ties:
        P = rng.multinomial(2, np.ones(S) / S, size=(H, S, A)) / 2
        r, g = rng.integers(0, 2, (H, S, A)).astype(float), rng.integers(0, 2, (N, H, S, A)).astype(float)
        mu = np.eye(S)[0]
    else:
        P = rng.dirichlet(np.ones(S), size=(H, S, A))
        r, g = rng.normal(size=(H, S, A)), rng.normal(size=(N, H, S, A))
        mu = rng.dirichlet(np.ones(S))
    actions = rng.random((H, S, A)) < 0.8
    actions[..., 0] = True
    return ck.CMDP(P, r, g if N else None, np.zeros(N) if N else None, mu, actions=actions)


def deterministic_values(cmdp: ck.CMDP) -> np.ndarray:
    """(v, w_1..w_N) of every deterministic policy, by plain NumPy recursion: [policies, 1 + N]."""
    P, signals, allowed = cmdp.P, np.concatenate((cmdp.r[None], cmdp.g)), cmdp.actions
    choices = [np.flatnonzero(row) for row in allowed.reshape(-1, cmdp.A)]
    rows = []
    for choice in itertools.product(*choices):
        pi = one_hot(np.array(choice).reshape(cmdp.H, cmdp.S), cmdp.A)
        V = np.zeros((len(signals), cmdp.S))
        for h in reversed(range(cmdp.H)):
            V = np.einsum("sa,nsa->ns", pi[h], signals[:, h] + np.einsum("sat,nt->nsa", P[h], V))
        rows.append(V @ cmdp.mu)
    return np.array(rows)


def with_rho(cmdp: ck.CMDP, rho: np.ndarray) -> ck.CMDP:
    return cmdp.with_bounds(**{c.name: float(x) for c, x in zip(cmdp.constraints, rho, strict=True)})


def sparse(S: int, A: int, H: int, successors: int, N: int, seed: int = 0) -> ck.CMDP:
    """A stationary model with few successors a pair, bounds halfway between what comes by itself and the best."""
    from cmdpkit.exact.sources import columns_of

    rng = np.random.default_rng(seed)
    rows, nexts = np.repeat(np.arange(S * A), successors), rng.integers(0, S, S * A * successors)
    kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, rng.dirichlet(np.ones(successors), S * A).reshape(-1))
    cmdp = ck.CMDP(kernel, rng.random((S, A)), rng.random((N, S, A)), np.zeros(N), 0, horizon=H)
    pool = columns_of(cmdp)
    _, free, _ = pool.price(np.eye(1, 1 + N)[0])
    _, weights, _ = pool.reach(pool.scaled(np.zeros(N)), np.ones(N))
    best = sum(x * c.w for x, c in zip(weights, pool.columns, strict=False))
    return with_rho(cmdp, (free.w + best) / 2 * pool.units[1:] + pool.offsets[1:])
