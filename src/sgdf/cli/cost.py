"""``sgdf cost``: measure what a step costs on this machine."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer
from rich.progress import Progress

from .console import make_console, say
from .options import JsonFile, PlotFile, TorchThreads


def _check_problems(names: list[str] | None) -> list[str]:
    from ..analysis.cost.measure import DEFAULT_PROBLEMS, PROBLEMS

    for name in names or ():
        if name not in PROBLEMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROBLEMS)}")
    return names or list(DEFAULT_PROBLEMS)


def cost(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            callback=_check_problems,
            help="The parameters that optimizers step on. Default: resnet18, densenet121, vgg11, "
            "flat (one tensor of 40 million) and gpt2; vgg13, resnet101 and densenet161 add the "
            "paper's runtime table. vgg11, vgg13 and gpt2 take 12 GB of memory.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="How often each implementation takes its turn.")
    ] = 10,
    batch: Annotated[
        int, typer.Option(min=2, help="Images in the batch of forward and backward pass.")
    ] = 4,
    resolution: Annotated[int, typer.Option(min=32, help="Their height and width in pixels.")] = 64,
    threads: TorchThreads = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Measure torch.compile(SGDF.step) too; compiling takes minutes."
        ),
    ] = False,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure what a step of SGDF costs on this machine's CPU, beside other optimizers.

    The tables show the time per step, the bytes of state, the bytes that a step moves, the peak
    memory and the share of a whole training step, for every implementation of SGDF and each of its
    state formats, for torch's SGD (momentum 0.9), Adam and
    AdamW, and for a few optimizers of pytorch-optimizer if that is installed. They take turns, so
    that the ratios hold even where the times do not. The limit is a step that reads and writes the
    same bytes by the same route and computes nothing.

    Run it when nothing else runs on the machine.
    """
    # The profiler that finds the peak memory would announce each of its runs.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    import torch

    from ..analysis.cost.measure import make_problem, measure
    from ..analysis.cost.operations import operation_table
    from ..analysis.cost.plot import draw
    from ..analysis.cost.report import Report
    from ..environment import environment
    from .show.cost import cost_tables

    if threads:
        torch.set_num_threads(threads)
    names = problems or []
    results = []
    with Progress(console=make_console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(names) * (rounds + 1))
        for name in names:
            progress.update(bar, description=f"{name}: preparing")
            problem = make_problem(name, batch, resolution)

            def advance(_: int, name: str = name) -> None:
                progress.update(bar, advance=1, description=name)

            training = f"batch {batch} at {resolution} × {resolution} pixels"
            results.append(measure(problem, rounds, compiled, training=training, progress=advance))
    report = Report(environment(), rounds, results, operation_table())

    console = make_console()
    say(console, ", ".join(f"{key} {value}" for key, value in report.environment.items()))
    for table in cost_tables(report):
        console.print()
        console.print(table)
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if plot:
        draw(report, plot)
    for path in filter(None, (json_file, plot)):
        say(console, f"wrote {path}")
