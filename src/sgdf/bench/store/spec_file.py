"""The file ``spec.toml``: the table of a run, in TOML.

The runs of a grid share most parts of their tables, such as ``[task]`` and ``[train]``. Each
distinct part is parsed and encoded once, because tomllib needs half a millisecond for a whole file.
What was put together from parts is right if it has the digest that the run is known by; if not, the
file is parsed as a whole.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import lru_cache

import tomli_w

from ..errors import first_line
from .conform import MismatchError
from .identity import run_key
from .records import RunTable, Table

MOST_PARTS = 10_000
"""So many parts are remembered, at some kilobytes each."""

_HEADER = re.compile(r"^(?=\[\w+\]$)", re.MULTILINE)


def parse(content: bytes, key: str) -> Table:
    """Return the table that a file holds.

    Equal parts of several tables are one object: a caller must not change them.

    Raises:
        MismatchError: if it is not that of the run with this key.
    """
    wrong = "is not the table of this run"
    for parse_text in (_parse_by_parts, tomllib.loads):
        try:
            table = parse_text(content.decode())
            if run_key(table) == key:
                return table
        except (ValueError, TypeError, RecursionError) as error:  # TypeError: it has a date
            wrong = f"is not the table of a run: {first_line(error)}"
    raise MismatchError(wrong)


def encode(table: RunTable) -> bytes:
    """Return the content of the file of a table."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    parts = [{key: value} for key, value in table.items() if isinstance(value, dict)]
    return "\n".join(_encode_part(json.dumps(part)) for part in [values, *parts]).encode()


def _parse_by_parts(text: str) -> Table:
    """Return what tomllib makes of a text, if no value has a line that looks like a header."""
    table: Table = {}
    for part in _HEADER.split(text):
        table.update(_parse_part(part))
    return table


@lru_cache(MOST_PARTS)
def _parse_part(text: str) -> Table:
    return tomllib.loads(text)


@lru_cache(MOST_PARTS)
def _encode_part(part: str) -> str:
    """Return a part in TOML, given it in JSON, by which equal parts are recognised."""
    return tomli_w.dumps(json.loads(part))
