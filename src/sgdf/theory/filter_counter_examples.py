"""Counter-examples to statements about gain and fusion: Section 3 and Appendix B of the paper."""

from __future__ import annotations

import math

import numpy as np

from .counter_example import CounterExample, Outcome
from .filter_response import jump_response, noise_response
from .filter_steps import filter_steps
from .fusion import effective_variance, fuse, mmse_gain
from .gain import gain_law
from .running_moments import running_mean_moments


def _fused_variance() -> Outcome:
    moments = running_mean_moments(0.9)
    of_mean = float(moments.corrected_variance)
    claimed = fuse(0.0, of_mean, 0.0, 1.0)
    true = fuse(0.0, of_mean, 0.0, 1.0, covariance=moments.covariance, gain=claimed.gain)
    numbers = {
        "of m̂": of_mean,
        "of g": 1.0,
        "gain": float(claimed.gain),
        "claimed": float(claimed.variance),
        "fused": float(true.variance),
    }
    return Outcome(
        numbers["fused"] > of_mean,
        f"Var m̂ = {of_mean:.4f}, fused with K = {numbers['gain']:.2f}: {numbers['fused']:.4f} "
        f"(claimed {numbers['claimed']:.4f})",
        numbers,
    )


def _one_square() -> Outcome:
    found, law = noise_response("normal", elements=500, steps=600), gain_law(0.9)
    return Outcome(
        found.gain > 4.0 * law.derived,
        f"E K = {found.gain:.3f} in the filter, {law.mean:.4f} by its law, not {law.derived:.2f}",
        {"gain": found.gain, "law": law.mean, "derived": law.derived},
    )


def _unequal_variances() -> Outcome:
    # The mean is linear in the gradients: a last gradient of 1 shows its weight.
    *_, last = filter_steps([[0.0]] * 99 + [[1.0]])
    variance = float(last.mean[0] * (1.0 - 0.9**100)) ** 2
    factor = float(running_mean_moments(0.9, 100).variance)
    return Outcome(
        variance < 0.5 * factor,
        f"Var m = {variance:.4f}, factor {factor:.4f}",
        {"variance": variance, "factor": factor},
    )


def _sign() -> Outcome:
    x = np.linspace(-8.0, 8.0, 1601)
    product = np.exp(-0.5 * x**2 - 0.5 * (x - 2.0) ** 2 / 0.49) / (2.0 * math.pi * 0.7)
    area = float(product.sum() * (x[1] - x[0]))
    found = fuse(0.0, 1.0, 2.0, 0.49)
    printed = math.exp(float(found.log_normaliser) + 2.0**2 / 1.49)
    return Outcome(
        abs(printed - area) > 0.5 and math.isclose(area, math.exp(found.log_normaliser)),
        f"the area is {area:.4f}; with the printed sign it would be {printed:.4f}",
        {"area": area, "printed": printed},
    )


def _jump() -> Outcome:
    found = jump_response([10.0], elements=500, settled=600, steps=2)
    moments = running_mean_moments(0.9)
    best = float(
        mmse_gain(moments.corrected_variance, 1.0, bias=9.0, covariance=moments.covariance)
    )
    gain, share = float(found.gain[0, 0]), float(found.estimate_share[0, 0])
    return Outcome(
        gain < 0.1 * gain_law(0.9).mean < best,
        f"K = {gain:.1g} where the best is {best:.2f}; ĝ has {100 * share:.0f} % of the jump",
        {"gain": gain, "best gain": best, "share": share},
    )


def _power() -> Outcome:
    share = float(effective_variance(1.0, 19.0) / 19.0)
    return Outcome(
        share < 1.0,
        f"√K = {0.05**0.5:.3f} > K = 0.05: as if g had {100 * share:.0f} % of its variance",
        {"share": share},
    )


ABOUT_THE_FILTER = (
    CounterExample(
        "one-square",
        "proof_method",
        "the gain of Algorithm 1 is Var m̂/(Var m̂ + Var g)",
        "steady normal noise, β₁ = 0.9; r² stands for Var g",
        "K = c/(c + z²) with c = (1−β₁)/(1+β₁) and a standard normal z",
        _one_square,
    ),
    CounterExample(
        "unequal-variances",
        "proof_correction",
        "the correction factor is right for independent gradients of bounded variance",
        "only the last of 100 gradients has noise, β₁ = 0.9",
        "it is Var m/σ² for gradients of equal variance, and an upper bound otherwise",
        _unequal_variances,
    ),
    CounterExample(
        "fused-variance",
        "proof_fusion",
        "the fused variance is smaller than those of m̂ and of g",
        "independent gradients of variance 1, β₁ = 0.9: m̂ contains a tenth of g",
        "it holds for m̂ of the step before, which is independent of g",
        _fused_variance,
    ),
    CounterExample(
        "sign-of-the-constant",
        "proof_fusion (source line 1216)",
        "the product of two densities has the constant factor e^(+(μ_m−μ_g)²/2(σ_m²+σ_g²))",
        "N(0, 1) and N(2, 0.49)",
        "the sign is a minus; mean and variance of the fusion do not depend on it",
        _sign,
    ),
    CounterExample(
        "gain-after-a-jump",
        "sec:dilemma, source line 655",
        "the gain balances bias and variance: it relies less on momentum where that is biased",
        "the gradient's mean jumps by ten deviations of the noise; β₁ = 0.9, the first step",
        "the gain of the smallest error is (σ_m² + δ² − C)/(σ_m² + δ² + σ_g² − 2C): δ raises it",
        _jump,
    ),
    CounterExample(
        "power-and-trust",
        "proof_scaling (source line 1292)",
        "the power ½ guards against noisy gradients that are trusted too much",
        "K = 0.05",
        "for γ < 1 the assumed variance is at most γ times the true one: more trust",
        _power,
    ),
)
