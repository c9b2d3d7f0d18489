"""Runs of the task imagenet that are interrupted, and go on."""

import threading
from typing import ClassVar

import pytest

from bench_tasks import equal, essence, run_of
from kept_runs import do
from made_pictures import LITTLE, let_it_settle, write_photographs
from sgdf.bench.errors import DataError
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.imagenet.task import ImageNet
from sgdf.bench.tasks.images import pictures
from sgdf.bench.tasks.images.pictures import TrainingPicture
from sgdf.bench.tasks.long_evaluation import LongEvaluation

TASK = {"name": "imagenet", **LITTLE}
TRAIN = {"epochs": 2, "batch_size": 3, "log_every": 1, "evaluate_every": 2}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    root = write_photographs(tmp_path / "data" / "pictures")
    let_it_settle(root)
    return root


@pytest.fixture
def opened(monkeypatch):
    """The files that were opened to train on them, in order."""
    paths, make = [], TrainingPicture.__call__
    monkeypatch.setattr(
        TrainingPicture,
        "__call__",
        lambda self, path, numbers: paths.append(path) or make(self, path, numbers),
    )
    return paths


@pytest.mark.usefixtures("publishing_at_once")
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(tmp_path):
    run = run_of(TASK, {"name": "sgdf", "lr": 0.1}, TRAIN)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    steps = undisturbed.result()["step"]
    assert steps == 14
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert len(folder.environments()) == steps
    assert equal(essence(folder), essence(undisturbed))


@pytest.mark.usefixtures("publishing_at_once")
def test_a_resumed_run_does_not_open_the_pictures_that_it_has_used(tmp_path, opened):
    run, store = run_of(TASK, {"name": "sgdf", "lr": 0.1}, TRAIN), Store(tmp_path / "store")
    do(run, Store(tmp_path / "undisturbed"))
    whole, last = list(opened[:21]), {*opened[21:]}
    assert len(opened) == 42
    assert len({*whole}) == len(last) == 21
    opened.clear()
    _, state, _ = do(run, store, stop_after=5)
    assert state is State.PAUSED
    opened.clear()
    do(run, store)
    assert sorted(opened[:6]) == sorted(whole[15:])  # the threads may begin them in another order
    assert {*opened[6:]} == last
    assert len(opened) == 6 + 21


@pytest.mark.usefixtures("publishing_at_once")
@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_no_thread_is_left_of_a_run_that_ends_early(how, tmp_path, root):
    run, store = run_of(TASK, {"name": "sgdf", "lr": 0.1}, TRAIN), Store(tmp_path / "store")
    if how == "stopped":
        _, state, _ = do(run, store, stop_after=2)
        assert state is State.PAUSED
    else:
        damaged = root / "train" / "n02" / "n02_1.JPEG"
        damaged.write_bytes(damaged.read_bytes()[:300])
        folder, state, line = do(run, store)
        assert state is not State.FINISHED
        assert f"{damaged} cannot be read as a picture" in line
        assert not folder.result()
    assert not [one for one in threading.enumerate() if one.name.startswith("decoding")]


def test_a_run_is_not_resumed_with_other_pictures(tmp_path, root):
    run, store = run_of(TASK, {"name": "sgdf", "lr": 0.1}, TRAIN), Store(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 0.0)
        _, state, _ = do(run, store, stop_after=3)
    assert state is State.PAUSED
    (root / "train" / "n02" / "n02_1.JPEG").rename(root / "train" / "n02" / "other.JPEG")
    _, state, line = do(run, store)
    assert state is State.PAUSED
    assert "it was begun on other data" in line


def test_an_interrupted_evaluation_goes_on_where_it_was(monkeypatch):

    monkeypatch.setattr("sgdf.bench.tasks.imagenet.task.EVALUATION_BATCH", 4)
    opened, make = [], pictures.CentralPicture.__call__
    monkeypatch.setattr(
        pictures.CentralPicture, "__call__", lambda self, p: opened.append(p) or make(self, p)
    )

    class Kept(LongEvaluation):
        states: ClassVar = {}

        def kept(self, what):
            return self.states.get(what)

        def advance(self, what, done, total, state):
            assert total == 9
            self.states.setdefault(what, state())

    task = ImageNet(**LITTLE)
    task.model.eval()
    whole = task.evaluate("test")
    task.evaluation = Kept()
    assert task.evaluate("test") == whole
    assert Kept.states["pictures of test"]["examples"] == 4
    opened.clear()
    assert task.evaluate("test") == whole
    assert len(opened) == 5


def test_a_damaged_picture_of_an_evaluation_is_named(root):

    task = ImageNet(**LITTLE)
    damaged = root / "val" / "n01" / "n01_2.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:300])
    with pytest.raises(DataError, match=f"{damaged} cannot be read as a picture"):
        task.evaluate("test")
