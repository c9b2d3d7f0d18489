"""Results that take long to make: made once, and kept in the folder of the data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..errors import StoreError, first_line
from ..store import files
from ..store.files import store_errors
from ..store.lock import wait_for
from .assets import DATA_VARIABLE

T = TypeVar("T")
TRIED = "tried"
"""A file that is written, and removed, to see whether the folder takes one."""


class NotKeptError(StoreError):
    """A result cannot be kept: the place for it refuses. It says nothing about the result."""


def kept(path: Path, read: Callable[[Path], T], make: Callable[[], bytes], what: str) -> T:
    """Return what a kept file says; it is made if it is not there.

    Of several processes that need it at once, one makes it and the others wait. The file appears
    whole or not at all. One that cannot be read is made anew. Nothing is made before it is known
    that the folder can be written to.

    Args:
        path: the file, in a folder of its own that is named by a digest of all that the content
            depends on.
        read: reads it, or raises if it is not what its place is for.
        make: returns its content.
        what: says what is kept, for the message.

    Raises:
        NotKeptError: if it cannot be kept; the message says where.
    """
    folder = path.parent
    with contextlib.suppress(Exception):  # whatever is wrong with it, it is made anew
        return read(path)
    with contextlib.ExitStack() as locked:
        with _refusing(what):
            with store_errors(folder):
                files.make_folder(folder)
            locked.enter_context(wait_for(folder / "lock"))
        with contextlib.suppress(Exception):  # it may have been made in the meantime
            return read(path)
        with _refusing(what):
            files.remove_leftovers(folder)
            files.write(folder / TRIED, b"", sync=False)
            files.remove(folder / TRIED)
        content = make()
        with _refusing(what):
            files.write(path, content)
    return read(path)


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise NotKeptError(
            f"{what} cannot be kept: {first_line(str(error))} (name a folder that can be written "
            f"to with --data FOLDER or {DATA_VARIABLE})"
        ) from error
