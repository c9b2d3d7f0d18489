"""Batches that threads decode: the same for any number of threads, bounded, and nothing left."""

import gc
import os
import threading
import time

import numpy as np
import pytest
import torch

from bench_tasks import equal
from made_pictures import write_photographs
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.images import batches, decoding
from sgdf.bench.tasks.images.batches import PictureBatches, central_batches
from sgdf.bench.tasks.images.decoding import AHEAD, PROCESSES, decoded
from sgdf.bench.tasks.images.folders import ClassFolders
from sgdf.bench.tasks.images.pictures import CentralPicture, TrainingPicture


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return ClassFolders(write_photographs(tmp_path_factory.mktemp("data"), train=20) / "train")


def epoch(folders, batch_size=8, threads=2, seed=0):
    order = torch.Generator().manual_seed(seed)
    rows = torch.arange(len(folders))
    return PictureBatches(folders, rows, batch_size, order, TrainingPicture(16), threads)


def decoders():
    return [thread for thread in threading.enumerate() if thread.name.startswith("decoding")]


def test_batches_do_not_depend_on_the_number_of_threads(folders):
    alone = list(epoch(folders, threads=1))
    assert [len(pictures) for pictures, _ in alone] == [8] * 7 + [4]
    for threads in (2, 5):
        assert equal(list(epoch(folders, threads=threads)), alone)
    assert not equal(list(epoch(folders, seed=1)), alone)


def test_batches_of_another_size_have_the_same_pieces(folders):
    whole = [torch.cat(parts) for parts in zip(*epoch(folders), strict=True)]
    for size in (1, 7, 60):
        parts = zip(*epoch(folders, batch_size=size), strict=True)
        assert equal([torch.cat(part) for part in parts], whole)


def test_every_picture_comes_once_with_its_class_and_in_another_order_each_time(
    folders, monkeypatch
):
    asked = []
    monkeypatch.setattr(
        TrainingPicture, "__call__", lambda self, path, row: asked.append(path) or blank(16)
    )
    firsts = []
    for seed in (0, 1):
        asked.clear()
        classes = torch.cat([classes for _, classes in epoch(folders, seed=seed, threads=1)])
        assert sorted(asked) == [folders.path(number) for number in range(len(folders))]
        assert [folders.classes[label] for label in classes] == [p.split("/")[-2] for p in asked]
        firsts.append(list(asked))
    assert firsts[0] != firsts[1]


def blank(side):
    return np.zeros((side, side, 3), np.uint8)


def test_skipped_and_dealt_batches_are_those_of_the_whole(folders):
    whole = list(epoch(folders))
    assert equal(list(epoch(folders).skip(3)), whole[3:])
    assert len(epoch(folders).skip(3)) == 5
    assert equal(list(epoch(folders).skip(2).dealt(1, 3)), whole[3::3])
    assert equal(
        [b for rank in (0, 1) for b in epoch(folders).dealt(rank, 2)], whole[::2] + whole[1::2]
    )


def test_what_is_skipped_is_not_opened(folders, monkeypatch):
    asked = []
    monkeypatch.setattr(
        TrainingPicture, "__call__", lambda self, path, row: asked.append(path) or blank(16)
    )
    list(epoch(folders).skip(6))
    assert len(asked) == 12


def test_central_pictures_come_in_order(folders):
    rows = torch.tensor([5, 3, 40, 41, 42, 0])
    found = list(central_batches(folders, rows, 4, CentralPicture(16, 18), threads=2))
    assert equal([classes.tolist() for _, classes in found], [[0, 0, 2, 2], [2, 0]])
    pictures = torch.cat([pictures for pictures, _ in found])
    assert pictures.shape == (6, 3, 16, 16)
    for picture, row in zip(pictures, rows.tolist(), strict=True):
        expected = torch.tensor(CentralPicture(16, 18)(folders.path(row)))
        assert torch.equal(picture.permute(1, 2, 0), expected)


def test_only_a_few_batches_are_decoded_ahead():
    begun = []

    def asked():
        for number in range(20):
            begun.append(number)
            yield 4, lambda _: blank(8)

    going = decoded(asked(), 8, threads=2)
    for used in range(5):
        next(going)
        assert len(begun) <= used + 1 + AHEAD
    going.close()


@pytest.mark.parametrize("how", ["closed", "dropped", "exhausted", "failed"])
def test_no_thread_is_left(how, folders):
    batches = epoch(folders, threads=3)
    if how == "failed":
        batches.data = Missing(folders)
    going = iter(batches)
    if how == "failed":
        with pytest.raises(DataError, match="nowhere"):
            list(going)
    elif how == "exhausted":
        list(going)
    else:
        next(going)
        assert decoders()
        if how == "closed":
            going.close()
    del going
    gc.collect()
    assert not decoders()


class Missing:
    """Folders in which one picture is not to be found."""

    def __init__(self, folders):
        self.targets, self.folders = folders.targets, folders

    def path(self, number):
        """Return a path."""
        return "/nowhere.jpg" if number == 17 else self.folders.path(number)


def test_after_an_error_no_more_pictures_are_begun():
    begun = []

    def decode(number):
        begun.append(number)
        time.sleep(0.001)
        raise DataError("no picture")

    with pytest.raises(DataError, match="no picture"):
        list(decoded(((64, decode) for _ in range(10)), 8, threads=1))
    assert len(begun) < 64 * (AHEAD + 1) // decoding.PORTION + 2
    before = len(begun)
    time.sleep(0.02)
    assert len(begun) == before


@pytest.fixture
def asked_for(folders, monkeypatch):
    """Return the number of threads that training and evaluation ask for."""
    seen = []
    monkeypatch.setattr(
        batches,
        "decoded",
        lambda asked, side, threads: seen.append(threads) or decoded(asked, side, 1),
    )

    def ask():
        seen.clear()
        order = torch.Generator().manual_seed(0)
        list(PictureBatches(folders, torch.arange(4), 2, order, TrainingPicture(16)))
        list(central_batches(folders, torch.arange(4), 2, CentralPicture(16, 16)))
        assert len(seen) == 2
        return {*seen}

    return ask


def test_as_many_threads_decode_as_torch_has(asked_for, monkeypatch):
    """So workers side by side share the cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64), raising=False)
    monkeypatch.delenv(PROCESSES, raising=False)
    for threads in (1, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        assert asked_for() == {threads}


def test_under_torchrun_processes_share_the_cores_that_they_may_use(asked_for, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(10), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    for processes, threads in ((1, 10), (2, 5), (3, 3), (11, 1)):
        monkeypatch.setenv(PROCESSES, str(processes))
        assert asked_for() == {threads}
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setenv(PROCESSES, "8")
    assert asked_for() == {4}
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert asked_for() == {1}
