"""One analysis of several runs: measured run after run, kept, and written as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .record import Record
from .runs import AnalysedRun

if TYPE_CHECKING:
    from ..present.plots import Plot  # which needs matplotlib, and that takes its time
    from ..present.table import Table

Progress = Callable[[float], None]
"""Is called with the share of a run's measurements that are done."""


@dataclass(frozen=True)
class Measured:
    """A run and everything that was measured of it."""

    run: AnalysedRun
    record: Record


@dataclass(frozen=True)
class Contents:
    """The tables and plots that an analysis makes of its measurements.

    Attributes:
        summary: the findings in sentences; the page begins with them.
        tables: they and the plots name the sections that they belong to.
        plots: each has a name that begins with the name of the analysis.
        notes: by section, sentences that stand above its tables and plots.
    """

    summary: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[Plot]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Analysis(Protocol):
    """A kind of analysis with its settings; its modules are in a folder of its name."""

    @property
    def name(self) -> str:
        """The name of its command."""

    @property
    def title(self) -> str:
        """The heading of its page."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that the measured values depend on, beside the run; plain JSON."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of its command by their names, for the page to show; plain TOML."""

    def measure(self, run: AnalysedRun, record: Record, progress: Progress) -> None:
        """Measure what the record does not have yet, and keep each value as it comes."""

    def contents(self, measured: Sequence[Measured]) -> Contents:
        """Return what the page shows of finished records."""


class Watcher(Protocol):
    """Sees how far the measurements are."""

    def __call__(self, run: AnalysedRun, share: float) -> None:
        """Take the share of a run that is done; 1 when it is finished."""


def measure_runs(
    analysis: Analysis, runs: Sequence[AnalysedRun], folder: Path, watch: Watcher
) -> list[Measured]:
    """Measure each run that is not measured yet, and return those that are.

    Several processes may do so at once with the same folder: each takes a run that no other one
    is measuring. What another process has not finished is missing from what is returned.
    """
    measured = []
    for run in runs:
        settings = {**analysis.settings, "analysis": analysis.name, "weights": run.weights}
        measured.append(Measured(run, Record(folder / "records", run.key, settings)))
    for one in measured:
        if not one.record.finished:
            _measure(analysis, one, watch)
    return [one for one in measured if one.record.is_finished_now()]


def _measure(analysis: Analysis, one: Measured, watch: Watcher) -> None:
    with one.record.claim() as ours:
        if not ours or one.record.finished:
            return

        def progress(share: float) -> None:
            if share < 1.0:  # a run is finished when its record is
                watch(one.run, share)

        progress(0.0)
        analysis.measure(one.run, one.record, progress)
        one.record.finish()
    watch(one.run, 1.0)
