"""The task imagenet: options, splits, metrics, training."""

import math

import pytest
import torch
from torch import nn

from bench_tasks import equal, run_of, trained
from made_pictures import LITTLE, let_it_settle, write_photographs
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.tasks.imagenet import data
from sgdf.bench.tasks.imagenet.data import split_by_class
from sgdf.bench.tasks.imagenet.task import ImageNet
from sgdf.bench.tasks.images.pictures import CentralPicture


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    return write_photographs(tmp_path / "data" / "pictures")


def test_splits_are_balanced_and_have_nothing_in_common():
    task = ImageNet(**LITTLE)
    targets = task.photographs.train.targets
    train, validation, test = (
        task.rows[split].tolist() for split in ("train", "validation", "test")
    )
    assert sorted(train + validation) == list(range(27))
    assert targets[validation].bincount().tolist() == [2, 2, 2]
    assert targets[train].bincount().tolist() == [7, 7, 7]
    assert test == list(range(9))
    assert task.count_examples() == {"train": 21, "validation": 6, "test": 9}


def test_one_split_does_not_depend_on_the_size_of_the_other():
    targets = torch.arange(10).repeat(9)
    train, held_back = split_by_class(targets, 30, 20)
    assert equal(split_by_class(targets, 30, 5)[0], train)
    assert equal(split_by_class(targets, 10, 20)[1], held_back)
    assert equal(split_by_class(targets, 12, 20)[0], train[:12])
    assert not set(train.tolist()) & set(held_back.tolist())
    assert held_back.tolist() != sorted(held_back.tolist())


def test_of_classes_of_any_size_as_many_are_in_both_splits():
    """Those of ImageNet have 732 to 1,300 pictures."""
    targets = torch.arange(4).repeat_interleave(torch.tensor([9, 30, 15, 12]))
    train, held_back = split_by_class(targets, 0, 20)
    assert targets[held_back].bincount().tolist() == [5, 5, 5, 5]
    assert targets[train].bincount().tolist() == [4, 25, 10, 7]
    assert sorted([*train.tolist(), *held_back.tolist()]) == list(range(66))
    train, held_back = split_by_class(targets, 14, 22)
    assert sorted(targets[held_back].bincount().tolist()) == [5, 5, 6, 6]
    assert sorted(targets[train].bincount().tolist()) == [3, 3, 4, 4]
    assert not set(train.tolist()) & set(held_back.tolist())
    # The first class has 4 left, the others as many as they are asked for.
    assert targets[split_by_class(targets, 25, 20)[0]].bincount().tolist() == [4, 7, 7, 7]


def test_the_paper_protocol_trains_on_all_pictures():
    task = ImageNet(**LITTLE)
    before = task.describe_data()
    assert before["data of train"].endswith(" of 21 of 21 pictures")
    task.train_on_validation()
    assert list(task.rows) == ["train", "test"]
    assert sorted(task.rows["train"].tolist()) == list(range(27))
    everything = task.photographs.train.digest(task.rows["train"])
    assert everything.endswith(" of 27 of 27 pictures")
    assert task.describe_data() == {
        "data of train": everything,
        "data of test": before["data of test"],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "resnet19"}, "network = 'resnet19': must be one of .*; did you mean resnet18"),
        ({"width": 0.0}, "width = 0.0: must be above 0"),
        ({"width": math.nan}, "width = nan: must be"),
        ({"side": 31}, "side = 31: must be at least 32"),
        ({"shorter_side": 31}, "shorter_side = 31: must be at least side = 32"),
        ({"train_images": -1}, "must not be negative"),
        ({"validation_images": 0}, "at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused_without_data(change, message, tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SpecError, match=message):
        run_of({"name": "imagenet", **LITTLE, **change})


@pytest.mark.parametrize("change", [{"train_images": 22}, {"validation_images": 27}])
def test_more_pictures_than_there_are_are_refused_before_a_run_begins(change, tmp_path):
    run = run_of({"name": "imagenet", **LITTLE, **change})
    with pytest.raises(SpecError, match="there are 27 images for both"):
        Plan((run,), tmp_path / "store").prepare()
    assert not (tmp_path / "store").exists()


def test_other_pictures_than_the_published_ones_are_taken_knowingly_only(monkeypatch):
    with pytest.raises(DataError, match="27 pictures to train on and 9 to test on, of 3 classes; "):
        ImageNet(**{**LITTLE, "official": True})
    monkeypatch.setattr(data, "PUBLISHED", {"train": 27, "val": 9})
    with pytest.raises(DataError, match="official = false"):
        ImageNet(**{**LITTLE, "official": True})
    monkeypatch.setattr(data, "PUBLISHED_CLASSES", 3)
    ImageNet(**{**LITTLE, "official": True})


def test_both_folders_need_the_same_classes(root):
    (root / "val" / "n03").rename(root / "val" / "n04")
    with pytest.raises(DataError, match=r"train has a class n03, \S+val has not, and 1 others are"):
        ImageNet(**LITTLE)


def test_a_step_tells_loss_and_accuracy_of_its_batch():
    task = ImageNet(**LITTLE)
    pictures, classes = next(iter(task.batches(12, torch.Generator().manual_seed(0))))
    assert (pictures.shape, pictures.dtype) == ((12, 3, 32, 32), torch.uint8)
    guesses = torch.cat([(classes[:3] + 1) % 3, classes[3:]])
    scores = 5.0 * nn.functional.one_hot(guesses, 3)
    task.model = lambda pictures: scores
    losses = []
    logged = task.step((pictures, classes), losses.append)
    assert losses == [logged["loss"]]
    assert logged["accuracy"].item() == 0.75
    assert logged["loss"].item() == pytest.approx(math.log(math.exp(5) + 2) - 5 * 0.75)


class Guessing(nn.Module):
    """Scores that depend on the number of the picture, which is asked in order."""

    def __init__(self, scores):
        super().__init__()
        self.scores, self.done, self.seen = scores, 0, []

    def forward(self, pictures):
        """Return the next scores."""
        self.seen.append(pictures)
        self.done += len(pictures)
        return self.scores[self.done - len(pictures) : self.done]


def test_metrics_are_loss_and_both_accuracies_of_central_pictures(tmp_path, monkeypatch):
    write_photographs(tmp_path / "data" / "many", 2, 2, [f"n{n:02}" for n in range(12)])
    monkeypatch.setattr("sgdf.bench.tasks.imagenet.task.EVALUATION_BATCH", 5)
    task = ImageNet(**{**LITTLE, "folder": "many"})
    scores = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))
    task.model = model = Guessing(scores)
    found = task.evaluate("test")
    targets = torch.arange(12).repeat_interleave(2)
    ranks = (scores > scores.gather(1, targets[:, None])).sum(1)
    assert found["accuracy"] == (ranks < 1).double().mean().item()
    assert found["top5_accuracy"] == (ranks < 5).double().mean().item()
    assert 0 < found["accuracy"] < found["top5_accuracy"] < 1
    expected = nn.functional.cross_entropy(scores, targets).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    test = task.photographs.test
    centres = [torch.tensor(CentralPicture(32, 36)(test.path(n))) for n in range(24)]
    assert torch.equal(torch.cat(model.seen).permute(0, 2, 3, 1), torch.stack(centres))


def test_shares_of_an_evaluation_add_up_to_the_whole():
    task = ImageNet(**LITTLE)
    task.model.eval()
    with torch.no_grad():
        whole = task.evaluate("test")
        for count in (2, 4, 12):  # of twelve shares, three are empty
            shares = [task.evaluate_share("test", rank, count) for rank in range(count)]
            assert sum(examples for _, examples in shares) == 9
            for name, value in whole.items():
                total = sum(metrics[name] * examples for metrics, examples in shares)
                assert total / 9 == pytest.approx(value, rel=1e-5)


def test_three_classes_have_a_top_three():
    task = ImageNet(**LITTLE)
    assert task.evaluate("validation")["top5_accuracy"] == 1.0


def test_curvature_is_measured_on_classes_drawn_from_the_predictions():
    task = ImageNet(**LITTLE)
    batch = next(iter(task.batches(6, torch.Generator().manual_seed(0))))
    loss, count = task.sampled_loss(batch)
    assert count == 6
    assert loss.requires_grad


def test_training_lowers_the_loss(root):
    let_it_settle(root)
    task = {"name": "imagenet", **LITTLE, "width": 0.125}
    train = {"epochs": 12, "batch_size": 7, "evaluate_every": 12}
    schedule = {"name": "CosineAnnealingLR"}
    rows = trained(run_of(task, {"name": "sgdf", "lr": 0.05}, train, schedule)).rows
    epochs = [row for row in rows if row["kind"] == "epoch"]
    assert epochs[-1]["train"]["loss"] < 0.7 * epochs[0]["train"]["loss"]
    assert epochs[-1]["test"]["accuracy"] > 0.6
    rates = [row["lr"] for row in epochs]
    wanted = [0.05 * (1 + math.cos(math.pi * epoch / 12)) / 2 for epoch in range(12)]
    assert rates == pytest.approx(wanted)


# While the scaler looks for a scale it skips steps, here those of a whole epoch.
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_and_accumulation_train_as_ever(precision):
    task = {"name": "imagenet", **LITTLE}
    train = {"epochs": 12, "batch_size": 6, "accumulate": 2, "precision": precision}
    trainer = trained(run_of(task, {"name": "sgdf", "lr": 0.05}, train))
    epochs = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert epochs[-1]["train"]["loss"] < epochs[0]["train"]["loss"]
    assert math.isfinite(epochs[-1]["test"]["loss"])
