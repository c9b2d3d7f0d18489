"""Counter-examples to statements of the paper, each small enough to run within two seconds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from .convergence.descent import Descent
from .convergence.gain_variation import gain_variation, powered_gains
from .convergence.noise import SKEWED
from .convergence.problems import linear_losses, noisy_quadratic
from .convergence.regret import regret
from .convergence.stationarity import stationarity
from .counter_example import CounterExample, Outcome
from .filter_counter_examples import ABOUT_THE_FILTER
from .filter_steps import filter_steps
from .momentum.counter_examples import ABOUT_MOMENTUM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CONSTANT = Descent(lr=0.2, gamma=0.5)
"""The paper's power: K to the power ½ at every step."""
FADING = Descent(lr=0.2, gamma=0.5, gamma_decay=0.5)
"""The power of Theorem 3.2: ½/√t at step t."""
SGD = Descent(lr=0.2, gamma=0.0)
EMA = Descent(lr=0.2, gamma=math.inf)


def counter_examples() -> tuple[CounterExample, ...]:
    """Return all counter-examples, in the order of the paper.

    Example:
        >>> from sgdf.theory import counter_examples
        >>> case = next(one for one in counter_examples() if one.name == "beta1-condition")
        >>> case.label, case.run().refutes
        ('source line 1909', True)
    """
    return (
        *ABOUT_MOMENTUM,
        *ABOUT_THE_FILTER,
        CounterExample(
            "biased-estimate",
            "source line 655",
            "the gain minimises the mean squared error of the estimate",
            "a fixed parameter with gradient 0; noise 9 with probability 0.1, else −1",
            "symmetric noise leaves the estimate unbiased; γ_t = γ₀/√t removes the bias in time",
            _biased_estimate,
        ),
        CounterExample(
            "gain-at-most-one",
            "proof_scaling (source line 1245)",
            "a gain of at most 1 is the sole requirement of the convergence guarantees",
            "losses 10.5θ with probability 0.1, else −θ, on [−1, 1]; α_t = 0.2/√t; γ = ½",
            "γ_t = γ₀/√t: average regret falls like 1/√T",
            _gain_at_most_one,
        ),
        CounterExample(
            "gain-below-floor",
            "lem.B.7",
            "the gain is never below δ = ε/(G² + ε)",
            "gradients ±1e-8, G = 1, ε = 1e-8",
            "ln K changes by a bounded amount in a step, on average; the conclusion follows",
            _gain_below_floor,
        ),
        CounterExample(
            "beta2-zero",
            "lem.B.7",
            "with γ_t = γ₀/√t the total variation of the gain is O(√T) for every β₂ in [0, 1)",
            "β₂ = 0; gradients 1, m, −1, m, …: one that equals the running mean makes s and K 0",
            "it is for every β₂ > 0",
            _beta2_zero,
        ),
        CounterExample(
            "empty-criterion",
            "source line 1537",
            "an algorithm converges if E(T)/T → 0",
            "an algorithm that never moves, on ½θ² from θ = 3",
            "the criterion that the theorem bounds: E(T) → 0",
            _empty_criterion,
        ),
        CounterExample(
            "noise-and-gain",
            "source lines 1804, 1831",
            "E⟨∇f, K ⊙ ζ⟩ = 0, because K and ζ are independent",
            "∇f = 1 at a fixed parameter; noise 9 with probability 0.1, else −1; γ = ½",
            "K_t depends on g_t; γ_t = γ₀/√t makes K̃ → 1, and then it holds in the limit",
            _noise_and_gain,
        ),
        CounterExample(
            "beta1-condition",
            "source line 1909",
            "the coefficient of ‖∇f‖² is positive if the learning rate is small enough",
            "the rate cancels: (1−β)/(1−βᵗ) ≥ β(1 + √(t/(t−1))) at t = 2, β = 0.9",
            "no condition on β₁ is needed if γ_t = γ₀/√t (stationarity_bound)",
            _beta1_condition,
        ),
        CounterExample(
            "gain-keeps-changing",
            "source line 1912",
            "the sum of all changes of the gain is bounded by a constant",
            "gradients that are uniform in [−1, 1], γ = ½: the sum at T = 500 and at T = 2,000",
            "it is 0.26 T for γ = ½, and O(√T) for γ_t = γ₀/√t",
            _gain_keeps_changing,
        ),
        CounterExample(
            "constant-power",
            "thm:main_non_convex",
            "the smallest E‖∇f‖² falls like log T/√T (γ is constant in Algorithm 1)",
            "½θ² on [−5, 5] from 3; noise 9 with probability 0.1, else −1; α_t = 0.5/√t; γ = ½",
            "γ_t = γ₀/√t: O(log T/√T) + dε for every β₁",
            _constant_power,
        ),
    )


def _estimates_at_rest(descent: Descent, gradient: float) -> tuple[Array, Array]:
    """Return estimates and powered gains × noise of 4,000 copies, at steps 201 to 400."""
    noise = SKEWED.draw(torch.Generator().manual_seed(0), 1, 400, (4000,)).numpy()
    steps = list(filter_steps(gradient + noise, **descent.filter_options))[200:]
    gains = np.stack([step.powered_gain for step in steps])
    return np.stack([step.estimate for step in steps]), gradient * gains * noise[200:]


def _biased_estimate() -> Outcome:
    numbers = {}
    for name, descent in {"SGDF": CONSTANT, "EMA": EMA}.items():
        estimates, _ = _estimates_at_rest(descent, 0.0)
        numbers[f"mean of {name}"] = float(estimates.mean())
        numbers[f"error of {name}"] = float(estimates.mean(0).std() / math.sqrt(4000))
        numbers[f"mean squared error of {name}"] = float(np.square(estimates).mean())
    biased = numbers["mean of SGDF"] < -0.2 and abs(numbers["mean of EMA"]) < 0.02
    worse = numbers["mean squared error of SGDF"] > numbers["mean squared error of EMA"]
    return Outcome(
        biased and worse,
        f"mean of ĝ {numbers['mean of SGDF']:.3f}, of m̂ {numbers['mean of EMA']:.3f}; mean "
        f"squared error {numbers['mean squared error of SGDF']:.2f}, of m̂ "
        f"{numbers['mean squared error of EMA']:.2f}",
        numbers,
    )


def _gain_at_most_one() -> Outcome:
    cases = {"SGDF": CONSTANT, "SGDF, γ_t": FADING, "SGD": SGD}
    found = {
        name: regret(linear_losses(), one, steps=[500, 2000], copies=512)
        for name, one in cases.items()
    }
    numbers = {f"R(T)/T of {name}": float(one.average[-1]) for name, one in found.items()}
    numbers |= {f"error of {name}": float(one.error[-1]) for name, one in found.items()}
    numbers |= {f"end of {name}": float(one.point[-1]) for name, one in found.items()}
    # From T = 500 to 2,000 by the factors 1.15, 0.72 and 0.63, with standard errors of 0.04.
    stays = found["SGDF"].average[1] > 0.9 * found["SGDF"].average[0]
    others_fall = all(
        one.average[1] < 0.9 * one.average[0] for name, one in found.items() if name != "SGDF"
    )
    averages = ", ".join(
        f"{name} {one.average[-1]:.3f} ± {one.error[-1]:.3f}" for name, one in found.items()
    )
    return Outcome(
        bool(stays and numbers["end of SGDF"] > 0.5 and others_fall),
        f"R(T)/T at T = 2,000: {averages}; SGDF ends at {numbers['end of SGDF']:+.2f}, best is −1",
        numbers,
    )


def _gain_below_floor() -> Outcome:
    gradients = 1e-8 * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(100)
    gain = powered_gains(gradients, Descent(lr=1.0, gamma=1.0)).min().item()
    floor = 1e-8 / (1.0 + 1e-8)
    return Outcome(
        gain < floor, f"K = {gain:.1e} < δ = {floor:.1e}", {"smallest K": gain, "δ": floor}
    )


def _beta2_zero() -> Outcome:
    descent = Descent(lr=1.0, gamma=0.5, gamma_decay=0.5, betas=(0.9, 0.0))
    mean = var = torch.zeros(1, dtype=torch.float64)
    gains = []
    for step in range(1, 4001):
        new = torch.full_like(mean, 1.0 if step % 4 == 1 else -1.0)
        out = descent.filtered(mean if step % 2 == 0 else new, mean, var, step)
        mean, var = out.mean, out.var
        gains.append(out.gain)
    variation = torch.cat(gains).diff().abs().cumsum(0)
    numbers = {f"variation at {t}": variation[t - 2].item() for t in (1000, 4000)}
    early, late = numbers.values()
    return Outcome(
        late > 3.8 * early,
        f"total variation {early:.0f} at T = 1,000 and {late:.0f} at T = 4,000",
        numbers,
    )


def _empty_criterion() -> Outcome:
    steps = 1_000_000
    squared = 9.0
    return Outcome(
        squared / steps < 1e-4,
        f"E(T) = {squared:g} for every T, and E(T)/T = {squared / steps:.0e} at T = 1e6",
        {"E(T)": squared, "E(T)/T": squared / steps},
    )


def _noise_and_gain() -> Outcome:
    _, products = _estimates_at_rest(CONSTANT, 1.0)
    mean = float(products.mean())
    error = float(products.mean(0).std() / math.sqrt(products.shape[1]))
    return Outcome(
        abs(mean) > 10.0 * error,
        f"E⟨∇f, K̃ζ⟩ = {mean:.3f} ± {error:.3f}",
        {"mean": mean, "error": error},
    )


def descent_margin(beta: float, step: int) -> float:
    r"""Return by how much the condition of Theorem 3.3's proof holds at a step (source line 1909).

    The condition on the rates, :math:`\frac{\alpha_t}{1-\beta_1^t} - \frac{\beta_1(\alpha_{t-1} +
    \alpha_t)}{2(1-\beta_1)} \ge \frac{\alpha_t}{2(1-\beta_1^t)}`, is for
    :math:`\alpha_t = \alpha/\sqrt t` the same as

    .. math::
        \frac{1-\beta_1}{1-\beta_1^t} - \beta_1\Bigl(1 + \sqrt{t/(t-1)}\Bigr) \ge 0

    >>> round(descent_margin(0.9, 2), 2)
    -1.65
    """
    return (1.0 - beta) / (1.0 - beta**step) - beta * (1.0 + math.sqrt(step / (step - 1)))


def _beta1_condition() -> Outcome:
    # At t = 2 the condition is β(1 + β)(1 + √2) ≤ 1.
    largest = (math.sqrt(1.0 + 4.0 / (1.0 + math.sqrt(2.0))) - 1.0) / 2.0
    numbers = {
        "margin at β = 0.9": descent_margin(0.9, 2),
        "largest β": largest,
        "margin at largest β": descent_margin(largest, 2),
        "at later steps": min(descent_margin(largest, step) for step in range(3, 1000)),
    }
    return Outcome(
        numbers["margin at β = 0.9"] < 0.0,
        f"{numbers['margin at β = 0.9']:.2f} < 0 for every rate; it holds for β₁ ≤ {largest:.4f}",
        numbers,
    )


def _gain_keeps_changing() -> Outcome:
    generator = torch.Generator().manual_seed(0)
    noise = 2.0 * torch.rand(2000, 64, generator=generator, dtype=torch.float64) - 1.0
    found = {
        name: gain_variation(noise, one).mean(1)
        for name, one in {"γ": CONSTANT, "γ_t": FADING}.items()
    }
    numbers = {
        f"{name} at {t}": one[t - 1].item() for name, one in found.items() for t in (500, 2000)
    }
    grows = numbers["γ at 2000"] / numbers["γ at 500"]
    return Outcome(
        grows > 3.5,
        f"{numbers['γ at 500']:.0f} and {numbers['γ at 2000']:.0f} "
        f"(γ_t: {numbers['γ_t at 500']:.0f} and {numbers['γ_t at 2000']:.0f})",
        numbers,
    )


def _constant_power() -> Outcome:
    cases = {"SGDF": CONSTANT, "SGDF, γ_t": FADING, "SGD": SGD}
    found = {
        name: stationarity(
            noisy_quadratic(),
            Descent(lr=0.5, gamma=one.gamma, gamma_decay=one.gamma_decay),
            steps=[500, 2000],
            copies=512,
        )
        for name, one in cases.items()
    }
    numbers = {f"min E‖∇f‖² of {name}": float(one.smallest[-1]) for name, one in found.items()}
    numbers |= {f"E‖∇f‖² of {name}": float(one.last[-1]) for name, one in found.items()}
    numbers |= {f"error of {name}": float(one.error[-1]) for name, one in found.items()}
    numbers |= {f"E∇f of {name}": float(one.point[-1]) for name, one in found.items()}
    stays = numbers["E∇f of SGDF"] > 0.25 and numbers["min E‖∇f‖² of SGDF"] > 0.08
    others_fall = all(
        one.last[1] < 0.75 * one.last[0] and abs(one.point[-1]) < 0.1
        for name, one in found.items()
        if name != "SGDF"
    )
    squares = ", ".join(
        f"{name} {one.last[-1]:.3f} ± {one.error[-1]:.3f}" for name, one in found.items()
    )
    return Outcome(
        bool(stays and others_fall),
        f"E‖∇f‖² at T = 2,000: {squares}; SGDF stays at ∇f = {numbers['E∇f of SGDF']:.2f}",
        numbers,
    )
