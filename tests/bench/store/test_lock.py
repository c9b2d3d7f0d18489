"""Locks that keep other processes out, and die with the process that holds them."""

import contextlib
import errno
import os
import signal
import subprocess
import sys

import pytest

from sgdf.bench.errors import StoreError
from sgdf.bench.store.run_folder import State, lock

pytestmark = pytest.mark.usefixtures("publishing_at_once")


HOLD = """
import sys, time
from pathlib import Path
from sgdf.bench.store import lock
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
        (tmp_path / "link").symlink_to(path)
        assert lock.owner(tmp_path / "link") is None
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
