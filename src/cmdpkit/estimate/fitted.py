"""The model that a log suggests, the totals of policies in it, and the standard errors of those totals.

**Model.** Every state and action (at every step, unless the steps share their counts) has a row: the shares of its next
states and the means of its signals in the log. Where the log has no such row, an additional state stands for "unknown":
the process goes there and stays, and each signal is the smallest or the largest of the log, whichever is asked for.

**Errors.** They are those of the delta method (`cmdpkit.estimate.model`), where y is what a recorded transition is
worth in signal and value of the next state together. Long-run averages forget the start. Where steps share their
counts, one row acts at all steps. The average variance within rows counts as `pseudo` visits of every row. Where no row
was visited twice there is nothing to average, and the error is infinite.

**Limits.** They use Student's quantile t with the degrees of freedom that Welch and Satterthwaite give for a sum of
variances. Totals of rare and costly events are skewed: where few of them happened, the estimate and its error are both
too small. With the skewness k of the estimate (third moments add up over the rows as variances do) a limit moves by
k (2 t^2 + 1) / 6 standard errors, if that is outward (Johnson, Modified t tests and confidence intervals for
asymmetrical populations, 1978).

**Surprises.** An event that never happened in the log leaves no trace in a variance. Every limit is therefore computed
as if the log had one more transition of the worst kind: with the worst signal, and to the worst next state. It is in
the row in which it moves the total most, which is by

    d = the largest  flow(row) / visits(row) * (its worth - the mean of the row)  of all rows.

So what the log rarely tried, and the policy does often, needs visits of its own. Or the log had one more episode, from
the worst first state, which moves the total by (its worth - the mean) / episodes. The larger of the two is d. The
estimate moves by d, the variance grows by d^2 and the third moment by d^3. For n visits without an event this gives a
probability of at most 3.7 / n with 95 %, where the exact limit is 3.0 / n, and limits that are similarly close for
events that were seen a few times (Statement 16 of docs/theory/logs.md).

Next states and first states are all that can occur. If the user has not declared them, one more state stands for those
that the log never met: it is the state "unknown", in which the worst signal goes on to the end. So a surprise upward is
worth what the model with the largest signals says, and one downward what the model with the smallest says. Where a
condition excludes such states (`Log.open`), the states of the log are left; with counts by step, those of the step.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from cmdpkit.estimate.counts import kernel_of, means_of, start_of
from cmdpkit.estimate.log import Log
from cmdpkit.estimate.model import row_shares, values_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.tolerances import MOST_FREEDOM, NO_FLOW, SMALLEST_ERROR
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel


class Total(NamedTuple):
    """An estimated total of a policy: reward or the signal of a constraint, in the user's sense."""

    low: float  # if every signal is the smallest of the log wherever the log says nothing
    high: float  # if it is the largest there
    error: float  # standard error
    freedom: float  # degrees of freedom of the standard error
    skewness: float  # of the estimate
    surprises: tuple[float, float]  # how far one more transition of the worst kind would move it down, and up
    shares: FloatArray  # [T, S, A]: what each row contributes to the squared error

    @property
    def middle(self) -> float:
        """The estimate."""
        return (self.low + self.high) / 2

    def spread(self, sign: int) -> float:
        """The standard error with a surprise counted in, downward where at least the bound is asked for (sign 1)."""
        return math.hypot(self.error, self.surprises[0 if sign > 0 else 1])

    def below(self, level: float) -> float:
        """The lower limit, which holds with probability ``level``."""
        return self.low - self._distance(level, -self.skewness, self.surprises[0])

    def above(self, level: float) -> float:
        """The upper limit, which holds with probability ``level``."""
        return self.high + self._distance(level, self.skewness, self.surprises[1])

    def _distance(self, level: float, skewness: float, surprise: float) -> float:
        """From the estimate to a limit, with the skewness in its direction."""
        error = math.hypot(self.error, surprise)
        if error == 0.0 or math.isinf(error):
            return float(error)
        share = (self.error / error) ** 2  # of the variance that was estimated
        t = float(stdtrit(min(self.freedom / max(share**2, SMALLEST_ERROR), MOST_FREEDOM), level))
        third = skewness * share**1.5 + (surprise / error) ** 3
        return float(surprise + error * (t + max(third, 0.0) * (2 * t * t + 1) / 6))


class Fitted:
    """The model of a log; `T` is 1 if all steps share their counts, or else the horizon.

    Without ``unknown`` there is no additional state, and rows that the log does not have stay where they are.
    """

    def __init__(self, log: Log, T: int, *, unknown: bool = True) -> None:
        self.log, self.T = log.moves(T), T
        log = self.log
        self.S, self.A = log.S + unknown, log.A  # the last state is "unknown"
        self.row = log.rows(T, self.S)  # [n], of every transition
        self.visits: IntArray = np.bincount(self.row, minlength=T * self.S * self.A)
        self.unknown = self.visits == 0  # [T * S * A]: rows about which the log says nothing
        self.unknown.reshape(T, self.S, self.A)[:, : log.S][:, log.terminal if unknown else slice(None)] = False

    @cached_property
    def shares(self) -> Kernel:
        """Shares of the next states."""
        rows = np.arange(len(self.visits))
        ends = np.where(self.unknown, self.S - 1, rows // self.A % self.S)
        return kernel_of((self.T, self.S, self.A), self.row, self.log.s_next, np.ones(len(self.row)), ends)

    @cached_property
    def means(self) -> FloatArray:
        """[1 + N, T * S * A]: mean signals; 0 where the log says nothing."""
        return np.array([self._row_means(x) for x in self.log.x])

    def _row_means(self, x: FloatArray) -> FloatArray:
        """[T * S * A]: the means of numbers x [n] that belong to the transitions of the log."""
        return means_of(np.bincount(self.row, weights=x, minlength=len(self.visits)), self.visits)

    def cmdp(self, fill: FloatArray, allowed: BoolArray | None = None, **names: Any) -> CMDP:
        """The model with the signals `fill` [1 + N] where the log says nothing."""
        signals = np.where(self.unknown, fill[:, None], self.means).reshape(-1, self.T, self.S, self.A)
        mu = start_of(np.bincount(self.log.starts, minlength=self.S))
        names |= {"mu": mu, "constraints": self.log.constraints, **judged_by(self.log)}
        return CMDP(self.shares, signals[0], signals[1:], actions=allowed, renormalise=True, **names)

    @cached_property
    def _extremes(self) -> tuple[CMDP, CMDP]:
        """The models with the smallest and the largest signals where the log says nothing."""
        low, high = self.log.ranges.T
        return self.cmdp(low), self.cmdp(high)

    def totals(self, pi: FloatArray) -> tuple[list[Total], float]:
        """The totals [1 + N] of the policy pi [T', S - 1, A], and how often it does what the log does not know."""
        wide = np.zeros((*pi.shape[:1], self.S, self.A))
        wide[:, :-1], wide[:, -1, 0] = pi, 1.0
        low, high = self._extremes
        q, worst, below = values_of(low, wide)
        _, best, above = values_of(high, wide)
        lost = float((q.reshape(len(q), -1) * self.unknown.reshape(self.T, -1))[:, : -self.A].sum())
        if lost <= NO_FLOW:
            best = worst  # without differences of rounding
        ends = zip(worst, best, below, above, strict=True)
        return [self._total(m, q, (v, w), (V, W)) for m, (v, w, V, W) in enumerate(ends)], lost

    def _total(
        self, m: int, q: FloatArray, totals: tuple[float, float], values: tuple[FloatArray, FloatArray]
    ) -> Total:
        """The total of signal m between two estimates, with its error, skewness and surprises.

        ``values`` are those of the models with the smallest and with the largest signals where the log says nothing.
        """
        again = len(self.row) - int((self.visits > 0).sum())  # degrees of freedom of the average variance
        if not again or not all(np.isfinite(V).all() for V in values):
            nothing = np.zeros((self.T, self.S - 1, self.A))
            return Total(*totals, np.inf, 1.0, 0.0, (np.inf, np.inf), nothing)
        worths = [self._worth(q, V, m) for V in values]
        errors = [self._error(V, *worth, again) for V, worth in zip(values, worths, strict=True)]
        error, freedom, skewness, shares = errors[totals[0] < totals[1] and errors[1][0] > errors[0][0]]
        surprises = [self._surprise(q, V, *worths[i], m, (-1, 1)[i]) for i, V in enumerate(values)]
        return Total(*totals, error, freedom, skewness, (surprises[0], surprises[1]), shares)

    def _error(
        self, V: FloatArray, through: FloatArray, y: FloatArray, means: FloatArray, again: int, pseudo: float = 5.0
    ) -> tuple[float, float, float, FloatArray]:
        """Standard error, its degrees of freedom, the skewness of the estimate, and the shares of the rows.

        ``through``, ``y`` and ``means`` are those of `_worth`.
        """
        n, first = np.maximum(self.visits, 1), V[0][self.log.starts]
        off = y - means[self.row]
        squares: FloatArray = np.bincount(self.row, weights=off**2, minlength=len(n)).astype(float)
        shares, freedom = row_shares(through, squares, self.visits, pseudo=min(pseudo, again), ddof=1)
        start = 0.0 if self._forgets else float(first.var(ddof=1)) / len(first)
        variance, by_row = float(shares.sum()) + start, shares.reshape(self.T, self.S, self.A)[:, :-1]
        if variance == 0.0:
            return 0.0, 1.0, 0.0, by_row
        effective = variance**2 / (float((shares**2 / freedom).sum()) + start**2 / max(len(first) - 1, 1))
        third = float((((through / n)[self.row] * off) ** 3).sum())
        if start:
            third += float(((first - first.mean()) ** 3).mean()) / len(first) ** 2
        return variance**0.5, effective, third / variance**1.5, by_row

    @property
    def _forgets(self) -> bool:
        """Whether nothing is said about the start: averages forget it, and a single episode shows no variation."""
        return self.log.criterion.kind == "average" or len(self.log.starts) < 2

    def _surprise(
        self, q: FloatArray, V: FloatArray, through: FloatArray, y: FloatArray, means: FloatArray, m: int, sign: int
    ) -> float:
        """How far one more transition or episode of the worst kind would move a total down (sign -1) or up (1)."""
        seen, worst = self.visits > 0, self._worst_values(V, sign)
        signal, criterion = self.log.ranges[m, (1 + sign) // 2], self.log.criterion
        ahead: Any
        if not criterion.has_horizon:
            ahead = (criterion.discount or 1.0) * worst[0]
        else:
            ahead = worst[1:] @ self._weights(q) if self.T == 1 else np.repeat(worst[1:], self.S * self.A)
        beyond = sign * (signal + ahead - means)
        moved = (through * beyond / np.maximum(self.visits, 1))[seen]
        first = V[0][self.log.starts]
        start = 0.0 if self._forgets else sign * float(worst[0] - first.mean()) / len(first)
        return max(float(moved.max()), start, 0.0)

    def _worst_values(self, V: FloatArray, sign: int) -> FloatArray:
        """[len(V)]: the smallest (sign -1) or largest (1) value of the states that can occur at each step."""
        log, extreme = self.log.whole or self.log, np.max if sign > 0 else np.min
        if log.open:
            return np.asarray(V[:, -1])  # from the state "unknown" the worst signal goes on to the end
        if log.complete or self.T == 1:
            return np.asarray(extreme(V[:, :-1], axis=1))
        met = [log.starts, *(log.s_next[log.step == h] for h in range(self.T))]
        return np.array([extreme(V[h, s]) if len(s) else 0.0 for h, s in enumerate(met)])

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """Every row with each of its next states, as row * S + state, and which of them each transition is."""
        pairs, pair = np.unique(self.row * self.S + self.log.s_next, return_inverse=True)
        return pairs, pair

    def _worth(self, q: FloatArray, V: FloatArray, m: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The flow through each row, what each recorded transition is worth, and the mean of that in each row.

        It is worth its signal and the value of its next state. Where steps share their counts, their values are
        weighted by the flow, or equally where there is none.
        """
        log = self.log
        if not log.criterion.has_horizon:
            steps, discount = log.criterion.steps_in_value or 1.0, log.criterion.discount or 1.0
            through, y = steps * q.reshape(-1), log.x[m] + discount * V[0][log.s_next]
        elif self.T > 1:
            through, y = q.reshape(-1), log.x[m] + V[1:][log.step, log.s_next]
        else:
            weights, (pairs, pair) = self._weights(q), self._pairs
            ahead = np.zeros(len(pairs))
            for h in range(len(q)):
                ahead += weights[h, pairs // self.S] * V[h + 1, pairs % self.S]
            through, y = q.reshape(len(q), -1).sum(axis=0), log.x[m] + ahead[pair]
        return through, y, self._row_means(y)

    def _weights(self, q: FloatArray) -> FloatArray:
        """[H, S * A]: how the flow through each row is spread over the steps; evenly where there is none."""
        flat = q.reshape(len(q), -1)
        through = flat.sum(axis=0)
        used = through > NO_FLOW
        weights: FloatArray = np.where(used, flat / np.where(used, through, 1.0), 1 / len(q))
        return weights


def plug_in(log: Log, T: int) -> CMDP:
    """The model of shares and means, see `Estimate.cmdp`."""
    fitted = Fitted(log, T, unknown=False)
    allowed = fitted.log.visits(T) > 0
    put_usual(allowed, log.usual_actions(T))
    names = {"states": log.states, "action_names": log.action_names}
    return fitted.cmdp(np.zeros(1 + log.N), allowed, **names)


def put_usual(table: Any, usual: IntArray) -> None:
    """Where a state has no action in table [T, S, A], a mask or numbers of visits, give it the usual one [T, S]."""
    t, s = np.nonzero(~table.any(axis=-1))
    table[t, s, usual[t, s]] = 1


def judged_by(log: Log) -> dict[str, Any]:
    """The criterion as arguments of `CMDP`."""
    judged = log.criterion
    average = "average" if judged.kind == "average" else None
    return {"horizon": judged.horizon, "discount": judged.discount, "criterion": average}
