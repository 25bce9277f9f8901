"""The certificate of a learner that counts: what `estimate.certificate` proves about the policy it would hand over."""

from __future__ import annotations

import numpy as np

from cmdpkit.estimate.alike import steps_differ
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.counts import Counts
from cmdpkit.estimate.intervals import Intervals
from cmdpkit.learners import Spec
from cmdpkit.model.transitions import FloatArray


def certifier_of(spec: Spec, delta: float) -> Certifier:
    """What proves statements from the counts of a run that may be wrong with probability delta."""
    T = 1 if spec.stationary else spec.H
    return Certifier(np.asarray(spec.allowed), spec.rho, T, delta, noiseless=spec.noiseless)


def proved(certifier: Certifier, counts: Counts, pi: FloatArray, sample: Intervals | None = None) -> Intervals | None:
    """What the counts, and a `sample` of intervals from episodes of pi itself, prove about pi; None if nothing.

    Counts that contradict the declaration that the world is stationary prove nothing: the sample is left.
    """
    if not counts.starts.any() or steps_differ(counts.halves):
        return sample
    certifier.look(counts)
    return certifier.prove(pi, sample)
