"""Results that gradients and estimates can be held against.

The exact Kalman filter, and the paper's theory in closed forms, simulations and bounds.
"""

from .filter_response import (
    DriftResponse,
    FilteredStep,
    JumpResponse,
    NoiseChangeResponse,
    NoiseResponse,
    drift_response,
    filter_steps,
    jump_response,
    noise_change_response,
    noise_response,
)
from .fusion import Fusion, effective_variance, fuse, mmse_gain
from .gain import GainLaw, SteadyGain, gain_law, steady_gain
from .influence import influence, influence_bound
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
from .noise_laws import NOISE_LAWS
from .running_moments import RunningMeanMoments, expected_running_variance, running_mean_moments

__all__ = [
    "NOISE_LAWS",
    "BestContraction",
    "DriftResponse",
    "FilteredStep",
    "Fusion",
    "GainLaw",
    "JumpResponse",
    "KalmanOutput",
    "MomentumBounds",
    "MomentumError",
    "MomentumLoss",
    "MomentumMoments",
    "MomentumPaths",
    "NoiseChangeResponse",
    "NoiseResponse",
    "RunningMeanMoments",
    "SteadyGain",
    "best_contraction",
    "contraction",
    "drift_response",
    "effective_variance",
    "excess_loss",
    "expected_running_variance",
    "filter_steps",
    "fuse",
    "gain_law",
    "influence",
    "influence_bound",
    "jump_response",
    "kalman",
    "mmse_gain",
    "momentum_bounds",
    "momentum_error",
    "momentum_loss",
    "momentum_moments",
    "noise_change_response",
    "noise_response",
    "running_mean_moments",
    "simulate_momentum",
    "steady_gain",
]
