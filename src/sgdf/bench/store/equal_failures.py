"""Failed runs, grouped by what they failed with."""

from __future__ import annotations

from collections.abc import Iterable

from .run_folder import RunFolder


def equal_failures(folders: Iterable[RunFolder]) -> dict[str, list[RunFolder]]:
    """Return the failed runs of each failure, given in one line; the most frequent one first."""
    groups: dict[str, list[RunFolder]] = {}
    for folder in folders:
        failure = folder.failure() or "its failure.json is damaged"
        groups.setdefault(failure, []).append(folder)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))
