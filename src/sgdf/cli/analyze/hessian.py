"""``sgdf analyze hessian``: the curvature of the training loss at the end of runs."""

from __future__ import annotations

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


def hessian(
    runs: TrainedRuns,
    top: Annotated[int, typer.Option(min=1, help="How many of the largest eigenvalues.")] = 50,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="The relative accuracy of the eigenvalues; that of the smallest is relative to "
            "the largest in modulus.",
        ),
    ] = 1e-3,
    probes: Annotated[
        int, typer.Option(min=2, help="How many random vectors the trace is estimated with.")
    ] = 100,
    examples: Examples = 200,
    power: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many eigenvalues to compute in the paper's way too, which is slow: power "
            "iteration that stops early. The page says how far it is off.",
        ),
    ] = 0,
    batch_statistics: Annotated[
        bool,
        typer.Option(
            "--batch-statistics",
            help="Put the network into training mode: BatchNorm uses the statistics of each batch "
            "instead of the stored ones, and dropout is on.",
        ),
    ] = False,
    weight_decay: Annotated[
        float, typer.Option(min=0.0, help="Add the term of a weight decay to the loss.")
    ] = 0.0,
    tasks: OnlyTasks = None,
    optimizers: OnlyOptimizers = None,
    seeds: OnlySeeds = None,
    out: Out = None,
    threads: TorchThreads = None,
    data: Data = None,
) -> None:
    """Measure the Hessian at the end of finished runs: its largest eigenvalues and its trace.

    The page shows them with the smallest eigenvalue, the size of the weights, losses and
    test results, beside the numbers that the paper prints.
    """
    with refusing():
        found, store = find_trained(runs, tasks, optimizers, seeds)

        from ...analysis.hessian.of_runs import HessianOfRuns

        analysis = HessianOfRuns(
            examples, top, tolerance, probes, power, batch_statistics, weight_decay
        )
    conduct(analysis, found, Path(out) if out else store / "analysis" / "hessian", threads)
