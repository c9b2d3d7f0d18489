"""The options of a landscape, and the grids that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...bench.errors import SpecError
from .directions import Vectors
from .lines import Statistics

SMALLEST_STEP = 1e-4
"""With a smaller one, losses in single precision differ by their rounding alone."""

DEFAULT_LEVEL = "0.5 above the largest loss of a network"


@dataclass(frozen=True)
class LandscapeOptions:
    """What is measured around and between networks.

    Attributes:
        points: the points of the grid along each direction; odd, so that the network is in the
            middle. A line has as many.
        span: how far the grid reaches to each side; at 1 each filter has moved by its own norm.
        pairs: how many planes there are, each of two directions.
        examples: how many training examples the loss is measured on.
        seed: of the random directions.
        vectors: what directions have for biases and BatchNorm.
        statistics: what is done about BatchNorm on a line.
        step: the distance of the second differences that the curvature is computed from.
        level: the loss that all runs are compared at; by default it follows from the largest loss
            of a network.
        lines: which networks are joined by lines: ``"seeds"`` of a setting, ``"all"`` of a task, or
            ``"none"``.
    """

    points: int = 21
    span: float = 1.0
    pairs: int = 3
    examples: int = 500
    seed: int = 0
    vectors: Vectors = "zero"
    statistics: Statistics = "recomputed"
    step: float = 0.02
    level: float | None = None
    lines: str = "seeds"

    def __post_init__(self) -> None:
        if self.points < 3 or self.points % 2 == 0:
            raise SpecError(
                f"points = {self.points}: must be odd and at least 3, so that the network itself "
                "is one of them"
            )
        if not 0.0 < self.span < math.inf:
            raise SpecError(f"span = {self.span}: must be above 0, and finite")
        if not SMALLEST_STEP <= self.step < math.inf:
            raise SpecError(f"step = {self.step}: must be at least {SMALLEST_STEP}, and finite")
        if self.level is not None and not math.isfinite(self.level):
            raise SpecError(f"level = {self.level}: must be finite")

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the numbers of a run depend on: neither the level, nor which lines there are."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("level", "lines")
        }

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the command, by their names there."""
        shown = asdict(self)
        shown["direction_seed"] = shown.pop("seed")
        shown["level"] = DEFAULT_LEVEL if self.level is None else self.level
        return shown

    @property
    def positions(self) -> list[float]:
        """The grid along a direction; the middle is exactly 0."""
        last = self.points - 1
        return [self.span * (2 * i - last) / last for i in range(self.points)]

    @property
    def line_positions(self) -> list[float]:
        """The points of a line, from 0 to 1."""
        return [i / (self.points - 1) for i in range(self.points)]
