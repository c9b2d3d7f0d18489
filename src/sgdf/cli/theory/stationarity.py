"""``sgdf theory stationarity``: how small gradients get on smooth functions, beside a bound."""

from __future__ import annotations

from ..options import JsonFile, PlotFile
from .frame import present
from .options import Beta1, Beta2, Copies, Gamma, Seed, Steps


def stationarity(
    steps: Steps = 3000,
    copies: Copies = 512,
    gamma: Gamma = 0.5,
    beta1: Beta1 = 0.9,
    beta2: Beta2 = 0.999,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure squared gradients: SGD, EMA, and SGDF with a constant or a fading power.

    The functions are ½θ² with skewed and with symmetric noise, and ln(1 + θ²), which is not convex.
    With skewed noise a constant power of the gain stops where the gradient is not 0. Beside the
    smallest and the mean of E‖∇f‖² stands a bound that holds for every β₁ and falls like log T/√T
    if the power falls like 1/√t. Rates are 0.5/√t, and 0.5/√T. A fading power is --gamma over √t.
    """
    from ...analysis.theory.stationarity import study_stationarity

    present(study_stationarity(steps, copies, gamma, (beta1, beta2), seed), json_file, plot)
