"""The walks of docs/architecture.md, taken: which files a call passes, and which way.

A call goes up if its function lies on a higher floor than the nearest caller in the package. Only
what was handed down on purpose may be called that way.
"""

import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import sgdf
from cases import needs_native
from sgdf.cli import app
from test_architecture import LEVEL, SOURCE, room_of

CALLBACKS = {
    "sgdf.cli.progress": "the display of events",
    "sgdf.bench.training.update": "the update that a task calls with its loss",
    "sgdf.bench.jobs.recorder": "the recorder that the loop calls after each step",
    "sgdf.bench.search.trial": "the trial that watches its runs",
    "sgdf.bench.search.job": "the job that a crew works on",
}
EXPERIMENT = """
[task]
name = "digits-mlp"
hidden = 8
[train]
epochs = 1
threads = 1
[[optimizer]]
name = "sgdf"
[[optimizer]]
name = "adam"
"""


def module_of(path):
    parts = Path(path).relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def walk(function):
    """Return the calls between modules of the package while a function runs, as pairs."""
    calls, prefix = set(), str(SOURCE)

    def note(frame, event, _):
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(prefix) or frame.f_code.co_name == "<module>":
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(prefix):
            caller = caller.f_back
        calls.add((caller and caller.f_code.co_filename, path))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return {(caller and module_of(caller), module_of(callee)) for caller, callee in calls}


def upward(calls):
    return {
        callee
        for caller, callee in calls
        if caller and room_of(caller) != room_of(callee)
        if LEVEL[room_of(callee)] >= LEVEL[room_of(caller)]
    }


@needs_native
@pytest.mark.parametrize("state_format", ["full", "int8", "block"])
def test_a_gradient_passes_four_files_and_enters_each_once(state_format):
    """On the way down: from one file to the next, and into none from two."""
    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((5,), (64, 80))]
    optimizer = sgdf.SGDF(weights, lr=0.1, state_format=state_format)
    for _ in range(2):  # the first step builds the library and the state
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        calls = walk(optimizer.step)
    files = {module for call in calls for module in call if module}
    assert len(files) <= 4, sorted(files)
    entrances = [(caller, callee) for caller, callee in calls if caller != callee]
    entered = [callee for _, callee in entrances]
    assert len(entered) == len(set(entered)), sorted(map(str, entrances))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    return tmp_path


def command(*arguments):
    def call():
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output

    return call


def test_runs_reports_and_trials_go_down(place):
    """From the file to finished runs, from the runs to the page, and through a search."""
    run = walk(command("run", "mine.toml"))
    report = walk(command("report", "mine"))
    tune = walk(command("tune", "mine.toml", "--trials", "1"))
    assert upward(run | report | tune) <= set(CALLBACKS)
    assert upward(report) == set()
    assert "sgdf.bench.training.trainer" in {callee for _, callee in run & tune}
