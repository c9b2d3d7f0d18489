"""A look for each optimizer, the same in every plot and every report.

The hues are those of Okabe and Ito, which people with any kind of colour vision can tell apart;
past eight, and between settings of one optimizer, the dashes tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..optimizers import OPTIMIZERS

HUES = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#B8A800")
"""Okabe and Ito's, but for black and yellow, which vanish on a black and on a white page."""
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
_FIRST = ("sgdf", "sgd", "adam", "filter-adam", "adamw", "radam", "sgd-vanilla", "sgd-ema")
"""Those that are compared most often get colours, not dashes."""


@dataclass(frozen=True)
class Look:
    """How an optimizer is drawn."""

    color: str
    dash: int

    @property
    def line(self) -> str:
        """The dashes of its line."""
        return DASHES[self.dash % len(DASHES)]

    @property
    def marker(self) -> str:
        """The sign at its points."""
        return MARKERS[self.dash % len(MARKERS)]

    def variant(self, index: int) -> Look:
        """Return the look of another setting of the same optimizer."""
        return Look(self.color, self.dash + index)


def looks(optimizers: Iterable[str]) -> dict[str, Look]:
    """Return a look for each optimizer; a bundled one has the same whatever it is beside.

    >>> looks(["sgd", "mine:Own"])["sgd"] == looks(["sgd"])["sgd"]
    True
    """
    bundled = [*_FIRST, *(name for name in OPTIMIZERS if name not in _FIRST)]
    others = sorted(set(optimizers) - set(bundled))
    places = {name: place for place, name in enumerate([*bundled, *others])}
    return {
        name: Look(HUES[places[name] % len(HUES)], places[name] // len(HUES)) for name in optimizers
    }
