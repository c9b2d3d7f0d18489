"""The rows of epochs of many runs, in little memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..store.records import Row

UNPACKED_AT_ONCE = 32
"""About as many runs as a setting has seeds: their rows are asked for several times in a row."""


class EpochRows(Sequence[Row]):
    """Rows of metrics, one for each epoch, kept as compressed text.

    As Python objects the rows of 10,000 runs would need several hundred megabytes. The last row,
    which is asked for most, is kept as it is.
    """

    def __init__(self, rows: list[Row]) -> None:
        self._length, self._last = len(rows), rows[-1:]
        self._packed = zlib.compress(json.dumps(rows).encode(), level=1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Row]:
        return iter(_unpack(self._packed))

    def __getitem__(self, index: Any) -> Any:
        if index == -1 or index == slice(-1, None):
            return self._last[index]
        return _unpack(self._packed)[index]


@lru_cache(UNPACKED_AT_ONCE)
def _unpack(packed: bytes) -> list[Row]:
    rows: list[Row] = json.loads(zlib.decompress(packed))
    return rows
