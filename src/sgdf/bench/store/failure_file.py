"""The record of a failed run: the error, its traceback and the source that it comes from."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping
from pathlib import Path

from ..errors import DamagedError, StoreError, first_line, place_of
from . import files
from .record_files import read_record, to_json
from .records import Failure, Table


def write(path: Path, error: BaseException | str, sources: Mapping[str, str] | None) -> None:
    """Record a failure.

    Args:
        path: the file.
        error: the exception, or what happened in one line.
        sources: digests of the source that failed.
    """
    content: Table = {"error": first_line(error), "traceback": error}
    if isinstance(error, BaseException):
        content["place"] = place_of(error)
        content["traceback"] = "".join(traceback.format_exception(error))
    if sources:
        content["sources"] = dict(sources)
    files.write(path, to_json(content))


def read(path: Path) -> Failure | None:
    """Return the record, or None if there is none.

    Raises:
        StoreError: if it is damaged or cannot be read.
    """
    return read_record(path, Failure)


def in_one_line(path: Path) -> str | None:
    """Return the error and where it was raised, or what is wrong with the file; None without it."""
    try:
        failure = read(path)
    except StoreError as error:
        return str(error)
    if failure is None:
        return None
    place = f" ({failure['place']})" if failure.get("place") else ""
    return f"{failure['error']}{place}"


def traceback_of(path: Path) -> str:
    """Return the traceback; empty if there is none."""
    with contextlib.suppress(DamagedError):
        failure = read(path)
        return failure["traceback"] if failure else ""
    return ""
