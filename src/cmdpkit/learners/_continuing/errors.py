"""How far the utilities of a policy may be from what the mean model says, because the model is made of counts."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.learners._continuing.counting import Counts
from cmdpkit.learners._continuing.models import Model, chain_of
from cmdpkit.model.chains import Chain, long_run_shares
from cmdpkit.model.transitions import FloatArray


def standard_errors(model: Model, counts: Counts, pi: FloatArray) -> FloatArray:
    """Standard errors [N] of the utilities per step of the policy pi [S, A], by the delta method.

    With relative values h of a utility g and the share of time q(s, a), an error of P and g at (s, a) changes the mean
    of g by q(s, a) times its effect on g + gamma P h, and errors of different pairs are independent: the variance is
    the sum of q^2 / n times the variance of g + gamma h(s') at (s, a). Discounted totals add the error of the start.
    """
    S, A = pi.shape
    P = sparse.csr_array((model.prob, model.successors, model.indptr), shape=(S * A, S))
    chain = chain_of(model, pi)
    if model.kind == "average":
        shares, classes = long_run_shares(chain, model.mu)
        used = max(classes, key=lambda found: found[1])[0]
    else:
        shares = Chain(chain, model.discount).flow((1 - model.discount) * model.mu, 1.0)
        used = np.arange(S)
    x = np.einsum("sa,nsa->sn", pi, model.g)[used]
    h = np.zeros((S, len(model.g)))
    h[used] = Chain(chain[used][:, used], model.discount).values(x)[1]
    n = np.maximum(counts.visits, 1)
    spread = np.maximum(P @ h**2 - (P @ h) ** 2, 0.0).reshape(S, A, -1) * model.discount**2  # [S, A, N]
    means = counts.sums[1:] / n
    spread += np.moveaxis(np.maximum(counts.squares[1:] / n - means**2, 0.0), 0, -1)
    variance = np.einsum("sa,san->n", (shares[:, None] * pi) ** 2 / n, spread)
    if model.kind == "discounted":
        starts = max(1, int(counts.starts.sum()))
        variance += (1 - model.discount) ** 2 * (model.mu @ h**2 - (model.mu @ h) ** 2) / starts
    errors: FloatArray = np.sqrt(np.maximum(variance, 0.0))
    return errors
