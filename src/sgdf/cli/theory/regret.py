"""``sgdf theory regret``: average regret on convex losses, beside its bounds."""

from __future__ import annotations

from ..options import JsonFile, PlotFile
from .frame import present
from .options import Beta1, Beta2, Copies, Gamma, Seed, Steps


def regret(
    steps: Steps = 3000,
    copies: Copies = 512,
    gamma: Gamma = 0.5,
    beta1: Beta1 = 0.9,
    beta2: Beta2 = 0.999,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure regret on convex losses: SGD, EMA, and SGDF with a constant or a fading power.

    The losses are linear ones whose slope is rarely steep (a constant power of the gain goes to the
    worst point of the box), and squares with symmetric noise (all methods converge). Beside the
    average regret R(T)/T stand the bound of Theorem 3.2 with the gain that is used, a bound by the
    distance between estimate and gradient, and the total variation of the gain. Rates are α/√t, and
    α/√T, with α = 0.2 on the linear losses and 1 on the squares. A fading power is --gamma over √t.
    """
    from ...analysis.theory.regret import study_regret

    present(study_regret(steps, copies, gamma, (beta1, beta2), seed), json_file, plot)
