"""Numbers for JSON, which has neither NaN nor infinity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def replace_nonfinite(value: Any, replacement: Callable[[float], Any]) -> Any:
    """Return a value for JSON, with every NaN and infinity in it replaced.

    Args:
        value: numbers, texts, and lists, tuples and dicts of such.
        replacement: what to write for a number that is not finite: ``str`` writes ``"nan"``,
            which tells NaN from infinity; a function that returns None writes ``null``.

    >>> replace_nonfinite({"loss": [1.0, float("inf")]}, str)
    {'loss': [1.0, 'inf']}
    >>> replace_nonfinite(float("nan"), lambda number: None) is None
    True
    """
    if isinstance(value, dict):
        return {key: replace_nonfinite(inner, replacement) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(inner, replacement) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return replacement(value)
    return value
