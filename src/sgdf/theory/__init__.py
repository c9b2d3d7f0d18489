"""Results that gradients and estimates can be held against.

The exact Kalman filter, and the paper's theory in closed forms, simulations and bounds.
"""

from .convergence.descent import Descent
from .convergence.distance import distance_bound, log_gain_floor
from .convergence.gain_variation import gain_variation, gain_variation_bound
from .convergence.noise import SKEWED, SYMMETRIC, Cycle, DiscreteNoise
from .convergence.problems import (
    UNEVEN_SLOPES,
    OnlineLosses,
    SmoothFunction,
    linear_losses,
    noisy_logarithm,
    noisy_quadratic,
    squared_losses,
)
from .convergence.regret import RegretCurve, regret, regret_bound
from .convergence.stationarity import StationarityCurve, stationarity, stationarity_bound
from .counter_example import CounterExample, Outcome
from .counter_examples import counter_examples
from .filter_response import (
    DriftResponse,
    JumpResponse,
    NoiseChangeResponse,
    NoiseResponse,
    drift_response,
    jump_response,
    noise_change_response,
    noise_response,
)
from .filter_steps import filter_steps
from .fusion import Fusion, effective_variance, fuse, mmse_gain
from .gain import GainLaw, SteadyGain, gain_law, steady_gain
from .influence import influence, influence_bound
from .kalman import KalmanOutput, SteadyKalman, kalman, steady_kalman
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
    "SKEWED",
    "SYMMETRIC",
    "UNEVEN_SLOPES",
    "BestContraction",
    "CounterExample",
    "Cycle",
    "Descent",
    "DiscreteNoise",
    "DriftResponse",
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
    "OnlineLosses",
    "Outcome",
    "RegretCurve",
    "RunningMeanMoments",
    "SmoothFunction",
    "StationarityCurve",
    "SteadyGain",
    "SteadyKalman",
    "best_contraction",
    "contraction",
    "counter_examples",
    "distance_bound",
    "drift_response",
    "effective_variance",
    "excess_loss",
    "expected_running_variance",
    "filter_steps",
    "fuse",
    "gain_law",
    "gain_variation",
    "gain_variation_bound",
    "influence",
    "influence_bound",
    "jump_response",
    "kalman",
    "linear_losses",
    "log_gain_floor",
    "mmse_gain",
    "momentum_bounds",
    "momentum_error",
    "momentum_loss",
    "momentum_moments",
    "noise_change_response",
    "noise_response",
    "noisy_logarithm",
    "noisy_quadratic",
    "regret",
    "regret_bound",
    "running_mean_moments",
    "simulate_momentum",
    "squared_losses",
    "stationarity",
    "stationarity_bound",
    "steady_gain",
    "steady_kalman",
]
