"""An analysis as a page, with its tables, figures and numbers as files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import tomli_w

import sgdf

from ..bench.report.document_files import write_document, write_text
from ..bench.report.optimizer_styles import optimizer_styles
from ..environment import environment
from ..present.document import Detail, Document
from ..present.json_numbers import replace_nonfinite
from ..present.plots import Plot
from ..present.table import Table
from ..present.words import plural
from .conduct import Analysis, Contents, Measured


def write_analysis(
    analysis: Analysis, measured: Sequence[Measured], command: str, folder: Path
) -> Document:
    """Write page, tables, figures and numbers to a folder, and return what the page says.

    Args:
        analysis: what was measured.
        measured: finished records, at least one.
        command: the command that repeats it.
        folder: where ``index.html`` and all else is written.
    """
    document = _document(analysis, measured, command, analysis.contents(measured))
    write_document(document, folder, re.compile(rf"{analysis.name}[a-z\d-]*\.(csv|png|pdf)"))
    numbers = {
        "command": command,
        "settings": dict(analysis.settings),
        "environment": document.environments[0][0],
        "runs": {
            one.run.key: {
                "name": one.run.name,
                "spec": one.run.run.as_table(),
                **one.record.values,
            }
            for one in measured
        },
    }
    text = json.dumps(replace_nonfinite(numbers, lambda number: None), indent=1)
    write_text(folder / "results.json", text + "\n")
    return document


def _document(
    analysis: Analysis, measured: Sequence[Measured], command: str, contents: Contents
) -> Document:
    here, runs = environment(), [one.run for one in measured]
    keys = tuple(dict.fromkeys(run.run.key for run in runs))  # several measurements may share one
    parts: list[Table | Plot] = [*contents.tables, *contents.plots]
    settings = {run.setting: run for run in reversed(runs)}  # the first of each setting
    return Document(
        title=analysis.title,
        about=(),
        origin=f"{plural(len(keys), 'run')}, measured by sgdf {sgdf.__version__}, "
        f"{here['date']}: {command}",
        version=sgdf.__version__,
        summary=tuple(contents.summary),
        styles=optimizer_styles({run.optimizer for run in runs}),
        sections=tuple(dict.fromkeys(part.section for part in parts)),
        notes={section: tuple(lines) for section, lines in contents.notes.items()},
        tables=tuple(contents.tables),
        plots=tuple(contents.plots),
        failures=(),
        details=(
            Detail(
                "analysis", "The analysis", f"# {command}\n{tomli_w.dumps(analysis.options)}", ()
            ),
            *(
                Detail(run.run.key, name, tomli_w.dumps(run.run.as_table()), ())
                for name, run in reversed(settings.items())
            ),
        ),
        where="",
        environments=((here, keys),),
    )
