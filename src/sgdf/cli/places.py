"""From what people type to the folders of runs that they mean."""

from __future__ import annotations

from pathlib import Path

from ..bench.errors import SpecError, suggestion
from ..bench.store.run_folder import stores_in

RESULTS = Path("results")
"""Where runs are kept unless a command says otherwise."""


def find_stores(place: Path) -> list[Path]:
    """Return the stores that a path stands for: itself, all below it, or that of an experiment.

    Raises:
        SpecError: if there are none; the message names a folder with a similar name.
    """
    named = RESULTS / place.name.removesuffix(".toml")
    alone = [path for path in (place, named) if stores_in(path) == [path]][:1]
    stores = alone or stores_in(place)
    if not stores:
        what = "no runs there" if place.is_dir() else "no such folder"
        known = [*stores_in(RESULTS), *stores_in(place.parent)]
        names = (path.name for path in known if path.parent == RESULTS)
        hint = suggestion(str(place), [*map(str, known), *names])
        raise SpecError(f"{place}: {what}; sgdf run keeps its runs in {RESULTS / 'NAME'}{hint}")
    return stores
