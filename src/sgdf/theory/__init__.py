"""Results that gradients and estimates can be held against.

The exact Kalman filter, and the paper's theory in closed forms, simulations and bounds.
"""

from .kalman import KalmanOutput, kalman
from .momentum.bounds import MomentumBounds, momentum_bounds
from .momentum.classical import BestContraction, best_contraction, contraction, excess_loss
from .momentum.moments import (
    MomentumError,
    MomentumLoss,
    MomentumMoments,
    momentum_error,
    momentum_loss,
    momentum_moments,
)
from .momentum.paths import MomentumPaths, simulate_momentum

__all__ = [
    "BestContraction",
    "KalmanOutput",
    "MomentumBounds",
    "MomentumError",
    "MomentumLoss",
    "MomentumMoments",
    "MomentumPaths",
    "best_contraction",
    "contraction",
    "excess_loss",
    "kalman",
    "momentum_bounds",
    "momentum_error",
    "momentum_loss",
    "momentum_moments",
    "simulate_momentum",
]
