"""How ``--help`` shows options: a flag takes no value, so no type stands beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_type(options: Iterable[Any]) -> list[Any]:
    """Return the options of a command; typer would show a flag as ``--flag <bool>``."""
    options = list(options)
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its arguments and options."""
        return _without_type(super().get_params(ctx))


class Group(TyperGroup):
    """The program, with its commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its options."""
        return _without_type(super().get_params(ctx))
