"""What a search may try: ranges and choices for the options of an optimizer."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from optuna.trial import Trial
from scipy.stats.qmc import LatinHypercube

from ..errors import SpecError
from ..paper.settings import rate_range, search_grid

DIGITS = 3
"""Digits that count of a number drawn: more would only make it hard to read."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, drawn evenly on a logarithmic scale unless told not to."""

    low: float
    high: float
    log: bool = True

    def draw(self, trial: Trial, option: str) -> Any:
        """Return what a run gets for the option in a trial."""
        if self.whole:
            return trial.suggest_int(option, int(self.low), int(self.high), log=self.log)
        drawn = trial.suggest_float(option, self.low, self.high, log=self.log)
        if self.log:
            number = float(f"{drawn:.{DIGITS}g}")
        else:
            number = round(drawn, DIGITS - 1 - math.floor(math.log10(self.high - self.low)))
        return min(max(number, self.low), self.high)

    def at(self, share: float) -> float:
        """Return the number that a share of the range lies below."""
        if self.log:
            number = self.low * math.exp(share * math.log(self.high / self.low))
        else:
            number = self.low + (self.high - self.low) * share
        return round(number) if self.whole else number

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that are all in order if its ends are."""
        return (self.low, self.high)

    @property
    def table(self) -> Any:
        """Itself, as a spec has it."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def at_edge(self, value: Any) -> bool:
        """Return whether a better value may lie beyond, being within a tenth of the way."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return not low + 0.1 * (high - low) <= at <= high - 0.1 * (high - low)


@dataclass(frozen=True)
class Choices:
    """One of several values, which need not be numbers."""

    values: tuple[Any, ...]

    def draw(self, trial: Trial, option: str) -> Any:
        """Return what a run gets for the option in a trial."""
        drawn: Any = trial.suggest_categorical(option, self.names)
        return self.values[self.names.index(drawn)]

    def at(self, share: float) -> bool | int | float | str:
        """Return the name that a share of them lies before."""
        return self.names[int(share * len(self.names))]

    @property
    def names(self) -> list[bool | int | float | str]:
        """The values, as Optuna has them: it knows no lists."""
        return [json.dumps(value) if isinstance(value, list) else value for value in self.values]

    @property
    def examples(self) -> tuple[Any, ...]:
        """All of them."""
        return self.values

    @property
    def table(self) -> Any:
        """Itself, as a spec has it."""
        return list(self.values)

    def at_edge(self, value: Any) -> bool:
        """Return whether a better value may lie beyond, being the least or the largest number."""
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
    """Return where an optimizer is searched if the file does not say.

    On the grid, that is the paper's for it; a sampler draws the learning rate alone, from four
    decades for every optimizer.
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
        "there is no default of what to search for it; say it in [optimizer.search], as in "
        "lr = { low = 0.001, high = 1.0 }"
    )


def fill_grid(space: Space, trials: int) -> Space:
    """Return a grid that has at least as many points as there are trials.

    A smaller one gets learning rates between its own, where it is the coarsest: so that every
    optimizer has the same number of trials.

    >>> fill_grid({"lr": Choices((1.0, 0.1, 0.01))}, 5)["lr"].values
    (1.0, 0.1, 0.01, 0.0316, 0.316)
    """
    for option, tried in space.items():
        if isinstance(tried, Range):
            raise SpecError(f"search.{option}: a range is no grid; give its values in a list")
    choices = cast("Mapping[str, Choices]", space)
    others = math.prod(len(tried.values) for option, tried in choices.items() if option != "lr")
    values = list(choices["lr"].values) if "lr" in choices else []
    while others * max(1, len(values)) < trials:
        numbers = all(type(value) in (int, float) for value in values)
        if len(values) < 2 or not numbers or min(values) <= 0:
            raise SpecError(
                f"its grid has {others * max(1, len(values))} points, too few for {trials} trials; "
                "give it more values, or all optimizers fewer trials"
            )
        ordered = sorted(values)
        gaps = [high / low for low, high in itertools.pairwise(ordered)]
        low = gaps.index(max(gaps))
        values.append(float(f"{math.sqrt(ordered[low] * ordered[low + 1]):.{DIGITS}g}"))
    return {**choices, **({"lr": Choices(tuple(values))} if values else {})}


def latin_hypercube(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Return so many points, each in another part of every range: a Latin hypercube.

    >>> [round(point["lr"]) for point in latin_hypercube({"lr": Range(1.0, 1e4)}, 4, seed=0)]
    [1, 483, 19, 7489]
    """
    shares = LatinHypercube(len(space), rng=seed).random(count)
    return [
        {option: tried.at(share) for (option, tried), share in zip(space.items(), row, strict=True)}
        for row in shares
    ]


def _read(option: str, value: Any) -> Range | Choices:
    told = f"search.{option} = {value!r}"
    if isinstance(value, list):
        if not value:
            raise SpecError(f"{told}: needs a value at least")
        return Choices(tuple(list(one) if isinstance(one, tuple) else one for one in value))
    if not isinstance(value, dict):
        raise SpecError(f"{told}: must be a list of values, or a range {{ low = …, high = … }}")
    unknown = set(value) - {"low", "high", "log"}
    low: Any = value.get("low")
    high: Any = value.get("high")
    log = value.get("log", True)
    numbers = all(type(end) in (int, float) and math.isfinite(end) for end in (low, high))
    if unknown or not numbers or not isinstance(log, bool):
        raise SpecError(f"{told}: a range has the numbers low and high, and may have log = false")
    if not low < high or (log and low <= 0):
        raise SpecError(f"{told}: low must be less than high, and above 0 unless log = false")
    if type(low) is not type(high):
        low, high = float(low), float(high)
    return Range(low, high, log)
