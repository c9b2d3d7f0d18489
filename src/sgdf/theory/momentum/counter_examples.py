"""Counter-examples to statements about momentum: Section 2 and Appendix A of the paper."""

from __future__ import annotations

import numpy as np

from ..counter_example import CounterExample, Outcome
from .bounds import momentum_bounds
from .moments import momentum_error, momentum_moments


def _random_target() -> Outcome:
    error = momentum_error(lam=1.0, sigma=1.0, alpha=0.1, beta=0.9)
    moments = momentum_moments(lam=1.0, sigma=1.0, alpha=0.1, beta=0.9)
    numbers = {
        "bias": float(error.bias),
        "variance": float(moments.var_m),
        "mean squared error": float(error.mean_square),
    }
    bias, variance, squared = numbers.values()
    return Outcome(
        squared > 1.5 * (bias**2 + variance),
        f"bias² + variance = {bias**2:g} + {variance:.4f}, mean squared error {squared:.4f}",
        numbers,
    )


def _plain_sgd() -> Outcome:
    recursion, equation = (
        float(np.asarray(momentum_moments(1.0, 1.0, 1e-6, 0.0, steps=100, model=model).var_m)[-1])
        for model in ("recursion", "sde")
    )
    return Outcome(
        recursion > 1.9 * equation,
        f"Var m = {recursion:.3f} in the recursion, {equation:.3f} in the equation",
        {"recursion": recursion, "equation": equation},
    )


def _noise_and_bias() -> Outcome:
    numbers = {
        f"bias for σ = {sigma:g}": float(
            np.asarray(momentum_error(1.0, sigma, 0.1, 0.9, steps=20).bias)[-1]
        )
        for sigma in (0.0, 1.0, 5.0)
    }
    return Outcome(
        len(set(numbers.values())) == 1,
        f"bias after 20 steps {next(iter(numbers.values())):.4f} for σ = 0, 1 and 5",
        numbers,
    )


def _first_steps() -> Outcome:
    bound = momentum_bounds(0.0, 0.001, 0.9, smoothness=1.0, gradient_norm=1.0).printed_bias
    bias = np.abs(momentum_error(1.0, 0.0, 0.001, 0.9, steps=100).bias)
    beyond = int(np.sum(bias[1:] > bound))
    return Outcome(
        beyond > 0,
        f"|bias| = {bias[1]:.2f} after the first step, beyond {bound:.2f} for {beyond} steps",
        {"first bias": float(bias[1]), "bound": bound, "steps beyond": float(beyond)},
    )


def _dimensions() -> Outcome:
    dimension = 10
    plain = momentum_moments(0.0, 1.0, 0.1, 0.9, steps=400)
    variance = dimension * float(np.asarray(plain.var_m)[-1])
    bound = momentum_bounds(1.0, 0.1, 0.9, smoothness=0.0, gradient_norm=0.0).printed_variance
    return Outcome(
        variance > bound,
        f"Var m = {variance:.3f}, bound {bound:.3f}",
        {"variance": variance, "bound": bound},
    )


def _endless_bias() -> Outcome:
    beta = 0.9999
    found = momentum_bounds(1.0, 0.1, beta, smoothness=1.0, gradient_norm=1.0)
    bias = float(np.abs(momentum_error(1.0, 1.0, 0.1, beta, steps=2000).bias).max())
    return Outcome(
        bias < 2.0 < 0.01 * found.printed_bias,
        f"|bias| ≤ {bias:.2f} at β = {beta}, where the bound is {found.printed_bias:.0f}",
        {"largest bias": bias, "bound": found.printed_bias, "settled bias": 0.0},
    )


def _no_trade_off() -> Outcome:
    betas = (0.0, 0.5, 0.9, 0.99)
    settled = [momentum_error(1.0, 1.0, 0.1, beta) for beta in betas]
    errors = [float(one.mean_square) for one in settled]
    unbiased = all(one.bias == 0.0 for one in settled)
    shown = ", ".join(f"{error:.3f}" for error in errors)
    return Outcome(
        unbiased and errors == sorted(errors, reverse=True),
        f"bias 0, mean squared error {shown} at β = 0, 0.5, 0.9, 0.99",
        {f"error at β = {beta:g}": error for beta, error in zip(betas, errors, strict=True)},
    )


ABOUT_MOMENTUM = (
    CounterExample(
        "random-target",
        "lem:bias_variance",
        "the squared error of an estimate is squared bias plus variance",
        "EMA at rest on ½θ² with noise of variance 1, α = 0.1, β = 0.9",
        "add Var ∇f − 2 Cov(ĝ, ∇f): the gradient that is estimated is random too",
        _random_target,
    ),
    CounterExample(
        "equation-of-sgd",
        "lem:unify_momentum_sde",
        "the stochastic differential equation stands for momentum if α is small enough",
        "plain SGD (β = 0) on ½θ² with noise of variance 1, α = 10⁻⁶",
        "1 − β has to be small too: Var m of the recursion is 2/(1+β) times the equation's",
        _plain_sgd,
    ),
    CounterExample(
        "noise-and-bias",
        "main:thm:bias_variance_momentum",
        "noise adds to the bias of momentum",
        "EMA on ½θ² from 1, α = 0.1, β = 0.9, with three sizes of noise",
        "on a quadratic the mean path is the path without noise; once settled the bias is 0",
        _noise_and_bias,
    ),
    CounterExample(
        "first-steps",
        "proof of thm:bias_variance_momentum (source line 1019)",
        "the inequality of line 1019 holds at every t: |bias| ≤ αLG/(1−β) for EMA without noise",
        "½θ² from 1, α = 0.001, β = 0.9: m starts at 0",
        "add |u(1−βᵗ)/(1−β) − 1|G, which tends to 0 (momentum_bounds)",
        _first_steps,
    ),
    CounterExample(
        "dimensions",
        "source line 1043",
        "noise N(0, σ²I) adds at most u²σ²/(1−β) to the variance of momentum",
        "d = 10, u = 1−β = 0.1, σ = 1, f linear",
        "the theorem holds with σ² as the total variance of the noise, as its last line says",
        _dimensions,
    ),
    CounterExample(
        "endless-bias",
        "tab:bias_var_tradeoff",
        "for EMA Bias → ∞ as β → 1",
        "½θ² from 1 with noise of variance 1, α = 0.1, β = 0.9999",
        "the bound tends to infinity; the bias does not: it is at most 2G for every β",
        _endless_bias,
    ),
    CounterExample(
        "no-trade-off",
        "sec:dilemma",
        "reducing the variance of momentum inevitably amplifies its bias",
        "EMA at rest on ½θ² with noise of variance 1, α = 0.1",
        "in transients it does; at rest the error falls with β, from σ² to αλσ²/2",
        _no_trade_off,
    ),
)
"""In the order of the paper's appendix, then of its Section 2."""
