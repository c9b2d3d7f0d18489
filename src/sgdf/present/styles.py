"""A look for each optimizer, the same in every plot and every report.

People with any kind of colour vision can tell the hues apart; most are Okabe and Ito's.
Dashes go with them, for lines that lie on each other, and for more optimizers than hues.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

HUES = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9944FF", "#776633")
"""Okabe and Ito's six that show on black and on white, and two that keep apart from them."""
DASHES = ((), (5, 2), (1.5, 1.5), (6, 1.5, 1.5, 1.5))
MARKERS = ("o", "s", "^", "D")
DISTINCT = len(HUES) * len(DASHES)


@dataclass(frozen=True)
class Style:
    """How an optimizer is drawn.

    Attributes:
        color: of its lines and marks.
        dash: the number of its dashes; a line over another that is the same lets it be seen.
        faded: how many settings of the same optimizer were drawn before.
    """

    color: str
    dash: int
    faded: int = 0

    @property
    def line(self) -> dict[str, Any]:
        """Its line, as matplotlib takes it."""
        alpha = max(0.3, 1.0 - 0.25 * self.faded)
        style: Any = (0, DASHES[self.dash]) if DASHES[self.dash] else "-"
        over = 2.0 + 0.1 * self.dash  # a solid line does not hide a dashed one
        return {"color": self.color, "linestyle": style, "alpha": alpha, "zorder": over}

    @property
    def marker(self) -> str:
        """The sign at its points."""
        return MARKERS[self.dash]

    def variant(self, index: int) -> Style:
        """Return the style of another setting of the same optimizer."""
        return replace(self, faded=index)


def styles(names: Collection[str], order: Sequence[str], common: int) -> dict[str, Style]:
    """Return a style for each name; one of ``order`` has the same whatever it is beside.

    Args:
        names: what is drawn.
        order: names that have a fixed style, by their place in it.
        common: how many of them, from the first, are drawn so often that no other name gets
            their style while one is left.

    >>> styles(["b", "mine"], order=["a", "b"], common=1)["b"].color == HUES[1]
    True
    """
    places = {name: place for place, name in enumerate(order) if name in names}
    others = sorted(set(names) - set(order))
    # Unused styles first; a common optimizer's only if none is left.
    candidates = (*range(common, DISTINCT), *range(DISTINCT))
    free = (place for place in candidates if place not in places.values())
    places |= dict(zip(others, itertools.chain(free, itertools.count()), strict=False))
    return {
        name: Style(HUES[place % len(HUES)], (place + place // len(HUES)) % len(DASHES))
        for name, place in places.items()
    }
