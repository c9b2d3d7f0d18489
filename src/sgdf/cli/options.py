"""The options of the commands: each that two commands share is defined here, once.

Callbacks judge a value before anything slow begins, so nothing here imports torch.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

PLOT_FORMATS = (".png", ".pdf", ".svg")


def check_folder(text: str | None) -> str | None:
    """Return the name of a folder.

    Raises:
        typer.BadParameter: if it is empty.
    """
    if text == "":
        raise typer.BadParameter("a folder needs a name")
    return text


def check_output_file(path: Path | None) -> Path | None:
    """Return the path of a file to be written, before minutes are spent on its content.

    Raises:
        typer.BadParameter: if it cannot be written.
    """
    if path:
        nearest = path
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        possible = nearest.is_file() if nearest == path else nearest.is_dir()
        if not possible or not os.access(nearest, os.W_OK):
            raise typer.BadParameter(f"cannot write {path}")
    return path


def check_plot_file(path: Path | None) -> Path | None:
    """Return the path of a plot to be written.

    Raises:
        typer.BadParameter: if its format is unknown, or it cannot be written.
    """
    if path and path.suffix not in PLOT_FORMATS:
        raise typer.BadParameter(f"{path} does not end in {', '.join(PLOT_FORMATS)}")
    return check_output_file(path)


def parse_change(text: str) -> tuple[str, Any]:
    """Return key and value of ``KEY=VALUE``; a value that is not TOML is a string.

    >>> parse_change("train.epochs=5"), parse_change("optimizer.name=sgd")
    (('train.epochs', 5), ('optimizer.name', 'sgd'))

    Raises:
        typer.BadParameter: if the text has no key or no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, as in train.epochs=5")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def parse_changes(texts: Sequence[str] | None, **options: Any) -> dict[str, Any]:
    """Return the values that take the place of the file's, by dotted key.

    Args:
        texts: what ``--set`` gives, each ``KEY=VALUE``.
        options: values of other options, with ``__`` for the dot of the key; None where an
            option is not given. They override ``--set``.
    """
    given = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    return {**dict(map(parse_change, texts or ())), **given}


def _check_changes(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        parse_change(text)
    return texts


def parse_target(text: str) -> tuple[str, float]:
    """Return task and value of ``TASK=VALUE``; without a task, the value is for all of them.

    >>> parse_target("digits-cnn=0.97"), parse_target("0.97")
    (('digits-cnn', 0.97), ('', 0.97))

    Raises:
        typer.BadParameter: if the value is not a number.
    """
    problem, _, value = text.rpartition("=")
    try:
        return problem.strip(), float(value)
    except ValueError:
        wanted = "a number, or TASK=NUMBER as in digits-cnn=0.97"
        raise typer.BadParameter(f"{text!r} is not {wanted}") from None


def _check_targets(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        parse_target(text)
    return texts


def _set_data_folder(folder: str | None) -> str | None:
    """Let this process and its workers find the data sets there."""
    if check_folder(folder):
        from ..bench.tasks.assets import DATA_VARIABLE

        os.environ[DATA_VARIABLE] = str(folder)
    return folder


def _expand_all(names: list[str] | None) -> list[str] | None:
    from ..bench.catalog.optimizers import ALL

    return list(ALL) if names and "all" in names else names


def out_option(explanation: str) -> Any:
    """Return ``--out``, the folder that a command writes to."""
    return typer.Option("--out", "-o", metavar="FOLDER", callback=check_folder, help=explanation)


ExperimentName = Annotated[
    str, typer.Argument(help="A bundled experiment (see sgdf experiments), or a TOML file.")
]
Place = Annotated[
    Path,
    typer.Argument(
        help="A folder of runs, as in results/digits or just digits; results stands for all "
        "folders of runs in it."
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(help="One of them, or module:Class. Without it, all of them are listed."),
]
Workers = Annotated[
    int, typer.Option("--workers", "-w", min=1, help="How many processes share the work.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster. ADDRESS is auto or HOST:6379 for a cluster that this machine "
        "is part of, or local to start one here. Every machine needs sgdf installed, and the "
        "folder of the runs on the same disk at the same path.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many threads each run uses. Default: what the file says, else the machine's "
        "threads divided by the workers, and 1 on Ray. The number is part of a run: with another "
        "number it is another run, because its last digits may differ.",
    ),
]
TorchThreads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="How many threads torch uses. Default: torch's choice."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        callback=_set_data_folder,
        help="Folder that holds the data sets, and that missing ones are downloaded to. Default: "
        "SGDF_DATA, else ~/.cache/sgdf.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, mps, … Default: the machine's accelerator if it has one."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16 or float16 for mixed precision, or pure-bfloat16 for weights in "
        "bfloat16."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        callback=_check_changes,
        help="Change a value of the file, as in --set train.epochs=5 or --set 'seed=[0, 1]'; "
        "--set optimizer.lr=0.1 changes every [[optimizer]]. May be repeated.",
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Try all failed runs and trials again.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would be done and about how long it takes; train nothing."
    ),
]
CheckpointEvery = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="Time between checkpoints.")
]
Optimizers = Annotated[
    list[str] | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        callback=_expand_all,
        help="Search only this optimizer, which need not be in the file. Default: all that are in "
        "the file. May be repeated; all stands for every bundled optimizer.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="[TASK=]VALUE",
        callback=_check_targets,
        help="A value of the metric, as in 0.97, or digits-cnn=0.97 for one task or problem: the "
        "report then shows how long each optimizer takes to reach it. Default: what three quarters "
        "of the optimizers reach with every seed. May be repeated.",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", callback=check_output_file, help="Write all numbers to this file."),
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        callback=check_plot_file,
        help="Draw the figure into this file (png, pdf or svg).",
    ),
]
