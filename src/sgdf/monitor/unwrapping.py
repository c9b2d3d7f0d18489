"""The optimizer of this package inside of whatever wraps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..optim.base import BaseOptimizer
from ..optim.filtered import Filtered

_ATTRIBUTES = ("optimizer", "optim")
"""Where accelerate, Lightning, fairscale and others keep the optimizer that they wrap."""

_MOST = 16  # objects to look at; some invent a new object for every attribute


def unwrap(optimizer: Any) -> BaseOptimizer | Filtered:
    """Return ``optimizer`` or the one that it wraps, at any depth; ``TypeError`` if there is none.

    Args:
        optimizer: an optimizer, or anything with one in its ``optimizer`` or ``optim``.
    """
    found = list(_inside(optimizer))
    for candidate in found:
        if isinstance(candidate, (BaseOptimizer, Filtered)):
            return candidate
    names = " around ".join(type(candidate).__name__ for candidate in found)
    raise TypeError(
        f"monitor takes an optimizer of sgdf or of a class from sgdf.filtered, got {names}"
    )


def has_filter(optimizer: Any) -> bool:
    """Return whether an optimizer, or the one that it wraps, has a filter with a gain."""
    try:
        inner = unwrap(optimizer)
    except TypeError:
        return False
    return all(inner._filter_in(group) is not None for group in inner.param_groups)


def _inside(optimizer: Any) -> Iterator[Any]:
    """Yield the object and those that it wraps, each once, from the outermost inwards."""
    due, known = [optimizer], {id(optimizer)}
    while due and len(known) <= _MOST:
        wrapper = due.pop(0)
        yield wrapper
        for name in _ATTRIBUTES:
            try:
                inner = getattr(wrapper, name, None)
            except Exception:  # a property may do anything
                continue
            if inner is not None and id(inner) not in known:
                known.add(id(inner))
                due.append(inner)
