"""``sgdf analyze gradients``: how gradients and directions are distributed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import refusing
from ..options import Changes, Data, parse_changes
from .frame import (
    Experiments,
    OnlyOptimizers,
    OnlySeeds,
    OnlyTasks,
    Out,
    TrainingThreads,
    conduct,
    find_to_train,
)


def gradients(
    experiments: Experiments,
    tasks: OnlyTasks = None,
    optimizers: OnlyOptimizers = None,
    seeds: OnlySeeds = None,
    every: Annotated[
        int, typer.Option(min=1, help="How many steps lie between two descriptions.")
    ] = 5,
    steps: Annotated[
        int, typer.Option(min=1, help="How many steps of each run are trained at most.")
    ] = 100,
    tensors: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor",
            metavar="NAME",
            help="Draw the distributions of this tensor, as in 0.weight. Default: the tensor whose "
            "gradient has about the size of those in the paper's figure. May be repeated. Nothing "
            "is trained again for it.",
        ),
    ] = None,
    changes: Changes = None,
    threads: TrainingThreads = None,
    data: Data = None,
    out: Out = None,
) -> None:
    """Compare the distributions of gradients and of directions over the first steps of runs.

    The runs of an experiment are trained from their beginning. Every few steps the raw gradient
    and the direction that the optimizer took are described, for each tensor and for all of them:
    mean, standard deviation, skew, kurtosis, quantiles and a histogram. The figures show densities
    over the steps, standard deviations beside those of plain SGD (sgd-vanilla), and whether means
    are shifted.

    The figure of the paper: sgdf analyze gradients histogram
    """
    from ...analysis.gradients.analysis import GradientAnalysis

    analysis = GradientAnalysis(every, steps, tuple(tensors or ()))
    with refusing():
        runs, store = find_to_train(
            experiments, parse_changes(changes, train__threads=threads), tasks, optimizers, seeds
        )
        analysis.check(runs)
    conduct(analysis, runs, Path(out) if out else store / "analysis" / analysis.name, None)
