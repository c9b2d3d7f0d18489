"""Runs of the task ptb that are interrupted in the middle of the text, and resumed."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from bench_tasks import equal, essence, run_of
from grids import Diary, command, experiment, plan_of
from kept_runs import do
from made_data import FEW_WORDS
from sgdf.bench.store.run_folder import State, Store

pytestmark = pytest.mark.usefixtures("words")
SUPPORT = Path(__file__).parents[2] / "support"
TRAIN = {"epochs": 2, "batch_size": 60, "clip_norm": 0.25, "log_every": 1}


@pytest.mark.usefixtures("publishing_at_once")
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(tmp_path):
    run = run_of({"name": "ptb", **FEW_WORDS}, {"name": "sgdf", "lr": 1.0}, TRAIN)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    steps = undisturbed.result()["step"]
    assert steps >= 2 * 7
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert [row.get("resumed at step") for row in folder.environments()] == [
        None,
        *map(str, range(1, steps)),
    ]
    assert equal(essence(folder), essence(undisturbed))


def test_a_killed_run_is_the_same_bit_by_bit(tmp_path, monkeypatch):
    """Two kills in the middle of a step: in the first epoch, and in the second."""
    task = {"name": "bench_tasks:KilledWords", **FEW_WORDS}
    optimizer = {"name": "sgdf", "lr": 1.0}
    train = {**TRAIN, "threads": 1}
    path = experiment(tmp_path, task=task, optimizer=optimizer, train=train, seeds=(0,))
    undisturbed = plan_of(path, tmp_path / "undisturbed")
    undisturbed.work(Diary(), threading.Event())
    (run,) = undisturbed.runs
    expected = essence(Store(tmp_path / "undisturbed").folder(run.key))
    steps = expected[0]["step"] // 2

    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("SGDF_TEST_KILL_AT", str(steps - 2))
    store = tmp_path / "store"
    for _ in range(2):
        sgdf = command(path, store, "--workers", "1", "--checkpoint-every", "0.000001")
        killed = subprocess.run(sgdf, capture_output=True, timeout=120)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    monkeypatch.delenv("SGDF_TEST_KILL_AT")
    plan_of(path, store).work(Diary(), threading.Event())
    folder = Store(store).folder(run.key)
    # A killed step leaves no trace: the one before it is in the checkpoint.
    resumed = [row.get("resumed at step") for row in folder.environments()]
    assert resumed == [None, str(steps - 3), str(2 * (steps - 3))]
    assert 2 * (steps - 3) % steps
    assert equal(essence(folder), expected)
