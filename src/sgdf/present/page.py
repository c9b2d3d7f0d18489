"""A report as one HTML file that needs no network and no other file.

All text from the runs is escaped. The page's security policy allows only its own script, which
it names by its hash, images that are part of the page, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from .document import Detail, Document
from .formats import one_line
from .plots import READING, Plot, Reading, mark_of
from .styles import DASHES, Style
from .table import Cell, Table
from .words import plural

FILTERED_FROM = 5
"""Tables with at least this many rows have a filter."""
_COORDINATES = re.compile(r' d="[^"]*"')
_LONG = re.compile(r"(\.\d)\d+|\bL ")  # a second pair of numbers is a line anyway
_GROUP = re.compile(rf'<g id="(of-[0-9a-f]*)?(?:{READING}(\d+))?[^"]*"')


def page(document: Document) -> str:
    """Return the report as HTML."""
    script, style = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; "  # a map of colours is a PNG image within its SVG drawing
        "base-uri 'none'; form-action 'none'"
    )
    by_name = document.styles
    sections = "\n".join(_section(section, document, by_name) for section in document.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="sgdf {_text(document.version)}">
<title>{_text(document.title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{_text(document.title)}</h1>
{_paragraphs(document.about, "lead")}
<p class="about">{_text(document.origin)}</p>
{_paragraphs(document.summary)}
<nav aria-label="sections"><ul>{_navigation(document)}</ul></nav>
</header>
{_legend(by_name)}
<main>
{sections}
{_failures(document)}
<h2 id="settings">Settings, runs and commands</h2>
<p class="about">Each setting is shown with all of its options.{_about_commands(document)}</p>
{"".join(map(_detail, document.details))}
<h2 id="environments">Environments</h2>
{_environments(document)}
</main>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return html.escape(one_line(text))


def _name(text: str) -> str:
    """Return a name from a run; it may be in a script that is written from right to left."""
    return f"<bdi>{_text(text)}</bdi>"


def _paragraphs(lines: Iterable[str], kind: str = "") -> str:
    start = f'<p class="{kind}">' if kind else "<p>"
    return "\n".join(f"{start}{_name(line)}</p>" for line in lines)


def _navigation(document: Document) -> str:
    links = [(_anchor(index), title) for index, title in enumerate(document.sections)]
    links += [("failures", "Failures")] if document.failures else []
    links += [("settings", "Settings and commands"), ("environments", "Environments")]
    return "".join(f'<li><a href="#{anchor}">{_name(title)}</a></li>' for anchor, title in links)


def _anchor(index: int) -> str:
    return f"section-{index}"


def _legend(by_name: Mapping[str, Style]) -> str:
    chips = "".join(
        f'<button class="chip" aria-pressed="true" data-of="{mark_of(name)}" '
        f'title="show or hide this optimizer in plots and tables">'
        f"{_swatch(style)}{_name(name)}</button>"
        for name, style in by_name.items()
    )
    return f'<div class="legend chips" role="group" aria-label="optimizers">{chips}</div>'


def _swatch(style: Style) -> str:
    dashes = " ".join(f"{1.4 * dash:.3g}" for dash in DASHES[style.dash])
    return (
        f'<svg class="swatch" viewBox="0 0 34 8" aria-hidden="true"><line x2="34" y1="4" y2="4" '
        f'stroke="{style.color}" stroke-width="3" stroke-dasharray="{dashes}"/></svg>'
    )


def _section(title: str, document: Document, by_name: Mapping[str, Style]) -> str:
    parts = [
        _table(part, by_name) if isinstance(part, Table) else _figure(part)
        for part in document.parts(title)
    ]
    anchor = _anchor(document.sections.index(title))
    notes = _paragraphs(document.notes.get(title, ()))
    body = "\n".join([notes, *parts])
    return f'<section id="{anchor}">\n<h2>{_name(title)}</h2>\n{body}\n</section>'


def _table(table: Table, by_name: Mapping[str, Style]) -> str:
    numeric = [
        any(row[i].order is not None for row in table.rows) for i in range(len(table.columns))
    ]
    heads = "".join(
        f'<th scope="col"{_numeric(is_number)}><button>{_text(title)}</button>'
        f"{_direction(table.better.get(title, ''))}</th>"
        for title, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "\n".join(
        _row_start(row) + "".join(map(lambda c, n: _cell(c, n, by_name), row, numeric)) + "</tr>"
        for row in table.rows
    )
    row_filter = (
        f'<input class="filter" type="search" data-table="{table.name}" placeholder="filter rows" '
        f'aria-label="filter the rows of this table">'
        if len(table.rows) >= FILTERED_FROM
        else ""
    )
    return (
        f'<h3>{_text(table.title)}</h3>\n<p class="about">{_text(table.about)}</p>\n{row_filter}'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title)}">'
        f'<table id="{table.name}">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _direction(words: str) -> str:
    return f"<small>{_text(words)}</small>" if words else ""


def _row_start(row: tuple[Cell, ...]) -> str:
    """Return the tag of a row; a row about one optimizer is hidden together with it."""
    optimizers = [cell.optimizer for cell in row if cell.optimizer]
    return f'<tr class="{mark_of(optimizers[0])}">' if len(optimizers) == 1 else "<tr>"


def _cell(cell: Cell, is_number: bool, by_name: Mapping[str, Style]) -> str:
    order = f' data-order="{cell.order}"' if cell.order is not None else ""
    order = order.replace('"inf"', '"Infinity"').replace('"-inf"', '"-Infinity"')
    body = _name(cell.text)
    if cell.key:
        body = f'<a href="#s-{_text(cell.key)}">{body}</a>'
    if cell.optimizer in by_name:
        body = _swatch(by_name[cell.optimizer]) + body
    if cell.mark:
        body += f' <span class="mark">{_text(cell.mark)}</span>'
    return f"<td{_numeric(is_number)}{order}>{body}</td>"


def _numeric(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _figure(plot: Plot) -> str:
    return (
        f"<h3>{_text(plot.title)}</h3>\n<figure>"
        f"<figcaption>{_text(plot.about)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="img" aria-label="{_text(plot.title)}">'
        f"{_inline_svg(plot)}</div></figure>"
    )


def _inline_svg(plot: Plot) -> str:
    """Return a drawing for use inside a page.

    It takes the page's text colour, its coordinates are rounded to keep the page small, and its
    ids are removed because those of two drawings would clash. A line whose points can be put in
    words has them as data: the script shows those under the pointer.
    """
    svg, (width, height) = plot.svg(), plot.size
    readings = [_reading(reading, height) for reading in plot.figure.readings]
    drawing = svg[svg.index("<svg") :].replace("<svg", f'<svg style="--width: {width:.0f}"', 1)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' (width|height)="[\d.]+pt"', "", drawing, count=2)
    drawing = _COORDINATES.sub(lambda path: _LONG.sub(lambda long: long[1] or "", path[0]), drawing)
    drawing = drawing.replace("#000000", "currentColor").replace("\n", " ")
    return _GROUP.sub(lambda group: _group_start(group[1], group[2], readings), drawing)


def _group_start(owner: str | None, number: str | None, readings: Sequence[str]) -> str:
    """Return the start of a group of a drawing: whose it is, and its points in words."""
    start = f'<g class="{owner}"' if owner else "<g"
    return start + (readings[int(number)] if number else "")


def _reading(reading: Reading, height: float) -> str:
    """Return the points of a line as attributes: for each a line of place and text."""
    lines = [
        f"{x:.1f} {y:.1f} {text}"
        for (x, y), text in zip(reading.places(height), reading.texts, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    points = html.escape("\n".join(lines))
    return f' data-name="{html.escape(reading.name)}" data-points="{points}"'


def _failures(document: Document) -> str:
    if not document.failures:
        return ""
    parts = "\n".join(
        f"<details><summary>{plural(len(failure.runs), 'run')}: {_name(failure.error)}</summary>"
        f"<ul>{''.join(f'<li>{_name(run)}</li>' for run in failure.runs)}</ul>"
        f'<pre tabindex="0">{html.escape(failure.traceback)}</pre></details>'
        for failure in document.failures
    )
    return (
        '<h2 id="failures">Failures</h2>\n<p class="about">Each error that runs failed with, its '
        f"traceback, and these runs.</p>\n{parts}"
    )


def _about_commands(document: Document) -> str:
    if not document.where:
        return ""
    return (
        " A command repeats a run in another folder; on the same machine with the same versions "
        f"the numbers are equal to the last bit. {_text(document.where)}"
    )


def _detail(detail: Detail) -> str:
    runs = f"<p>{_text(detail.obstacle)}</p>"
    if detail.commands:
        commands = html.escape("\n".join(detail.commands))
        runs = f"<p>Commands that repeat its runs:</p><pre>{commands}</pre>"
    return (
        f'<details id="s-{_text(detail.key)}"><summary>{_name(detail.title)}</summary>'
        f"<pre>{html.escape(detail.spec)}</pre>{runs}</details>"
    )


def _environments(document: Document) -> str:
    parts = []
    for environment, runs in document.environments:
        rows = "".join(
            f"<tr><th scope='row'>{_text(key)}</th><td>{_name(value)}</td></tr>"
            for key, value in environment.items()
        )
        keys = ", ".join(map(_text, runs))
        parts.append(
            f"<details><summary>{plural(len(runs), 'run')}: "
            f"{_text(_environment_line(environment))}</summary>"
            f"<div class='scroll'><table><tbody>{rows}</tbody></table></div>"
            f"<p class='about'>{keys}</p></details>"
        )
    return "\n".join(parts)


def _environment_line(environment: Mapping[str, str]) -> str:
    keys = ("cpu", "cores", "torch", "sgdf", "date")
    return ", ".join(f"{key} {environment[key]}" for key in keys if key in environment)
