"""The methods that convergence is measured of: the filter with four powers of its gain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...present.styles import HUES
from ...theory import Descent


@dataclass(frozen=True)
class Method:
    """A power of the gain by its name, and how it is drawn."""

    name: str
    gamma: float
    gamma_decay: float
    line: dict[str, Any]

    def descent(self, lr: float, betas: tuple[float, float], schedule: str = "step") -> Descent:
        """Return the method with a learning rate."""
        return Descent(lr, schedule, self.gamma, self.gamma_decay, betas)


def methods(gamma: float) -> tuple[Method, ...]:
    """Return SGD, the running mean, SGDF with a constant power, and with one that fades."""
    return (
        Method("SGD", 0.0, 0.0, {"color": HUES[1], "linestyle": "-"}),
        Method("EMA", math.inf, 0.0, {"color": HUES[4], "linestyle": (0, (6, 1.5, 1.5, 1.5))}),
        Method(f"SGDF, γ = {gamma:g}", gamma, 0.0, {"color": HUES[0], "linestyle": "-"}),
        Method(
            f"SGDF, γₜ = {gamma:g}/√t", gamma, 0.5, {"color": HUES[2], "linestyle": (0, (5, 2))}
        ),
    )
