"""``sgdf report``: compare the results of the runs in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from .console import make_console, refusing, say, show
from .options import Place, Targets, out_option, parse_target
from .places import find_stores


def report(
    place: Place = Path("results"),
    out: Annotated[
        str | None,
        out_option("Folder to write to. Default: report in the folder of the runs."),
    ] = None,
    targets: Targets = None,
) -> None:
    """Compare the results of the runs in a folder: a page, tables and figures.

    The command writes index.html, which needs no other file and no network; the same tables as
    Markdown, LaTeX (booktabs), JSON and CSV; every run as a row of runs.csv; and the figures as PNG
    and PDF. Where optimizers have five learning rates or more, it shows how wide the range of good
    ones is. Runs without a result are listed but not counted, so a report can be made at any time.
    """
    with refusing():
        stores = find_stores(place)
    write_report(stores, Path(out) if out else None, dict(map(parse_target, targets or ())))


def write_report(
    stores: Sequence[Path], out: Path | None = None, targets: dict[str, float] | None = None
) -> None:
    """Write the report on some stores, and show the most important of it."""
    from ..bench.errors import StoreError
    from ..bench.report.brief import results_in_brief
    from ..bench.report.write import Report

    console, targets = make_console(), targets or {}
    folder = out or (stores[0] if len(stores) == 1 else stores[0].parent) / "report"
    with refusing():
        if out is None and folder.is_symlink():  # it came with the runs, which may be a stranger's
            raise StoreError(f"{folder} is a link; name the folder to write to with --out")
        made = Report.of(list(stores), targets)
        page = made.write(folder)
    for line in made.document.summary:
        say(console, line)
    show(console, results_in_brief(made.document, bool(targets)))
    console.print()
    say(console, f"Report: {page}")
    say(
        console,
        "The same beside it: report.md, tables.tex, results.json, tables/, figures/, runs.csv",
    )
