"""Records as files: written as JSON, and held against their types when they are read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import DamagedError
from . import files
from .conform import MismatchError, conform
from .identity import digest
from .records import Result

T = TypeVar("T")

_END = b"\n}\n"
"""The end of a table in the JSON of these files."""


def to_json(content: Any) -> bytes:
    """Return a record as the content of a file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def to_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as the content of a file."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def with_digest(content: Mapping[str, Any]) -> bytes:
    """Return a table as the content of a file; its last entry is the digest of the others."""
    return to_json({**content, "sum": digest(to_json(content))})


def read_record(path: Path, kind: type[T]) -> T | None:
    """Return what a file holds, or None if it is missing.

    Raises:
        DamagedError: if it is not a record of this kind.
        StoreError: if it cannot be read.
    """
    content = files.read(path)
    if not content and not os.path.lexists(path):
        return None
    with naming_file(path):
        return conform(kind, _parse(content))


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """Return the rows of a file up to the first that is incomplete or damaged.

    Raises:
        StoreError: if it cannot be read.
    """
    rows: list[T] = []
    with contextlib.suppress(DamagedError, MismatchError):
        for line in files.read(path).split(b"\n"):
            rows.append(conform(kind, _parse(line)))
    return rows


def read_result(path: Path) -> Result | None:
    """Return the result of a run, or None if it has none.

    Raises:
        DamagedError: if it is not as ``with_digest`` made it, or not a result.
        StoreError: if it cannot be read.
    """
    content = files.read(path)
    if not content and not os.path.lexists(path):
        return None
    with naming_file(path):
        table = conform(dict, _parse(content))
        written = table.pop("sum", None)
        # Of a file as with_digest() made it, the bytes tell the digest, without encoding it again.
        end = b',\n "sum": ' + json.dumps(written).encode() + _END
        as_written = content.removesuffix(end) + _END
        if written != digest(as_written) and written != digest(to_json(table)):
            raise MismatchError("is not as it was written: its digest is another")
        result = conform(Result, table)
        for key in ("outcome", "metrics"):
            if key not in result:
                raise MismatchError("missing", key)
        if (result["outcome"] == "diverged") is (result["diverged_at_step"] is None):
            raise MismatchError(
                "must be a step if the run diverged, and only then", "diverged_at_step"
            )
        return result


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn what is wrong with the content of a file into an error that names it."""
    try:
        yield
    except MismatchError as mismatch:
        raise DamagedError(f"{path}: {mismatch}") from mismatch
    except RecursionError as error:
        raise DamagedError(f"{path}: is nested too deeply") from error


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise MismatchError("is not JSON") from error
    except RecursionError as error:
        raise MismatchError("is nested too deeply") from error
