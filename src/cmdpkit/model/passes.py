"""Passes over the steps of a policy: backward for what it is worth, forward for where it goes.

Only actions with a positive probability are looked at, and nothing of size [H, S, A] is made.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import inlined, njit
from cmdpkit.model.first_calls import call
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray


def backward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """Expected totals [1 + N] of reward and utilities from the start, over the horizon."""
    c = cmdp.compact
    V = np.zeros((2, cmdp.S))
    found = []
    for signal in (c.r, *c.g):
        call(_backward, _work(cmdp), c.indptr, c.successors, c.prob, signal, cmdp.H, policy.decisions, V)
        found.append(cmdp.mu @ V[0])
    return np.array(found)


def forward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """The probability [H, S] of being in each state at each step."""
    c = cmdp.compact
    d = np.zeros((cmdp.H, cmdp.S))
    d[0] = cmdp.mu
    call(_forward, _work(cmdp), c.indptr, c.successors, c.prob, policy.decisions, 0, d)
    return d


def one_step(cmdp: CMDP, policy: Policy, h: int, here: FloatArray) -> FloatArray:
    """The probabilities [S] of the states at step h + 1, from those at step h."""
    c = cmdp.compact
    d = np.zeros((2, cmdp.S))
    d[0] = here
    call(_forward, _work(cmdp), c.indptr, c.successors, c.prob, policy.decisions, h, d)
    there: FloatArray = d[1]
    return there


def _work(cmdp: CMDP) -> int:
    """Inner loops of a pass over all steps, for a policy that draws rarely."""
    return cmdp.H * (cmdp.S + cmdp.kernel.nonzeros // cmdp.kernel.T // cmdp.A)


@njit(cache=True, nogil=True)
def _backward(indptr, successors, prob, signal, H, decisions, V):
    """Fill V[h % 2, s] with the expected total of the signal [1 or H, S, A] from step h on."""
    choice, first, s_draw, p_draw = decisions
    T, S = choice.shape
    A = p_draw.shape[1]
    kernels = (len(indptr) - 1) // (S * A)
    V[H % 2] = 0.0
    for h in range(H - 1, -1, -1):
        now, then = V[h % 2], V[(h + 1) % 2]
        x, row = signal[h % len(signal)], (h % kernels) * S * A
        draw, last = first[h % T], first[h % T + 1]
        for s in range(S):
            if draw < last and s_draw[draw] == s:
                total = 0.0
                for a in range(A):
                    if p_draw[draw, a] != 0.0:
                        value = _value(indptr, successors, prob, row + s * A + a, x[s, a], then)
                        total += p_draw[draw, a] * value
                now[s] = total
                draw += 1
            else:
                a = int(choice[h % T, s])
                now[s] = _value(indptr, successors, prob, row + s * A + a, x[s, a], then)


@inlined
def _value(indptr, successors, prob, row, signal, then):
    """The signal of one step, and the expected total `then` [S] afterwards."""
    value = signal
    for i in range(indptr[row], indptr[row + 1]):
        value += prob[i] * then[successors[i]]
    return value


@njit(cache=True, nogil=True)
def _forward(indptr, successors, prob, decisions, begin, d):
    """Fill d[1], d[2], ... with the probabilities [S] of the states after step `begin`, given d[0] at that step."""
    choice, first, s_draw, p_draw = decisions
    T, S = choice.shape
    A = p_draw.shape[1]
    kernels = (len(indptr) - 1) // (S * A)
    for k in range(len(d) - 1):
        h, here, there = begin + k, d[k], d[k + 1]
        row = (h % kernels) * S * A
        draw, last = first[h % T], first[h % T + 1]
        for s in range(S):
            drawn = draw < last and s_draw[draw] == s
            if here[s] != 0.0:
                if drawn:
                    for a in range(A):
                        _send(indptr, successors, prob, row + s * A + a, here[s] * p_draw[draw, a], there)
                else:
                    _send(indptr, successors, prob, row + s * A + int(choice[h % T, s]), here[s], there)
            draw += drawn


@inlined
def _send(indptr, successors, prob, row, mass, there):
    """Add where a mass goes to the probabilities `there` [S] of the next step."""
    if mass != 0.0:
        for i in range(indptr[row], indptr[row + 1]):
            there[successors[i]] += mass * prob[i]
