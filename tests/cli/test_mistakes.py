"""What people meet when they are wrong: one line that names the mistake, and what was meant."""

import os
import re

import pytest
import typer
from commands import sgdf

from made_runs import make_run
from sgdf.bench.errors import DataError
from sgdf.cli.console import refusing
from sgdf.cli.options import parse_change, parse_target


def message_of(*arguments):
    """Return what a command that is refused says, without the frame around it."""
    return " ".join(re.sub(r"[│╭╰─╮╯]", "", sgdf(*arguments, code=2)).split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing.toml"], "nothing.toml: no such file, nor a bundled experiment"),
        (["run", "mine.toml", "--set", "train.epochs=0"], "mine.toml: train.epochs = 0: must be"),
        (["run", "mine.toml", "--device", "tpu"], "train.device = 'tpu': must be a device"),
        (["run", "mine.toml", "--device", "cuda"], "train.device = 'cuda': not available"),
        (["run", "mine.toml", "--precision", "int3"], "must be one of float32, bfloat16"),
        (["run", "mine.toml", "--set", "epochs"], "'epochs' is not KEY=VALUE"),
        (["run", "mine.toml", "--set", "name=../../up"], "name = '../../up': names a folder"),
        (["run", "mine.toml", "--out", "mine.toml"], "cannot write mine.toml"),
        (["run", "mine.toml", "--workers", "0"], "--workers"),
        (
            [*("run", "mine.toml", "--set", "optimizer.momentum=0.9"), "--set", "optimizer.lr=0.1"],
            "'sgdf': SGDF has no momentum: its filter replaces momentum; for SGD's lr=0.1 with "
            "momentum=0.9 write lr=1.0",
        ),
        (["status", "nowhere"], "nowhere: no such folder"),
        (["status", "."], ".: no runs there"),
        (["run", "mine.toml", "--out", ""], "a folder needs a name"),
        (["tasks", "broken:X"], "broken:X: importing this task raised SyntaxError"),
        (["tasks", "sgdf.bench.tasks:Task"], "this has no batches, evaluate, loss"),
        (["run", "mine.toml", "--set", "task=digits-cnn"], "with its name as task.name"),
        (["tasks", "digit"], "digit: no such task; allowed: digits-mlp"),
        (["optimizers", "torch.optim:Nope"], "cannot import this optimizer"),
        (["experiments", "digitz"], "digitz: no such experiment; allowed: bccd, characters"),
        (["report", "nowhere"], "nowhere: no such folder; sgdf run keeps its runs in results/NAME"),
        (["tune", "mine.toml", "--set", "=3"], "'=3' is not KEY=VALUE"),
        (["run", "mine.toml", "--set", "seed=[0, 1, 0]"], "seed = [0, 1, 0]: has 0 twice"),
        (["tune", "mine.toml", "--set", "seed=[0, 0]"], "seed = [0, 0]: has 0 twice"),
        (
            ["run", "mine.toml", "--set", "optimizer.lr=[1, 0.1, 1.0]"],
            "mine.toml: optimizer.lr = [1, 0.1, 1.0]: has 1.0 twice",
        ),
    ],
)
def test_wrong_input_is_named(place, arguments, message):
    (place / "broken.py").write_text("x ===")
    output = message_of(*arguments)
    assert message in output
    assert "Traceback" not in output


def test_a_folder_that_cannot_be_written_to_is_named(place):
    (place / "file").write_text("")
    assert "cannot write" in sgdf("run", "mine.toml", "--out", "file/results", code=2)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["rnu", "mine.toml"], "Did you mean 'run'?"),
        (["optimizer"], "Did you mean 'optimizers'?"),
        (["run", "quickstrat"], "did you mean quickstart?"),
        (["run", "mien.toml"], "did you mean mine.toml?"),
        (["tune", "digits-serch"], "did you mean digits-search?"),
        (["experiments", "digitz"], "did you mean digits?"),
        (["status", "results/digts"], "did you mean results/digits?"),
        (["status", "digts"], "did you mean digits?"),
        (["report", "digts"], "did you mean digits?"),
        (["report", "elsewhere/digts"], "did you mean elsewhere/digits?"),
        (["optimizers", "adma"], "did you mean adam?"),
        (["optimizers", "torch.optim:Adamm"], "did you mean Adam?"),
        (["tasks", "digits-cn"], "did you mean digits-cnn?"),
        (["tasks", "bench_task:Points"], "did you mean bench_tasks?"),
        (["run", "mine.toml", "--set", "optimizer.name=adma"], "did you mean adam?"),
        (["run", "mine.toml", "--set", "optimizer.lrr=1.0"], "did you mean lr?"),
        (["run", "mine.toml", "--set", "task.name=digits-cn"], "did you mean digits-cnn?"),
        (
            ["run", "mine.toml", "--set", "schedule.name=CosineAnnealing"],
            "did you mean CosineAnnealingLR?",
        ),
        (["run", "mine.toml", "--set", "train.epoch=1"], "did you mean epochs?"),
        (["run", "mine.toml", "--set", "optimiser.lr=1.0"], "did you mean optimizer?"),
        (["tune", "mine.toml", "--set", "search.trial=1"], "did you mean trials?"),
    ],
)
def test_what_was_perhaps_meant_is_said(place, arguments, meant):
    make_run(place / "results/digits", [0.5])
    make_run(place / "elsewhere/digits", [0.5])
    assert meant in message_of(*arguments)


def test_values_are_toml_and_else_text():
    assert parse_change("train.epochs=5") == ("train.epochs", 5)
    assert parse_change(" seed = [0, 1]") == ("seed", [0, 1])
    assert parse_change("optimizer.name=sgd") == ("optimizer.name", "sgd")
    assert parse_change("task.title=a = b") == ("task.title", "a = b")
    with pytest.raises(typer.BadParameter, match="is not KEY=VALUE"):
        parse_change("train.epochs")


def test_targets_are_for_all_tasks_or_for_one():
    assert parse_target("0.97") == ("", 0.97)
    assert parse_target("digits-cnn = 0.97") == ("digits-cnn", 0.97)
    with pytest.raises(typer.BadParameter, match="is not a number"):
        parse_target("digits-cnn=much")


@pytest.mark.usefixtures("_watchdog")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(place):
    os.mkfifo(place / "pipe.toml")
    (place / "mine.toml").write_text('extends = "pipe.toml"')
    assert "extends = 'pipe.toml': is a pipe, not a file" in message_of("run", "mine.toml")
    folder = place / "results/mine/runs/0123456789abcdef"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "spec.toml")
    assert "is a pipe, not a file" in message_of("run", folder / "spec.toml")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report", "is a link; name the folder to write to with --out"),
        ("report/figures", "is a link: nothing is written through it"),
        ("report/tables", "is a link: nothing is written through it"),
    ],
)
def test_a_report_is_not_written_through_a_link(name, message, place):
    make_run(place / "results/mine", [0.5])
    (place / "elsewhere").mkdir()
    link = place / "results/mine" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(place / "elsewhere")
    assert f"{name} {message}" in message_of("report", "mine")
    assert not list((place / "elsewhere").iterdir())


def test_missing_data_are_listed_line_by_line(capsys):
    with pytest.raises(typer.Exit), refusing():
        raise DataError("CIFAR-10: no files.\nGet them:\n  abc  data_batch_1.bin\x1b[31m")
    assert capsys.readouterr().err.splitlines() == [
        "sgdf: CIFAR-10: no files.",
        "Get them:",
        r"  abc  data_batch_1.bin\x1b[31m",
    ]
