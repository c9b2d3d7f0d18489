"""The decay rates for which the filter settles within the simulations of a study."""

from __future__ import annotations

SMALLEST, LARGEST = (0.1, 0.9), (0.99, 0.9999)
"""Of β₁ and β₂: what a study says of steady noise is false beyond them."""


def check_settling(betas: tuple[float, float]) -> None:
    """Raise a ``ValueError`` for decay rates with which simulations do not settle.

    Without memory there is no residual or no variance, and with one of thousands of steps the
    first gradient still counts in the last step.

    >>> check_settling((0.9, 0.999))
    """
    for name, rate, low, high in zip(("beta1", "beta2"), betas, SMALLEST, LARGEST, strict=True):
        if not low <= rate <= high:
            raise ValueError(
                f"Invalid {name}: {rate:g}, expected {low:g} to {high:g}, for which the filter "
                "settles within the simulations"
            )
