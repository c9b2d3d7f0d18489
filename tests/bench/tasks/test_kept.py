"""What is made once and kept: by one of several processes, whole or not at all."""

import multiprocessing
import os
import signal
import time

import pytest

from sgdf.bench.errors import StoreError
from sgdf.bench.store import files
from sgdf.bench.tasks.kept import NotKeptError, kept


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results/key"


def read(path):
    content = path.read_bytes()
    if not content.startswith(b"good"):
        raise ValueError("damaged")
    return content


def never():
    raise AssertionError("it is made already")


def test_it_is_made_once(folder):
    assert kept(folder / "file", read, lambda: b"good 1", "it") == b"good 1"
    assert kept(folder / "file", read, never, "it") == b"good 1"
    assert (folder / "file").read_bytes() == b"good 1"


def test_what_cannot_be_read_is_made_anew(folder):
    kept(folder / "file", read, lambda: b"good 1", "it")
    (folder / "file").write_bytes(b"bad")
    assert kept(folder / "file", read, lambda: b"good 2", "it") == b"good 2"
    assert kept(folder / "file", read, never, "it") == b"good 2"


def test_an_error_while_it_is_made_leaves_nothing(folder):
    with pytest.raises(AssertionError):
        kept(folder / "file", read, never, "it")
    assert not (folder / "file").exists()
    assert kept(folder / "file", read, lambda: b"good", "it") == b"good"


def test_where_nothing_can_be_kept_nothing_is_made(tmp_path, folder):
    (tmp_path / "results").write_bytes(b"a file")
    with pytest.raises(NotKeptError, match=f"^it cannot be kept: cannot write {folder}: .*--data"):
        kept(folder / "file", read, never, "it")


def test_a_folder_that_takes_no_file_any_more_is_found_before_it_is_made(folder, monkeypatch):
    """Its lock may be there from before."""

    def full(path, content, sync=True):
        raise StoreError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(NotKeptError, match="No space left on device"):
        kept(folder / "file", read, never, "it")


def test_errors_of_making_it_are_no_errors_of_keeping_it(folder):
    def make():
        raise StoreError("a picture is damaged")

    with pytest.raises(StoreError, match=r"^a picture is damaged$") as caught:
        kept(folder / "file", read, make, "it")
    assert not isinstance(caught.value, NotKeptError)


def make_slowly(folder, log):
    def make():
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.3)
        return b"good"

    assert kept(folder / "file", read, make, "it") == b"good"


def test_of_processes_that_start_at_once_one_makes_it(folder, tmp_path):
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=make_slowly, args=(folder, tmp_path / "log")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


def die_in_the_write(folder):
    def make():
        files.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        return b"good, but half of it"

    kept(folder / "file", read, make, "it")


def test_a_kill_leaves_nothing_that_is_taken_for_it(folder):
    worker = multiprocessing.get_context("fork").Process(target=die_in_the_write, args=(folder,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    left = sorted(path.name for path in folder.iterdir())
    assert len(left) == 2
    assert left[0].startswith(".tmp-")
    assert left[1] == "lock"
    assert kept(folder / "file", read, lambda: b"good", "it") == b"good"
    assert sorted(path.name for path in folder.iterdir()) == ["file", "lock"]
