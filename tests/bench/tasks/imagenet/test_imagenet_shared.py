"""Two processes that train and evaluate ImageNet together."""

import os

import pytest
import torch

from bench_tasks import run_of, trained
from grids import experiment, under_torchrun
from locations import ROOT, SUPPORT
from made_pictures import LITTLE, let_it_settle, write_photographs
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import Store
from sgdf.bench.training import checkpoint


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "src", SUPPORT))))
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    root = write_photographs(tmp_path / "data" / "pictures", train=10)
    let_it_settle(root)
    return root


def shared(path, store, *options):
    output, _ = (process := under_torchrun(path, store, *options)).communicate(timeout=240)
    assert process.returncode == 0, output
    (folder,) = Store(store).folders()
    return folder


def test_two_processes_train_and_evaluate_as_one_does_and_open_each_picture_once(
    tmp_path, monkeypatch
):
    """With pieces that depend on the position alone: the batches of both make up those of one."""
    diary = tmp_path / "diary"
    diary.mkdir()
    monkeypatch.setenv("SGDF_TEST_DIARY", str(diary))
    task = {"name": "counting_pictures:Counting", **LITTLE}
    train = {"epochs": 2, "batch_size": 8, "threads": 1, "log_every": 1}
    path = experiment(
        tmp_path, task=task, optimizer={"name": "sgd", "lr": 0.01}, train=train, seeds=(0,)
    )
    folder = shared(path, tmp_path / "store")
    opened = {file.name: file.read_text().splitlines() for file in diary.iterdir()}
    first, second = (opened[f"evaluated-{rank}"] for rank in (0, 1))
    assert not {*first} & {*second}
    # Validation and test pictures in both epochs: 6 and 9, of which one process has 3 and 5.
    assert (len(first), len(second)) == (2 * 8, 2 * 7)
    both = [opened[f"trained-{rank}"] for rank in (0, 1)]
    # 24 pictures are 6 batches of 4; the threads may have begun a few batches ahead of the end.
    assert [len(one) for one in both] == [24, 24]
    for epoch in (slice(0, 12), slice(12, 24)):
        assert len({*both[0][epoch], *both[1][epoch]}) == 24

    (run,) = resolve_machine(load(path), threads=1).runs
    monkeypatch.delenv("SGDF_TEST_DIARY")
    alone = trained(run)
    assert folder.result()["step"] == alone.step == 6
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    theirs = [row for row in alone.rows if row["kind"] == "epoch"]
    for mine, other in zip(rows, theirs, strict=True):
        assert set(mine["test"]) == {"loss", "accuracy", "top5_accuracy"}
        assert mine["train"]["loss"] == pytest.approx(other["train"]["loss"], rel=0.2)


def test_a_shared_evaluation_comes_to_the_metrics_of_the_saved_model(tmp_path):
    task, train = {"name": "imagenet", **LITTLE}, {"epochs": 1, "batch_size": 8, "threads": 1}
    path = experiment(
        tmp_path, task=task, optimizer={"name": "sgd", "lr": 0.01}, train=train, seeds=(0,)
    )
    folder = shared(path, tmp_path / "store")
    (row,) = (row for row in folder.rows() if row["kind"] == "epoch")
    alone = trained(run_of(task, {"name": "sgd", "lr": 0.01}, {"epochs": 1, "batch_size": 8}))
    alone.model.load_state_dict(checkpoint.load(folder)["model"])
    with torch.no_grad():
        found = alone.evaluate()
    for split in ("validation", "test"):
        assert row[split]["accuracy"] == found[split]["accuracy"]
        assert row[split]["loss"] == pytest.approx(found[split]["loss"], rel=1e-5)
