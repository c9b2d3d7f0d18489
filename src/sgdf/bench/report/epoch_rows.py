"""The rows of epochs of many runs, in little memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..store.records import Row, figures_on, splits_in

UNPACKED_AT_ONCE = 32
"""About as many runs as a setting has seeds: their rows are asked for several times in a row."""


class EpochRows(Sequence[Row]):
    """Rows of metrics, one for each epoch, kept as compressed text.

    As Python objects the rows of 10,000 runs would need several hundred megabytes. The last row,
    which is asked for most, is kept as it is.

    Attributes:
        names: the splits and metrics that any of the rows has, in pairs.
    """

    def __init__(self, rows: list[Row]) -> None:
        self._length, self._last = len(rows), rows[-1:]
        names = {(s, name) for row in rows for s in splits_in(row) for name in figures_on(row, s)}
        self.names = _shared(frozenset(names))
        self._packed = zlib.compress(json.dumps(rows).encode(), level=1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Row]:
        return iter(_unpack(self._packed))

    def __getitem__(self, index: Any) -> Any:
        if index == -1 or index == slice(-1, None):
            return self._last[index]
        return _unpack(self._packed)[index]


@lru_cache
def _shared(names: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return one object for all runs that have the same names."""
    return names


@lru_cache(UNPACKED_AT_ONCE)
def _unpack(packed: bytes) -> list[Row]:
    rows: list[Row] = json.loads(zlib.decompress(packed))
    return rows
