"""Lists are the grid: a table with lists in it stands for all combinations of their items."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from ..errors import SpecError
from ..store.records import Table


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value as the only one of a list."""
    return value if isinstance(value, list) else [value]


def change(document: Table, key: str, value: Any) -> None:
    """Set the value at a dotted key; where a name stands for several tables, in each of them."""
    name, dot, rest = key.partition(".")
    if not dot:
        document[name] = value
        return
    inner = document.setdefault(name, {})
    for table in as_list(inner):
        if not isinstance(table, dict):
            raise SpecError(f"{key} = {value!r}: cannot be set, {name} is not a table")
        change(table, rest, value)


def empty_list(value: Any) -> str | None:
    """Return the dotted key of a list without items, which would make the grid empty."""
    for table in as_list(value):
        for key, inner in table.items() if isinstance(table, dict) else ():
            found = "" if inner == [] else empty_list(inner)
            if found is not None:
                return f"{key}.{found}".rstrip(".")
    return None


def find_repetition(value: Any, key: str = "") -> str | None:
    """Return in words which list of the grid has an item twice, which would be one run twice.

    >>> find_repetition({"optimizer": {"lr": [0.1, 1, 1.0], "betas": [[0.9, 0.9]]}})
    'optimizer.lr = [0.1, 1, 1.0]: has 1.0 twice'
    """
    if isinstance(value, list):
        seen = set()
        for item in value:
            # A table or list is known by its text; true is not 1, though Python says so.
            is_plain = not isinstance(item, dict | list)
            mark = item if is_plain else json.dumps(item, sort_keys=True)
            if (type(item) is bool, is_plain, mark) in seen:
                return f"{key} = {value!r}: has {item!r} twice"
            seen.add((type(item) is bool, is_plain, mark))
    tables = [table for table in as_list(value) if isinstance(table, dict)]
    inner = (
        (f"{key}.{name}".lstrip("."), item) for table in tables for name, item in table.items()
    )
    return next(filter(None, (find_repetition(item, name) for name, item in inner)), None)


def grid_size(value: Any) -> int:
    """Return how many values ``grid`` would yield, without making them."""
    if isinstance(value, dict):
        return math.prod(map(grid_size, value.values()))
    if isinstance(value, list):
        return sum(grid_size(item) if isinstance(item, dict) else 1 for item in value)
    return 1


def grid(value: Any) -> Iterator[Any]:
    """Yield each combination that a value with lists stands for, itself without lists."""
    if isinstance(value, dict):
        for items in itertools.product(*(list(grid(item)) for item in value.values())):
            yield dict(zip(value, items, strict=True))
    elif isinstance(value, list):
        for item in value:
            yield from grid(item) if isinstance(item, dict) else [item]
    else:
        yield value


def quote_lists(options: Table) -> Table:
    """Put each list value into a list of its own, as an experiment file writes it."""
    return {key: _quoted(value) for key, value in options.items()}


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return quote_lists(value)
    return [list(value)] if isinstance(value, list | tuple) else value


def find_misfit(value: Any, key: str = "") -> str | None:
    """Return a key with a value that no run can have (NaN, a date or a time), if there is one."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        found = (find_misfit(item, ".".join(filter(None, (key, name)))) for name, item in inner)
        return next(filter(None, found), None)
    fits = isinstance(value, bool | int | float | str) and value == value
    return None if fits else f"{key} = {value}"
