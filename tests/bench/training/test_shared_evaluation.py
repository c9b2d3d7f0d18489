"""Evaluations that processes share: who takes part, and how their means are put together."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bench_tasks import Pair, Plain, run_of
from grids import experiment, under_torchrun
from locations import ROOT, SUPPORT
from sgdf.bench.errors import DataError, StoreError
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.evaluation import can_be_shared
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer


class Shared(Plain):
    """Can be evaluated in shares."""

    def evaluate_share(self, split, rank, count):
        """Return the loss on a share."""
        inputs, targets = (part[rank::count] for part in self.data[split])
        return {"loss": self.criterion(self.model(inputs), targets)}, len(inputs)


class SharedPair(Pair):
    """Has several networks."""

    def evaluate_share(self, split, rank, count):
        """Return nothing."""
        return {"loss": 0.0}, 1


def of_two(rank):
    ranks = Ranks()
    ranks.rank, ranks.count = rank, 2
    return ranks


def test_only_several_processes_share_and_only_tasks_with_shares_and_one_network():
    assert can_be_shared(Shared(), of_two(0))
    assert not can_be_shared(Shared(), Ranks())
    assert not can_be_shared(Plain(), of_two(0))
    assert not can_be_shared(SharedPair(), of_two(0))


@pytest.mark.parametrize("rank", [0, 1])
def test_means_weigh_as_many_examples_as_they_are_of(rank, monkeypatch):
    means = ({"loss": 0.5, "accuracy": 1.0}, 3), ({"loss": 4.5, "accuracy": 0.0}, 1)
    other, count = means[1 - rank]
    theirs = torch.tensor([other["loss"] * count, other["accuracy"] * count, count])
    monkeypatch.setattr(dist, "all_reduce", lambda sums: sums.add_(theirs))
    assert of_two(rank).shared_means(*means[rank]) == {"loss": 1.5, "accuracy": 0.75}


def test_a_process_evaluates_its_share_with_the_buffers_of_the_first(monkeypatch):
    """The other process adds nothing here, so the loss is that of the share alone."""
    trainer = Trainer(run_of("bench_tasks:Plain"), Ranks())
    trainer.ranks, trainer.task = of_two(1), Shared()
    trainer.task.model = trainer.model = trainer.evaluated = nn.Sequential(
        nn.Linear(3, 1), nn.BatchNorm1d(1)
    )

    def broadcast(tensor, src):
        assert src == 0
        sent.append(tensor)

    sent = []
    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda box, src: None)
    monkeypatch.setattr(dist, "all_reduce", lambda sums: None)
    monkeypatch.setattr(dist, "all_gather_object", lambda values, value: None)
    found = trainer.evaluate()
    assert [tensor.data_ptr() for tensor in sent] == [b.data_ptr() for b in trainer.model.buffers()]
    trainer.model.eval()
    with torch.no_grad():
        loss, examples = trainer.task.evaluate_share("test", 1, 2)
    assert examples == 16
    assert found["test"]["loss"] == pytest.approx(loss["loss"].item())


def test_one_process_evaluates_all_as_ever(monkeypatch):
    monkeypatch.setattr(Shared, "evaluate_share", None)  # which would fail
    trainer = Trainer(run_of("bench_tasks:Plain"), Ranks())
    trainer.task = task = Shared()
    task.model = trainer.model
    whole = nn.functional.mse_loss(task.model(task.data["test"][0]), task.data["test"][1])
    assert trainer.evaluate()["test"]["loss"] == pytest.approx(whole.item())


def shared_run(tmp_path, monkeypatch, **options):
    """Return what a run in two processes said and left, and what each of them was asked for."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "src", SUPPORT))))
    monkeypatch.setenv("SGDF_TEST_DIARY", str(tmp_path))
    path = experiment(
        tmp_path,
        task={"name": "sharing_tasks:Sharing", **options},
        optimizer={"name": "sgd", "lr": 0.01},
        train={"epochs": 2, "batch_size": 8},
        seeds=(0,),
    )
    process = under_torchrun(path, tmp_path / "store")
    output, _ = process.communicate(timeout=120)
    (folder,) = Store(tmp_path / "store").folders()
    diaries = [(tmp_path / rank).read_text().split() for rank in "01"]
    return folder, process.returncode, output, diaries


@pytest.mark.slow  # torch's processes abort at their exit now and then, after the run has ended
def test_only_the_first_process_evaluates_what_is_costly_and_all_have_it(tmp_path, monkeypatch):
    folder, code, output, diaries = shared_run(tmp_path, monkeypatch)
    assert code == 0, output
    cheap, costly = ["begin", "share", "share"], ["begin", *["share", "costly"] * 2]
    assert diaries == [cheap + costly, cheap + cheap]
    assert folder.result()
    last = [row for row in folder.rows() if row["kind"] == "epoch"][-1]
    assert last["test"]["process"] == 0.0


def test_an_error_in_another_process_is_recorded(tmp_path, monkeypatch):
    folder, code, output, _ = shared_run(tmp_path, monkeypatch, fails="share")
    assert code != 0
    assert "in process 1: ZeroDivisionError: the second one fails" in folder.failure(), output


def test_data_that_are_damaged_for_another_process_are_told_and_the_run_can_go_on(
    tmp_path, monkeypatch
):
    folder, code, output, _ = shared_run(tmp_path, monkeypatch, fails="data of share")
    assert code != 0
    assert "in process 1: DataError: a picture is damaged" in output
    assert folder.progress() is State.WAITING, output


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError("no"), RuntimeError), (DataError("no"), StoreError)],
)
def test_what_fails_in_one_process_is_raised_in_all(error, raised, monkeypatch):
    sent = []

    def gather(values, value):
        sent.append(value)
        values[:] = [None, *sent[:1]]

    def fail():
        raise error

    monkeypatch.setattr(dist, "all_gather_object", gather)
    with pytest.raises(type(error)):
        of_two(1).together(fail)
    with pytest.raises(raised, match=f"in process 1: {type(error).__name__}: no"):
        of_two(0).together(lambda: 1)
    sent[:] = [None]
    assert of_two(0).together(lambda: 1) == 1
    with pytest.raises(type(error)):  # one process asks nobody
        Ranks().together(fail)
