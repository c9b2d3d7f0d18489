"""CIFAR-100 written as class folders of larger pictures."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from PIL import Image

from made_data import tiny
from sgdf.bench.errors import DataError, StoreError
from sgdf.bench.tasks.cifar.data import CIFAR100
from sgdf.bench.tasks.imagenet import made
from sgdf.bench.tasks.imagenet.made import provide_small
from sgdf.bench.tasks.imagenet.task import ImageNet

OPTIONS = {
    "network": "resnet18",
    "width": 0.1,
    "folder": "cifar100-64",
    "side": 64,
    "shorter_side": 73,
    "train_images": 100,
    "validation_images": 100,
    "official": True,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return the folder that is made, of 200 training and 100 test images."""
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(made, "CIFAR100", tiny(CIFAR100, tmp_path / "data", per_class=2))
    return tmp_path / "data" / "cifar100-64"


def visible(place):
    return {path.name for path in place.iterdir() if not path.name.startswith(".")}


def test_every_image_is_there_twice_as_large_and_smooth(folder):
    provide_small(official=True)
    (images, classes), (test_images, test_classes) = made.CIFAR100.read()
    for split, pictures, labels in (
        ("train", images, classes),
        ("val", test_images, test_classes),
    ):
        assert len(list((folder / split).rglob("*.png"))) == len(pictures)
        for number, label in enumerate(labels.tolist()):
            with Image.open(folder / split / f"{label:02}" / f"{number:05}.png") as picture:
                assert (picture.size, picture.mode) == ((64, 64), "RGB")
                large = np.asarray(picture, int)
            pairs = large.reshape(32, 2, 32, 2, 3).mean((1, 3))
            small = pictures[number].permute(1, 2, 0).numpy()
            assert abs(pairs - small).mean() < abs(pairs - small.mean()).mean()


def test_it_is_made_once_and_checked_when_it_is_asked_for_again(folder, monkeypatch):
    provide_small(official=True)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    provide_small(official=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    monkeypatch.setattr(made, "CIFAR100", tiny(CIFAR100, folder.parent, per_class=2, seed=7))
    with pytest.raises(DataError, match=f"{folder} was not made of the files in .*Remove it"):
        provide_small(official=True)
    (folder / "source.txt").unlink()
    with pytest.raises(DataError, match="Remove it"):
        provide_small(official=True)


def test_one_that_was_not_finished_is_not_there(folder, monkeypatch):
    write, splits = made._write, []

    def fail(place, images, classes):
        splits.append(place.name)
        if len(splits) == 2:
            raise OSError(28, "No space left on device")
        write(place, images, classes)

    monkeypatch.setattr(made, "_write", fail)
    with pytest.raises(StoreError, match=f"cannot write {folder}: No space left on device"):
        provide_small(official=True)
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".tmp-")]
    assert visible(folder.parent) == {"cifar-100-binary"}
    splits = ["as if", "done"]
    provide_small(official=True)
    assert folder.is_dir()


def test_of_several_at_once_one_writes_and_the_others_wait(folder, monkeypatch):
    write, written, begun, go_on = made._write, [], threading.Event(), threading.Event()

    def write_slowly(place, images, classes):
        written.append(place.name)
        begun.set()
        assert go_on.wait(60)
        write(place, images, classes)

    monkeypatch.setattr(made, "_write", write_slowly)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(provide_small, official=True)
        assert begun.wait(60)
        others = [pool.submit(provide_small, official=True) for _ in range(2)]
        done, _ = wait([first, *others], timeout=0.3)
        assert not done
        go_on.set()
        assert [one.result() for one in (first, *others)] == [None] * 3
    assert written == ["train", "val"]
    assert visible(folder.parent) == {"cifar-100-binary", "cifar100-64"}


def test_what_a_killed_process_left_is_removed(folder, monkeypatch):
    write = made._write

    def be_killed(place, images, classes):
        write(place, images, classes)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(made, "_write", be_killed)
        patch.setattr(made.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            provide_small(official=True)
    left = {path.name for path in folder.parent.iterdir()}
    provide_small(official=True)
    now = {path.name for path in folder.parent.iterdir()}
    assert left - now == {name for name in left if name.startswith(".tmp-")} != set()
    assert len(list((folder / "train").rglob("*.png"))) == 200


def test_other_files_than_the_published_ones_are_taken_knowingly_only(folder):
    with (folder.parent / "cifar-100-binary" / "test.bin").open("ab") as file:
        file.write(bytes(3074))
    with pytest.raises(DataError, match="not the published file"):
        ImageNet.provide(**OPTIONS)
    assert not folder.exists()
    ImageNet.provide(**{**OPTIONS, "official": False})
    assert folder.is_dir()


def test_a_task_on_it_has_a_hundred_classes(folder):
    ImageNet.provide(**OPTIONS)
    task = ImageNet(**OPTIONS)
    assert task.count_examples() == {"train": 100, "validation": 100, "test": 100}
    assert len(task.photographs.train.classes) == 100
    assert set(task.evaluate("test")) == {"loss", "accuracy", "top5_accuracy"}
