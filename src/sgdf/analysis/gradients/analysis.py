"""The analysis of gradients and directions over the first steps of runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...bench.errors import SpecError
from ...present.words import listed
from ..conduct import Contents, Measured, Progress
from ..record import Record
from ..runs import AnalysedRun
from .distribution import LARGEST, PER_DECADE, SMALLEST
from .measure import measure_run


@dataclass(frozen=True)
class GradientAnalysis:
    """How gradients and directions are distributed while a run begins to train.

    Attributes:
        every: how many steps lie between two descriptions.
        steps: how many steps of each run are trained at most.
        tensors: the tensors whose distributions are drawn, beside all parameters together; by
            default one whose gradient has about the size of those in the paper's figure.
    """

    every: int = 5
    steps: int = 100
    tensors: tuple[str, ...] = ()

    name = "gradients"
    title = "Distributions of gradients and directions"

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the measured values depend on; which tensors are drawn is not part of it."""
        bins = {"smallest": SMALLEST, "largest": LARGEST, "per_decade": PER_DECADE}
        return {"every": self.every, "steps": self.steps, "bins": bins}

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the command, and the bins of all histograms."""
        return {**self.settings, "tensor": list(self.tensors)}

    def check(self, runs: Sequence[AnalysedRun]) -> None:
        """Refuse runs of different tasks, whose tensors have nothing to do with each other.

        Raises:
            SpecError: if there are several tasks.
        """
        tasks = list(dict.fromkeys(run.task for run in runs))
        if len(tasks) > 1:
            raise SpecError(
                f"the runs are of several tasks ({listed(tasks)}), and their tensors cannot be "
                f"compared; choose one, as with --task {shlex.quote(tasks[0])}"
            )

    def measure(self, run: AnalysedRun, record: Record, progress: Progress) -> None:
        """Train the run from its beginning, and keep everything when it has ended."""
        found = measure_run(run.run, self.every, self.steps, progress, self.tensors)
        for name, value in found.items():
            record.keep(name, value)

    def contents(self, measured: Sequence[Measured]) -> Contents:
        """Return the tables and the plots of all runs."""
        from .contents import contents  # which needs matplotlib

        return contents(measured, self.tensors)
