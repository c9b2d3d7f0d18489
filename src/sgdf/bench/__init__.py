"""The bench: compare optimizers fairly on any task, and never lose a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Comparison, compare

__all__ = ["Comparison", "compare"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import comparison  # which needs torch and the bench extra

    return getattr(comparison, name)
