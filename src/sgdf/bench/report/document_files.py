"""A document as files: the page, its tables and figures, and the same as Markdown and LaTeX."""

from __future__ import annotations

import re
from pathlib import Path

from ...present import formats
from ...present.document import Document
from ...present.page import page
from ...present.table import Table
from ...present.words import plural
from ..errors import StoreError
from ..store import files


def write_document(document: Document, folder: Path, written: re.Pattern[str]) -> Path:
    """Write a document in every format, and return the path of its page.

    Args:
        document: its content.
        folder: where the files are written.
        written: the names of tables and plots of such documents. Files of these names are removed
            first: they may be about something else.
    """
    plots, tables = document.plots, document.tables
    for name in [*(plot.name for plot in plots), *(table.name for table in tables)]:
        assert written.fullmatch(f"{name}.csv"), f"{name} would never be removed"
    with files.store_errors(folder):
        for part in ("figures", "tables"):
            if (folder / part).is_symlink():
                raise StoreError(f"{folder / part} is a link: nothing is written through it")
            (folder / part).mkdir(parents=True, exist_ok=True)
            for path in (folder / part).iterdir():
                if written.fullmatch(path.name):
                    path.unlink(missing_ok=True)  # another process may write here too
    for plot in plots:
        with files.store_errors(folder / "figures"):
            plot.write(folder / "figures")
    for table in tables:
        write_text(folder / "tables" / f"{table.name}.csv", formats.comma_separated(table))
    write_text(folder / "report.md", _markdown(document))
    write_text(folder / "tables.tex", _latex(document))
    write_text(folder / "index.html", page(document))
    return folder / "index.html"


def write_text(path: Path, text: str) -> None:
    """Write a text file; what cannot be encoded is replaced by a question mark."""
    files.write(path, text.encode("utf-8", "replace"))


def _markdown(document: Document) -> str:
    text = formats.markdown_text
    parts = [
        f"# {text(document.title)}\n",
        *(f"{text(line)}\n" for line in (*document.about, document.origin, *document.summary)),
    ]
    for section in document.sections:
        parts.append(f"## {text(section)}\n")
        parts += [f"{text(line)}\n" for line in document.notes.get(section, ())]
        parts += [
            formats.markdown(part)
            if isinstance(part, Table)
            else f"### {text(part.title)}\n\n{text(part.about)}\n\n"
            f"![{text(part.title)}](figures/{part.name}.png)\n"
            for part in document.parts(section)
        ]
    if document.failures:
        parts.append("## Failures\n")
    for failure in document.failures:
        names = "\n".join(f"- {text(run)}" for run in failure.runs)
        parts.append(f"### {text(failure.error)}\n\n{names}\n\n{_code_block(failure.traceback)}\n")
    parts.append(f"## Settings, runs and commands\n\n{text(document.where)}\n")
    for detail in document.details:
        code = "\n".join([detail.spec, *detail.commands])
        parts.append(f"### {text(detail.title)}\n\n{_code_block(code)}\n")
        parts += [f"{text(detail.obstacle)}\n"] if detail.obstacle else []
    parts.append("## Environments\n")
    for environment, runs in document.environments:
        line = ", ".join(f"{key} {value}" for key, value in environment.items())
        parts.append(f"- {plural(len(runs), 'run')}: {text(line)}\n")
    return "\n".join(parts)


def _code_block(text: str) -> str:
    """Return text as a code block, whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _latex(document: Document) -> str:
    head = (
        "% Needs booktabs, longtable and graphicx; names in other scripts need a Unicode engine.\n"
    )
    summary = [f"% {formats.one_line(line)}" for line in document.summary]
    return "\n".join([head, *summary, *map(formats.latex, document.tables)])
