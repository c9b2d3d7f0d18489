"""Numbers, times and units in words."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, thing: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "run"), plural(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(3.2), duration(75), duration(4000)
    ('3 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def in_brackets(unit: str) -> str:
    """Return a unit as it follows a column's title; nothing where there is no unit.

    >>> in_brackets("%"), in_brackets("")
    (' (%)', '')
    """
    return f" ({unit})" if unit else ""


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Return names as a list in a sentence; beyond ``most`` they are counted.

    >>> listed(["a", "b", "c"]), listed(["a"]), listed(["a", "b", "c", "d"], most=2)
    ('a, b and c', 'a', 'a, b and 2 others')
    """
    if most is not None and len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def quantity(value: float, unit: str) -> str:
    """Return a number to four digits with its unit.

    >>> quantity(98.4899, "%"), quantity(0.5, "")
    ('98.49 %', '0.5')
    """
    return f"{value:.4g} {unit}".rstrip()
