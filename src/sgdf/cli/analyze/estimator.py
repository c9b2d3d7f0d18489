"""``sgdf analyze estimator``: how close estimates are to the full-batch gradient."""

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


def estimator(
    experiments: Experiments,
    tasks: OnlyTasks = None,
    optimizers: OnlyOptimizers = None,
    seeds: OnlySeeds = None,
    every: Annotated[
        int, typer.Option(min=1, help="How many steps lie between two measurements.")
    ] = 25,
    steps: Annotated[
        int, typer.Option(min=0, help="How many steps of each run are watched; 0 for all.")
    ] = 0,
    draws: Annotated[
        int, typer.Option(min=2, help="How many mini-batches are drawn for each measurement.")
    ] = 16,
    examples: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many training examples the full-batch gradient is taken over; 0 for all.",
        ),
    ] = 0,
    beta1: Annotated[
        list[float] | None,
        typer.Option(
            "--beta1",
            metavar="RATE",
            help="A decay rate of the filters; the page shows the first in detail. Default: 0.9 "
            "and 0.95. May be repeated.",
        ),
    ] = None,
    changes: Changes = None,
    threads: TrainingThreads = None,
    data: Data = None,
    out: Out = None,
) -> None:
    """Measure bias, variance and error of gradient estimates along the training of runs.

    The runs of an experiment are trained from their beginning. Beside the optimizer, filters watch
    its gradients: the raw gradient, running means, classical momentum, SGDF's estimate, a fixed
    gain, and a Kalman filter that sees two half batches. The page compares each with the gradient
    over the whole training data, shows the best gain for each size of the residual beside SGDF's,
    and what the filters do on signals whose best estimate is known.

    The experiment that this was made for: sgdf analyze estimator estimator-small
    """
    from ...analysis.estimator.of_runs import EstimatesOfRuns, check_gradients

    with refusing():
        rates = tuple(dict.fromkeys(beta1 or (0.9, 0.95)))
        analysis = EstimatesOfRuns(every, draws, examples, rates, steps)
        runs, store = find_to_train(
            experiments, parse_changes(changes, train__threads=threads), tasks, optimizers, seeds
        )
        for run in runs:
            check_gradients(run.run)
    conduct(analysis, runs, Path(out) if out else store / "analysis" / analysis.name, None)
