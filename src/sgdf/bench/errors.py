"""The errors that people meet, and how their messages are made."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class SpecError(ValueError):
    """An experiment asks for something impossible; the message says what and where."""


class StoreError(Exception):
    """Something could not be written or read: no space, no permission, a disk that is gone."""


class DamagedError(StoreError):
    """A file of a store is not what was written; the message names it and what is wrong."""


class DataError(StoreError):
    """Data that a task needs are missing or damaged; the message says what to do."""


def first_line(error: BaseException | str) -> str:
    """Return an error in one line."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]


def place_of(error: BaseException) -> str:
    """Return the line of code that an error comes from, as in ``moons.py:41 in loss``.

    That is the innermost line of the user's own code. If there is none, it is one of an installed
    package, then of sgdf. Torch, the standard library and code that has no file come last.
    """
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost frame comes first, and of equal ranks the first is taken.
    best = min(reversed(frames), key=lambda frame: _rank(frame.filename), default=None)
    return f"{Path(best.filename).name}:{best.lineno} in {best.name}" if best else ""


def is_users_own(file: str) -> bool:
    """Return whether a file with code belongs to no installed package, nor to Python or sgdf."""
    return _rank(file) == 0


def _rank(file: str) -> int:
    """Return how remote a file is from the user's own code, which has rank 0."""
    if file.startswith("<") and not file.startswith("<ipython"):
        return 3
    path = Path(file)
    if path.is_relative_to(Path(__file__).parents[1]):
        return 2
    for folder in ("site-packages", "dist-packages"):  # which may lie in the standard library's
        if folder in path.parts:
            package = path.parts[path.parts.index(folder) + 1]
            return 3 if package == "torch" else 1
    return 3 if path.is_relative_to(sysconfig.get_path("stdlib")) else 0


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that was perhaps meant, to end an error message with.

    >>> suggestion("adm", ["adam", "sgd"])
    '; did you mean adam?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


@contextmanager
def naming(source: str | Path) -> Iterator[None]:
    """Begin the message of every ``SpecError`` with the file or part that it is about, if any."""
    try:
        yield
    except SpecError as error:
        if not str(source):
            raise
        raise SpecError(f"{source}: {error}") from error.__cause__
