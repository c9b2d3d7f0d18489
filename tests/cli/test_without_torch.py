"""Answers that need no torch are given without importing it, which takes a second or more."""

import subprocess
import sys

import pytest
from commands import SPEC

from made_runs import make_run

PROGRAM = """
import sys
from typer.testing import CliRunner
from sgdf.cli import app
result = CliRunner().invoke(app, sys.argv[1:], env={"COLUMNS": "160"})
assert "torch" not in sys.modules, "torch was imported"
assert "matplotlib" not in sys.modules, "matplotlib was imported"
print(result.output)
sys.exit(result.exit_code)
"""


def answer(place, *arguments):
    """Return exit code and answer of a command in a fresh interpreter, which must need no torch."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60)
    assert "was imported" not in done.stderr
    return done.returncode, done.stdout + done.stderr


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
def test_a_misspelt_file_is_refused(tmp_path, command, change, message):
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
def test_catalogs_and_mistakes(tmp_path, arguments, code, message):
    found, output = answer(tmp_path, *arguments)
    assert found == code, output
    assert message in output


def test_the_status_of_runs(tmp_path):
    for seed in range(3):
        make_run(tmp_path / "results/mine", [0.5, 0.75], seed=seed)
    code, output = answer(tmp_path, "status", "mine")
    assert code == 0, output
    assert "larger is better" in output
    assert "75.00 (no spread)" in output


def test_the_check_can_fail(tmp_path):
    with pytest.raises(AssertionError):
        answer(tmp_path, "tasks")
