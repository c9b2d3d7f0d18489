"""``sgdf theory fusion``: the fusion of running mean and gradient."""

from __future__ import annotations

from ..console import refuse
from ..options import JsonFile, PlotFile
from .frame import present
from .options import Beta1, Beta2, Gamma, Seed


def fusion(
    beta1: Beta1 = 0.9,
    beta2: Beta2 = 0.999,
    gamma: Gamma = 0.5,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Show the fusion of running mean and gradient: promised, true and best.

    The tables have the variance that the derived gain promises for independent sources, and the
    one it has since the running mean contains the gradient; the gain that the smallest error asks
    for after a jump of the mean, beside the filter's; and the noise that a power of the gain
    assumes. The filter settles within the simulations for β₁ from 0.1 to 0.99 and β₂ from 0.9 to
    0.9999; others are refused.

    Section 3.2, Appendix B.3 and B.4 of the paper.
    """
    from ...analysis.theory.fusion import study_fusion

    try:
        study = study_fusion((beta1, beta2), gamma, seed)
    except ValueError as error:
        raise refuse(error) from error
    present(study, json_file, plot)
