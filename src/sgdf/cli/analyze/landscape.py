"""``sgdf analyze landscape``: the loss around trained networks, and between two of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..console import refusing
from ..options import Data, TorchThreads
from .frame import (
    Examples,
    OnlyOptimizers,
    OnlySeeds,
    OnlyTasks,
    Out,
    TrainedRuns,
    conduct,
    find_trained,
)


class Lines(StrEnum):
    """Which networks are joined by lines."""

    SEEDS = "seeds"
    ALL = "all"
    NONE = "none"


class Vectors(StrEnum):
    """What directions have for biases and BatchNorm."""

    ZERO = "zero"
    SCALED = "scaled"


class Statistics(StrEnum):
    """What is done about BatchNorm on a line."""

    RECOMPUTED = "recomputed"
    INTERPOLATED = "interpolated"


def landscape(
    runs: TrainedRuns,
    tasks: OnlyTasks = None,
    optimizers: OnlyOptimizers = None,
    seeds: OnlySeeds = None,
    points: Annotated[
        int,
        typer.Option(
            min=3, help="Points of the grid along each direction, and of each line; an odd number."
        ),
    ] = 21,
    span: Annotated[
        float,
        typer.Option(
            help="How far a plane reaches to each side; at 1 each filter has moved by its norm."
        ),
    ] = 1.0,
    pairs: Annotated[
        int, typer.Option(min=1, help="Planes through each network, each of two directions.")
    ] = 3,
    examples: Examples = 500,
    lines: Annotated[
        Lines,
        typer.Option(
            help="Measure the loss on lines between networks: any two seeds of a setting, all "
            "(any two runs of a task: name two runs for the line between them), or none."
        ),
    ] = Lines.SEEDS,
    vectors: Annotated[
        Vectors,
        typer.Option(help="Biases and BatchNorm: kept (zero), or moved by their norm."),
    ] = Vectors.ZERO,
    statistics: Annotated[
        Statistics,
        typer.Option(
            help="Statistics of BatchNorm on a line: recomputed from the examples at "
            "each point, or interpolated as the weights are."
        ),
    ] = Statistics.RECOMPUTED,
    level: Annotated[
        float | None,
        typer.Option(
            help="The loss that all runs are compared at. Default: 0.5 above the largest loss of a "
            "network."
        ),
    ] = None,
    step: Annotated[
        float, typer.Option(help="The distance of the second differences for the curvature.")
    ] = 0.02,
    direction_seed: Annotated[
        int, typer.Option(metavar="SEED", min=0, help="Seed of the random directions.")
    ] = 0,
    out: Out = None,
    data: Data = None,
    threads: TorchThreads = None,
) -> None:
    """Measure the loss around trained networks, and on lines between them.

    Planes of random directions go through each network, with each filter of a direction scaled to
    the norm of the network's filter (Li et al., 2018). All runs share their random numbers. The
    page has the share of each plane with a low loss, the curvature at the network and the barriers
    on the lines, with their spread over seeds and planes; slices, contours and surfaces.
    """
    from ...analysis.landscape.lines import lines_between
    from ...analysis.landscape.measure import Landscape

    with refusing():
        analysis = Landscape(
            points=points,
            span=span,
            pairs=pairs,
            examples=examples,
            seed=direction_seed,
            vectors=vectors.value,
            statistics=statistics.value,
            step=step,
            level=level,
            lines=lines.value,
        )
        found, store = find_trained(runs, tasks, optimizers, seeds)
    joined = (
        [] if lines is Lines.NONE else lines_between(found, within_settings=lines is Lines.SEEDS)
    )
    folder = Path(out) if out else store / "analysis" / analysis.name
    conduct(analysis, [*found, *joined], folder, threads)
