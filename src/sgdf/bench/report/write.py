"""Make a report and put it into a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..objects import SpecError
from ..published import Published, published
from ..store import Store
from . import formats
from .contents import Contents, contents
from .data import SPLITS, Findings, gather
from .page import page
from .targets import Target


@dataclass(frozen=True)
class Report:
    """What was made of the runs."""

    findings: Findings
    targets: tuple[Target, ...]
    contents: Contents

    @classmethod
    def of(
        cls,
        stores: Sequence[Path],
        wanted: Mapping[str, float] | None = None,
        beside: tuple[Published, ...] | None = None,
    ) -> Report:
        """Return the report on all runs of these stores.

        Args:
            stores: folders that runs are kept in.
            wanted: targets by problem, or by ``""`` for all that have none of their own.
            beside: results printed elsewhere; by default those of the paper.
        """
        wanted = wanted or {}
        findings = gather(folder for path in stores for folder in Store(path).folders())
        names = [problem.name for problem in findings.problems]
        for name in wanted:
            if name and name not in names:
                raise SpecError(f"target: no problem {name!r}; there is {', '.join(names)}")
        found = (
            Target.of(problem, wanted.get(problem.name, wanted.get("")))
            for problem in findings.problems
        )
        targets = tuple(target for target in found if target is not None)
        title = "Report on " + ", ".join(map(str, stores))
        columns = published() if beside is None else beside
        return cls(findings, targets, contents(title, findings, targets, columns))

    def write(self, folder: Path) -> Path:
        """Write it in all its forms, and return the page."""
        with files.kept(folder):
            for part in ("figures", "tables"):
                (folder / part).mkdir(parents=True, exist_ok=True)
        for plot in self.contents.plots:
            with files.kept(folder / "figures"):
                plot.write(folder / "figures")
        for table in self.contents.tables:
            _write(folder / "tables" / f"{table.name}.csv", formats.comma_separated(table))
        _write(folder / "runs.csv", formats.comma_separated_rows(_run_rows(self.findings)))
        _write(folder / "report.md", _markdown(self.contents))
        _write(folder / "tables.tex", _latex(self.contents))
        _write(folder / "index.html", page(self.contents))
        return folder / "index.html"


def _write(path: Path, text: str) -> None:
    files.write(path, text.encode("utf-8", "replace"))


def _markdown(contents: Contents) -> str:
    text = formats.markdown_text
    parts = [f"# {text(contents.title)}\n", *(f"{text(line)}\n" for line in contents.summary)]
    for section in contents.sections:
        parts.append(f"## {text(section)}\n")
        parts += [f"{text(line)}\n" for line in contents.verdicts.get(section, ())]
        own = [formats.markdown(t) for t in contents.tables if t.section == section]
        drawn = [
            f"### {text(plot.title)}\n\n{text(plot.about)}\n\n![](figures/{plot.name}.png)\n"
            for plot in contents.plots
            if plot.section == section
        ]
        parts += [*own[:1], *drawn, *own[1:]]
    parts.append("## Environments\n")
    for environment, runs in contents.environments:
        told = ", ".join(f"{key} {value}" for key, value in environment.items())
        parts.append(f"- {len(runs)} runs: {text(told)}\n")
    return "\n".join(parts)


def _latex(contents: Contents) -> str:
    head = "% Needs \\usepackage{booktabs} and, for names beyond ASCII, a Unicode engine.\n"
    return "\n".join([head, *map(formats.latex, contents.tables)])


def _run_rows(findings: Findings) -> Iterator[list[Any]]:
    """Yield a header, then a row of plain values for each run: what every table is made of."""
    runs = [(problem, run) for problem in findings.problems for run in problem.runs]
    metrics = sorted({name for problem in findings.problems for name in problem.metrics})
    options = sorted({key for _, run in runs for key in run.table["optimizer"]} - {"name"})
    figures = [(split, metric) for split in SPLITS for metric in metrics]
    yield [
        "run", "problem", "optimizer", *options, "seed", "state", "epoch",
        *(f"{split} {metric}" for split, metric in figures),
        "steps", "step seconds", "data seconds", "parameters", "state bytes",
    ]  # fmt: skip
    for problem, run in runs:
        result, settings = run.result or {}, run.table["optimizer"]
        seconds = result.get("seconds", {})
        yield [
            run.key,
            problem.name,
            settings["name"],
            *(_plain(settings.get(key, "")) for key in options),
            run.seed,
            run.state.value,
            (run.chosen or {}).get("epoch", ""),
            *("" if (v := run.value(*figure)) is None else v for figure in figures),
            result.get("step", ""),
            *(seconds.get(part, "") for part in ("step", "data")),
            *(result.get(key, "") for key in ("parameters", "state_bytes")),
        ]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict | bool) else value
