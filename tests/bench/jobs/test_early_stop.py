"""A grid whose first runs fail alike is not trained to its end, and any other grid is."""

import dataclasses
import threading

from grids import Diary, experiment, plan_of, states
from locations import SUPPORT
from sgdf.bench.jobs.conduct import Conduct, Crew
from sgdf.bench.jobs.early_stop import first_runs
from sgdf.bench.jobs.job import read_job
from sgdf.bench.jobs.local import Workers
from sgdf.bench.store.run_folder import RunFolder, State, Store

RAISING = {"name": "bench_tasks:Raising"}
OPTIMIZERS = [{"name": name, "lr": [0.1, 0.2]} for name in ("sgd", "adam", "sgdf")]


def stopping_plan(tmp_path, **changes):
    """Return a plan of 18 runs unless changed: three optimizers, two rates, three seeds."""
    changes = {"task": RAISING, "optimizer": OPTIMIZERS, "seeds": (0, 1, 2), **changes}
    plan = plan_of(experiment(tmp_path, **changes), tmp_path / "store")
    return dataclasses.replace(plan, first_runs=first_runs(plan.runs))


def worked_on(plan):
    diary = Diary()
    plan.work(diary, threading.Event())
    return diary


def test_the_first_run_of_each_optimizer_comes_first_and_decides(tmp_path):
    plan = stopping_plan(tmp_path)
    begun = [key for key, _ in worked_on(plan).of("begin")]
    runs = {run.key: run for run in plan.runs}
    names = [(runs[key].optimizer.name, runs[key].seed) for key in begun]
    assert names == [("sgd", 0), ("adam", 0), ("sgdf", 0)]
    assert states(plan) == {State.FAILED: 3, State.WAITING: 15}
    assert worked_on(plan).of("begin") == []  # as long as the failures are there
    assert worked_on(dataclasses.replace(plan, first_runs={})).of("begin") != []


def test_of_one_optimizer_two_runs_decide(tmp_path):
    plan = stopping_plan(tmp_path, optimizer={"name": "sgd", "lr": [0.1, 0.2]})
    assert len(worked_on(plan).of("begin")) == 2
    assert states(plan) == {State.FAILED: 2, State.WAITING: 4}


def test_a_task_that_works_is_done_beside_one_that_does_not(tmp_path):
    plan = stopping_plan(tmp_path, task=[RAISING, {"name": "bench_tasks:Points"}], epochs=1)
    worked_on(plan)
    assert states(plan) == {State.FAILED: 3, State.WAITING: 15, State.FINISHED: 18}


def test_an_optimizer_that_fails_alone_stops_no_other(tmp_path):
    optimizers = [*OPTIMIZERS[:2], {"name": "bench_tasks:Stubborn", "lr": [0.1, 0.2]}]
    plan = stopping_plan(
        tmp_path, task={"name": "bench_tasks:Points"}, optimizer=optimizers, epochs=1
    )
    worked_on(plan)
    assert states(plan) == {State.FAILED: 6, State.FINISHED: 12}


def test_different_failures_stop_nothing(tmp_path):
    plan = stopping_plan(tmp_path)
    Store(plan.store).folder(plan.runs[0].key).fail("RuntimeError: another")
    worked_on(plan)
    assert states(plan) == {State.FAILED: 18}


def test_runs_with_a_result_show_that_the_task_works(tmp_path, monkeypatch):
    plan = stopping_plan(tmp_path)
    monkeypatch.setenv("SGDF_TEST_CALM", "1")
    worked_on(dataclasses.replace(plan, runs=plan.runs[:1]))
    monkeypatch.delenv("SGDF_TEST_CALM")
    worked_on(dataclasses.replace(plan, runs=plan.runs[1:]))
    assert states(plan) == {State.FINISHED: 1, State.FAILED: 17}


def test_a_result_that_is_not_of_a_first_run_shows_it_too(tmp_path, monkeypatch):
    plan = stopping_plan(tmp_path)
    monkeypatch.setenv("SGDF_TEST_CALM", "1")
    worked_on(dataclasses.replace(plan, runs=plan.runs[-1:]))
    monkeypatch.delenv("SGDF_TEST_CALM")
    conduct = Conduct(plan)
    conduct.work(Crew(), Diary(), threading.Event())
    assert states(plan) == {State.FINISHED: 1, State.FAILED: 17}


def test_a_result_of_another_process_shows_it_too(tmp_path, monkeypatch):
    plan = stopping_plan(tmp_path)
    decided = len(OPTIMIZERS)

    def finish_another(key, event):
        """Finish the last run, as another process would, after the first runs have failed."""
        if event["event"] == "end" and states(plan)[State.FAILED] == decided:
            monkeypatch.setenv("SGDF_TEST_CALM", "1")
            other = dataclasses.replace(plan, runs=plan.runs[-1:], first_runs={})
            other.work(Diary(), threading.Event())
            monkeypatch.delenv("SGDF_TEST_CALM")

    plan.work(Diary(finish_another), threading.Event())
    assert states(plan) == {State.FINISHED: 1, State.FAILED: 17}
    conduct = Conduct(plan)
    assert conduct.runs_not_begun(conduct.states) == 0


def test_a_large_grid_is_held_back_without_a_look_at_all_runs_for_each(tmp_path, monkeypatch):
    plan = stopping_plan(tmp_path)
    looks = []
    progress = RunFolder.progress
    monkeypatch.setattr(RunFolder, "progress", lambda self: looks.append(self) or progress(self))
    worked_on(plan)
    assert states(plan) == {State.FAILED: 3, State.WAITING: 15}
    assert len(looks) < 30


def test_workers_stop_early_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("SGDF_TEST_DELAY", "0.2")  # so that no worker is much faster than another
    plan, diary = stopping_plan(tmp_path), Diary()
    assert read_job(plan.as_json()) == plan
    Workers(plan, 2, diary).work(threading.Event())
    begun = [key for key, _ in diary.of("begin")]
    deciding = {key for keys in plan.first_runs.values() for key in keys}
    assert deciding <= set(begun)
    assert len(begun) < 12  # a worker may begin others while the last of the three trains
    assert states(plan)[State.WAITING] == 18 - len(begun)


def test_a_part_of_a_plan_knows_the_runs_that_decide(tmp_path):
    """A task on a Ray cluster works on one part."""
    plan = stopping_plan(tmp_path)
    *first, last = plan.parts()
    for part in first[:3]:
        worked_on(read_job(part.as_json()))
    ((key, end),) = worked_on(read_job(last.as_json())).events
    assert (key, end["event"], end["state"]) == (last.runs[0].key, "end", "waiting")
    assert states(plan) == {State.FAILED: 3, State.WAITING: 15}
