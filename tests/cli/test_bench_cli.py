"""The bench's commands as people type them, and the guide as people follow it."""

import dataclasses
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench_tasks import run_of
from locations import ROOT
from sgdf.bench.jobs.estimate import estimate
from sgdf.bench.spec.bundled import bundled_experiments, bundled_searches
from sgdf.bench.spec.labels import labels
from sgdf.bench.spec.run import Schedule, Training
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks import TASKS
from sgdf.cli import app
from sgdf.cli.progress import Bars, Lines, display

SPEC = """
about = "two runs"
[task]
name = "bench_tasks:Points"
[train]
epochs = 2
threads = 1
[optimizer]
name = ["sgdf", "sgd"]
lr = 0.1
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a spec, where commands are given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(SPEC)
    (tmp_path / "broken.py").write_text("x ===")
    return tmp_path


def sgdf(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def test_a_grid_from_beginning_to_end(place):
    shown = sgdf("run", "mine.toml", "--dry-run")
    assert "bench_tasks:Points, sgdf" in shown
    assert "0 of 2 runs are done in results/mine; the others take about" in shown
    assert not (place / "results").exists()
    done = sgdf("run", "mine.toml")
    assert done.count("begins") == 2
    assert re.search(r"\[2/2\] bench_tasks:Points, sgd, seed 0: test accuracy 0\.\d+", done)
    assert "2 finished. sgdf status results/mine shows more." in done
    again = sgdf("run", "mine.toml")
    assert "2 runs, 2 done" in again
    assert "begins" not in again
    for argument in ([], ["results"], ["results/mine"], ["mine"], ["mine.toml"]):
        status = sgdf("status", *argument)
        assert re.search(r"Points, sgdf +1 +1 +accuracy 0\.\d+ +accuracy 0\.\d+ *\n", status)
    assert "2 of 2 runs are done" in sgdf("run", "mine.toml", "--dry-run")


def test_the_spec_of_a_run_is_an_experiment_in_its_own_store(place):
    sgdf("run", "mine.toml", "--set", "optimizer.name=sgd")
    (folder,) = Store("results/mine").folders()
    assert "1 run, 1 done, in results/mine" in sgdf("run", folder.path / "spec.toml")
    sgdf("run", folder.path / "spec.toml", "--out", "again")
    (again,) = Store("again").folders()
    assert again.result()["weights"] == folder.result()["weights"]


def test_settings_from_the_command_line(place):
    sgdf(
        *("run", "mine.toml", "--set", "train.epochs=1", "--set", "seed=[4, 5]"),
        *("--set", "protocol=paper", "--threads", 2, "--precision", "bfloat16", "--device", "cpu"),
        *("--out", "elsewhere"),
    )
    tables = [folder.table() for folder in Store("elsewhere").folders()]
    assert {table["seed"] for table in tables} == {4, 5}
    assert {table["protocol"] for table in tables} == {"paper"}
    assert {table["train"]["epochs"] for table in tables} == {1}
    assert {table["train"]["threads"] for table in tables} == {2}
    assert {table["train"]["precision"] for table in tables} == {"bfloat16"}
    assert "best epoch on test" in sgdf("status", "elsewhere")


def test_failures_are_shown_and_tried_again_on_request(place):
    (place / "bad.toml").write_text(
        SPEC.replace(":Points", ":Raising").replace('["sgdf", "sgd"]', '"sgd"')
    )
    output = sgdf("run", "bad.toml", code=1)
    assert "failed: RuntimeError: the cat is on the keyboard" in output
    status = sgdf("status", "bad")
    assert "failed: bench_tasks:Raising, sgd, seed 0: RuntimeError: the cat" in status
    assert "failure.json" in status
    assert "sgdf run with --retry" in status
    (folder,) = Store("results/bad").folders()
    alone = sgdf("status", folder.path)
    assert "Traceback" in alone
    assert "the cat is on the keyboard" in alone
    assert "begins" not in sgdf("run", "bad.toml", code=1)
    assert "begins" in sgdf("run", "bad.toml", "--retry", code=1)


def test_divergence_is_shown(place):
    output = sgdf(
        "run", "mine.toml", "--set", "optimizer.lr=1e30", "--set", "train.diverges_at=2.0"
    )
    assert "diverged at step" in output
    assert re.search(r"diverged: bench_tasks:Points, sgd, seed 0: at step \d", sgdf("status"))


def test_runs_made_with_another_source_are_mentioned(place, monkeypatch):
    sgdf("run", "mine.toml")
    assert "another version" not in sgdf("run", "mine.toml")
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    assert "2 of the runs done had another version" in sgdf("run", "mine.toml")


def test_damage_is_shown_and_mended(place):
    sgdf("run", "mine.toml")
    folder, other = Store("results/mine").folders()
    (folder.path / "metrics.jsonl").write_text("{")
    (other.path / "spec.toml").write_text("seed = 1")
    status = sgdf("status", "mine")
    assert "damaged: bench_tasks:Points" in status
    assert "no whole spec; sgdf run of its experiment mends it" in status
    sgdf("run", "mine.toml")
    assert {folder.state() for folder in Store("results/mine").folders()} == {State.FINISHED}


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
        (["status", "nowhere"], "nowhere: no such folder"),
        (["status", "."], ".: no runs there"),
        (["run", "mine.toml", "--out", ""], "a folder needs a name"),
        (["tasks", "broken:X"], "broken:X: importing this task raised SyntaxError"),
        (["tasks", "sgdf.bench.tasks:Task"], "this has no batches, evaluate, loss"),
        (["run", "mine.toml", "--set", "task=digits-cnn"], "with its name as task.name"),
        (["tasks", "digit"], "digit: no such task; allowed: digits-mlp"),
        (["optimizers", "torch.optim:Nope"], "cannot import this optimizer"),
        (["experiments", "digitz"], "digitz: no such experiment; allowed: characters"),
    ],
)
def test_wrong_input_is_named(place, arguments, message):
    output = " ".join(re.sub(r"[│╭╰─╮╯]", "", sgdf(*arguments, code=2)).split())
    assert message in output
    assert "Traceback" not in output


def test_a_folder_that_cannot_be_written_to_is_named(place):
    (place / "file").write_text("")
    assert "cannot write" in sgdf("run", "mine.toml", "--out", "file/results", code=2)


def test_times_are_estimated_by_a_trial_and_then_by_what_is_known(place):
    slow = {"name": "bench_tasks:Points", "delay": 0.02}
    run, other = (run_of(slow, train={"epochs": 100}, seed=seed) for seed in (0, 1))
    expected = 100 * 4 * 0.02
    (seconds,) = estimate([run], Store("nothing")).values()
    assert expected < seconds < 2 * expected
    folder = Store("known").folder(other.key)
    folder.prepare(other.as_table())
    seconds = {"step": 3.0, "data": 4.0, "evaluation": 0.5}
    folder.finish(State.FINISHED, {"diverged_at_step": None, "seconds": seconds}, [])
    assert estimate([run], Store("known")) == {run.key: 7.5}
    folder.finish(State.DIVERGED, {"diverged_at_step": 3, "seconds": {"step": 0.1}}, [])
    (seconds,) = estimate([run], Store("known")).values()
    assert seconds > expected


def test_a_trial_that_fails_is_told_of(place):
    (place / "bad.toml").write_text(SPEC.replace(":Points", ":Raising"))
    shown = sgdf("run", "bad.toml", "--dry-run", code=1)
    assert "will fail: bench_tasks:Raising, sgdf, seed 0: RuntimeError: the cat" in shown


def test_names_with_brackets_are_text(place):
    assert "x[/foo]" in sgdf("run", "mine.toml", "--out", "x[/foo]")
    assert "x[/foo]" in sgdf("status", "x[/foo]")


def test_locks_that_do_not_work_are_told_of(place, monkeypatch):
    sgdf("run", "mine.toml")

    def lockf(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("sgdf.bench.store.lock.fcntl.lockf", lockf)
    for command in (["run", "mine.toml"], ["status", "mine"]):
        assert "is locking enabled on this disk?" in sgdf(*command, code=2)


def test_settings_are_sorted_by_their_numbers(place):
    sgdf("run", "mine.toml", "--set", "optimizer.lr=[10.0, 2.0, 0.5]", "--set", "train.epochs=1")
    rates = re.findall(r"Points, sgdf lr=(\S+)", sgdf("status", "mine"))
    assert rates == ["0.5", "2.0", "10.0"]


def test_what_there_is_to_choose_from(place):
    tasks, optimizers, experiments = (sgdf(name) for name in ("tasks", "optimizers", "experiments"))
    assert all(name in tasks for name in TASKS)
    assert "momentum=0.9" in optimizers
    assert all(name in experiments for name in (*bundled_experiments(), *bundled_searches()))
    assert "batch_norm" in sgdf("tasks", "digits-cnn")
    assert "hidden: its width" in sgdf("tasks", "bench_tasks:Points")
    assert "betas = [[0.9, 0.999]]" in sgdf("optimizers", "adam")
    assert "# lr has no default" in sgdf("optimizers", "sgdf:UnifiedMomentum")
    text = sgdf("experiments", "digits")
    (place / "copy.toml").write_text(text)
    assert "0 of 18 runs" in sgdf("run", "copy.toml", "--dry-run", "--set", "train.epochs=1")


@pytest.mark.parametrize("command", ["run", "tune", "status", "tasks", "optimizers", "experiments"])
def test_help_has_a_sentence_for_everything(command):
    help_text = sgdf(command, "--help")
    options = re.findall(r"^│ \*? *(--[\w-]+|-\w|\w+)(.*)", help_text, re.M)
    assert options
    assert all(re.search(r"[a-z]{3,}", rest) for _, rest in options)


def test_help_does_not_wait_for_torch():
    program = """
import sys
from sgdf.cli import app
try:
    app(["--help"])
finally:
    print("torch" in sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.rstrip().endswith("False")


def test_bars_on_a_terminal_and_lines_elsewhere():
    names = {"a": "the [first] run", "b": "b"}
    terminal = Console(force_terminal=True, width=150, record=True, file=open(os.devnull, "w"))  # noqa: SIM115  # closed below
    with display(terminal, names, total=2, done=0) as bars:
        assert isinstance(bars, Bars)
        bars("a", {"event": "begin"})
        row = {"kind": "epoch", "train": {"loss": 2.0}, "validation": {"accuracy": 0.5}}
        bars("a", {"event": "progress", "step": 5, "steps": 10, "row": row})
        bars("a", {"event": "saved", "step": 5})
        overall, bar = bars.progress.tasks
        assert (bar.description, bar.completed, bar.total) == ("the \\[first] run", 5, 10)
        assert bar.fields["figures"] == "validation accuracy 0.5"
        assert overall.completed == 0.5
        bars("a", {"event": "notice", "line": "its worker died"})
        bars("a", {"event": "begin"})
        bars("a", {"event": "end", "state": "finished", "line": "test accuracy 1"})
        assert len(bars.progress.tasks) == 1
        assert overall.completed == 1
    text = terminal.export_text()
    terminal.file.close()
    assert "the [first] run: its worker died" in text
    assert "the [first] run: test accuracy 1" in text
    assert isinstance(display(Console(force_terminal=False), names, 1, 0), Lines)


def test_lines_come_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("sgdf.cli.progress.time.monotonic", lambda: now[0])
    lines = Lines(Console(width=200), {"a": "run [x]"}, total=3, done=1)
    row = {"kind": "train", "train": {"loss": 2.0}}
    lines("a", {"event": "begin"})
    lines("a", {"event": "progress", "step": 0, "steps": 1000, "row": {}})
    for now[0] in (1.0, 20.0, 31.0, 40.0, 62.0):
        lines("a", {"event": "progress", "step": 7, "steps": 1000, "row": row})
    lines("a", {"event": "end", "state": "failed", "line": "ValueError: no"})
    lines("a", {"event": "begin"})
    lines("a", {"event": "progress", "step": 7, "steps": 1000, "row": {}})
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] run [x]: begins",
        "[1/3] run [x]: step 7 of 1,000: train loss 2",
        "[1/3] run [x]: step 7 of 1,000: train loss 2",
        "[1/3] run [x]: failed: ValueError: no",
        "[1/3] run [x]: goes on at step 7",
    ]


def test_runs_are_called_by_what_tells_them_apart():
    runs = [
        run_of(optimizer={"name": "adam", "lr": lr, "betas": [[beta, 0.99]]}, seed=seed)
        for lr, beta, seed in ((0.1, 0.9, 0), (0.2, 0.9, 1), (0.2, 0.8, 1))
    ]
    names = labels({run.key: run.as_table() for run in runs})
    assert list(names.values()) == [
        "bench_tasks:Points, adam lr=0.1 betas=[0.9, 0.99], seed 0",
        "bench_tasks:Points, adam lr=0.2 betas=[0.9, 0.99], seed 1",
        "bench_tasks:Points, adam lr=0.2 betas=[0.8, 0.99], seed 1",
    ]


def test_every_key_is_in_the_reference():
    page = next((ROOT / "docs").rglob("bench.md")).read_text()
    for field in dataclasses.fields(Training):
        shown = str(field.default).lower() if field.default is False else str(field.default)
        shown = f'`"{shown}"`' if isinstance(field.default, str) else shown
        assert f"| `{field.name}` | {shown} |" in page
    for field in dataclasses.fields(Schedule):
        if field.metadata:
            assert f"`schedule.{field.name}`" in page
    for key in ("name", "about", "seed", "protocol", "[task]", "[optimizer]", "[schedule]"):
        assert f"| `{key}` |" in page


def test_the_guide_can_be_followed(tmp_path):
    guide = next((ROOT / "docs").rglob("compare.md")).read_text()
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", guide, re.M | re.S):
        (tmp_path / name).write_text(content)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"moons.py", "moons.toml", "waves.py", "duel.py"}
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", guide, re.M | re.S)
        for line in block.splitlines()
    ]
    commands = [line for line in commands if not line.startswith("pip install")]
    assert len(commands) == 5
    for task in ("waves:Waves", "duel:Duel"):
        name = task.partition(":")[2].lower() + ".toml"
        text = f'[task]\nname = "{task}"\n[optimizer]\nname = "adam"\nlr = 0.01\n'
        (tmp_path / name).write_text(text)
        commands.append(f"sgdf run {name}")
    environment = {**os.environ, "COLUMNS": "120"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"shell": True, "cwd": tmp_path, "env": environment, "timeout": 300}
    outputs = [subprocess.run(line, capture_output=True, text=True, **options) for line in commands]
    assert [done.returncode for done in outputs] == [0] * 7, outputs
    dry, run, status, report, target, waves, duel = (done.stdout for done in outputs)
    assert "test error 0." in waves
    assert "1 finished" in duel
    assert "0 of 18 runs are done" in dry
    assert "18 finished" in run
    accuracy = r" +accuracy 0\.9\d* ± \S+"
    assert re.search(rf"moons:Moons, sgdf lr=1\.0 +3 +3{accuracy}{accuracy}", status)
    for said in (report, target):
        assert re.search(r"^sgdf lr=\S+ +\S+ +9\d\.\d+ ± \d\.\d+ +9\d\.\d+ ± \d\.\d+ ", said, re.M)
    page = (tmp_path / "results/moons/report/index.html").read_text()
    assert "Time to accuracy 93 %" in page
