"""Strict conversion of what an environment returns.

Gymnasium promises a whole number as the observation of a `Discrete` space, a number as the reward and truth values for
the end of an episode. Python would silently convert much more: 1.7 or "1" to state 1, and the text "False" to true. The
functions here refuse that with a TypeError, and `complaint` explains to the user what is wrong.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import quoted
from cmdpkit.model.validate import is_int


def whole(x: Any) -> int:
    """A whole number: an int, a NumPy integer, or a float or array without axes that is exactly whole.

    >>> whole(np.int64(3)), whole(2.0), whole(np.array(4))
    (3, 2, 4)
    >>> whole("1")
    Traceback (most recent call last):
    TypeError: not a whole number
    """
    if is_int(x):
        return int(x)
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "iuf" or array != np.floor(array) or not np.isfinite(array):
        raise TypeError("not a whole number")
    return int(array)


def real(x: Any) -> float:
    """A single number; a text that looks like one is refused."""
    if isinstance(x, numbers.Real):
        return float(x)
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "biuf":
        raise TypeError("not a number")
    return float(array)


def flag(x: Any) -> bool:
    """A truth value, or 0 or 1; everything else is refused, because Python would take almost all of it as true."""
    if isinstance(x, bool | np.bool_):
        return bool(x)
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "biu" or array not in (0, 1):
        raise TypeError("not a truth value")
    return bool(array)


def costs(info: Mapping[str, Any], N: int) -> NDArray[Any]:
    """The costs of N constraints, as numbers [N]: ``info["cost"]``, or for several ``info["costs"]`` if there is one.

    For one constraint, a single number is accepted too.
    """
    array = np.asarray(info["costs" if N > 1 and "costs" in info else "cost"])
    if array.dtype.kind not in "biuf" or (array.shape != (N,) and not (N == 1 and array.shape == ())):
        raise TypeError("not the costs")
    return array


def complaint(result: Any, N: int) -> str:
    """What is wrong with the answer of a step, for N constraints."""
    expected = "(obs, reward, terminated, truncated, info)"
    if not isinstance(result, tuple | list):
        return f"env.step returned {quoted(result)}, expected {expected}"
    if len(result) != 5:
        advice = "; cmdpkit.gym.CostFromStep takes the cost out of six" if len(result) == 6 else ""
        return f"expected {expected}, got {len(result)} values{advice}: {quoted(result)}"
    obs, reward, terminated, truncated, info = result
    if _refused(real, reward):
        advice = "; cmdpkit.gym.CostFromReward splits a vector" if _has_axes(reward) else ""
        return f"the reward is {quoted(reward)}, expected a number{advice}"
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if _refused(flag, value):
            return f"{name} is {quoted(value)}, expected True or False"
    if _refused(whole, obs):
        return f"the observation is {quoted(obs)}, expected a whole number, as the observation space is Discrete"
    if not isinstance(info, Mapping):
        return f'info is {quoted(info)}, expected a dict with a "cost"'
    key = "costs" if N > 1 and "costs" in info else "cost"
    if key not in info:
        return f'info has no "cost" for {N} constraints; cmdpkit.gym.WithCost adds one'
    return f'info["{key}"] is {quoted(info[key])}, expected {"a number" if N == 1 else f"{N} numbers"}'


def reset_complaint(result: Any) -> str:
    """What is wrong with the answer of a reset."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        return f"env.reset returned {quoted(result)}, expected (obs, info)"
    found = quoted(result[0])
    return f"the first observation is {found}, expected a whole number, as the observation space is Discrete"


def _refused(check: Any, value: Any) -> bool:
    try:
        check(value)
    except Exception:  # a user's class may raise anything
        return True
    return False


def _has_axes(x: Any) -> bool:
    try:
        return np.ndim(x) > 0
    except Exception:
        return False
