"""When a published figure or sentence counts as confirmed, and what agreement can show.

A figure is "as published" only if the whole interval of the measured one lies within a fixed share of it. An interval
that lies partly outside is "undecided", so that few or noisy seeds never count as agreement.
"""

from typing import NamedTuple

from reproduction.text import short

KINDS = {  # in the order in which they are shown, with what they mean
    "exact": "computed by a linear program from the problem as printed; no learning is involved",
    "predicted": "on the problem as printed; nothing was chosen by looking at the published figures",
    "fitted": "a setting was chosen by looking at this figure or at one that implies it, so agreement shows little",
    "reconstruction": "on a problem that is not printed and was reconstructed",
    "ours": "another algorithm or tuning, shown for comparison and not judged",
}
SHARES = {"sum": 0.05, "value": 0.005, "count": 0.0}  # share of the published figure within which it is the same


class Verdict(NamedTuple):
    """A judgement in a few words, and whether it confirms what was published; None if it does neither."""

    text: str
    agrees: bool | None


AS_PUBLISHED, UNDECIDED, NOT_JUDGED = Verdict("as published", True), Verdict("undecided", None), Verdict("–", None)
HOLDS, FAILS = Verdict("holds", True), Verdict("fails", False)
VACUOUS = Verdict("vacuous", None)  # the constants of the claim mean nothing at a length that can be run
NOT_COVERED = Verdict("not covered", None)  # the claim is about other constants than those that were run


def ends(measured):
    """The ends of an interval; the figure itself where there is none.

    >>> import cmdpkit as ck
    >>> ends(ck.seed_mean([1.0]))
    (1.0, 1.0)
    """
    return (measured.mean, measured.mean) if measured.low is None else (measured.low, measured.high)


def judged(rule, published, interval, digits):
    """The verdict on an interval; ``digits`` is half a unit of the last digit that was published.

    >>> [judged("sum", 100.0, x, 0.5).text for x in ((98.0, 102.0), (80.0, 120.0), (139.0, 141.0), (-4.0, -3.0))]
    ['as published', 'undecided', '140 % of published', 'differs by -104']
    """
    (low, high), room = interval, SHARES[rule] * abs(published) + digits
    if published - room <= low and high <= published + room:
        return AS_PUBLISHED
    if low <= published + room and published - room <= high:
        return UNDECIDED
    middle = (low + high) / 2
    if rule != "sum" or middle * published <= 0:
        return Verdict(f"differs by {short(middle - published, 3)}", False)
    return Verdict(f"{100 * middle / published:.3g} % of published", False)


def below(interval, limit):
    """Whether a figure is at most a limit: the whole interval decides.

    >>> [below(x, 2.0).text for x in ((0.5, 1.5), (1.5, 2.5), (2.5, 3.5))]
    ['holds', 'undecided', 'fails']
    """
    low, high = interval
    return HOLDS if high <= limit else FAILS if low > limit else UNDECIDED
