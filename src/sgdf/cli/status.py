"""``sgdf status``: how far the runs in a folder are."""

from __future__ import annotations

from pathlib import Path

from .console import make_console, refusing, say_all, show
from .options import Place
from .places import find_stores


def status(place: Place = Path("results")) -> None:
    """Show the state of the runs in a folder, their results so far, and what went wrong.

    Given the folder of one run, as in results/digits/runs/KEY, it shows the whole error message of
    a failed run.
    """
    from ..bench.store.run_folder import RunFolder, Store, is_run_folder
    from .show.status import store_report

    console = make_console()
    with refusing():
        if is_run_folder(place):
            folder = RunFolder(place.absolute())
            console.rule(str(place), align="left")
            show(console, store_report([folder]))
            say_all(console, folder.traceback())
            return
        for path in find_stores(place):
            console.rule(str(path), align="left")
            show(console, store_report(Store(path).folders()))
