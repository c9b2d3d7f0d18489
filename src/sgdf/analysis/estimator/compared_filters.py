"""The filters that are compared with each other."""

from __future__ import annotations

from .filters import FixedGain, Momentum, RawGradient, RunningMean, SGDFEstimate
from .half_batch_kalman import HalfBatchKalman
from .shadow_filter import ShadowFilter


def filters_of(beta: float) -> list[ShadowFilter]:
    """Return the filters that are compared with each other, with this decay rate."""
    return [
        RawGradient(),
        RunningMean(beta),
        Momentum(beta),
        Momentum(beta, 1.0 - beta),
        FixedGain(beta),
        SGDFEstimate((beta, 0.999)),
        HalfBatchKalman(),
    ]


def comparable_filters(beta: float) -> list[ShadowFilter]:
    """Return those whose estimates have the size of the gradient: all but the running sum."""
    unscaled = Momentum(beta).name
    return [one for one in filters_of(beta) if one.name != unscaled]
