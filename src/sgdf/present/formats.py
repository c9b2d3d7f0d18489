"""Tables as Markdown, LaTeX and CSV. Every cell is escaped, so that no text can break a format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from .table import Cell, Table

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "[": "{[}",  # after a row's end, LaTeX would read it as the start of an option
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "γ": r"$\gamma$",
    "β": r"$\beta$",
    **{sign: "\\" + sign for sign in "&%$#_"},
}
ROWS_OF_A_PAGE = 35
_NO_WIDER_THAN_THE_PAGE = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_MINUS = re.compile(r"(?<![\w-])-(?=\d)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str) -> str:
    r"""Return the text without line breaks and other control characters.

    >>> one_line("two\nlines\x07")
    'two lines'
    """
    return _CONTROL.sub(" ", text.encode("utf-8", "replace").decode()).strip()


def markdown(table: Table) -> str:
    r"""Return a table with its heading.

    >>> cells = ((Cell("a|b"), Cell("*1*")),)
    >>> print(markdown(Table("t", "", "Title", "", ("x", "y"), cells)))
    ### Title
    <BLANKLINE>
    | x | y |
    |---|---|
    | a\|b | \*1\* |
    <BLANKLINE>
    """
    head = ["### " + markdown_text(table.title), ""]
    if table.about:
        head += [markdown_text(table.about), ""]
    lines = [table.columns, *([cell.marked_text for cell in row] for row in table.rows)]
    rows = [f"| {' | '.join(map(markdown_text, line))} |" for line in lines]
    rows.insert(1, "|---" * len(table.columns) + "|")
    return "\n".join([*head, *rows, ""])


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def latex(table: Table) -> str:
    """Return a table for LaTeX's package booktabs; one longer than a page uses longtable."""
    numeric = [
        all(row[i].order is not None or not row[i].text for row in table.rows)
        for i in range(len(table.columns))
    ]
    columns = "".join("r" if is_number else "l" for is_number in numeric)
    stop = "" if table.title.endswith("?") else "."
    caption = f"\\caption{{{latex_text(table.title)}{stop} {latex_text(table.about)}}}"
    label = f"\\label{{tab:{table.name}}}"
    head = [r"\toprule", _latex_row(table.columns), r"\midrule"]
    rows = [*(_latex_row(cell.marked_text for cell in row) for row in table.rows), r"\bottomrule"]
    if len(table.rows) > ROWS_OF_A_PAGE:
        begin, end = [rf"\begin{{longtable}}{{{columns}}}"], [r"\end{longtable}"]
        lines = [*begin, rf"{caption}{label} \\", *head, r"\endhead", *rows, *end]
    else:
        begin = [r"\begin{table}", r"\centering", caption, label, _NO_WIDER_THAN_THE_PAGE]
        begin.append(rf"\begin{{tabular}}{{{columns}}}")
        lines = [*begin, *head, *rows, r"\end{tabular}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    r"""Return text that LaTeX shows as it is.

    >>> print(latex_text("50 % of $x_1$"))
    50 \% of \$x\_1\$
    """
    signs = "".join(_LATEX.get(sign, sign) for sign in one_line(text))
    return _MINUS.sub("$-$", signs)


def _latex_row(texts: Iterable[str]) -> str:
    return " & ".join(map(latex_text, texts)) + r" \\"


def comma_separated(table: Table) -> str:
    """Return a table of plain numbers: a cell that holds several gets a column for each."""
    parts = [
        list(dict.fromkeys(part for row in table.rows for part in row[i].parts))
        for i in range(len(table.columns))
    ]
    header = [
        f"{title} {part}".strip()
        for title, names in zip(table.columns, parts, strict=True)
        for part in names or [""]
    ]
    rows = [
        [value for cell, names in zip(row, parts, strict=True) for value in _values(cell, names)]
        for row in table.rows
    ]
    return comma_separated_rows([header, *rows])


def comma_separated_rows(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_escape_formula(value) for value in row] for row in rows)
    return text.getvalue()


def _values(cell: Cell, parts: list[str]) -> list[object]:
    return [cell.parts.get(part, "") for part in parts] if parts else [cell.text]


def _escape_formula(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
