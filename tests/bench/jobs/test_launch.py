"""Grids over processes: shared, stopped, killed and resumed."""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial

import pytest
import torch

from bench_tasks import equal, essence, trained
from grids import (
    Diary,
    alive,
    command,
    descendants,
    essences,
    experiment,
    has_rank,
    needs_proc,
    plan_of,
    states,
    under_torchrun,
    wait_for,
)
from locations import SUPPORT
from sgdf.bench.errors import StoreError
from sgdf.bench.jobs.job import read_job
from sgdf.bench.jobs.local import Worker, Workers
from sgdf.bench.jobs.signals import stop_on_signals
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import RunFolder, State, Store
from sgdf.bench.training import checkpoint

pytestmark = pytest.mark.usefixtures("publishing_at_once")


@pytest.fixture
def workers_find_the_tasks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


def test_a_plan_survives_being_written_down(tmp_path):
    plan = plan_of(experiment(tmp_path), tmp_path / "store", checkpoint_every=3.0)
    again = read_job(plan.as_json())
    assert again == plan


def test_finished_runs_are_skipped(tmp_path):
    plan, diary = plan_of(experiment(tmp_path), tmp_path / "store"), Diary()
    plan.work(diary, threading.Event())
    assert states(plan) == {State.FINISHED: 4}
    assert len(diary.of("begin")) == len(diary.of("end")) == 4
    again = Diary()
    plan.work(again, threading.Event())
    assert again.events == []


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_workers_share_a_grid_and_come_to_the_same(tmp_path):
    path = experiment(tmp_path, seeds=(0, 1, 2))
    alone, shared = plan_of(path, tmp_path / "alone"), plan_of(path, tmp_path / "shared")
    alone.work(Diary(), threading.Event())
    diary = Diary()
    Workers(shared, 2, diary).work(threading.Event())
    assert states(shared) == {State.FINISHED: 6}
    assert sorted(run for run, _ in diary.of("begin")) == sorted(run.key for run in shared.runs)
    assert len({event["process"] for _, event in diary.of("begin")} - {os.getpid()}) >= 1
    assert equal(essences(alone), essences(shared))


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    tasks = [{"name": "bench_tasks:Raising", "at": 3}, {"name": "bench_tasks:Points"}]
    plan = plan_of(experiment(tmp_path, task=tasks), tmp_path / "store")
    diary = Diary()
    plan.work(diary, threading.Event())
    assert states(plan) == {State.FAILED: 4, State.FINISHED: 4}
    lines = {event["line"] for _, event in diary.of("end") if event["state"] == "failed"}
    (line,) = lines
    assert re.fullmatch(r"RuntimeError: the cat is .* \(bench_tasks.py:\d+ in step\)", line)
    untouched = Diary()
    plan.work(untouched, threading.Event())
    assert untouched.events == []
    plan.prepare(retry=plan.keys)
    plan.work(untouched, threading.Event())
    assert len(untouched.of("begin")) == 4


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_a_task_that_kills_its_process_is_given_up_and_the_others_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.local.MAX_DEATHS", 3)
    tasks = [{"name": "bench_tasks:Exiting"}, {"name": "bench_tasks:Points"}]
    path = experiment(tmp_path, task=tasks, seeds=(0,), optimizer={"name": "sgd"})
    plan, diary = plan_of(path, tmp_path / "store"), Diary()
    Workers(plan, 2, diary).work(threading.Event())
    assert states(plan) == {State.FAILED: 1, State.FINISHED: 1}
    (failed,) = [event for _, event in diary.of("end") if event["state"] == "failed"]
    words = "its worker died with exit code 7, 3 times in a row before it could save a checkpoint. "
    assert failed["line"].startswith(words)
    for advice in (
        "fewer workers",
        "--checkpoint-every",
        str(plan.store / "workers.log"),
        "--retry",
    ):
        assert advice in failed["line"]
    notices = [event["line"] for _, event in diary.of("notice")]
    assert notices[0].startswith("its worker died with exit code 7; another worker resumes it (")
    assert "(death 2 without a new checkpoint; after 3 it fails)" in notices[1]
    assert len(notices) == 2


@pytest.mark.usefixtures("_watchdog")
def test_workers_that_die_before_they_begin_are_not_replaced_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.local.MAX_DEATHS", 2)
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    monkeypatch.setattr(type(plan), "as_json", lambda plan: "no job")
    workers = Workers(plan, 1, Diary())
    with pytest.raises(StoreError) as caught:
        workers.work(threading.Event())
    assert workers.deaths_at_start == 2
    words = "workers keep dying with exit code 1 at their start; "
    assert str(caught.value).startswith(f"{words}{plan.store / 'workers.log'} ends with: json.")
    assert states(plan) == {State.WAITING: 4}


@pytest.mark.usefixtures("workers_find_the_tasks")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_that_cannot_be_used_does_not_stop_the_others(workers, tmp_path):
    plan, diary = plan_of(experiment(tmp_path), tmp_path / "store"), Diary()
    spoilt = Store(plan.store).folder(plan.runs[0].key)
    (spoilt.path / "lock").mkdir()
    if workers == 1:
        plan.work(diary, threading.Event())
    else:
        Workers(plan, workers, diary).work(threading.Event())
    assert states(plan) == {State.WAITING: 1, State.FINISHED: 3}
    lines = {event["line"] for run, event in diary.of("end") if run == spoilt.key}
    assert len(lines) == 1
    assert "lock is a folder, not a file" in lines.pop()


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_workers_import_what_their_parent_would(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "bench_tasks.py").write_text("raise RuntimeError('not this one')")
    (tmp_path / "elsewhere" / "random.py").write_text("raise RuntimeError('nor this one')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan, diary = plan_of(experiment(tmp_path, seeds=(0,)), tmp_path / "store"), Diary()
    Workers(plan, 2, diary).work(threading.Event())
    assert states(plan) == {State.FINISHED: 2}


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_workers_can_have_workers_that_load_data(tmp_path):
    task = {"name": "bench_tasks:Loaded", "workers": 2}
    plan = plan_of(experiment(tmp_path, task=task, epochs=1), tmp_path / "store")
    Workers(plan, 2, Diary()).work(threading.Event())
    assert states(plan) == {State.FINISHED: 4}


def test_workers_find_modules_beside_the_spec(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    source = (SUPPORT / "bench_tasks.py").read_text()
    (tmp_path / "tasks_beside_the_spec.py").write_text(source)
    task = {"name": "tasks_beside_the_spec:Points"}
    plan = plan_of(experiment(tmp_path, task=task, seeds=(0,)), tmp_path / "store")
    Workers(plan, 1, Diary()).work(threading.Event())
    assert states(plan) == {State.FINISHED: 2}


def test_a_run_that_another_finished_before_the_claim_is_left_alone(tmp_path, monkeypatch):
    path = experiment(tmp_path, seeds=(0,), optimizer={"name": "sgd"})
    plan, diary, claimed = plan_of(path, tmp_path / "store"), Diary(), RunFolder.claim

    @contextlib.contextmanager
    def late(folder):
        monkeypatch.setattr(RunFolder, "claim", claimed)
        plan.work(Diary(), threading.Event())
        with claimed(folder) as ours:
            yield ours

    monkeypatch.setattr(RunFolder, "claim", late)
    plan.work(diary, threading.Event())
    assert diary.events == []
    assert states(plan) == {State.FINISHED: 1}


def test_stopping_while_workers_start_is_no_failure(tmp_path):
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    stop = threading.Event()
    stop.set()
    Workers(plan, 6, Diary()).work(stop)
    # On a busy machine the first workers begin before the last ones have been started.
    found = states(plan)
    assert set(found) <= {State.WAITING, State.PAUSED}
    assert sum(found.values()) == 4


def test_a_run_that_gets_on_is_not_given_up_however_often_its_worker_dies(tmp_path):
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    key, workers = plan.runs[0].key, Workers(plan, 1, Diary())
    workers.deaths[key] = 4
    workers.receive(Worker(process=None), key, {"event": "progress", "step": 3})
    assert workers.deaths[key] == 4
    workers.receive(Worker(process=None), key, {"event": "saved", "step": 3})
    assert workers.deaths[key] == 0


def test_being_asked_to_stop_saves_and_the_rest_follows(tmp_path):
    path = experiment(tmp_path)
    whole, parts = plan_of(path, tmp_path / "whole"), plan_of(path, tmp_path / "parts")
    whole.work(Diary(), threading.Event())
    for _ in range(12):  # epochs of all the runs
        stop = threading.Event()

        def ask(run, event, stop=stop):
            if event["event"] == "progress" and (event["row"] or {}).get("kind") == "epoch":
                stop.set()

        parts.work(Diary(ask), stop)
    assert states(parts) == {State.PAUSED: 1, State.FINISHED: 3}
    parts.work(Diary(), threading.Event())
    assert equal(essences(whole), essences(parts))


def test_signals_ask_and_a_second_one_insists():
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("workers_find_the_tasks")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_ends_cleanly(workers, tmp_path):
    path, store = experiment(tmp_path, delay=0.05, epochs=20), tmp_path / "store"
    process = subprocess.Popen(
        command(path, store, "--workers", workers),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: list(store.glob("runs/*/metrics.jsonl")))
    children = descendants(process.pid)
    assert len(children) == (2 if workers == "2" else 0)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped; run the same command again to resume." in output
    assert list(store.glob("runs/*/*.pt"))
    assert not any(map(alive, children))


@needs_proc
@pytest.mark.usefixtures("workers_find_the_tasks")
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    # A step that takes long: they must not need to write to notice.
    path, store = experiment(tmp_path, delay=60.0), tmp_path / "store"
    process = subprocess.Popen(command(path, store, "--workers", "2"), stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(store.glob("runs/*/metrics.jsonl"))) == 2)
    children = descendants(process.pid)
    assert len(children) == 2
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(alive, children)), seconds=5)


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_a_worker_that_nobody_listens_to_ends_and_its_run_has_not_failed(tmp_path):
    plan = plan_of(experiment(tmp_path, delay=0.01, epochs=50), tmp_path / "store")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sgdf.bench.jobs.worker_main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdin.write(plan.as_json().encode() + b"\n")
    process.stdin.flush()
    assert b"begin" in process.stdout.readline()
    process.stdout.close()  # as if the parent had died, though standard input is still open
    assert process.wait(timeout=60) != 0
    process.stdin.close()
    assert State.FAILED not in states(plan)


@needs_proc
@pytest.mark.usefixtures("workers_find_the_tasks")
def test_two_commands_on_one_folder_share_its_runs(tmp_path):
    path, store = experiment(tmp_path, delay=0.01, seeds=range(3)), tmp_path / "store"
    processes = [
        subprocess.Popen(command(path, store), stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    plan = plan_of(path, store)
    assert states(plan) == {State.FINISHED: 6}
    begun = [line for output in outputs for line in output.splitlines() if line.endswith("begins")]
    assert len(begun) == 6
    assert all(output.count("begins") for output in outputs)


def shared_grid(tmp_path):
    """Write a grid of one run that two processes can share."""
    optimizer, train = {"name": "sgd", "lr": 0.1}, {"epochs": 60, "batch_size": 16, "threads": 1}
    task = {"name": "bench_tasks:Plain"}
    return experiment(tmp_path, task=task, optimizer=optimizer, train=train, seeds=(0,))


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_two_processes_train_a_run_together_as_one_would(tmp_path):
    path, store = shared_grid(tmp_path), tmp_path / "store"
    process = under_torchrun(path, store, "--set", "train.accumulate=2")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert output.count("begins") == 1
    (folder,) = Store(store).folders()
    state = checkpoint.load(folder)
    assert len(state["processes"]) == 2
    (run,) = resolve_machine(load(path), threads=1).runs
    alone = trained(run)
    assert folder.result()["step"] == alone.step
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(state["model"][name], value, rtol=1e-5, atol=1e-6)
    together, apart = folder.rows()[-1]["train"]["loss"], alone.rows[-1]["train"]["loss"]
    assert together == pytest.approx(apart, rel=1e-4)


def newer_checkpoints(store, before):
    return set(store.glob("runs/*/*.pt")) - before


@needs_proc
@pytest.mark.usefixtures("workers_find_the_tasks")
def test_processes_do_not_wait_for_one_that_cannot_write(tmp_path):
    path, store = shared_grid(tmp_path), tmp_path / "store"
    process = under_torchrun(path, store)
    # Before it starts the two, which inherit the limit. A checkpoint has more bytes, 40,000; all
    # metrics of the run have fewer, so that it is the checkpoint on a slow machine, too.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert re.search(r"cannot write \S+\.pt: File too large", output), output


@needs_proc
@pytest.mark.slow
@pytest.mark.usefixtures("workers_find_the_tasks")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_two_processes_resume_a_run_together(how, tmp_path):
    path = experiment(tmp_path, delay=0.02, epochs=80, seeds=(0,), optimizer={"name": "sgdf"})
    chance = random.Random(0)
    for store, interruptions in ((tmp_path / "whole", 0), (tmp_path / "parts", 4)):
        for number in range(interruptions):
            before = set(store.glob("runs/*/*.pt"))
            process = under_torchrun(path, store, "--checkpoint-every", "0.5")
            wait_for(partial(newer_checkpoints, store, before))
            ranks = [pid for pid in descendants(process.pid) if has_rank(pid)]
            time.sleep(chance.uniform(0, 1))
            if how == signal.SIGTERM or number % 2:
                process.send_signal(how)
                for pid in ranks if how == signal.SIGKILL else ():  # torchrun cannot end them
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, how)
            else:  # torchrun ends the other one
                os.kill(chance.choice(ranks), how)
            output, _ = process.communicate(timeout=60)
            assert Store(store).folders()[0].progress() is State.PAUSED, output
        process = under_torchrun(path, store)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
    whole, parts = (essence(Store(tmp_path / name).folders()[0]) for name in ("whole", "parts"))
    assert equal(whole, parts)
    (folder,) = Store(tmp_path / "parts").folders()
    assert len(folder.environments()) == 5
    assert not list(folder.path.glob("*.damaged"))


def has_workers_or_ended(process):
    return descendants(process.pid) or process.poll() is not None


def kill_again_and_again(tmp_path, monkeypatch, kills, epochs, delay, patience=4.0):
    """Kill the command or a worker at random moments; compare with an undisturbed grid."""
    path, store = experiment(tmp_path, epochs=epochs), tmp_path / "store"
    undisturbed = plan_of(path, tmp_path / "undisturbed")
    undisturbed.work(Diary(), threading.Event())
    monkeypatch.setenv("SGDF_TEST_DELAY", str(delay))
    chance, victims = random.Random(0), Counter()

    def start():
        options = ("--workers", "2", "--checkpoint-every", "0.2")
        return subprocess.Popen(command(path, store, *options), stdout=subprocess.PIPE, text=True)

    process = start()
    while victims.total() < kills and process.poll() is None:
        if chance.random() < 0.8:  # else as it comes, perhaps before there is any worker
            wait_for(partial(has_workers_or_ended, process))
        time.sleep(chance.uniform(0.1, patience))
        victim = chance.choice([process.pid, *descendants(process.pid)])
        if process.poll() is None:
            os.kill(victim, signal.SIGKILL)
            victims["command" if victim == process.pid else "worker"] += 1
        if victim == process.pid:
            process.communicate()
            process = start()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    plan = plan_of(path, store)
    assert states(plan) == {State.FINISHED: len(plan.runs)}
    assert equal(essences(undisturbed), essences(plan))
    assert not list(store.rglob(".tmp-*"))
    assert not list(store.rglob("*.damaged"))
    return victims


@needs_proc
@pytest.mark.usefixtures("workers_find_the_tasks")
def test_a_few_kills_change_nothing(tmp_path, monkeypatch):
    victims = kill_again_and_again(
        tmp_path, monkeypatch, kills=3, epochs=30, delay=0.02, patience=1.2
    )
    assert victims.total() >= 2


@needs_proc
@pytest.mark.slow
@pytest.mark.usefixtures("workers_find_the_tasks")
def test_fifty_kills_change_nothing(tmp_path, monkeypatch):
    victims = kill_again_and_again(tmp_path, monkeypatch, kills=50, epochs=300, delay=0.05)
    print(dict(victims))
    assert victims.total() == 50
    assert min(victims["command"], victims["worker"]) >= 10
