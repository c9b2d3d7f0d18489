"""What is kept of runs, whatever happens to the files, the disk or the process.

Long for the many ways in which files are damaged.
"""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from bench_tasks import equal, essence, run_of
from locations import SUPPORT
from sgdf.bench.errors import StoreError
from sgdf.bench.jobs.provenance import differences, sources
from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.spec.protocol import PROTOCOLS
from sgdf.bench.store.run_folder import RunFolder, State, Store, files, lock
from sgdf.bench.tasks import Metric
from sgdf.bench.training import checkpoint
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.result import epochs_that_count

pytestmark = pytest.mark.usefixtures("told_at_once")


def do(run, store, stop_after=None, every=1e9):
    """Do a run in a store, and return where it is and how it ended."""
    folder, stop, events = store.folder(run.key), threading.Event(), []
    folder.prepare(run.as_table())

    def tell(event):
        events.append(event)
        if stop_after is not None and event.get("step", -1) >= stop_after:
            stop.set()

    with folder.claimed() as ours:
        assert ours
        state, line = train_run(run, folder, Ranks(), checkpoint_every=every, stop=stop, tell=tell)
    return folder, state, line


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def run():
    return run_of(train={"log_every": 1})


RESUMED = {
    "sampled curvature": {
        "task": "digits-mlp",
        "optimizer": {"name": "sophia", "lr": 1e-3, "hessian_every": 2},
        "train": {"epochs": 1, "batch_size": 256},
    },
    "measured loss": {
        "optimizer": {"name": "koala-m", "weight_decay": 0.01},
        "train": {"accumulate": 2, "precision": "float16"},
    },
    "measured losses of two networks": {"task": "bench_tasks:Pair", "optimizer": "koala-m"},
    "dropout and BatchNorm": {},
    "averaged weights": {"train": {"ema_decay": 0.9}},
    "accumulation and clipping": {"train": {"accumulate": 2, "clip_norm": 0.1}},
    "half precision": {"train": {"precision": "float16"}},
    "schedule by step": {"schedule": {"name": "OneCycleLR", "max_lr": 0.1, "every": "step"}},
    "warm-up": {
        "schedule": {"name": "MultiStepLR", "milestones": [[5]], "every": "step", "warmup": 3}
    },
    "plateau": {"schedule": {"name": "ReduceLROnPlateau", "patience": 0}},
    "two networks": {"task": "bench_tasks:Pair", "optimizer": "adam"},
    "carried state": {
        "task": {"name": "characters", "characters": 9000, "hidden": 8, "layers": 2, "dropout": 0.3}
    },
    "paper protocol": {"protocol": "paper"},
    **{
        name: {"optimizer": name}
        for name in ("sgdf", "filter-adam", "sign-sgdf", "filter-muon", "sgd-ema", "adamw")
    },
    "sparse log": {"train": {"log_every": 3}},
    "every generator": {"task": "bench_tasks:Jittery"},
    "a loader with workers": {"task": "bench_tasks:Loaded"},
    "a loader without": {"task": {"name": "bench_tasks:Loaded", "workers": 0}},
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(name, tmp_path):
    settings = dict(RESUMED[name])
    settings["train"] = {"log_every": 1, "epochs": 2, **settings.get("train", {})}
    run = run_of(**settings)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    expected = essence(undisturbed)
    steps = undisturbed.result()["step"]
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps + 1):
        folder, state, line = do(run, interrupted, stop_after=step)
        if state is State.FINISHED:
            break
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert len(folder.environments()) > 2
    for mine, other in zip(essence(folder), expected, strict=True):
        assert equal(mine, other)


def test_a_diverged_run_is_over(store):
    run = run_of("bench_tasks:Plain", {"name": "sgd-vanilla", "lr": 1e30}, {"log_every": 2})
    folder, state, line = do(run, store)
    assert state is folder.progress() is State.DIVERGED
    assert state.has_result
    assert line == "diverged at step 2"
    assert folder.result()["diverged_at_step"] == 2


def test_the_record_of_a_run(store, run):
    folder, state, line = do(run, store)
    assert state is folder.state() is State.FINISHED
    assert folder.table() == run.as_table()
    result, rows = folder.result(), folder.rows()
    epochs = [row for row in rows if row["kind"] == "epoch"]
    best = max(epochs, key=lambda row: row["validation"]["accuracy"])
    assert result["selected"]["epoch"] == best["epoch"]
    assert result["selected"]["test"] == best["test"]
    assert result["last"]["epoch"] == 3
    assert result["parameters"] == 2 * 8 + 8 + 2 * 8 + 8 * 3 + 3
    assert result["state_bytes"] == 4 * result["parameters"]
    assert f"test accuracy {best['test']['accuracy']:.4g}" in line
    (environment,) = folder.environments()
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == "1"
    assert {"cpu", "python", "sgdf", "commit"} <= set(environment)
    assert len(list(folder.path.glob("*.pt"))) == 1
    assert not differences([environment], sources(run))


def test_the_best_on_test_is_called_so(store):
    folder, _, line = do(run_of(protocol="paper"), store)
    result = folder.result()
    assert "selected" not in result
    assert "the best on test" in line
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    assert result["best_on_test"]["test"]["accuracy"] == max(
        row["test"]["accuracy"] for row in rows
    )
    assert result["last"]["test"] == rows[-1]["test"]


def epoch_row(epoch, validation, test):
    row = {"kind": "epoch", "epoch": epoch, "step": 10 * epoch, "train": {}, "test": {"m": test}}
    return {**row, "validation": {"m": validation}} if validation is not None else row


def test_the_epochs_that_count():
    rows = [epoch_row(1, 0.5, 0.9), epoch_row(2, 0.7, 0.3), epoch_row(3, 0.7, 0.8)]
    rows += [epoch_row(4, float("nan"), 0.1), {"kind": "train"}, {"kind": "epoch", "epoch": 5}]
    largest = epochs_that_count(rows, PROTOCOLS["validation"], Metric("m", True))
    assert largest["selected"] == {
        k: rows[1][k] for k in ("epoch", "step", "train", "validation", "test")
    }
    assert largest["last"]["epoch"] == 4
    assert (
        epochs_that_count(rows, PROTOCOLS["validation"], Metric("m", False))["selected"]["epoch"]
        == 1
    )
    test_only = [epoch_row(1, None, 0.9), epoch_row(2, None, 0.3)]
    assert (
        epochs_that_count(test_only, PROTOCOLS["paper"], Metric("m", True))["best_on_test"]["epoch"]
        == 1
    )
    assert (
        epochs_that_count(test_only, PROTOCOLS["paper"], Metric("m", False))["best_on_test"][
            "epoch"
        ]
        == 2
    )
    assert epochs_that_count(rows[4:], PROTOCOLS["validation"], Metric("m", True)) == {}


def test_events_for_tensorboard(store, run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    do(run, store, stop_after=5)
    folder, _, _ = do(run, store)
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    seen = [(event.step, event.value) for event in events.Scalars("test/accuracy")]
    assert seen == [(row["step"], pytest.approx(row["test"]["accuracy"])) for row in rows]
    assert [event.step for event in events.Scalars("train/loss by step")] == list(range(1, 13))


def test_events_that_cannot_be_written_are_done_without(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    (folder.path / "tensorboard").write_text("in the way")
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (notice,) = folder.notices
    assert "it goes on without TensorBoard's events" in notice


def test_sources_that_changed_are_noticed(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    assert differences(folder.environments(), sources(run)) == ["task source", "optimizer source"]


def flip(path, position=-50):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, cut, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("which", ["the last", "both"])
def test_a_damaged_checkpoint_is_not_believed(damage, which, store, run, tmp_path):
    expected = essence(do(run, Store(tmp_path / "other"))[0])
    folder, _, _ = do(run, store, stop_after=7, every=0)
    checkpoints = sorted(folder.path.glob("*.pt"))
    assert len(checkpoints) == 2
    for path in checkpoints if which == "both" else checkpoints[1:]:
        damage(path)
    begun = []
    folder, stop = store.folder(run.key), threading.Event()
    with folder.claimed():
        train_run(run, folder, Ranks(), checkpoint_every=1e9, stop=stop, tell=begun.append)
    assert begun[0]["step"] == (0 if which == "both" else 6)
    assert len(folder.notices) == (2 if which == "both" else 1)
    assert all("damaged and was put aside" in notice for notice in folder.notices)
    assert equal(essence(folder), expected)


def test_metrics_cut_in_the_middle(store, run, tmp_path):
    expected = essence(do(run, Store(tmp_path / "other"))[0])
    folder, _, _ = do(run, store, stop_after=7)
    whole = len(folder.rows())
    path = folder.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert len(folder.rows()) == whole - 1
    folder, _, _ = do(run, store, stop_after=9)
    assert folder.rows() == checkpoint.load(folder)["rows"]
    folder, _, _ = do(run, store)
    assert equal(essence(folder), expected)


@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json"])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_finished_run_that_was_damaged_is_mended(name, damage, store, run):
    folder, _, _ = do(run, store)
    expected = essence(folder)
    if damage is flip and name == "result.json":
        flip(folder.path / name, position=0)
    else:
        damage(folder.path / name)
    state = folder.state()
    assert state is (
        State.PAUSED if (damage, name) == (Path.unlink, "result.json") else State.DAMAGED
    )
    assert do(run, store)[1] is State.FINISHED
    assert equal(essence(folder), expected)


@pytest.mark.parametrize(
    ("old", "new"), [('"finished"', '"finishad"'), ('"step": 12', '"step": 13'), ("{", "[")]
)
def test_a_result_that_is_not_as_it_was_written_is_not_believed(old, new, store, run):
    folder, _, _ = do(run, store)
    path = folder.path / "result.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert folder.result() is None
    assert folder.state() is State.DAMAGED


def test_a_disk_that_cannot_be_read_is_not_damage(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    before = sorted(folder.path.iterdir())

    def stale(path):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", stale)
        for look in (folder.state, folder.load, folder.rows, folder.table):
            with pytest.raises(StoreError, match=r"cannot read .*: Stale file handle"):
                look()
    assert sorted(folder.path.iterdir()) == before
    assert folder.state() is State.FINISHED


def test_going_on_with_another_source_is_noticed(store, run, monkeypatch):
    do(run, store, stop_after=5)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    folder, _, _ = do(run, store)
    assert folder.notices == [
        "it goes on with another task source than before",
        "it goes on with another optimizer source than before",
    ]


def test_going_on_with_other_data_is_refused(store, run, monkeypatch):
    monkeypatch.setattr("bench_tasks.Points.digest", "these", raising=False)
    do(run, store, stop_after=5)
    monkeypatch.setattr("bench_tasks.Points.digest", "those", raising=False)
    _, state, line = do(run, store)
    assert (state, "begun on other data" in line) == (State.PAUSED, True)
    monkeypatch.setattr("bench_tasks.Points.digest", "these", raising=False)
    _, state, _ = do(run, store)
    assert state is State.FINISHED


PREPARE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from bench_tasks import run_of
from sgdf.bench.store.run_folder import Store
run = run_of()
for round in range(200):
    folder = Store(Path(sys.argv[1]) / str(round)).folder(run.key)
    folder.prepare(run.as_table())
    with folder.claimed() as ours:  # if not, the other process is just writing it
        assert not ours or folder.table() == run.as_table()
"""


def test_two_processes_can_prepare_a_run_at_once(tmp_path):
    command = [sys.executable, "-c", PREPARE, tmp_path, SUPPORT]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for place in tmp_path.iterdir():
        assert Store(place).folder(run_of().key).table() == run_of().as_table()


def test_a_damaged_spec_is_seen_and_written_anew(store, run):
    folder, _, _ = do(run, store)
    flip(folder.path / "spec.toml", position=7)
    assert folder.table() is None
    folder.prepare(run.as_table())
    assert folder.table() == run.as_table()


def test_a_task_that_raises_is_a_failure_with_its_reason(store):
    run = run_of("bench_tasks:Raising")
    folder, state, line = do(run, store)
    assert state is folder.state() is State.FAILED
    assert not state.has_result
    assert line == folder.failure() == "RuntimeError: the cat is on the keyboard"
    written = json.loads((folder.path / "failure.json").read_text())
    assert "bench_tasks.py" in written["traceback"]
    folder.clear_failure()
    assert folder.state() is State.WAITING


def test_state_that_cannot_be_loaded_safely_is_a_failure_now_and_not_later(store):
    _, state, line = do(run_of("bench_tasks:Unsaveable"), store, stop_after=1)
    assert state is State.FAILED
    assert "Weights only load failed" in line


def test_a_full_disk_loses_nothing(store, run, tmp_path, monkeypatch):
    expected = essence(do(run, Store(tmp_path / "other"))[0])
    folder, _, _ = do(run, store, stop_after=5)
    before = {path.name: path.read_bytes() for path in folder.path.glob("*.*")}
    write = files.write

    def full(path, content):
        if path.suffix == ".pt":
            monkeypatch.setattr(os, "fsync", no_space)
        write(path, content)

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        folder, state, line = do(run, store, every=0)
    monkeypatch.undo()
    assert state is State.PAUSED
    assert "No space left on device" in line
    assert not list(folder.path.glob(f"{files.TEMPORARY}*"))
    (checkpoint,) = folder.path.glob("*.pt")
    assert checkpoint.read_bytes() == before[checkpoint.name]
    folder, state, _ = do(run, store)
    assert equal(essence(folder), expected)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root on Linux"
)
def test_a_disk_that_is_really_full(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let a test mount a disk")
    try:
        run, store = run_of(train={"log_every": 1}), Store(place)
        folder, state, _ = do(run, store, stop_after=5)
        assert state is State.PAUSED
        filler = place / "filler"
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(1 << 20))
        folder, state, line = do(run, store)
        assert state is State.PAUSED
        assert "No space left on device" in line
        filler.unlink()
        folder, state, line = do(run, store)
        assert state is State.FINISHED
        assert equal(essence(folder), essence(do(run, Store(tmp_path / "other"))[0]))
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write(path, b"old")

    def die(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", die)
        with pytest.raises(StoreError, match=r"cannot write .*file: Input"):
            files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_had_begun_is_removed(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    leftover = folder.path / f"{files.TEMPORARY}123"
    leftover.write_bytes(b"half")
    with folder.claimed():
        assert not leftover.exists()


HOLD = """
import sys, time
from pathlib import Path
from sgdf.bench import lock
with lock.hold(Path(sys.argv[1])) as ours:
    print(ours, flush=True)
    if len(sys.argv) > 2 and ours:
        import os
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        print("forked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder():
    processes = []

    def start(path, *arguments):
        command = [sys.executable, "-c", HOLD, str(path), *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        assert process.stdout.readline() == "True\n"
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_lock_keeps_other_processes_out_and_dies_with_its_owner(tmp_path, holder):
    path = tmp_path / "lock"
    process = holder(path)
    assert lock.owner(path).endswith(f"process {process.pid}")
    with lock.hold(path) as ours:
        assert not ours
    process.kill()
    process.wait()
    assert lock.owner(path) is None
    with lock.hold(path) as ours:
        assert ours


def test_children_of_a_killed_owner_do_not_hold_its_lock(tmp_path, holder):
    path = tmp_path / "lock"
    process = holder(path, "fork")
    assert process.stdout.readline() == "forked\n"
    process.kill()
    process.wait()
    assert lock.owner(path) is None


def test_looking_at_our_own_lock_does_not_lose_it(tmp_path):
    path = tmp_path / "lock"
    with lock.hold(path) as ours:
        assert ours
        assert lock.owner(path) == f"process {os.getpid()}"
        with lock.hold(path) as again:
            assert not again
        program = "import sys, pathlib; from sgdf.bench.store import lock; "
        program += "print(lock.owner(pathlib.Path(sys.argv[1])))"
        command = [sys.executable, "-c", program, path]
        other = subprocess.run(command, capture_output=True, text=True)
        assert f"process {os.getpid()}" in other.stdout
    assert lock.owner(path) is None


def test_a_disk_without_locks_is_named(tmp_path, monkeypatch):
    def lockf(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "lockf", lockf)
    with (
        pytest.raises(StoreError, match=r"cannot lock .*is locking enabled"),
        lock.hold(tmp_path / "lock"),
    ):
        pass


def test_a_running_run_is_seen_as_such(store, run, holder):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    assert folder.state() is State.WAITING
    process = holder(folder.path / "lock")
    assert folder.state() is State.RUNNING
    assert str(process.pid) in folder.owner()


def test_foreign_folders_in_a_store_harm_nothing(store, run):
    do(run, store)
    (store.path / "runs" / "holiday photos").mkdir()
    (store.path / "runs" / "a file").write_text("x")
    tables = {folder.key: folder.table() for folder in store.folders()}
    assert tables == {run.key: run.as_table(), "holiday photos": None}
    assert isinstance(store.folders()[0], RunFolder)
