"""What each command of ``sgdf theory`` shows: sentences, tables and one picture."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...present.json_numbers import replace_nonfinite
from ...present.plots import Drawing, drawing
from ...present.table import Table


@dataclass(frozen=True)
class Study:
    """One part of the theory with its numbers.

    Attributes:
        name: its command, as in ``sgdf theory gain``.
        findings: what its numbers say, a sentence each.
        tables: the numbers that people read.
        figure: the picture; the axes name the formulas that are drawn.
        numbers: all numbers of tables and picture by name, for JSON: numbers, texts, arrays,
            and lists and dicts of such.
    """

    name: str
    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    figure: Drawing
    numbers: Mapping[str, Any]

    def __post_init__(self) -> None:
        # The sentences are people's; the numbers in them were formatted for programs.
        object.__setattr__(self, "findings", tuple(map(with_minus, self.findings)))

    def draw(self, path: Path) -> None:
        """Write the picture; the end of the path chooses its format."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with drawing(self.name):
            self.figure.savefig(path, dpi=144)

    def write_json(self, path: Path) -> None:
        """Write all numbers; one that is not finite becomes a text."""
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = replace_nonfinite(_without_arrays(dict(self.numbers)), str)
        path.write_text(json.dumps({"study": self.name, **plain}, indent=1) + "\n")


def with_minus(text: str) -> str:
    """Return a text in which negative numbers have a minus, not a hyphen.

    >>> with_minus("student-3 ends at -0.73, below e^-2.4, at ε = 1e-8")
    'student-3 ends at −0.73, below e^−2.4, at ε = 1e-8'
    """
    return re.sub(r"(?<![\w.])-(?=\.?\d)", "−", text)


def name_powered_gain(gamma: float) -> str:
    """Return how tables and axes name the gain's power.

    >>> name_powered_gain(0.5), name_powered_gain(1.0), name_powered_gain(0.25)
    ('√K', 'K', 'K^0.25')
    """
    return {0.5: "√K", 1.0: "K"}.get(gamma, f"K^{gamma:g}")


def _without_arrays(value: Any) -> Any:
    """Return a value with arrays as lists, and numbers of NumPy as Python's."""
    if isinstance(value, Mapping):
        return {str(key): _without_arrays(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
