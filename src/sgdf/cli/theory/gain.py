"""``sgdf theory gain``: the law of the gain, and what the filter responds to."""

from __future__ import annotations

from ..console import refuse
from ..options import JsonFile, PlotFile
from .frame import present
from .options import Beta1, Beta2, Gamma, Seed


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
    mean of the estimate shows the bias that skewed noise makes. The filter settles within the
    simulations for β₁ from 0.1 to 0.99 and β₂ from 0.9 to 0.9999; others are refused.

    Section 3.1, Appendix B.1 and B.2 of the paper.
    """
    from ...analysis.theory.gain import study_gain

    try:
        study = study_gain((beta1, beta2), gamma, seed)
    except ValueError as error:
        raise refuse(error) from error
    present(study, json_file, plot)
