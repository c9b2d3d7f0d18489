"""The content of a report on runs, the same for every format."""

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
from ...present.words import listed, plural
from ..paper.published import Published
from ..store.run_folder import State
from .curves import plots
from .description import about_lines, failures_of, model_and_data, origin_of, title_of
from .findings import Findings, RunRecord, Setting
from .optimizer_styles import optimizer_styles
from .rate_windows import find_windows
from .tables import LEFT_OUT, tables, what_was_trained
from .targets import Target
from .verdict import Verdict

RETURNED_ONCE = (
    "The function returned its metrics once; one that yields them once for each epoch has curves."
)


def build_document(
    stores: Sequence[Path],
    experiments: Mapping[str, str],
    findings: Findings,
    targets: Sequence[Target],
    published: tuple[Published, ...],
) -> Document:
    """Return the report on the findings in these stores, and on the experiments behind them."""
    verdicts = {problem.name: Verdict(problem) for problem in findings.problems}
    windows = find_windows(findings)
    all_tables = tuple(tables(findings, targets, published, windows))
    all_plots = tuple(plots(findings, targets, windows))
    used = {table.section for table in all_tables} | {plot.section for plot in all_plots}
    names = [problem.name for problem in findings.problems]
    details = tuple(
        _detail(problem.name, setting)
        for problem in findings.problems
        for setting in problem.settings
    )
    has_commands = any(detail.commands for detail in details)
    return Document(
        title=title_of(stores, experiments),
        about=about_lines(experiments),
        origin=origin_of(stores, findings),
        version=sgdf.__version__,
        summary=(*_summary(findings), *_warnings(verdicts)),
        styles=optimizer_styles(findings.optimizers),
        sections=tuple(name for name in (*names, OVERALL) if name in used),
        notes={
            name: (
                f"{what_was_trained(verdict.problem)} {model_and_data(verdict.problem)}".strip(),
                *([RETURNED_ONCE] if verdict.problem.returned_once else []),
                *verdict.lines,
            )
            for name, verdict in verdicts.items()
        },
        tables=all_tables,
        plots=all_plots,
        failures=failures_of(findings),
        details=details,
        where=f"Run the commands in the folder {Path.cwd()}." if has_commands else "",
        environments=_environments(findings),
    )


def _summary(findings: Findings) -> tuple[str, ...]:
    runs = findings.runs
    finished = sum(run.state is State.FINISHED for run in runs)
    without_value = sum(run.lacks_value for run in runs)
    lines = [
        f"{plural(len(findings.optimizers), 'optimizer')} on "
        f"{plural(len(findings.problems), 'problem')}: {finished} of {plural(len(runs), 'run')} "
        f"finished{_lost_in_words(runs)}."
    ]
    if without_value:
        one = without_value == 1
        lines.append(
            f"{plural(without_value, 'finished run')} {'has' if one else 'have'} no finite value "
            f"of {'its' if one else 'their'} metric, and {'is' if one else 'are'} in no mean."
        )
    if finished < len(runs) or findings.unreadable or without_value:
        lines.append(f'The report lists the others under "{LEFT_OUT}".')
    if max((problem.most_seeds for problem in findings.problems), default=0) == 1:
        lines.append("Each setting has at most one seed that finished, so no figure has a spread.")
    return tuple(lines)


def _lost_in_words(runs: Sequence[RunRecord]) -> str:
    """Return how many runs diverged and failed, to end a sentence with."""
    counts = [(s, sum(run.state is s for run in runs)) for s in (State.DIVERGED, State.FAILED)]
    return "".join(f", {count} {state.value}" for state, count in counts if count)


def _warnings(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return what makes results of the problems misleading, a line each."""
    several = len(verdicts) > 1
    return [
        f"Warning: {f'{name}: ' if several else ''}{line}"
        for name, verdict in verdicts.items()
        for line in verdict.warnings
    ]


def _detail(problem: str, setting: Setting) -> Detail:
    left_out = ("seed",) if setting.runs[0].schedule else ("seed", "schedule")
    spec = {key: value for key, value in setting.table.items() if key not in left_out}
    used = [str(setting.table[part]["name"]) for part in ("task", "optimizer")]
    of_session = [name for name in used if name.startswith("__main__:")]
    obstacle = ""
    if of_session:
        obstacle = (
            f"No command repeats its runs: {listed(of_session)} "
            f"{'was' if len(of_session) == 1 else 'were'} defined in a notebook or an interactive "
            "session, where no other process finds it."
        )
    commands = (
        f"sgdf run {shlex.quote(str(run.folder / 'spec.toml'))} --out again"
        f"  # seed {run.seed}, {run.state.value}"
        for run in setting.runs
    )
    return Detail(
        key=setting.key,
        title=f"{problem}: {setting.name}",
        spec=tomli_w.dumps(spec),
        commands=() if obstacle else tuple(commands),
        obstacle=obstacle,
    )


def _environments(
    findings: Findings,
) -> tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]:
    """Return each environment with the keys of its runs, the one with most runs first."""
    runs_in: dict[str, list[str]] = {}
    for run in findings.runs:
        if run.environment:
            text = json.dumps(_machine_and_versions(run.environment))
            runs_in.setdefault(text, []).append(run.key)
    ordered = sorted(runs_in.items(), key=lambda item: -len(item[1]))
    return tuple((json.loads(text), tuple(keys)) for text, keys in ordered)


def _machine_and_versions(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return an environment without empty entries, and without those about the run alone."""
    own = ("optimizer source", "resumed at step", "test rows in train")
    return {
        key: str(value)
        for key, value in environment.items()
        if key not in own and not key.startswith("data of ") and value != ""
    }
