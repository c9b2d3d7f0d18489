"""Ctrl-C during an evaluation ends the run at once, and nothing but the evaluation is repeated."""

import os
import signal
import threading
import time

import pytest

from bench_tasks import Points, equal, essence, run_of
from kept_runs import do
from sgdf.bench.jobs.conduct import Crew
from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.jobs.signals import stop_on_signals
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.ranks import Ranks

LONG = 20.0
"""Seconds that the interrupted evaluation would take."""


@pytest.fixture
def asked(monkeypatch):
    """Let the evaluation at the end of the second epoch get a SIGINT; return when it got it."""
    calls, times, evaluate = [], [], Points.evaluate

    def interrupted(task, split):
        calls.append(split)
        if len(calls) == 3:
            times.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            end = time.monotonic() + LONG
            while time.monotonic() < end:
                time.sleep(0.01)
        return evaluate(task, split)

    monkeypatch.setattr(Points, "evaluate", interrupted)
    return times


def stopped(run, store):
    """Train a run under signals; return its folder and how it ended."""
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    with folder.claim() as ours, stop_on_signals() as stop:
        assert ours
        options = {"checkpoint_every": 1e9, "stop": stop, "tell": lambda event: None}
        return folder, *train_run(run, folder, Ranks(), **options)


def positions(folder):
    return sorted(int(path.name.partition("-")[0]) for path in folder.path.glob("*.pt"))


@pytest.mark.parametrize("task", ["Points", "Loaded", "Jittery"])
def test_an_evaluation_is_interrupted_and_done_again(task, run, tmp_path, asked, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorder.LONG_EVALUATION", 0.0)
    run = run_of(f"bench_tasks:{task}", train={"log_every": 1})
    folder, state, line = stopped(run, Store(tmp_path / "parts"))
    assert time.monotonic() - asked[0] < LONG / 2
    assert (state, folder.state()) == (State.PAUSED, State.PAUSED)
    assert "run the same command again to resume" in line
    assert [row["epoch"] for row in folder.rows() if row["kind"] == "epoch"] == [1]
    assert positions(folder)[-1] == 8  # both epochs, of four steps each
    do(run, Store(tmp_path / "parts"))
    whole, _, _ = do(run, Store(tmp_path / "whole"))
    assert folder.state() is State.FINISHED
    assert positions(folder) == [12]
    assert equal(essence(folder), essence(whole))


def test_who_asks_for_a_stop_is_told_who_stops():
    assert Crew().stop_answer.startswith("Stopping after this step")
    for crew in (Crew(workers=2), Crew(ray="local")):
        with stop_on_signals(crew.stop_answer) as stop:
            assert stop.answer().startswith("Stopping the processes that train")
            with stop.during_evaluation(interrupt=False):
                assert stop.answer().startswith("Saving after this evaluation")
            assert stop.answer() == crew.stop_answer


@pytest.mark.parametrize("caught", ["swallowed", "turned into another error"])
def test_a_task_that_catches_everything_records_nothing_wrong(caught, run, store, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorder.LONG_EVALUATION", 0.0)

    def careless(task, split):
        try:
            if split == "validation":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(LONG)
        except Exception as error:
            if caught != "swallowed":
                raise ValueError("the metric cannot be computed") from error
        return {"loss": 0.0, "accuracy": 0.0}

    monkeypatch.setattr(Points, "evaluate", careless)
    folder, state, _ = stopped(run, store)
    assert state is State.PAUSED
    assert [row["kind"] for row in folder.rows()] == ["train"] * 4
    assert folder.failure() is None


def test_a_short_evaluation_is_finished_first(run, store, capfd, monkeypatch):
    calls, evaluate = [], Points.evaluate

    def signalling(task, split):
        calls.append(split)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(task, split)

    monkeypatch.setattr(Points, "evaluate", signalling)
    folder, state, _ = stopped(run, store)
    assert state is State.PAUSED
    assert len(calls) == 4
    assert [row["epoch"] for row in folder.rows() if row["kind"] == "epoch"] == [1, 2]
    assert "Saving after this evaluation; press again to end at once" in capfd.readouterr().err


def test_no_evaluation_begins_after_a_stop(run, store, monkeypatch):
    stop, calls, step = threading.Event(), [], Points.step

    def stopping(task, batch, update):
        calls.append(batch)
        if len(calls) == 4:
            stop.set()
        return step(task, batch, update)

    monkeypatch.setattr(Points, "step", stopping)
    monkeypatch.setattr(Points, "evaluate", lambda task, split: pytest.fail("evaluated"))
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    options = {"checkpoint_every": 1e9, "stop": stop, "tell": lambda event: None}
    state, _ = train_run(run, folder, Ranks(), **options)
    assert state is State.PAUSED
    assert positions(folder) == [4]
