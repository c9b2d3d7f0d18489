"""Runs of the WGAN-GP that are interrupted in the middle of an epoch, and resumed."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from bench_tasks import equal, essence
from grids import Diary, command, experiment, plan_of
from kept_runs import do
from sgdf.bench.store.run_folder import State, Store
from wgan_runs import TINY, wgan_run

SUPPORT = Path(__file__).parents[3] / "support"


@pytest.mark.usefixtures("publishing_at_once")
@pytest.mark.parametrize("train", [{"ema_decay": 0.9}, {"precision": "float16"}], ids=str)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(train, tmp_path):
    # Seven batches an epoch: turns of the generator are at batches 0 and 5 of each.
    run = wgan_run("sgdf", epochs=2, batch_size=200, log_every=1, **train)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    steps = undisturbed.result()["step"]
    assert steps == 2 * 7
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


def test_a_killed_run_with_averaged_weights_is_the_same_bit_by_bit(tmp_path, monkeypatch):
    """The kill comes between the two updates of a step, in the middle of the second epoch."""
    path = experiment(
        tmp_path,
        task={"name": "wgan_runs:Killed", **TINY},
        optimizer={"name": "sgdf", "lr": 0.01},
        train={"epochs": 2, "batch_size": 200, "threads": 1, "log_every": 1, "ema_decay": 0.9},
        protocol="paper",
        seeds=(0,),
    )
    undisturbed = plan_of(path, tmp_path / "undisturbed")
    undisturbed.work(Diary(), threading.Event())
    (run,) = undisturbed.runs
    expected = essence(Store(tmp_path / "undisturbed").folder(run.key))

    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("SGDF_TEST_KILL_AT", "13")  # the sixth batch after an epoch of seven
    store = tmp_path / "store"
    sgdf = command(path, store, "--checkpoint-every", "0.000001")
    killed = subprocess.run(sgdf, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    monkeypatch.delenv("SGDF_TEST_KILL_AT")
    plan_of(path, store).work(Diary(), threading.Event())
    folder = Store(store).folder(run.key)
    # A killed step leaves no trace, even if the critic has taken its own: the step before it is
    # in the checkpoint.
    resumed = [row.get("resumed at step") for row in folder.environments()]
    assert resumed == [None, "12"]
    assert equal(essence(folder), expected)
