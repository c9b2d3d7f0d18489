"""The errors that people meet, and how their messages are made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class SpecError(ValueError):
    """An experiment asks for something impossible; the message says what and where."""


class StoreError(Exception):
    """Something could not be written or read: no space, no permission, a disk that is gone."""


class DataError(StoreError):
    """Data that a task needs are missing or damaged; the message says what to do."""


def first_line(error: BaseException | str) -> str:
    """Return an error in one line."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that was perhaps meant, to end an error message with.

    >>> suggestion("adm", ["adam", "sgd"])
    '; did you mean adam?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


@contextmanager
def naming(source: str | Path) -> Iterator[None]:
    """Begin the message of every ``SpecError`` with the file that it is about."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from error.__cause__
