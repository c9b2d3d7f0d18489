"""Things in a store that are no plain files: none makes a process wait, or write elsewhere."""

import os
import socket

import pytest

from kept_runs import do
from sgdf.bench.errors import DamagedError, StoreError
from sgdf.bench.store import files, lock
from sgdf.bench.store.run_folder import State

pytestmark = pytest.mark.usefixtures("publishing_at_once", "_watchdog")


@pytest.fixture
def elsewhere(tmp_path):
    """A file outside of the store, which must stay as it is."""
    path = tmp_path / "elsewhere"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"
    assert {name.name for name in tmp_path.iterdir()} <= {"elsewhere", "store", "odd"}


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


ODD = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_no_file_is_named(what, tmp_path):
    path = tmp_path / "odd"
    ODD[what](path)
    with pytest.raises(DamagedError, match=rf"{path} is {what}, not a file"):
        files.read(path)
    with pytest.raises(StoreError, match=rf"{path}"):
        files.append(path, b"x")
    assert lock.owner(path) is None
    with pytest.raises(StoreError, match=rf"{path}"), lock.hold(path):
        pass


def test_a_file_may_be_a_link_when_it_is_read(tmp_path):
    (tmp_path / "far").write_bytes(b"content")
    (tmp_path / "near").symlink_to("far")
    assert files.read(tmp_path / "near") == b"content"
    (tmp_path / "broken").symlink_to("nowhere")
    assert files.read(tmp_path / "broken") == b""


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(files.LARGEST_RECORD + 1)  # which takes no space on the disk
    with pytest.raises(DamagedError, match=r"large has 1,073,741,825 bytes; .* at most"):
        files.read(tmp_path / "large")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_leaves_its_target_alone(link, elsewhere, tmp_path):
    path = tmp_path / "odd"
    link(elsewhere, path)
    if link is os.symlink:
        with pytest.raises(StoreError, match=r"odd is a link, not a file"), lock.hold(path):
            pass
    else:  # a copy of a store by hard links: it can be locked, but its files are not written to
        with lock.hold(path) as ours:
            assert ours


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_lines_are_not_appended_to_another_file(link, elsewhere, tmp_path):
    path = tmp_path / "odd"
    link(elsewhere, path)
    if link is os.symlink:
        with pytest.raises(StoreError, match=r"odd is a link, not a file"):
            files.append(path, b"x")
    else:
        files.append(path, b"x")
        assert path.read_bytes() == b"preciousx"


FILES = ("spec.toml", "result.json", "metrics.jsonl", "environment.json")


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", FILES)
def test_a_run_with_an_odd_file_is_repaired(name, what, store, run):
    folder, _, _ = do(run, store)
    before = folder.result()["weights"]
    (folder.path / name).unlink()
    ODD[what](folder.path / name)
    if name in ("result.json", "metrics.jsonl"):
        assert folder.state() is State.DAMAGED
    if name == "spec.toml":
        assert folder.table() is None
    assert do(run, store)[1] is State.FINISHED
    assert folder.state() is State.FINISHED
    assert folder.table() == run.as_table()
    assert folder.result()["weights"] == before
    put_aside = [path.name for path in folder.path.glob(f"{name}.damaged")]
    assert put_aside == ([f"{name}.damaged"] if what == "a folder" else [])


@pytest.mark.parametrize("what", ODD)
def test_an_odd_checkpoint_is_put_aside(what, store, run):
    folder, _, _ = do(run, store, stop_after=5)
    (checkpoint,) = folder.path.glob("*.pt")
    checkpoint.unlink()
    ODD[what](checkpoint)
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    assert any("put aside" in notice for notice in folder.notices)


@pytest.mark.parametrize("name", [*FILES, "failure.json", "probes.jsonl", "tensorboard"])
def test_a_run_writes_through_no_link(name, elsewhere, store, run, tmp_path):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    (folder.path / name).unlink(missing_ok=True)
    target = elsewhere
    if name == "tensorboard":
        target = tmp_path / "odd"
        target.mkdir()
    (folder.path / name).symlink_to(target)
    _, state, _ = do(run, store)
    assert state is State.FINISHED
    assert name != "tensorboard" or not list(target.iterdir())


def test_a_failure_that_is_no_file_is_a_failure(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    os.mkfifo(folder.path / "failure.json")
    assert folder.state() is State.FAILED
    assert folder.failure() == f"{folder.path / 'failure.json'} is a pipe, not a file"
    folder.clear_failure()
    assert folder.state() is State.WAITING
