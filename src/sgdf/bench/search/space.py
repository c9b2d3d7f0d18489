"""The values that a search may try: ranges and choices for the options of an optimizer."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from optuna.trial import Trial

from ..errors import SpecError
from ..paper.settings import rate_range, search_grid

DIGITS = 3
"""Significant digits of a number drawn from a range: with more it would be hard to read."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, drawn evenly on a logarithmic or a linear scale."""

    low: float
    high: float
    log: bool = True

    def draw(self, trial: Trial, option: str) -> Any:
        """Return the value of the option in a trial, rounded to a few digits."""
        if self.whole:
            return trial.suggest_int(option, int(self.low), int(self.high), log=self.log)
        drawn = trial.suggest_float(option, self.low, self.high, log=self.log)
        if self.log:
            number = float(f"{drawn:.{DIGITS}g}")
        else:
            number = round(drawn, DIGITS - 1 - math.floor(math.log10(self.high - self.low)))
        return min(max(number, self.low), self.high)

    def at(self, share: float) -> float:
        """Return the number at a share of the way from ``low`` to ``high``."""
        if self.log:
            number = self.low * math.exp(share * math.log(self.high / self.low))
        else:
            number = self.low + (self.high - self.low) * share
        return round(number) if self.whole else number

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values to check the range by: if both ends are valid, so is the rest."""
        return (self.low, self.high)

    @property
    def table(self) -> Any:
        """The range as ``[optimizer.search]`` has it."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def at_edge(self, value: Any) -> bool:
        """Return whether the value is in the outer tenth, so that a better one may lie beyond."""
        low, high, place = self.low, self.high, value
        if self.log:
            low, high, place = math.log(low), math.log(high), math.log(place)
        return not low + 0.1 * (high - low) <= place <= high - 0.1 * (high - low)


@dataclass(frozen=True)
class Choices:
    """One of several values, which need not be numbers."""

    values: tuple[Any, ...]

    def draw(self, trial: Trial, option: str) -> Any:
        """Return the value of the option in a trial."""
        drawn: Any = trial.suggest_categorical(option, self.names)
        return self.values[self.names.index(drawn)]

    def at(self, share: float) -> bool | int | float | str:
        """Return the name at a share of the way through the list."""
        return self.names[int(share * len(self.names))]

    @property
    def names(self) -> list[bool | int | float | str]:
        """The values as Optuna stores them, which cannot store lists: those become JSON."""
        return [json.dumps(value) if isinstance(value, list) else value for value in self.values]

    @property
    def examples(self) -> tuple[Any, ...]:
        """All values: any of them may be invalid."""
        return self.values

    @property
    def table(self) -> Any:
        """The choices as ``[optimizer.search]`` has them."""
        return list(self.values)

    def at_edge(self, value: Any) -> bool:
        """Return whether it is the least or the largest number: a better one may lie beyond."""
        if len(self.values) < 3 or not all(type(v) in (int, float) for v in self.values):
            return False
        return value in (min(self.values), max(self.values))


Space = Mapping[str, Range | Choices]


def read_space(table: Mapping[str, Any]) -> Space:
    """Return the space that ``[optimizer.search]`` describes.

    >>> read_space({"lr": {"low": 0.01, "high": 1}, "nesterov": [False, True]})["lr"]
    Range(low=0.01, high=1.0, log=True)
    """
    return {option: _read(option, value) for option, value in table.items()}


def default_space(optimizer: str, sampler: str) -> Space:
    """Return the space of an optimizer for which the file has none.

    For a grid search that is the paper's grid. Otherwise only the learning rate is searched, over
    four decades for every optimizer.
    """
    if sampler == "grid":
        values = search_grid(optimizer)
        if values:
            return read_space(values)
    else:
        ends = rate_range(optimizer)
        if ends:
            return {"lr": Range(*ends)}
    raise SpecError(
        "it has no default values to search; give them in [optimizer.search], as in "
        "lr = { low = 0.001, high = 1.0 }"
    )


def fill_grid(space: Space, trials: int) -> Space:
    """Return a grid that has at least as many points as there are trials.

    A smaller grid gets more learning rates, each in the widest gap between its own, so that every
    optimizer has the same number of trials.

    >>> fill_grid({"lr": Choices((1.0, 0.1, 0.01))}, 5)["lr"].values
    (1.0, 0.1, 0.01, 0.0316, 0.316)
    """
    for option, values in space.items():
        if isinstance(values, Range):
            raise SpecError(f"search.{option}: a range is no grid; give its values in a list")
    choices = cast("Mapping[str, Choices]", space)
    others = math.prod(len(choice.values) for option, choice in choices.items() if option != "lr")
    rates = list(choices["lr"].values) if "lr" in choices else []
    while others * max(1, len(rates)) < trials:
        numbers = all(type(rate) in (int, float) for rate in rates)
        if len(rates) < 2 or not numbers or min(rates) <= 0:
            raise SpecError(
                f"its grid has {others * max(1, len(rates))} points, too few for {trials} trials; "
                "give it more values, or all optimizers fewer trials"
            )
        ordered = sorted(rates)
        gaps = [high / low for low, high in itertools.pairwise(ordered)]
        low = gaps.index(max(gaps))
        rates.append(float(f"{math.sqrt(ordered[low] * ordered[low + 1]):.{DIGITS}g}"))
    return {**choices, **({"lr": Choices(tuple(rates))} if rates else {})}


def latin_hypercube(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Return points of the space that cover every range evenly: a Latin hypercube.

    Each range is cut into ``count`` parts, and each part has one point.

    >>> [round(point["lr"]) for point in latin_hypercube({"lr": Range(1.0, 1e4)}, 4, seed=0)]
    [1, 483, 19, 7489]
    """
    from scipy.stats.qmc import LatinHypercube  # which takes most of a second

    shares = LatinHypercube(len(space), rng=seed).random(count)
    return [
        {
            option: values.at(share)
            for (option, values), share in zip(space.items(), row, strict=True)
        }
        for row in shares
    ]


def _read(option: str, value: Any) -> Range | Choices:
    entry = f"search.{option} = {value!r}"
    if isinstance(value, list):
        if not value:
            raise SpecError(f"{entry}: needs at least one value")
        return Choices(tuple(list(one) if isinstance(one, tuple) else one for one in value))
    if not isinstance(value, dict):
        raise SpecError(f"{entry}: must be a list of values, or a range {{ low = …, high = … }}")
    unknown = set(value) - {"low", "high", "log"}
    low: Any = value.get("low")
    high: Any = value.get("high")
    log = value.get("log", True)
    numbers = all(type(end) in (int, float) and math.isfinite(end) for end in (low, high))
    if unknown or not numbers or not isinstance(log, bool):
        raise SpecError(f"{entry}: a range has the numbers low and high, and may have log = false")
    if not low < high or (log and low <= 0):
        raise SpecError(f"{entry}: low must be less than high, and above 0 unless log = false")
    if type(low) is not type(high):
        low, high = float(low), float(high)
    return Range(low, high, log)
