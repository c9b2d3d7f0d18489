"""The settings whose curves are drawn, each with its style."""

from __future__ import annotations

from collections.abc import Iterator

from ...present.styles import Style
from .findings import Problem, Setting
from .pairs import MOST_COMPARED


def styled_settings(problem: Problem, by_name: dict[str, Style]) -> Iterator[tuple[Setting, Style]]:
    """Yield each setting of the headline with its style; none if there are too many to draw."""
    if len(problem.headline) > MOST_COMPARED:
        return
    count: dict[str, int] = {}
    for setting in problem.headline:
        index = count.setdefault(setting.optimizer, 0)
        count[setting.optimizer] += 1
        yield setting, by_name[setting.optimizer].variant(index)
