"""``sgdf theory fusion``: the fusion of running mean and gradient."""

from __future__ import annotations

from ..options import JsonFile, PlotFile
from .filter_options import Beta1, Beta2, Gamma, Seed
from .frame import present


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
    assumes.

    Section 3.2, Appendix B.3 and B.4 of the paper.
    """
    from ...analysis.theory.fusion import study_fusion

    present(study_fusion((beta1, beta2), gamma, seed), json_file, plot)
