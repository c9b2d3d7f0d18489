"""Make a report on stores of runs, and write its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...present import formats
from ...present.document import Document
from ...present.page import page
from ...present.table import Table
from ...present.words import plural
from ..errors import SpecError, StoreError
from ..paper.published import Published, published
from ..store import files
from ..store.run_folder import RunFolder, Store
from .contents import build_document
from .findings import Findings, gather
from .results_json import results_json
from .targets import Target

# The names of tables and plots: a later report removes such files, which may be about other runs.
WRITTEN_BY_REPORTS = re.compile(
    r"(results|paper|comparisons|target|settings|profile|trouble|curves-steps|curves-seconds|rates)"
    r"[\d-]*\.(csv|png|pdf)"
)


@dataclass(frozen=True)
class Report:
    """A report on the runs of stores: the runs, the targets, and the content to write."""

    findings: Findings
    targets: tuple[Target, ...]
    document: Document

    @classmethod
    def of(
        cls,
        stores: Sequence[Path],
        wanted: Mapping[str, float] | None = None,
        beside: tuple[Published, ...] | None = None,
    ) -> Report:
        """Return the report on all runs of these stores.

        Args:
            stores: the folders of the stores.
            wanted: targets by problem or task; the target under ``""`` is for all others.
            beside: published results to compare with; by default those of the paper.
        """
        folders = (folder for path in stores for folder in Store(path).folders())
        return cls.on(folders, stores, wanted, beside)

    @classmethod
    def on(
        cls,
        folders: Iterable[RunFolder],
        stores: Sequence[Path],
        wanted: Mapping[str, float] | None = None,
        beside: tuple[Published, ...] | None = None,
    ) -> Report:
        """Return the report on the runs of these folders, which are in the stores; see ``of``."""
        findings = gather(folders)
        experiments = {
            name: about for path in stores for name, about in Store(path).experiments().items()
        }
        targets = tuple(_choose_targets(findings, wanted or {}))
        columns = published() if beside is None else beside
        document = build_document(stores, experiments, findings, targets, columns)
        return cls(findings, targets, document)

    def write(self, folder: Path) -> Path:
        """Write the report in every format, and return the path of the page."""
        with files.store_errors(folder):
            for part in ("figures", "tables"):
                if (folder / part).is_symlink():
                    raise StoreError(f"{folder / part} is a link: nothing is written through it")
                (folder / part).mkdir(parents=True, exist_ok=True)
                for path in (folder / part).iterdir():
                    if WRITTEN_BY_REPORTS.fullmatch(path.name):
                        path.unlink()
        plots, tables = self.document.plots, self.document.tables
        for name in [*(plot.name for plot in plots), *(table.name for table in tables)]:
            assert WRITTEN_BY_REPORTS.fullmatch(f"{name}.csv"), f"{name} would never be removed"
        for plot in plots:
            with files.store_errors(folder / "figures"):
                plot.write(folder / "figures")
        for table in tables:
            _write(folder / "tables" / f"{table.name}.csv", formats.comma_separated(table))
        rows = [[_csv_value(value) for value in row] for row in run_rows(self.findings)]
        _write(folder / "runs.csv", formats.comma_separated_rows(rows))
        _write(folder / "results.json", results_json(self.findings))
        _write(folder / "report.md", _markdown(self.document))
        _write(folder / "tables.tex", _latex(self.document))
        _write(folder / "index.html", page(self.document))
        return folder / "index.html"


def _choose_targets(findings: Findings, wanted: Mapping[str, float]) -> Iterator[Target]:
    """Yield the target of each problem that has one.

    Raises:
        SpecError: if a target names no problem, or is in per cent where shares are measured.
    """
    names = dict.fromkeys(
        name for problem in findings.problems for name in (problem.task["name"], problem.name)
    )
    for name in wanted:
        if name and name not in names:
            known = ", ".join(map(repr, names))
            raise SpecError(f"target: no task or problem {name!r}; the known ones are {known}")
    for problem in findings.problems:
        values = (wanted.get(name) for name in (problem.name, problem.task["name"], ""))
        value = next((value for value in values if value is not None), None)
        scale, unit = problem.units[problem.metric]
        is_share = unit == "%" and scale != 1.0
        if value is not None and value > 1.0 and is_share:
            raise SpecError(
                f"target = {value:g}: {problem.metric} on {problem.name} is at most 1; "
                f"{value / 100:g} is {value:g} %"
            )
        target = Target.of(problem, value)
        if target is not None:
            yield target


def _write(path: Path, text: str) -> None:
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


def run_rows(findings: Findings) -> Iterator[list[Any]]:
    """Yield a header, then a row of values for each run; what it does not have is None."""
    runs = [(problem, run) for problem in findings.problems for run in problem.runs]
    metrics = sorted({name for problem in findings.problems for name in problem.metrics})
    splits = dict.fromkeys(split for problem in findings.problems for split in problem.splits)
    options = sorted({key for _, run in runs for key in run.table["optimizer"]} - {"name"})
    figures = [
        (split, metric)
        for split in splits
        for metric in metrics
        # A costly metric may be missing at the chosen epoch; the last epoch has every metric.
        if any(
            run.value(split, metric, epoch) is not None for _, run in runs for epoch in ("", "last")
        )
    ]
    yield [
        "run", "problem", "optimizer", *options, "schedule", "protocol",
        "epochs", "batch_size", "seed", "state", "epoch",
        *(f"{split} {metric}" for split, metric in figures),
        *(f"last {split} {metric}" for split, metric in figures),
        "steps", "step seconds", "data seconds", "parameters", "state bytes",
    ]  # fmt: skip
    for problem, run in runs:
        result: Mapping[str, Any] = run.result or {}
        settings, seconds = run.table["optimizer"], result.get("seconds", {})
        yield [
            run.key,
            problem.name,
            settings["name"],
            *(settings.get(key) for key in options),
            run.schedule.get("name"),
            run.table["protocol"],
            *(run.table["train"].get(key) for key in ("epochs", "batch_size")),
            run.seed,
            run.state.value,
            run.chosen["epoch"] if run.chosen else None,
            *(run.value(*figure) for figure in figures),
            *(run.value(*figure, "last") for figure in figures),
            result.get("step"),
            *(seconds.get(part) for part in ("step", "data")),
            *(result.get(key) for key in ("parameters", "state_bytes")),
        ]


def _csv_value(value: Any) -> Any:
    """Return an option as a CSV file has it: numbers and texts as they are, all else as text."""
    if value is None:
        return ""
    return str(value) if isinstance(value, list | dict | bool) else value
