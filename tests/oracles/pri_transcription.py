"""Algorithms 1 to 5 of arXiv 2309.15395 and the Triple-Q that they run, written down line by line in plain Python.

Nothing here is shared with the learners; only the world (`reset`, `step`) and the random stream are. Names are those of
the paper. Where the pseudo-code leaves something open, the choice is marked with "open:".
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import Simulator, reset, step


@dataclass
class World:
    """A problem that counts what is earned in it, up to a number of episodes."""

    sim: Simulator
    rng: np.ndarray
    H: int
    S: int
    A: int
    rho: np.ndarray
    episodes: int

    def __post_init__(self):
        self.returns = []

    @property
    def over(self):
        return len(self.returns) == self.episodes

    def episode(self, act, learn=lambda *_: None):
        """Play one; `learn(h, x, a, signals, x_next, a_next)` is called as soon as a_next is known."""
        x, total = int(reset(self.sim, self.rng)), np.zeros(1 + len(self.rho))
        a = act(0, x)
        for h in range(self.H):
            x_next, row = step(self.sim, h, x, a, self.rng)
            x_next, signals = int(x_next), self.sim.outcomes[row]
            a_next = act(h + 1, x_next) if h + 1 < self.H else 0
            learn(h, x, a, signals, x_next, a_next)
            total += signals
            x, a = x_next, a_next
        self.returns.append(total)
        return total


def triple_q(world, K, D, rho):
    """Triple-Q with the constants of its Theorem 1, for K episodes with action space D: returns and N_h(x, a)."""
    H, S, A, n = world.H, world.S, world.A, len(rho)
    iota = 128 * math.log(math.sqrt(2 * S * A * H) * K)
    eps = 8 * math.sqrt(S * A * H**6 * iota**3) / K**0.2
    chi = eta = K**0.2
    frame = math.ceil(K**0.6)  # open: rounded up
    Q, C = np.full((H + 1, S, A), float(H)), np.full((n, H + 1, S, A), float(H))
    Q[H], C[:, H] = 0.0, 0.0
    visits, N = np.zeros((H, S, A), dtype=int), np.zeros((H, S, A), dtype=int)
    Z, Cbar = np.zeros(n), np.zeros(n)
    value = lambda h, x, a: Q[h, x, a] + sum(Z[i] * C[i, h, x, a] for i in range(n)) / eta  # noqa: E731
    largest = lambda h, x: [a for a in range(A) if D[h, x, a] and value(h, x, a) >= top(h, x)]  # noqa: E731
    top = lambda h, x: max(value(h, x, a) for a in range(A) if D[h, x, a])  # noqa: E731
    greedy = np.array([[largest(h, x)[0] for x in range(S)] for h in range(H)])  # open: ties go to the first action

    def learn(h, x, a, signals, x_next, a_next):
        if h == 0:
            Cbar[:] += C[:, 0, x, a]
        visits[h, x, a] += 1
        N[h, x, a] += 1
        t = visits[h, x, a]
        alpha, b = (chi + 1) / (chi + t), H / 4 * math.sqrt(iota * (chi + 1) / (chi + t))
        Q[h, x, a] = (1 - alpha) * Q[h, x, a] + alpha * (signals[0] + Q[h + 1, x_next, a_next] + b)
        C[:, h, x, a] = (1 - alpha) * C[:, h, x, a] + alpha * (signals[1:] + C[:, h + 1, x_next, a_next] + b)
        if value(h, x, a) < top(h, x):  # open: the greedy action stays while no other one is better
            greedy[h, x] = largest(h, x)[0]

    totals = []
    for k in range(1, K + 1):
        if world.over:
            break
        totals.append(world.episode(lambda h, x: greedy[h, x], learn))
        if k % frame == 0:
            Z = np.maximum(Z + rho + eps - Cbar / frame, 0.0)
            Cbar[:], visits[:], Q[:H], C[:, :H] = 0.0, 0, H, H
            for h, x in np.ndindex(H, S):  # open: everything is tied now; one of the actions is drawn
                tied = largest(h, x)
                greedy[h, x] = tied[int(uniform(world.rng) * len(tied))] if len(tied) > 1 else tied[0]
    return np.array(totals), N


@dataclass
class Constants:
    """Numbers of the paper as functions of K, each of which a test may replace; logarithms are natural."""

    K: int

    def __post_init__(self):
        K = self.K
        self.eps_rho = math.log(K) ** 2 / math.sqrt(K)
        self.rounds = math.ceil(4 * math.log(K))  # open: 4 log K and K^0.25 are rounded up
        self.z_min = 2 * math.log(K)
        self.calls = self.trials = self.rounds
        self.calls_min = self.trials_min = self.z_min
        self.base = math.ceil(K**0.25)
        self.N_min = K**0.2
        self.tolerance = 4 / K**0.03
        self.e = 1 / math.log(K)


def compare(world, c, D, D_hat, rho):
    """Algorithm 3."""
    z = 0
    for _ in range(c.trials):
        reference, _ = triple_q(world, c.base, D, rho)
        smaller, _ = triple_q(world, c.base, D_hat, rho)
        if world.over:
            return 0
        v, mean = reference.mean(axis=0)[0], smaller.mean(axis=0)
        if abs(v - mean[0]) <= c.tolerance and (mean[1:] >= rho).all():
            z += 1
    return 1 if z >= c.trials_min else 0


def pruning(world, c, rho):
    """Algorithm 2; also returns how often every action was used, which only the open choices need."""
    H, S, A = world.H, world.S, world.A
    D, z = np.ones((H, S, A), dtype=bool), np.zeros((H, S, A), dtype=int)
    flag, used = np.zeros((H, S, A), dtype=bool), np.zeros((H, S, A))
    for _ in range(c.rounds):
        _, N = triple_q(world, c.base, D, rho)
        z += c.N_min >= N
        used += N
    remove = z >= c.z_min
    for h, x in np.ndindex(H, S):
        if remove[h, x].all():  # open: no set is emptied
            remove[h, x, used[h, x].argmax()] = False
    D, flag = D & ~remove, flag | remove
    for h, x, a in np.ndindex(H, S, A):  # open: the order of the tests
        if flag[h, x, a] or not D[h, x, a] or D[h, x].sum() == 1 or world.over:  # open: a single action is not tested
            continue
        flag[h, x, a] = True
        without, alone = D.copy(), D.copy()
        without[h, x, a] = False
        alone[h, x] = np.arange(A) == a
        if sum(compare(world, c, D, without, rho) for _ in range(c.calls)) >= c.calls_min:
            D = without
        elif sum(compare(world, c, D, alone, rho) for _ in range(c.calls)) >= c.calls_min:
            D = alone
    return D, used


def decomposition_opt(V, W, rho, rad, e):
    """Decomposition-Opt; open: where it is infeasible, the smallest margin is maximised."""
    M, n = W.shape
    one = {"A_eq": np.ones((1, M)), "b_eq": [1.0]}
    found = linprog(-V, np.vstack([W.T, -W.T]), np.r_[rho + rad, rad - rho], **one, bounds=[(e, 1)] * M)
    if found.status == 0:
        return found.x
    rows = np.hstack([-W.T, np.ones((n, 1))])
    one = {"A_eq": np.append(np.ones(M), 0.0)[None], "b_eq": [1.0]}
    return linprog(np.append(np.zeros(M), -1.0), rows, -rho, **one, bounds=[(e, 1)] * M + [(None, None)]).x[:M]


def greedy_policies(D, used):
    """All of D, [M][H, S]; open: their order, by the share of episodes that used the actions they deviate to."""
    H, S, _ = D.shape
    share = used / used.sum(axis=(1, 2), keepdims=True)
    most = np.where(D, used, -1).argmax(axis=-1)
    spots = list(np.ndindex(H, S))
    every = [
        dict(zip(spots, actions, strict=True)) for actions in itertools.product(*(np.flatnonzero(D[i]) for i in spots))
    ]
    rarity = lambda policy: sum(-math.log(max(share[i][a], 1e-12)) for i, a in policy.items() if a != most[i])  # noqa: E731
    return sorted(every, key=rarity)


def blocks(exact):
    """Whole numbers of plays; open: by largest remainders, the rest is carried to the next round."""
    sizes = np.floor(exact + 1e-9).astype(int)
    for m in np.argsort(-(exact - sizes), kind="stable")[: round(exact.sum()) - sizes.sum()]:
        sizes[m] += 1
    return sizes, exact - sizes


def refinement_and_identification(world, c, D, used, rho):
    """Algorithms 4 and 5: the weights and the identified policy [H, S, A]."""
    H, S, A, n = world.H, world.S, world.A, len(rho)
    policies = greedy_policies(D, used)
    M, root = len(policies), math.isqrt(c.K)  # open: sqrt K is rounded down
    e = min(c.e, 1 / M)  # open: a larger one would be infeasible
    alpha, carry = np.full(M, 1 / M), np.zeros(M)
    V_hat, W_hat, counted = np.zeros(M), np.zeros((M, n)), np.zeros(M)
    if M > 1:
        for t in range(1, c.K // root + 1):  # open: as many whole rounds as K has
            sizes, carry = blocks(alpha * root + carry)
            for m, policy in enumerate(policies):
                for k in range(1, sizes[m] + 1):
                    if world.over:
                        return alpha, None
                    total = world.episode(lambda h, x, p=policy: p[h, x])
                    if k <= max(math.floor(e * root), 1):
                        V_hat[m], W_hat[m], counted[m] = V_hat[m] + total[0], W_hat[m] + total[1:], counted[m] + 1
            rad = math.sqrt(H**2 * math.log(t * e * c.K) / (e * t * math.sqrt(c.K)))
            # Departure: the divisor is the number of returns that were added, not t e sqrt K, which is no whole number.
            alpha = decomposition_opt(V_hat / counted, W_hat / counted[:, None], rho, rad, e)
    N = np.zeros((H, S, A))
    while not world.over:
        sizes, carry = blocks(alpha * root + carry)
        for m, policy in enumerate(policies):
            for _ in range(sizes[m]):
                if not world.over:
                    world.episode(lambda h, x, p=policy: p[h, x], lambda h, x, a, *_: np.add.at(N, (h, x, a), 1))
    total = N.sum(axis=-1, keepdims=True)
    first = np.zeros((H, S, A))
    for (h, x), a in policies[0].items():
        first[h, x, a] = 1.0  # open: states without visits
    return alpha, np.where(total > 0, N / np.maximum(total, 1), first)


def pri(world, c):
    """Algorithm 1."""
    rho = world.rho + c.eps_rho
    D, used = pruning(world, c, rho)
    alpha, policy = refinement_and_identification(world, c, D, used, rho)
    return D, alpha, policy
