"""``sgdf theory gain``: the law of the gain, and what the filter responds to."""

from __future__ import annotations

from ..options import JsonFile, PlotFile
from .filter_options import Beta1, Beta2, Gamma, Seed
from .frame import present


def gain(
    beta1: Beta1 = 0.9,
    beta2: Beta2 = 0.999,
    gamma: Gamma = 0.5,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Show the law of the gain, and what moves it: noise that changes, tails, not drift.

    The tables compare the gain that the paper derives with the law that the gain has on steady
    noise, and with the filter itself: on random walks of growing drift beside the Kalman filter,
    after the noise fell to a tenth or rose to ten times, and on noise of several laws, where the
    mean of the estimate shows the bias that skewed noise makes.

    Section 3.1, Appendix B.1 and B.2 of the paper.
    """
    from ...analysis.theory.gain import study_gain

    present(study_gain((beta1, beta2), gamma, seed), json_file, plot)
