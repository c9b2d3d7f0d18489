"""What is kept of runs, whatever happens to the files, the disk or the process."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench_tasks import equal, essence, run_of
from kept_runs import do
from locations import SUPPORT
from sgdf.bench.errors import StoreError
from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.store import record_files, run_folder
from sgdf.bench.store.run_folder import RunFolder, State, Store, files
from sgdf.bench.training import checkpoint
from sgdf.bench.training.ranks import Ranks

pytestmark = pytest.mark.usefixtures("publishing_at_once")


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
    with folder.claim():
        train_run(run, folder, Ranks(), checkpoint_every=1e9, stop=stop, tell=begun.append)
    assert begun[0]["step"] == (0 if which == "both" else 6)
    if which == "both":
        assert folder.notices.pop() == "it starts again: no checkpoint is left"
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

    def stale(*arguments):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", stale)
        assert folder.state() is State.UNREADABLE
        assert folder.damage().endswith("result.json: Stale file handle")
        for look in (folder.progress, lambda: checkpoint.load(folder), folder.rows, folder.table):
            with pytest.raises(StoreError, match=r"cannot read .*: Stale file handle"):
                look()
    assert sorted(folder.path.iterdir()) == before
    assert folder.state() is State.FINISHED


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
    with folder.claim() as ours:  # if not, the other process is just writing it
        assert not ours or folder.table() == run.as_table()
"""


def test_two_processes_can_prepare_a_run_at_once(tmp_path):
    command = [sys.executable, "-c", PREPARE, tmp_path, SUPPORT]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for place in tmp_path.iterdir():
        assert Store(place).folder(run_of().key).table() == run_of().as_table()


def test_a_process_that_claims_a_run_may_remove_what_another_one_writes(store, run, monkeypatch):
    folder, replace = store.folder(run.key), Path.replace

    def late(temporary, path):
        monkeypatch.setattr(Path, "replace", replace)
        folder.prepare(run.as_table())  # as if by another process, which claims the run then
        with folder.claim() as ours:
            assert ours
        return replace(temporary, path)

    monkeypatch.setattr(Path, "replace", late)
    folder.prepare(run.as_table())
    assert folder.table() == run.as_table()


def test_a_damaged_spec_is_seen_and_written_anew(store, run):
    folder, _, _ = do(run, store)
    flip(folder.path / "spec.toml", position=7)
    assert folder.table() is None
    folder.prepare(run.as_table())
    assert folder.table() == run.as_table()


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
    with folder.claim():
        assert not leftover.exists()


def test_foreign_folders_in_a_store_harm_nothing(store, run):
    do(run, store)
    (store.path / "runs" / "holiday photos").mkdir()
    (store.path / "runs" / "a file").write_text("x")
    tables = {folder.key: folder.table() for folder in store.folders()}
    assert tables == {run.key: run.as_table(), "holiday photos": None}
    assert isinstance(store.folders()[0], RunFolder)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[1]", b'{"mine": 3}', b'"mine"', b"[" * 100_000]
)
def test_what_experiments_are_about_may_be_missing_or_damaged(tmp_path, content):
    store = Store(tmp_path)
    assert store.experiments() == {}
    (tmp_path / "experiments.json").write_bytes(content)
    assert store.experiments() == {}
    store.add_experiment("mine", "two runs")
    store.add_experiment("other", "")
    assert store.experiments() == {"mine": "two runs", "other": ""}


def test_an_experiment_without_a_text_leaves_that_of_its_name(tmp_path):
    store = Store(tmp_path)
    for about in ("two runs", "", "three runs", ""):
        store.add_experiment("mine", about)
    assert store.experiments() == {"mine": "three runs"}


def test_the_digest_of_a_result_is_that_of_its_content(store, run):
    folder, _, _ = do(run, store)
    path, expected = folder.path / "result.json", folder.result()
    text = path.read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    for laid_out_anew in (json.dumps(json.loads(text)), text.replace('"outcome": ', '"outcome":')):
        path.write_text(laid_out_anew)
        assert folder.result() == expected
    for place in range(0, len(text), 5):
        path.write_text(text[:place] + "7" + text[place + 1 :])
        assert folder.result() in (None, expected)


def test_an_unchanged_result_is_not_encoded_to_be_checked(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    expected = folder.result()
    monkeypatch.setattr(json.JSONEncoder, "iterencode", None)  # which json.dumps(indent=1) calls
    assert folder.result() == expected


def test_a_result_is_read_and_its_metrics_are_hashed_once(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    expected, read, hashed = folder.result(), [], []

    def reading(path, of=files.read):
        read.append(path.name)
        return of(path)

    def hashing(content, of=run_folder.digest):
        hashed.append(content)
        return of(content)

    monkeypatch.setattr(files, "read", reading)
    monkeypatch.setattr(run_folder, "digest", hashing)
    monkeypatch.setattr(record_files, "digest", hashing)
    assert folder.state_and_result() == (State.FINISHED, expected)
    assert read == ["result.json", "metrics.jsonl"]
    assert len(hashed) == 2
    flip(folder.path / "metrics.jsonl")
    assert folder.state_and_result() == (State.DAMAGED, None)


def test_the_lock_of_a_finished_run_is_not_asked_for(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    monkeypatch.setattr(RunFolder, "owner", None)
    assert folder.state() is State.FINISHED


def test_a_run_that_ends_while_it_is_looked_at_is_finished(store, run, monkeypatch):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    assert folder.state() is State.WAITING
    monkeypatch.setattr(RunFolder, "owner", lambda self: do(run, store) and None)
    assert folder.state_and_result() == (State.FINISHED, folder.result())
