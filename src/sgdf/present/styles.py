"""Colours, dashes and markers, such that a name is drawn alike in every plot of every report.

The hues can be told apart with any kind of colour vision; most are Okabe and Ito's. Dashes keep
lines apart that lie on each other, and optimizers apart that share a hue.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

HUES = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9944FF", "#776633")
"""The six of Okabe and Ito that are visible on black and on white, and two more."""
DASHES = (
    (), (5, 2), (1.5, 1.5), (6, 1.5, 1.5, 1.5),
    (10, 2.5), (2.5, 2.5), (5, 1.2, 1.2, 1.2, 1.2, 1.2), (9, 1.5, 3, 1.5),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DISTINCT = len(HUES) * len(DASHES)


@dataclass(frozen=True)
class Style:
    """How an optimizer is drawn.

    Attributes:
        color: the colour of its lines and markers.
        dash: the index of its dash pattern; a dashed line lets the line below it be seen.
        faded: how many settings of the same optimizer were drawn before this one.
    """

    color: str
    dash: int
    faded: int = 0

    @property
    def line(self) -> dict[str, Any]:
        """The options of its line for matplotlib."""
        alpha = max(0.3, 1.0 - 0.25 * self.faded)
        style: Any = (0, DASHES[self.dash]) if DASHES[self.dash] else "-"
        over = 2.0 + 0.1 * self.dash  # a solid line does not hide a dashed one
        return {"color": self.color, "linestyle": style, "alpha": alpha, "zorder": over}

    @property
    def marker(self) -> str:
        """The marker at its points."""
        return MARKERS[self.dash]

    def variant(self, index: int) -> Style:
        """Return the style of another setting of the same optimizer."""
        return replace(self, faded=index)


def styles(names: Collection[str], order: Sequence[str], common: int) -> dict[str, Style]:
    """Return a style for each name; a name in ``order`` always has the same style.

    Args:
        names: the names that are drawn.
        order: names with a fixed style, which their place in this list determines.
        common: the number of names at the start of ``order`` that are drawn most often. No other
            name gets their style while another one is left.

    >>> styles(["b", "mine"], order=["a", "b"], common=1)["b"].color == HUES[1]
    True
    """
    places = {name: place for place, name in enumerate(order) if name in names}
    others = sorted(set(names) - set(order))
    # Unused styles first; a common optimizer's only if none is left. Of these, hues that nothing
    # else has: where there are no dashes, they alone tell two apart. Then dashes and markers that
    # nothing else has, for readers who do not see the hues.
    candidates = [
        p for p in (*range(common, DISTINCT), *range(DISTINCT)) if p not in places.values()
    ]
    hues, dashes = set(map(_hue, places.values())), set(map(_dash, places.values()))
    candidates.sort(key=lambda place: (_hue(place) in hues, _dash(place) in dashes))
    free = dict.fromkeys(candidates)
    places |= dict(zip(others, itertools.chain(free, itertools.count()), strict=False))
    return {name: Style(HUES[_hue(place)], _dash(place)) for name, place in places.items()}


def _hue(place: int) -> int:
    return place % len(HUES)


def _dash(place: int) -> int:
    """Return the dash of a place; places of the same hue have different ones."""
    return (place + place // len(HUES)) % len(DASHES)
