"""Which differences between settings are significant, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from ..bench.report.pairs import SIGNIFICANT
from ..bench.report.statistics import FEWEST_SEEDS, compare
from ..present.words import listed


def significant_differences(by_setting: Mapping[str, Mapping[int, float]], what: str) -> list[str]:
    """Return a sentence on which differences are significant; none for a single setting.

    Args:
        by_setting: a value for each seed, by the name of the setting.
        what: the name of the value.

    >>> significant_differences({"a": {0: 1.0}, "b": {0: 2.0}}, "trace")
    ['Whether a difference in trace is significant needs at least 3 seeds that two settings share.']
    """
    names = list(by_setting)
    if len(names) < 2:
        return []
    found = compare(list(by_setting.values()))
    if all(one.p is None for one in found):
        return [
            f"Whether a difference in {what} is significant needs at least {FEWEST_SEEDS} seeds "
            "that two settings share."
        ]
    significant = [
        f"{names[one.first]} and {names[one.second]} (p = {one.corrected:.2g})"
        for one in found
        if one.corrected is not None and one.corrected < SIGNIFICANT
    ]
    if not significant:
        return [f"No difference in {what} is significant."]
    return [f"The difference in {what} is significant between {listed(significant)}."]
