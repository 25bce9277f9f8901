"""The random numbers of compiled code: one xoshiro256++ state per run, passed to every call that draws.

The generator is the public-domain xoshiro256++ of Blackman and Vigna. Its state is an array of four 64-bit words, so a
run gives the same bits in whatever pieces it is played, and it can be resumed if the array is saved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import compiled
from cmdpkit.model.validate import check_seed, is_int

Stream = NDArray[np.uint64]  # [4]

TO_UNIT = 2.0**-53  # the 53 high bits of a draw make a float in [0, 1)
SHIFT, ROTATE_SUM, ROTATE_STATE = np.uint64(17), np.uint64(23), np.uint64(45)
WORD, HIGH_53 = np.uint64(64), np.uint64(11)


def stream(seed: int, *keys: int) -> Stream:
    """A new stream. Different seeds or keys give independent streams; one run may use several, with different keys.

    >>> stream(7).tolist() == stream(7).tolist(), stream(7).tolist() == stream(7, 0).tolist()
    (True, False)
    """
    check_seed(seed)
    for i, key in enumerate(keys):
        if not is_int(key) or key < 0:
            raise CmdpkitError(f"key {i} is {key!r}, expected a whole number, at least 0")
    sequence = np.random.SeedSequence(int(seed), spawn_key=[int(key) for key in keys])
    return sequence.generate_state(4, np.uint64).astype(np.uint64)


def generator(rng: Stream) -> np.random.Generator:
    """A NumPy generator seeded with the next four draws of a stream, for work done on whole arrays.

    >>> rng, again = stream(7), stream(7)
    >>> x = generator(rng).random()
    >>> generator(again).random() == x, generator(rng).random() == x
    (True, False)
    """
    return np.random.default_rng([int(next_u64(rng)) for _ in range(4)])


@compiled(inline=True)
def next_u64(rng):
    """64 random bits; moves the stream on by one draw."""
    s0, s1, s2, s3 = rng[0], rng[1], rng[2], rng[3]
    total = s0 + s3
    bits = ((total << ROTATE_SUM) | (total >> (WORD - ROTATE_SUM))) + s0
    s2 ^= s0
    s3 ^= s1
    rng[0] = s0 ^ s3
    rng[1] = s1 ^ s2
    rng[2] = s2 ^ (s1 << SHIFT)
    rng[3] = (s3 << ROTATE_STATE) | (s3 >> (WORD - ROTATE_STATE))
    return bits


@compiled(inline=True)
def uniform(rng):
    """A float in [0, 1), one draw."""
    return np.float64(next_u64(rng) >> HIGH_53) * TO_UNIT


@compiled(inline=True)
def draw(pi, i, rng):
    """An action of row i of pi [rows, A]; a certain one takes no random number."""
    left, last = -1.0, 0
    for a in range(pi.shape[1]):
        p = pi[i, a]
        if p >= 1.0:
            return a
        if p > 0.0:
            left = (uniform(rng) if left < 0.0 else left) - p
            last = a
            if left < 0.0:
                return a
    return last
