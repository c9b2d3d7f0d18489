"""The experiments and searches that come with the package."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path


def bundled_experiments() -> dict[str, Path]:
    """Return the experiments that come with the package, by name."""
    return {name: path for name, path in _bundled().items() if not _is_search(path)}


def bundled_searches() -> dict[str, Path]:
    """Return the searches that come with the package, for ``sgdf tune``, by name."""
    return {name: path for name, path in _bundled().items() if _is_search(path)}


@cache
def _bundled() -> dict[str, Path]:
    """Return every file below ``experiments``: folders are for people, names for commands."""
    folder = Path(str(resources.files("sgdf"))) / "experiments"
    return dict(sorted((path.stem, path) for path in folder.rglob("*.toml")))


@cache
def _is_search(path: Path) -> bool:
    """Return whether a file is for ``sgdf tune``: it then has a table ``[search]``."""
    return "search" in tomllib.loads(path.read_text(encoding="utf-8"))
