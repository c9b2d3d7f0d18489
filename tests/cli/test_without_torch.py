"""Answers that need no torch are given without importing it, which takes a second or more."""

import contextlib
import json
import subprocess
import sys

import pytest
from commands import SPEC

from made_runs import make_run

pytestmark = pytest.mark.usefixtures("_watchdog")

# Modules stay imported, so that one interpreter can answer any number of commands: as long as
# torch is not there after a command, the next one begins without it too.
PROGRAM = """
import json, os, sys
from typer.testing import CliRunner
from sgdf.cli import app
for line in sys.stdin:
    place, arguments = json.loads(line)
    os.chdir(place)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    imported = [name for name in ("torch", "matplotlib") if name in sys.modules]
    print(json.dumps([imported, result.exit_code, result.output]), flush=True)
"""


@contextlib.contextmanager
def fresh_interpreter():
    """Start an interpreter and give a function that returns exit code and answer of a command."""
    command = [sys.executable, "-c", PROGRAM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:

        def answer(place, *arguments):
            print(json.dumps([str(place), arguments]), file=process.stdin, flush=True)
            imported, code, output = json.loads(process.stdout.readline())
            assert not imported, f"imported: {imported}"
            return code, output

        try:
            yield answer
        finally:
            process.kill()


@pytest.fixture(scope="module")
def answer():
    """Exit code and answer of a command in an interpreter that must not import torch."""
    with fresh_interpreter() as answer:
        yield answer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sgdf", "sgdff"), "optimizer 'sgdff': no such optimizer"),
        (("bench_tasks:Points", "digits-cn"), "task 'digits-cn': no such task"),
        (("lr = 0.1", '[schedule]\nname = "StepL"'), "schedule 'StepL': no such schedule"),
        (("epochs = 2", "epoch = 2"), "train.epoch = 2: no such key"),
        (("[train]", "[training]"), "no such key; allowed"),
        (("epochs = 2", "epochs = 0"), "train.epochs = 0: must be"),
        (("[train]", "[train"), "is not valid TOML"),
    ],
)
@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_misspelt_file_is_refused(answer, tmp_path, command, change, message):
    (tmp_path / "mine.toml").write_text(SPEC.replace(*change))
    code, output = answer(tmp_path, command, "mine.toml")
    assert code == 2, output
    assert message in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--help"], 0, "quickstart"),
        (["--version"], 0, ""),
        (["run", "nothing.toml"], 2, "no such file"),
        (["tune", "nothing.toml"], 2, "no such file"),
        (["tune", "digits", "--optimizer", "sgdff"], 2, "did you mean sgdf?"),
        (["optimizers"], 0, "SGD with classical momentum"),
        (["experiments"], 0, "12 trials each"),
        (["experiments", "digits"], 0, "[task]"),
        (["optimizers", "adma"], 2, "did you mean adam?"),
        (["status", "nowhere"], 2, "no such folder"),
        (["report", "nowhere"], 2, "no such folder"),
    ],
)
def test_catalogs_and_mistakes(answer, tmp_path, arguments, code, message):
    found, output = answer(tmp_path, *arguments)
    assert found == code, output
    assert message in output


def test_the_status_of_runs(answer, tmp_path):
    for seed in range(3):
        make_run(tmp_path / "results/mine", [0.5, 0.75], seed=seed)
    code, output = answer(tmp_path, "status", "mine")
    assert code == 0, output
    assert "larger is better" in output
    assert "75.00 (no spread)" in output


def test_the_check_can_fail(tmp_path):
    with fresh_interpreter() as answer, pytest.raises(AssertionError, match=r"imported: .*torch"):
        answer(tmp_path, "tasks")
