"""The loss around a trained network, on planes of random directions, and between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from ...bench.store.identity import digest
from ..conduct import Contents, Measured, Progress
from ..examples import describe_examples, mean_loss, training_batches
from ..record import Record
from ..runs import AnalysedRun
from .directions import Direction, cosine, random_direction, trained_parameters
from .lines import Line, line_losses
from .options import LandscapeOptions
from .slices import Loss, curvature, plane_rows


@dataclass(frozen=True)
class Landscape(LandscapeOptions):
    """Planes through trained networks, and lines between two of them."""

    name: ClassVar[str] = "landscape"
    title: ClassVar[str] = "Loss landscape"

    def measure(self, run: AnalysedRun, record: Record, progress: Progress) -> None:
        """Measure the rows of the planes, or the points of a line, that are not known yet."""
        task, model = run.open()
        batches = training_batches(task, self.examples)
        loss = partial(mean_loss, task, batches)
        record.keep("examples", describe_examples(task, batches))
        if isinstance(run, Line):
            self._measure_line(run, model, loss, record, progress)
        else:
            self._measure_planes(model, loss, record, progress)

    def _measure_planes(
        self, model: nn.Module, loss: Loss, record: Record, progress: Progress
    ) -> None:
        shapes = [tuple(param.shape) for param in trained_parameters(model).values()]
        record.keep("shapes", digest(repr(shapes).encode())[:16])
        planes = record.get("planes", [])
        pairs = record.get("pairs", [])
        for pair in range(self.pairs):
            first, second = self._directions(model, pair)
            if len(pairs) == pair:
                curvatures = [curvature(model, loss, axis, self.step) for axis in (first, second)]
                pairs.append({"cosine": cosine(first, second), "curvatures": curvatures})
                record.keep("pairs", pairs)
            if len(planes) == pair:
                planes.append([])
            rows = planes[pair]
            for row in plane_rows(model, loss, first, second, self.positions, start=len(rows)):
                rows.append(row)
                record.keep("planes", planes)
                progress((pair + len(rows) / self.points) / self.pairs)

    def _directions(self, model: nn.Module, pair: int) -> tuple[Direction, Direction]:
        first, second = (
            random_direction(model, self.seed, 2 * pair + axis, self.vectors) for axis in (0, 1)
        )
        return first, second

    def _measure_line(
        self, line: Line, model: nn.Module, loss: Loss, record: Record, progress: Progress
    ) -> None:
        end = line.end.open()[1].state_dict()
        losses = record.get("line", [])
        for position in self.line_positions[len(losses) :]:
            losses += line_losses(model, loss, end, [position], self.statistics)
            record.keep("line", losses, sync=False)
            progress(len(losses) / self.points)

    def contents(self, measured: Sequence[Measured]) -> Contents:
        """Return tables and plots of the planes and the lines."""
        from .contents import landscape_contents  # matplotlib takes its time to import

        return landscape_contents(self, measured)
