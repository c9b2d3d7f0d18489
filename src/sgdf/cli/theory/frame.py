"""How each command of ``sgdf theory`` ends: tables in the terminal, files where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..console import make_console, say
from ..show.analysis import terminal_table

if TYPE_CHECKING:
    from ...analysis.theory.study import Study


def present(study: Study, json_file: Path | None, plot: Path | None) -> None:
    """Print what a study found and its tables; write its numbers and its picture where asked."""
    console = make_console()
    for table in study.tables:
        console.print(terminal_table(table))
        console.print()
    for finding in study.findings:
        say(console, finding)
    if json_file:
        study.write_json(json_file)
    if plot:
        study.draw(plot)
    for path in filter(None, (json_file, plot)):
        say(console, f"wrote {path}")
