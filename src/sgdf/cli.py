"""The command line: ``sgdf --help``. It needs the ``bench`` extra."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import Progress
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"The sgdf command needs {missing.name}, which is not installed: pip install 'sgdf[bench]'"
    ) from None

import sgdf

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(sgdf.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """SGD with an online optimal linear filter on its gradients."""


def _problems(names: list[str] | None) -> list[str]:
    from .analysis.cost import DEFAULT_PROBLEMS, PROBLEMS

    for name in names or ():
        if name not in PROBLEMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROBLEMS)}")
    return names or list(DEFAULT_PROBLEMS)


def _plot(path: Path | None) -> Path | None:
    from .analysis.cost_report import PLOT_FORMATS

    if path and path.suffix not in PLOT_FORMATS:
        raise typer.BadParameter(f"{path} does not end in {', '.join(PLOT_FORMATS)}")
    return _file(path)


def _file(path: Path | None) -> Path | None:
    """Refuse a path that cannot be written to before minutes are spent."""
    if path:
        nearest = path
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        possible = nearest.is_file() if nearest == path else nearest.is_dir()
        if not possible or not os.access(nearest, os.W_OK):
            raise typer.BadParameter(f"cannot write {path}")
    return path


@app.command()
def cost(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            callback=_problems,
            help="Parameters to step on: resnet18, densenet121, vgg11, flat (one tensor of 40 "
            "million) and gpt2 by default; vgg13, resnet101 and densenet161 add the paper's "
            "runtime table. vgg11, vgg13 and gpt2 take 12 GB of memory.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="How often each implementation takes its turn.")
    ] = 10,
    batch: Annotated[
        int, typer.Option(min=2, help="Images in the batch of forward and backward.")
    ] = 4,
    resolution: Annotated[int, typer.Option(min=32, help="Their height and width.")] = 64,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads that torch may use; its own choice if absent."),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Measure torch.compile(SGDF.step) too; building it takes minutes."
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=_file, help="Write everything to this file."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(callback=_plot, help="Draw a bar chart into this file (png, pdf or svg)."),
    ] = None,
) -> None:
    """Measure what a step of SGDF costs on this machine's CPU, beside other optimizers.

    Time per step, bytes of state, peak memory and the share of a whole training step, for
    every implementation of SGDF, torch's SGD (momentum 0.9), Adam and AdamW, and a few
    of pytorch-optimizer's if that is installed. They take turns, so that the ratios hold
    even where the times do not. The limit is a step that reads and writes the same bytes
    by the same route and computes nothing.

    Run it when nothing else runs.
    """
    # The profiler that finds the peak memory would announce each of its runs.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    import torch

    from .analysis.cost import environment, make_problem, measure
    from .analysis.cost_report import Report, draw
    from .analysis.operations import operation_table

    if threads:
        torch.set_num_threads(threads)
    names = problems or []
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(names) * (rounds + 1))
        for name in names:
            progress.update(bar, description=f"{name}: preparing")
            problem = make_problem(name, batch, resolution)

            def advance(_: int, name: str = name) -> None:
                progress.update(bar, advance=1, description=name)

            training = f"batch {batch} at {resolution} × {resolution} pixels"
            results.append(measure(problem, rounds, compiled, training=training, progress=advance))
    report = Report(environment(), rounds, results, operation_table())

    console = Console()
    console.print(", ".join(f"{key} {value}" for key, value in report.environment.items()))
    for table in report.tables():
        console.print()
        console.print(table)
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if plot:
        draw(report, plot)
    for path in filter(None, (json_file, plot)):
        console.print(f"wrote {path}", highlight=False)
