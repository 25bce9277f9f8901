"""Random tabular CMDPs: dense or sparse, any number of constraints, with exactly the Slater slack asked for.

Dirichlet kernels and independent random rewards and utilities. The thresholds are set by backward induction. Let w be
the utilities of a policy that maximises some positively weighted sum of them; then rho_n = w_n - slack * H for every n.
That policy is strictly feasible for all constraints at once, and no policy does better: the smallest of a policy's
margins over the thresholds is at most their weighted mean, which is at most slack * H. So the Slater slack *is*
slack * H, whatever the weights.

Taken alone, a bound binds when the policy that maximises reward falls below it. The weights are chosen accordingly.
They begin equal, and five rounds shift weight to the utility that exceeds the one of that policy by the least. The
round in which this least margin is largest is used. All bounds then exclude the policy that maximises reward, as long
as slack is below that margin divided by H, typically 0.1 to 0.4 for one constraint and 0.05 to 0.2 for three. More
actions raise it, and so does ``conflict``, which sets utilities against the reward.

States: 1..S.
Actions: 1..A, everywhere.
Reward: Drawn once per (h, s, a), by ``rewards``: "uniform" on [0, 1], or "bernoulli": 1 with probability 0.1, else 0.
Constraints: "utility" (or "utility 1".."utility N"): E[sum of g_n] >= rho_n. With probability ``conflict`` an entry of
    g_n is 1 - r, otherwise it is drawn as the reward is.
Start: State 1.
Parameters:
    S, A, H, N : numbers of states, actions, steps and constraints (N may be 0)
    successors : None for dense rows, or how many next states each row has, drawn without repetition
    concentration : of the Dirichlet rows; small values make rows with few likely successors
    rewards : "uniform" or "bernoulli"
    conflict : share of utilities that are 1 - reward, from 0 to 1
    slack : Slater slack divided by H; with a negative one the problem is infeasible, by exactly that much
    stationary : draw one kernel and one signal for all steps instead of one per step
    seed : of the NumPy generator that draws the instance
Reference: Dirichlet(0.1) kernels and 0/1 signals as in public code for episodic CMDPs; the choice of thresholds is our
    own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cmdpkit.envs._shared import choice, flag, real, whole
from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least
from cmdpkit.model.transitions import DENSE_LIMIT, FloatArray, Kernel

BERNOULLI_MEAN = 0.1  # share of signals that are 1, where they are 0 or 1
WEIGHT_ROUNDS, WEIGHT_RATE = 5, 3.0  # rounds and step size of the search for weights


def build(
    S: int = 10,
    A: int = 3,
    H: int = 5,
    N: int = 1,
    successors: int | None = None,
    concentration: float = 0.1,
    rewards: str = "uniform",
    conflict: float = 0.0,
    slack: float = 0.05,
    stationary: bool = False,
    seed: int = 0,
) -> CMDP:
    """A random instance; everything about it is decided by the parameters and the seed."""
    S, A, H, N = whole("S", S, 1), whole("A", A, 1), whole("H", H, 1), whole("N", N, 0)
    rewards = choice("rewards", rewards, ("uniform", "bernoulli"))
    conflict, slack = real("conflict", conflict, 0, 1), real("slack", slack, -1, 1)
    T = 1 if flag("stationary", stationary) else H
    rng = np.random.default_rng(whole("seed", seed, 0))

    kernel = _kernel(rng, (T, S, A), successors, real("concentration", concentration, 1e-3))
    r = _signal(rng, rewards, (T, S, A))
    g = np.where(rng.random((N, T, S, A)) < conflict, 1 - r, _signal(rng, rewards, (N, T, S, A)))
    rho = _reachable(kernel, r, g, H) - slack * H
    names = ["utility"] if N == 1 else [f"utility {n + 1}" for n in range(N)]
    constraints = [at_least(name, bound, x) for name, bound, x in zip(names, rho, g, strict=True)]
    return CMDP(kernel, r, horizon=H, constraints=constraints, exact=True)


def _kernel(
    rng: np.random.Generator, shape: tuple[int, int, int], successors: int | None, concentration: float
) -> Kernel:
    """Dirichlet rows over all states, or over ``successors`` distinct ones per row."""
    T, S, A = shape
    if successors is None:
        if T * S * A * S > DENSE_LIMIT:
            raise CmdpkitError(
                f"{T * S * A:,} rows with {S:,} next states each do not fit in memory; give successors, the number of "
                "next states of a row, as in successors=5"
            )
        return Kernel.from_dense(rng.dirichlet(np.full(S, concentration), (T, S, A)))
    k = whole("successors", successors, 1, S)
    prob = rng.dirichlet(np.full(k, concentration), T * S * A)
    rows = np.repeat(np.arange(T * S * A), k)
    return Kernel.from_entries(shape, rows, _distinct(rng, T * S * A, k, S).ravel(), prob.ravel())


def _distinct(rng: np.random.Generator, rows: int, k: int, S: int) -> NDArray[np.int64]:
    """[rows, k]: k different states per row, every set equally likely (Floyd's algorithm on all rows at once)."""
    chosen = np.empty((rows, k), dtype=np.int64)
    for i, top in enumerate(range(S - k, S)):
        draw = rng.integers(0, top + 1, rows)
        taken = (chosen[:, :i] == draw[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, top, draw)
    return chosen


def _signal(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> FloatArray:
    u = rng.random(shape)
    return u if kind == "uniform" else (u < BERNOULLI_MEAN).astype(float)


def _reachable(kernel: Kernel, r: FloatArray, g: FloatArray, H: int) -> FloatArray:
    """Utilities w [N] that some policy has, none exceeds in all n, and the policy that maximises reward falls below."""
    weights = np.ones(len(g))
    if len(g) <= 1:
        return _values(kernel, g, weights, H)
    free = _values(kernel, np.concatenate([r[None], g]), np.append(1.0, 0 * weights), H)[1:]
    reached = []
    for _ in range(WEIGHT_ROUNDS):
        w = _values(kernel, g, weights, H)
        reached.append(w)
        weights = weights * np.exp(-WEIGHT_RATE * (w - free) / H)
    return max(reached, key=lambda w: float((w - free).min()))


def _values(kernel: Kernel, signals: FloatArray, weights: FloatArray, H: int) -> FloatArray:
    """Totals [n] of signals [n, T, S, A] from state 1 under the policy that maximises their weighted sum."""
    W = np.zeros((len(signals), kernel.S))
    for h in reversed(range(H)):
        Q = signals[:, h % kernel.T] + _expected(kernel, h % kernel.T, W)
        best = np.tensordot(weights, Q, axes=1).argmax(axis=-1)
        W = np.take_along_axis(Q, best[None, :, None], axis=-1)[..., 0]
    return W[:, 0]


def _expected(kernel: Kernel, t: int, W: FloatArray) -> FloatArray:
    """sum_s' P[t, s, a, s'] W[n, s'], [N, S, A]; the operators would round it otherwise, and change fingerprints."""
    S, A = kernel.S, kernel.A
    here = slice(kernel.entries(t, 0, 0).start, kernel.entries(t, S - 1, A - 1).stop)
    lengths = kernel.lengths.reshape(kernel.T, S * A)[t]
    terms = kernel.prob[here] * W[:, kernel.successors[here]]
    return np.add.reduceat(terms, np.cumsum(lengths) - lengths, axis=1).reshape(-1, S, A)
