"""Make a report on stores of runs, and write its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...present import formats
from ...present.document import Document
from ..errors import SpecError
from ..paper.published import Published, published
from ..store.run_folder import RunFolder, Store
from .contents import build_document
from .document_files import write_document, write_text
from .findings import Findings, gather
from .results_json import results_json
from .targets import Target

# The names of tables and plots: a later report removes such files, which may be about other runs.
WRITTEN_BY_REPORTS = re.compile(
    r"(results|paper|comparisons|target|settings|profile|trouble|curves-steps|curves-seconds|rates"
    r"|probes|samples|windows)[\d-]*\.(csv|png|pdf)"
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
            beside: published results to compare with; by default those that come with the package.
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
        page = write_document(self.document, folder, WRITTEN_BY_REPORTS)
        rows = [[_csv_value(value) for value in row] for row in run_rows(self.findings)]
        write_text(folder / "runs.csv", formats.comma_separated_rows(rows))
        write_text(folder / "results.json", results_json(self.findings))
        return page


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
