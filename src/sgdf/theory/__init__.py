"""Results that gradients and estimates can be held against.

The exact Kalman filter, and the paper's theory in closed forms, simulations and bounds.
"""

from .convergence.descent import Descent
from .convergence.distance import distance_bound
from .convergence.gain_variation import gain_variation, gain_variation_bound
from .convergence.noise import SKEWED, SYMMETRIC, DiscreteNoise
from .convergence.problems import (
    OnlineLosses,
    SmoothFunction,
    linear_losses,
    noisy_logarithm,
    noisy_quadratic,
    squared_losses,
)
from .convergence.regret import regret, regret_bound
from .convergence.stationarity import stationarity, stationarity_bound
from .counter_examples import counter_examples
from .filter_response import (
    drift_response,
    jump_response,
    noise_change_response,
    noise_response,
)
from .filter_steps import filter_steps
from .fusion import effective_variance, fuse, mmse_gain
from .gain import GainLaw, gain_law, steady_gain
from .influence import influence, influence_bound
from .kalman import KalmanOutput, SteadyKalman, kalman, steady_kalman
from .momentum.bounds import momentum_bounds
from .momentum.classical import best_contraction, contraction, excess_loss
from .momentum.moments import (
    momentum_error,
    momentum_loss,
    momentum_moments,
)
from .momentum.paths import simulate_momentum
from .noise_laws import NOISE_LAWS
from .running_moments import expected_running_variance, running_mean_moments

__all__ = [
    "NOISE_LAWS",
    "SKEWED",
    "SYMMETRIC",
    "Descent",
    "DiscreteNoise",
    "GainLaw",
    "KalmanOutput",
    "OnlineLosses",
    "SmoothFunction",
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
