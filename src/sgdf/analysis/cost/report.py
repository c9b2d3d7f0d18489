"""Everything that one call of ``sgdf cost`` measured, and how its parts are named."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .measure import LIMIT, MEMORY_ALONE, Cost, Result, whole_steps
from .operations import Row


@dataclass(frozen=True)
class Report:
    """Everything that one call of ``sgdf cost`` found out."""

    environment: dict[str, str]
    rounds: int
    results: list[Result]
    operations: list[Row]

    @property
    def whole_steps(self) -> list[dict[str, Any]]:
        """Whole training steps of the networks in the paper's runtime table, beside its times."""
        return [row for result in self.results for row in whole_steps(result)]

    def as_json(self) -> dict[str, Any]:
        """Return plain lists, dicts and numbers."""
        return {
            "environment": self.environment,
            "rounds": self.rounds,
            "problems": [
                asdict(result) | {"whole_steps": whole_steps(result)} for result in self.results
            ],
            "operations": [asdict(row) | {"total": row.total} for row in self.operations],
        }


def label(cost: Cost) -> str:
    """Return an optimizer and its implementation in words."""
    return f"{cost.optimizer}, {cost.implementation}"


def is_limit(cost: Cost) -> bool:
    """Return whether this is no optimizer, but what memory alone costs."""
    return (cost.optimizer, cost.implementation) in (LIMIT, MEMORY_ALONE)


def three_digits(value: float) -> str:
    """Return a number with three digits, or all of those before the point.

    >>> three_digits(0.012345), three_digits(12345.6)
    ('0.0123', '12346')
    """
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"
