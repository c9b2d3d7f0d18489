"""How commands speak: to the terminal, and when they refuse.

Names, options, metrics and errors may come from files that a stranger has written. The console
shows them as text: it knows no markup, and escapes what a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..bench.errors import DataError, SpecError, StoreError
from ..present.visible import visible


class PlainConsole(Console):
    """A console on which every string is one line of text, whatever it consists of."""

    def render_str(self, text: str, **style: Any) -> Text:
        """Return a string as text; styles are given by arguments, never by markup."""
        kept = {key: style[key] for key in ("style", "justify", "overflow") if key in style}
        return Text(visible(text), **kept)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the parts of what is shown; text that is not a string is escaped here."""
        for part in super().render(renderable, options):
            if part.control:  # rich's own: the cursor of a progress bar
                yield part
            else:
                shown = "\n".join(map(visible, part.text.split("\n")))
                yield part if shown == part.text else Segment(shown, part.style)


def make_console(stderr: bool = False) -> Console:
    """Return the console that a command speaks through."""
    return PlainConsole(stderr=stderr)


def say(console: Console, line: str) -> None:
    """Print a line of text as it is; a long one is not cut into several."""
    console.print(line, soft_wrap=True)


def say_all(console: Console, text: str) -> None:
    """Print a text of several lines as they are."""
    for line in text.splitlines():
        say(console, line)


def show(console: Console, parts: Iterable[Any]) -> None:
    """Print tables and lines."""
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def refuse(error: Exception | str) -> typer.Exit:
    """Say on stderr what is wrong; return what is to be raised to leave with exit code 2."""
    console = make_console(stderr=True)
    if isinstance(error, DataError):  # which lists files and checksums, each in a line of its own
        say_all(console, f"sgdf: {error}")
    else:
        say(console, f"sgdf: {error}")
    return typer.Exit(2)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors that the user can mend into a message and exit code 2."""
    try:
        yield
    except (SpecError, StoreError) as error:
        raise refuse(error) from error
