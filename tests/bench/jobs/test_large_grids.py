"""A grid of thousands of runs: its first run begins soon, and all processes see the others."""

import dataclasses
import os
import threading

import pytest
import tomli_w

from bench_tasks import run_of
from call_counts import count_calls
from grids import Diary, experiment
from sgdf.bench.jobs import conduct as conducting
from sgdf.bench.jobs.conduct import Conduct, Crew, count_other_sources
from sgdf.bench.jobs.job import read_job
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, read
from sgdf.bench.store.run_folder import RunFolder, State, Store, files

pytestmark = pytest.mark.usefixtures("publishing_at_once")


@pytest.fixture
def conduct(tmp_path):
    runs = resolve_machine(load(experiment(tmp_path, epochs=1)), threads=1).runs
    return Conduct(Plan(runs, tmp_path / "store"))


def folders(conduct):
    return len(conduct.store.folders())


def test_every_process_sees_the_runs_of_a_small_grid_at_once(conduct):
    conduct.prepare(retry=False)
    assert folders(conduct) == len(conduct.plan.runs) == 4


@pytest.mark.parametrize(("then", "expected"), [(-1.0, [1, 2, 3, 4]), (60.0, [1, 4, 4, 4])])
def test_the_first_run_waits_for_no_folder_but_its_own(then, expected, conduct, monkeypatch):
    monkeypatch.setattr(conducting, "AHEAD_SECONDS", -1.0)  # one folder each time
    conduct.prepare(retry=False)
    monkeypatch.setattr(conducting, "AHEAD_SECONDS", then)  # after each run
    seen = []

    def look(run, event):
        if event["event"] == "begin":
            seen.append(folders(conduct))

    conduct.work(Crew(), Diary(look), threading.Event())
    assert seen == expected
    assert set(conduct.states_now().values()) == {State.FINISHED}


def test_a_run_whose_folder_is_not_there_makes_it(conduct, monkeypatch):
    monkeypatch.setattr(Conduct, "_prepare_folders", lambda self, runs, seconds: None)
    conduct.prepare(retry=False)
    assert folders(conduct) == 0
    assert set(conduct.states.values()) == {State.WAITING}
    conduct.work(Crew(), Diary(), threading.Event())
    assert set(conduct.states_now().values()) == {State.FINISHED}
    assert [folder.table() is not None for folder in conduct.store.folders()] == [True] * 4


def test_the_spec_of_a_finished_run_is_mended_too(conduct):
    conduct.prepare(retry=False)
    conduct.work(Crew(), Diary(), threading.Event())
    spoilt = conduct.store.folders()[2]
    (spoilt.path / "spec.toml").write_bytes(b"")
    again = Conduct(conduct.plan)
    again.prepare(retry=False)
    again.work(Crew(), Diary(), threading.Event())
    assert spoilt.table() is not None


def test_folders_are_made_without_waiting_for_the_disk(conduct, monkeypatch):
    monkeypatch.setattr(os, "fsync", None)
    conduct.prepare(retry=False)
    assert folders(conduct) == 4


def test_a_table_survives_a_loss_of_power_once_its_run_has_begun(conduct, monkeypatch):
    synced, begun = [], []
    sync = files.sync
    monkeypatch.setattr(files, "sync", lambda path: (sync(path), synced.append(path)))
    conduct.prepare(retry=False)

    def look(run, event):
        if event["event"] == "begin":
            begun.append(conduct.store.folder(run).path / "spec.toml")
            assert synced == begun

    conduct.work(Crew(), Diary(look), threading.Event())
    assert len(begun) == 4


def test_a_table_that_was_lost_is_written_again(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    for damage in (b"", b"seed = 1"):
        (folder.path / "spec.toml").write_bytes(damage)
        folder.prepare(run.as_table())
        assert folder.table() == run.as_table()


def test_a_table_that_is_there_is_left_alone(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    path = folder.path / "spec.toml"
    path.write_text("# mine\n" + path.read_text())
    folder.prepare(run.as_table())
    assert path.read_text().startswith("# mine")


def test_the_source_of_a_task_is_read_once_for_all_of_its_runs(conduct, monkeypatch):
    asked = []
    monkeypatch.setattr(conducting, "sources", lambda run: asked.append(run) or {})
    assert count_other_sources(conduct.store, conduct.plan.runs) == 0
    assert len(asked) == 2  # one task with two optimizers


def test_the_source_of_a_task_is_read_once_for_all_of_its_failed_runs(conduct, monkeypatch):
    conduct.prepare(retry=False)
    for run in conduct.plan.runs:
        conduct.store.folder(run.key).fail("no", {"task source": "before"})
    asked = []
    monkeypatch.setattr(
        conducting, "sources", lambda run: asked.append(run) or {"task source": "now"}
    )
    assert Conduct(conduct.plan).changed == set(conduct.plan.keys)
    assert len(asked) == 2


def test_runs_that_train_alike_share_the_parts_of_their_tables(conduct):
    first, *others = (run.as_table() for run in conduct.plan.runs)
    for other in others:
        assert other["train"] is first["train"]
        assert other["task"] is first["task"]


def test_settings_that_are_equal_but_of_another_type_stay_apart():
    runs = [run_of(train={"clip_norm": value}) for value in (1, 1.0)]
    runs[0] = dataclasses.replace(runs[0], train=dataclasses.replace(runs[0].train, clip_norm=1))
    experiment = dataclasses.replace(read(runs[0].as_table()), runs=tuple(runs))
    assert runs[0].train == runs[1].train
    assert [run.key for run in resolve_machine(experiment, threads=1).runs] == [
        run.key for run in runs
    ]


def test_four_times_the_runs_need_four_times_the_work(tmp_path):
    def work(seeds):
        document = {
            "seed": list(range(seeds)),
            "task": {"name": "bench_tasks:Points"},
            "optimizer": [{"name": "sgdf", "lr": [0.1, 0.2]}, {"name": "adam"}],
        }
        path = tmp_path / "grid.toml"
        path.write_text(tomli_w.dumps(document))

        def prepare():
            plan = Plan(resolve_machine(load(path), threads=1).runs, tmp_path / str(seeds))
            Conduct(plan).prepare(retry=False)
            read_job(plan.as_json())

        return count_calls(prepare)

    work(1)  # imports
    assert work(80) < 4.4 * work(20)


def test_only_folders_that_exist_are_looked_into(store, run, monkeypatch):
    store.folder(run.key).prepare(run.as_table())
    looked = []
    monkeypatch.setattr(RunFolder, "state", lambda folder: looked.append(folder.key))
    store.states([run.key, "0", "1"])
    assert looked == [run.key]


def test_a_store_knows_the_states_of_runs_without_folders(store, run):
    assert store.states([run.key, "0"]) == {run.key: State.WAITING, "0": State.WAITING}
    store.folder(run.key).prepare(run.as_table())
    store.folder(run.key).fail("no")
    assert store.states([run.key, "0"]) == {run.key: State.FAILED, "0": State.WAITING}
    assert Store(store.path / "nowhere").states(["0"]) == {"0": State.WAITING}
