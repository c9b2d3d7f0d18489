"""What a counter-example is: a case in which a statement does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Outcome(NamedTuple):
    """What a counter-example found."""

    refutes: bool
    """Whether the statement fails in it."""
    found: str
    """The numbers that decide, in one line."""
    numbers: Mapping[str, float]
    """All numbers by name."""


@dataclass(frozen=True)
class CounterExample:
    """A case in which a statement of the paper does not hold.

    Attributes:
        name: its name.
        label: the statement's label in the paper's source, or its line there.
        statement: what the statement says.
        description: the case, in one line.
        instead: what holds instead.
        run: computes it with the library's filter, or exactly where there is nothing to step.
    """

    name: str
    label: str
    statement: str
    description: str
    instead: str
    run: Callable[[], Outcome]
