"""A loss of power: what was not synced is gone, and the run is resumed as if nothing had happened.

The worst that a disk may do is simulated: a file has the content of its last sync, empty if there
was none, and a folder has the names of its last sync.
"""

import os
import threading
from pathlib import Path

import pytest

from bench_tasks import equal, essence, run_of
from searches import finish, results_of, search_of
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.search.journal import Journal
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.store.run_folder import State, Store

pytestmark = [
    pytest.mark.usefixtures("publishing_at_once"),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc"),
]


class Disk:
    """Records what would be on the disk after a loss of power, at each call of ``os.fsync``."""

    def __init__(self, monkeypatch):
        self.names, self.contents, self.moments, self.open = {}, {}, [], []
        self.saved = 0  # the last step that was reported as saved
        self.fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.record)

    def record(self, descriptor):
        """Sync a file or a folder."""
        self.fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self.names[path] = {
                each.name: None if each.is_dir() else each.stat().st_ino for each in path.iterdir()
            }
        else:
            self.open.append(os.dup(descriptor))  # else another file could get its number
            self.contents[os.fstat(descriptor).st_ino] = path.read_bytes()
        self.moments.append((dict(self.names), dict(self.contents), self.saved))

    def close(self):
        """Release the files."""
        for descriptor in self.open:
            os.close(descriptor)


def restore(source, target, names, contents):
    """Make what is left of a folder after a loss of power."""
    target.mkdir()
    for name, number in names.get(source, {}).items():
        if number is None:
            restore(source / name, target / name, names, contents)
        else:
            (target / name).write_bytes(contents.get(number, b""))


def train(run, store, probes=(), saved=lambda step: None):
    """Train a run as a command does; return its folder."""
    plan = Plan((run,), store, checkpoint_every=0.0, probes=probes)
    plan.prepare()
    plan.work(
        lambda key, event: event["event"] == "saved" and saved(event["step"]), threading.Event()
    )
    return Store(store).folder(run.key)


def test_what_was_reported_as_saved_survives(tmp_path, monkeypatch):
    run, probes = run_of(train={"epochs": 2}), (ProbeSpec("gradient-norm", {}, every=1),)
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        whole = train(run, place / "store", probes, lambda step: setattr(disk, "saved", step))
    disk.close()
    assert whole.progress() is State.FINISHED
    with_result = 0
    for number, (names, contents, saved) in enumerate(disk.moments):
        left = tmp_path / str(number)
        restore(place, left, names, contents)
        folder = Store(left / "store").folder(run.key)
        has_result = (folder.path / "result.json").exists()
        with_result += has_result
        assert folder.progress() in (
            (State.FINISHED,) if has_result else (State.PAUSED, State.WAITING)
        )
        assert folder.saved() >= saved, number
        if number % 3 == 0 or number == len(disk.moments) - 1:
            again = train(run, left / "store", probes)
            assert again.progress() is State.FINISHED
            assert not again.notices
            for old in sorted(again.path.glob("*.pt"))[:-1]:  # to remove it need not be synced
                old.unlink()
            assert equal(essence(again), essence(whole))
            assert again.probe_rows() == whole.probe_rows(), number
    assert with_result
    assert disk.saved == whole.result()["step"]


def test_a_store_follows_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        folder = train(run_of(train={"epochs": 1}), tmp_path / "store")
    finally:
        os.umask(before)
    assert folder.progress() is State.FINISHED
    paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert len(paths) > 6
    assert {oct(path.stat().st_mode & 0o077) for path in paths} == {"0o0"}


def test_a_search_survives(tmp_path, monkeypatch):
    settings = {"trials": 3, "epochs": 1, "optimizer": [{"name": "sgd"}]}
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        whole = finish(search_of(place / "store", **settings))
    disk.close()
    for number, (names, contents, _) in [*enumerate(disk.moments)][:: len(disk.moments) // 8]:
        left = tmp_path / str(number)
        restore(place, left, names, contents)
        again = finish(search_of(left / "store", **settings))
        assert results_of(again) == results_of(whole), number


def test_operations_on_trials_survive(tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        Journal(place / "store" / "search.journal").append_logs([{"op_code": 7}])
    disk.close()
    names, contents, _ = disk.moments[-1]
    restore(place, tmp_path / "left", names, contents)
    logs = Journal(tmp_path / "left" / "store" / "search.journal").read_logs(0)
    assert [log["op_code"] for log in logs] == [7]
