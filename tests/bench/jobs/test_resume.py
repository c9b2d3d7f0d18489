"""Checkpoints that are as written and yet cannot be resumed from."""

import functools
import io

import pytest
import torch

import bench_tasks
from bench_tasks import equal, essence, run_of
from kept_runs import do
from sgdf.bench.errors import StoreError
from sgdf.bench.store.identity import digest
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.open_run import open_run
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("publishing_at_once")


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


UNREADABLE = {
    "no file of torch": lambda: b"nonsense",
    "no state": lambda: saved([1, 2]),
    "a forbidden class": lambda: saved({"model": run_of("bench_tasks:Points")}),
}
MISFITS = {
    "a state of nothing": lambda: saved({}),
    "a state of another model": lambda: saved({"model": {"weight": torch.zeros(3)}}),
}


@pytest.fixture
def paused(store, run, tmp_path):
    """The folder of a run that was stopped after seven steps, with two checkpoints."""
    folder, state, _ = do(run, store, stop_after=7, every=0)
    assert state is State.PAUSED
    assert len(checkpoints(folder)) == 2
    return folder


@pytest.fixture
def expected(run, tmp_path):
    return essence(do(run, Store(tmp_path / "undisturbed"))[0])


def checkpoints(folder):
    return sorted(folder.path.glob("*.pt"))


def replace(path, content):
    """Put other content in place of a checkpoint, with a right checksum."""
    path.unlink()
    path.with_name(f"{path.name.partition('-')[0]}-{digest(content)}.pt").write_bytes(content)


@pytest.mark.parametrize("name", [*UNREADABLE, *MISFITS])
def test_the_older_checkpoint_is_tried(name, paused, expected, store, run):
    replace(checkpoints(paused)[1], {**UNREADABLE, **MISFITS}[name]())
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (notice,) = folder.notices
    words = "does not fit (" if name in MISFITS else "cannot be loaded ("
    assert words in notice
    assert notice.endswith("and was put aside")
    assert folder.environments()[-1]["resumed at step"] == "6"
    assert equal(essence(folder), expected)


def test_the_older_checkpoint_is_loaded_into_an_untouched_trainer(paused, store, run, monkeypatch):
    used, load = [], Trainer.load

    def misfit_once(trainer, state):
        used.append(trainer)
        if len(used) == 1:
            raise RuntimeError("half of it was loaded")
        load(trainer, state)

    monkeypatch.setattr(Trainer, "load", misfit_once)
    assert do(run, store)[1] is State.FINISHED
    assert len(used) == 2
    assert used[0] is not used[1]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_run_without_a_readable_checkpoint_starts_again(name, paused, expected, store, run):
    for path in checkpoints(paused):
        replace(path, UNREADABLE[name]())
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    assert [notice.partition(" (")[0][-16:] for notice in folder.notices[:2]] == [
        "cannot be loaded"
    ] * 2
    assert folder.notices[2] == "it starts again: no checkpoint is left"
    assert "resumed at step" not in folder.environments()[-1]
    assert equal(essence(folder), expected)


@pytest.mark.parametrize("known", [True, False])
def test_a_run_whose_code_has_changed_does_not_start_again(
    known, paused, expected, store, run, monkeypatch
):
    before = checkpoints(paused)
    with monkeypatch.context() as changed:
        make = bench_tasks.Points.__init__

        @functools.wraps(make)
        def make_wider(task, hidden, **options):
            make(task, hidden + 1, **options)

        changed.setattr(bench_tasks.Points, "__init__", make_wider)
        if known:
            changed.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
        folder, state, line = do(run, store)
        assert state is State.FAILED
        what = "the task source and the optimizer source" if known else "something that they use"
        assert f"as they are now, since {what} changed: RuntimeError: Error(s) in" in line
        assert "size mismatch for 0.weight" in line
        assert "Change it back" in line
        with pytest.raises(StoreError, match="does not fit its task as it is now"):
            open_run(folder.path)
    assert checkpoints(folder) == before
    folder.clear_failure()
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    assert folder.notices == []
    assert equal(essence(folder), expected)


LACKS = {
    "of Python": MemoryError(),
    "of torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "of a backend": RuntimeError("MPS backend out of memory"),
    "of the CPU": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
}


@pytest.mark.parametrize("lack", LACKS)
def test_a_lack_of_memory_says_nothing_about_how_a_checkpoint_fits(
    lack, paused, expected, store, run, monkeypatch
):
    before = checkpoints(paused)
    with monkeypatch.context() as lacking:

        def fail(*arguments, **options):
            raise LACKS[lack]

        lacking.setattr(Trainer, "load", fail)
        _, state, line = do(run, store)
        with pytest.raises(type(LACKS[lack])):
            open_run(paused.path)
    assert state is State.FAILED
    assert line.startswith(type(LACKS[lack]).__name__)
    assert checkpoints(paused) == before
    paused.clear_failure()
    assert equal(essence(do(run, store)[0]), expected)


def test_a_lack_of_memory_says_nothing_about_a_checkpoint(paused, store, run, monkeypatch):
    before = checkpoints(paused)
    with monkeypatch.context() as lacking:

        def fail(*arguments, **options):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        lacking.setattr(torch, "load", fail)
        _, state, line = do(run, store)
    assert state is State.FAILED
    assert "can't allocate memory" in line
    assert checkpoints(paused) == before
