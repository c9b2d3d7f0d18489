"""How commands speak: to the terminal, and when they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from ..bench.errors import SpecError, StoreError


def make_console(stderr: bool = False) -> Console:
    """Return a console that shows names as they are: ``:smile:`` may be part of a path."""
    return Console(stderr=stderr, emoji=False)


def say(console: Console, line: str) -> None:
    """Print a line of text as it is; a long one is not cut into several."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def show(console: Console, parts: Iterable[Any]) -> None:
    """Print tables and lines; lines may hold rich markup."""
    for part in parts:
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))


def refuse(error: Exception | str) -> typer.Exit:
    """Say on stderr what is wrong; return what is to be raised to leave with exit code 2."""
    say(make_console(stderr=True), f"sgdf: {error}")
    return typer.Exit(2)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors that the user can mend into a message of one line and exit code 2."""
    try:
        yield
    except (SpecError, StoreError) as error:
        raise refuse(error) from error
