"""Grids on a Ray cluster of two simulated machines: shared, killed, stopped, and resumed.

Long for the many ways in which machines, tasks and commands end.
"""

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_tasks import equal
from grids import (
    Diary,
    alive,
    command,
    essences,
    experiment,
    needs_proc,
    plan_of,
    states,
    wait_for,
)
from locations import SUPPORT
from searches import document_of, results_of
from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.jobs import ray_cluster
from sgdf.bench.jobs.early_stop import first_runs
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.jobs.ray_cluster import RayWorkers, check, connected, task_options
from sgdf.bench.jobs.signals import OTHERS
from sgdf.bench.search.file import read_search
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import SearchResult
from sgdf.bench.search.storage import journal_url
from sgdf.bench.store.run_folder import State, Store
from sgdf.cli import app

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")
never = threading.Event()


@pytest.fixture(scope="module")
def place():
    """A folder for Ray's files, with a name that is short enough for its sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    (folder / "ray").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(place):
    """A cluster of one machine with one CPU, on which a step takes 20 ms."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(place).items():
            patch.setenv(name, value)
        small = {"num_cpus": 1, "object_store_memory": 80 << 20}
        cluster = Cluster(True, head_node_args={**small, "include_dashboard": False})
        cluster.add_second = lambda: cluster.add_node(**small)
        patch.delenv("SGDF_TEST_DELAY")
        cluster.connection = contextlib.ExitStack()
        yield cluster
        cluster.connection.close()
        assert processes(place)  # else the last assertion would show nothing
        cluster.shutdown()
    assert not processes(place)


@pytest.fixture
def second(cluster, monkeypatch):
    """A second machine of the cluster."""
    monkeypatch.setenv("SGDF_TEST_DELAY", "0.02")
    (node,) = cluster.worker_nodes or [cluster.add_second()]
    monkeypatch.delenv("SGDF_TEST_DELAY")
    return node


@pytest.fixture
def unconnected(cluster):
    """The address of the cluster, to which the test connects itself."""
    cluster.connection.close()
    return cluster.address


@pytest.fixture
def address(cluster, monkeypatch):
    """The address of the cluster, to which this process is connected.

    The connection is kept for the next test, and with it Ray's worker processes: new ones would
    have to import torch again.
    """
    import ray

    if not ray.is_initialized():
        cluster.connection.enter_context(connected(cluster.address))
    monkeypatch.setattr(ray_cluster, "connected", lambda address: contextlib.nullcontext())
    return cluster.address


def environment(place, delay=0.02):
    """Return the variables of machines."""
    return {
        "RAY_TMPDIR": str(place),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")])),
        "SGDF_TEST_DELAY": str(delay),
    }


def processes(place):
    """Return the processes of Ray that keep their files in a folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            ours = f"RAY_TMPDIR={place}\0".encode() in path.read_bytes()
        except OSError:
            continue
        if ours and int(path.parent.name) != os.getpid() and alive(int(path.parent.name)):
            pids.append(int(path.parent.name))
    return pids


class Meanwhile:
    """A stop that is never set, but does something whenever it is asked."""

    def __init__(self, act):
        self.act = act

    def is_set(self):
        """Do it."""
        self.act()
        return False


def begun(store):
    """Return by key the processes of the runs that are running and have saved something."""
    folders = [folder for folder in Store(store).folders() if folder.saved() and folder.owner()]
    return {folder.key: int(folder.owner().split()[-1]) for folder in folders}


def kill_machine(cluster, node, store, killed):
    """Return a stop that kills a machine once a run there has saved; ``killed`` gets the run."""
    (raylet,) = [info.process.pid for info in node.all_processes["raylet"]]

    def kill():
        there = {key for key, pid in begun(store).items() if parent(pid) == raylet}
        if there and not killed:
            killed.update(there)
            cluster.remove_node(node, allow_graceful=False)

    return Meanwhile(kill)


def under_way(store):
    """Return whether a run is running and has logged something."""
    return any(folder.rows() and folder.owner() for folder in Store(store).folders())


def start_command(path, store, place, *options):
    """Start the command that does an experiment."""
    return subprocess.Popen(
        command(path, store, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment(place)},
        start_new_session=True,
    )


def parent(pid):
    """Return the parent of a process, or None if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def undisturbed(path, store):
    """Do an experiment in this process, and return its results."""
    plan = plan_of(path, store)
    plan.work(Diary(), never)
    return essences(plan)


def one_run(tmp_path, task="bench_tasks:Points", **changes):
    """Write an experiment of one run."""
    task = {"name": task}
    return experiment(tmp_path, seeds=(0,), optimizer={"name": "sgd"}, task=task, **changes)


@needs_ray
@needs_proc
def test_a_machine_that_dies_changes_nothing(tmp_path, cluster, second, unconnected):
    path = experiment(tmp_path, epochs=10, seeds=(0, 1, 2), optimizer={"name": "sgdf", "lr": 0.5})
    plan, diary, killed = plan_of(path, tmp_path / "store", checkpoint_every=0.2), Diary(), set()
    RayWorkers(plan, unconnected, diary).work(kill_machine(cluster, second, plan.store, killed))
    assert states(plan) == {State.FINISHED: 3}
    assert len(killed) == 1
    attempts = {key: len(Store(plan.store).folder(key).environments()) for key in plan.keys}
    assert {key for key, count in attempts.items() if count > 1} == killed
    ends = [(run, event["state"]) for run, event in diary.of("end")]
    assert sorted(ends) == sorted((key, "finished") for key in plan.keys)
    assert equal(undisturbed(path, tmp_path / "undisturbed"), essences(plan))
    again = Diary()
    RayWorkers(plan, unconnected, again).work(never)
    assert again.events == []


@needs_ray
@needs_proc
def test_a_machine_that_dies_changes_no_search(tmp_path, cluster, second, address):
    train = {"epochs": 10, "batch_size": 16, "threads": 1}
    document = document_of(train=train, trials=2, search={"sampler": "random", "prune": False})

    def job_of(store):
        url = journal_url(store / "search.journal")
        job = SearchJob(read_search(document, store=store, storage=url, checkpoint_every=0.2))
        job.prepare()
        return job

    whole, job = job_of(tmp_path / "whole"), job_of(tmp_path / "store")
    whole.work(Diary(), never)
    killed, diary = set(), Diary()
    RayWorkers(job, address, diary).work(kill_machine(cluster, second, job.store, killed))
    assert len(killed) == 1
    result = SearchResult(job.search)
    assert result.complete
    assert results_of(result) == results_of(SearchResult(whole.search))
    assert len(diary.of("over")) == 4
    again = Diary()
    RayWorkers(job, address, again).work(never)
    assert again.events == []


@needs_ray
def test_a_run_that_kills_its_worker_fails_and_the_others_finish(tmp_path, address, monkeypatch):
    monkeypatch.setattr(ray_cluster, "MAX_DEATHS", 2)
    tasks = [{"name": "bench_tasks:Exiting"}, {"name": "bench_tasks:Points"}]
    path = experiment(tmp_path, task=tasks, seeds=(0,), optimizer={"name": "sgd"})
    plan, diary = plan_of(path, tmp_path / "store"), Diary()
    RayWorkers(plan, address, diary).work(never)
    assert states(plan) == {State.FAILED: 1, State.FINISHED: 1}
    (failed,) = [run for run, event in diary.of("end") if event["state"] == "failed"]
    folder = Store(plan.store).folder(failed)
    assert folder.failure().startswith("its worker died (WorkerCrashedError), 2 times in")
    assert "--retry tries it again" in folder.failure()
    assert len(folder.environments()) == 2


@needs_ray
def test_runs_are_not_begun_after_the_first_ones_failed_alike(tmp_path, address):
    path = experiment(tmp_path, task={"name": "bench_tasks:Raising"})
    plan, diary = plan_of(path, tmp_path / "store"), Diary()
    plan = dataclasses.replace(plan, first_runs=first_runs(plan.runs))
    first = dataclasses.replace(plan, runs=tuple(plan.in_order[:2]))
    RayWorkers(first, address, diary).work(never)  # so that the test depends on no timing
    assert states(plan) == {State.FAILED: 2, State.WAITING: 2}
    RayWorkers(plan, address, diary).work(never)
    assert len(diary.of("begin")) == 2
    assert states(plan) == {State.FAILED: 2, State.WAITING: 2}


@needs_ray
@pytest.mark.slow
def test_a_run_that_makes_progress_is_retried_however_often_its_worker_dies(
    tmp_path, address, monkeypatch
):
    monkeypatch.setattr(ray_cluster, "MAX_DEATHS", 2)
    path = one_run(tmp_path, "bench_tasks:Fragile", epochs=1)  # 8 steps, and dies at every fourth
    plan, diary = plan_of(path, tmp_path / "store", checkpoint_every=0.0), Diary()
    RayWorkers(plan, address, diary).work(never)
    assert states(plan) == {State.FINISHED: 1}
    assert len(Store(plan.store).folder(plan.keys[0]).environments()) == 3


@needs_ray
def test_a_run_has_as_many_threads_as_its_spec_says(tmp_path, address, monkeypatch):
    train = {"epochs": 1, "batch_size": 16, "threads": 3}
    path = one_run(tmp_path, "bench_tasks:Telling", train=train)
    plan, diary, stop = plan_of(path, tmp_path / "store"), Diary(), threading.Event()
    RayWorkers(plan, address, Diary(lambda run, event: stop.set())).work(stop)
    assert states(plan) == {State.WAITING: 1}  # no machine has three CPUs

    def one_cpu(job):
        return {**task_options(job), "num_cpus": 1}

    monkeypatch.setattr(ray_cluster, "task_options", one_cpu)
    RayWorkers(plan, address, diary).work(never)
    lines = [event["line"] for _, event in diary.of("notice")]
    assert lines == ["waits for a machine with 3 CPUs and 0 GPUs to join the cluster"]
    row = Store(plan.store).folder(plan.keys[0]).rows()[-1]
    assert (row["validation"]["torch"], row["validation"]["omp"]) == (3, 3)


def test_a_task_requests_the_cpus_and_gpus_of_its_run(tmp_path):
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    trains = [("cpu", 0), ("cpu", 2), ("cuda", 1), ("cuda:0", 1)]
    runs = [
        dataclasses.replace(run, train=dataclasses.replace(run.train, device=device, threads=count))
        for run, (device, count) in zip(plan.runs, trains, strict=True)
    ]
    whole = Plan(tuple(runs), plan.store, 3.0)
    parts = whole.parts()
    assert [part.keys for part in parts] == [(run.key,) for run in runs]
    assert {part.checkpoint_every for part in parts} == {3.0}
    requested = [(task_options(part)["num_cpus"], task_options(part)["num_gpus"]) for part in parts]
    assert requested == [(1, 0), (2, 0), (1, 1), (1, 1)]
    assert (task_options(whole)["num_cpus"], task_options(whole)["num_gpus"]) == (2, 1)


@needs_ray
@needs_proc
@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_command_that_is_stopped_or_killed_can_be_resumed(how, tmp_path, address, place):
    path, store = one_run(tmp_path, epochs=10), tmp_path / "store"
    often = ("--checkpoint-every", "0.2" if how is signal.SIGKILL else "60")
    process = start_command(path, store, place, "--ray", address, *often)
    wait_for(partial(begun if how is signal.SIGKILL else under_way, store))
    process.send_signal(how)
    output, errors = process.communicate(timeout=60)
    plan = plan_of(path, store)
    if how is signal.SIGKILL:
        wait_for(lambda: State.RUNNING not in states(plan))
    else:
        assert process.returncode == 130, output + errors
        assert "Stopped; run the same command again to resume." in output
    assert State.PAUSED in states(plan)
    assert State.RUNNING not in states(plan)
    RayWorkers(plan, address, Diary()).work(never)
    assert states(plan) == {State.FINISHED: 1}
    assert equal(undisturbed(path, tmp_path / "undisturbed"), essences(plan))


@needs_ray
@needs_proc
def test_a_local_cluster_ends_with_its_command(tmp_path):
    path, store = one_run(tmp_path, epochs=30), tmp_path / "store"
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    process = start_command(path, store, folder, "--ray", "local")
    try:
        wait_for(partial(under_way, store))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all processes
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 130, output + errors
        assert errors.strip() == OTHERS
        wait_for(lambda: not processes(folder), seconds=10)
        plan = plan_of(path, store)
        assert State.PAUSED in states(plan)
        plan.work(Diary(), never)
        assert equal(undisturbed(path, tmp_path / "undisturbed"), essences(plan))
    finally:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)


@needs_ray
def test_a_run_that_another_process_trains_is_left_to_it(tmp_path, address, monkeypatch):
    monkeypatch.setattr(ray_cluster, "LINGER_SECONDS", 0.5)
    plan, diary = plan_of(experiment(tmp_path, seeds=(0,)), tmp_path / "store"), Diary()
    with Store(plan.store).folder(plan.keys[0]).claim():
        RayWorkers(plan, address, diary).work(never)
        assert states(plan) == {State.RUNNING: 1, State.FINISHED: 1}
    assert {run for run, _ in diary.events} == {plan.keys[1]}


@needs_ray
def test_a_task_waits_for_a_lock_that_outlives_its_machine(tmp_path, address):
    plan, diary = plan_of(one_run(tmp_path), tmp_path / "store"), Diary()
    workers, lock = RayWorkers(plan, address, diary), contextlib.ExitStack()
    lock.enter_context(Store(plan.store).folder(plan.keys[0]).claim())
    seen = []

    def release():
        if workers.locked:
            seen.append(states(plan))
            lock.close()

    workers.work(Meanwhile(release))
    assert seen[0] == {State.RUNNING: 1}
    assert states(plan) == {State.FINISHED: 1}
    assert len(diary.of("begin")) == 1


@needs_ray
@needs_proc
def test_a_run_whose_machine_is_stopped_is_resumed(tmp_path, address):
    path = one_run(tmp_path, epochs=10)
    plan, diary, stopped = plan_of(path, tmp_path / "store"), Diary(), []

    def stop_once():
        folder = Store(plan.store).folder(plan.keys[0])
        if folder.rows() and not stopped:
            stopped.append(folder.owner())
            os.kill(int(folder.owner().split()[-1]), signal.SIGTERM)

    RayWorkers(plan, address, diary).work(Meanwhile(stop_once))
    assert len(stopped) == 1
    assert [event["state"] for _, event in diary.of("end")] == ["paused", "finished"]
    assert equal(undisturbed(path, tmp_path / "undisturbed"), essences(plan))


@needs_ray
def test_a_machine_without_the_disk_is_reported_and_makes_no_folder(tmp_path, address):
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    shutil.rmtree(plan.store)
    with pytest.raises(
        StoreError, match=r"has no .*store: the store must be on a disk that all machines"
    ):
        RayWorkers(plan, address, Diary()).work(never)
    assert not plan.store.exists()


@needs_ray
def test_a_module_that_a_machine_lacks_does_not_fail_the_run(tmp_path, address):
    (tmp_path / "fleeting.py").write_text((SUPPORT / "bench_tasks.py").read_text())
    plan = plan_of(one_run(tmp_path, "fleeting:Points"), tmp_path / "store")
    sys.path.remove(str(tmp_path))
    with pytest.raises(StoreError, match=r"a Ray task failed: SpecError: .*fleeting"):
        RayWorkers(plan, address, Diary()).work(never)
    assert states(plan) == {State.WAITING: 1}


@needs_ray
@pytest.mark.parametrize("address", ["closed port", "auto", "nonsense", "ray://here:10001"])
def test_an_address_without_a_cluster_is_refused_at_once(
    address, tmp_path, monkeypatch, former_address
):
    if address == "closed port":
        address = former_address
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    result = CliRunner().invoke(app, ["run", "digits", "--ray", address])
    assert result.exit_code == 2, result.output
    assert result.output.startswith(
        f"sgdf: --ray {former_address if address == 'auto' else address}"
    )
    assert result.output.count("\n") == 1
    assert not list(tmp_path.iterdir())
    plan = plan_of(experiment(tmp_path), tmp_path / "store")
    with pytest.raises(SpecError, match=r"--ray"):
        RayWorkers(plan, address, Diary()).work(never)
    assert time.monotonic() - start < 10


@pytest.fixture
def former_address(tmp_path_factory, monkeypatch):
    """The address of a cluster that has ended, which Ray remembers as the current one."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(
        "ray._private.services.find_gcs_addresses", set
    )  # of tests that run at the same time
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path_factory.mktemp("old")))
    (Path(os.environ["RAY_TMPDIR"]) / "ray").mkdir()
    (Path(os.environ["RAY_TMPDIR"]) / "ray" / "ray_current_cluster").write_text(address)
    return address


def test_without_ray_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"needs ray: pip install 'sgdf\[ray\]'"):
        check("auto")
    result = CliRunner().invoke(app, ["run", "digits", "--ray", "auto"])
    assert result.exit_code == 2
    assert result.output == "sgdf: --ray: needs ray: pip install 'sgdf[ray]'\n"


@pytest.mark.parametrize("name", ["run", "tune"])
def test_ray_and_workers_exclude_each_other(name):
    result = CliRunner().invoke(app, [name, "digits", "--ray", "auto", "--workers", "2"])
    assert result.exit_code == 2
    assert result.output == "sgdf: --ray: does not go with --workers\n"
