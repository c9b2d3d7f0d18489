"""All that a report says, before it is written in one form or another."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

import sgdf

from ...present.document import Detail, Document
from ...present.table import OVERALL
from ...present.words import plural
from ..paper.published import Published
from .curves import plots
from .findings import Findings, Setting
from .optimizer_styles import optimizer_styles
from .tables import tables, verdicts, what_was_trained
from .targets import Target


def build_document(
    title: str,
    findings: Findings,
    targets: Sequence[Target],
    published: tuple[Published, ...],
) -> Document:
    """Return the report on these findings."""
    all_tables = tuple(tables(findings, targets, published))
    all_plots = tuple(plots(findings, targets))
    used = {table.section for table in all_tables} | {plot.section for plot in all_plots}
    names = [problem.name for problem in findings.problems]
    return Document(
        title=title,
        version=sgdf.__version__,
        summary=_summary(findings),
        styles=optimizer_styles(findings.optimizers),
        sections=tuple(name for name in (*names, OVERALL) if name in used),
        notes={p.name: (what_was_trained(p), *verdicts(p)) for p in findings.problems},
        tables=all_tables,
        plots=all_plots,
        details=tuple(
            _detail(problem.name, setting)
            for problem in findings.problems
            for setting in problem.settings
        ),
        where=f"The commands are for the folder {Path.cwd()}.",
        environments=_environments(findings),
    )


def _summary(findings: Findings) -> tuple[str, ...]:
    runs = findings.runs
    finished = sum(run.chosen is not None for run in runs)
    lines = [
        f"{plural(len(findings.optimizers), 'optimizer')} on "
        f"{plural(len(findings.problems), 'problem')}: {finished} of {plural(len(runs), 'run')} "
        "finished."
    ]
    if finished < len(runs) or findings.unreadable:
        lines.append('What became of the others is under "Runs that are not in the figures".')
    if max((problem.most_seeds for problem in findings.problems), default=0) == 1:
        lines.append("Every setting has one seed: no figure here has a spread.")
    return tuple(lines)


def _detail(problem: str, setting: Setting) -> Detail:
    spec = {key: value for key, value in setting.table.items() if key != "seed"}
    return Detail(
        key=setting.key,
        title=f"{problem}: {setting.name}",
        spec=tomli_w.dumps(spec),
        commands=tuple(
            f"sgdf run {shlex.quote(str(run.folder / 'spec.toml'))} --out again"
            f"  # seed {run.seed}, {run.state.value}"
            for run in setting.runs
        ),
    )


def _environments(
    findings: Findings,
) -> tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]:
    """Return each environment that there was, with the keys of its runs, most of them first."""
    found: dict[str, list[str]] = {}
    for run in findings.runs:
        if run.environment:
            # Which source a run has depends on its optimizer: not a matter of the machine.
            found.setdefault(json.dumps(_shared(run.environment)), []).append(run.key)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return tuple((json.loads(text), tuple(keys)) for text, keys in ordered)


def _shared(environment: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in environment.items() if key != "optimizer source"}
