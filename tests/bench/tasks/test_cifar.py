"""The CIFAR task: splits, options, augmentation, training."""

import math
import shutil

import pytest
import torch
from torch import nn

from bench_tasks import equal, essence, run_of, trained
from kept_runs import do
from made_data import SMALL
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.jobs.plan import Plan, prepare_data
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.cifar.augment import AugmentedPairs
from sgdf.bench.tasks.cifar.data import DEVIATION, MEAN
from sgdf.bench.tasks.cifar.task import Cifar10, Cifar100


def as_set(images):
    return {image.numpy().tobytes() for image in images}


def balanced(classes, kinds):
    counts = classes.bincount(minlength=kinds)
    return counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("kind", "kinds"), [(Cifar10, 10), (Cifar100, 100)])
def test_splits_are_balanced_and_have_nothing_in_common(kind, kinds, data):
    (images, _), (test_images, test_classes) = kind.data_set.read()
    for train, validation in ((24, 16), (13, 7), (len(images) - 15, 15)):
        options = {**SMALL, "train_images": train, "validation_images": validation}
        splits = kind(**options).data
        assert [len(part[0]) for part in splits.values()] == [train, validation, len(test_images)]
        assert all(balanced(classes, kinds) for _, classes in splits.values())
        parts = [as_set(part[0]) for part in splits.values()]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert set.union(*parts[:2]) <= as_set(images)
        assert equal(splits["test"], (test_images, test_classes))


def test_one_split_does_not_depend_on_the_size_of_the_other(data):
    def split(name, **sizes):
        return Cifar10(**{**SMALL, **sizes}).data[name]

    assert equal(split("validation"), split("validation", train_images=5))
    assert equal(split("train"), split("train", validation_images=3))
    for mine, whole in zip(split("train", train_images=9), split("train"), strict=True):
        assert torch.equal(mine, whole[:9])


def test_the_paper_protocol_trains_on_the_validation_images_too(data):
    (images, classes), _ = Cifar10.data_set.read()
    task = Cifar10(**SMALL)
    task.train_on_validation()
    assert list(task.data) == ["train", "test"]
    assert equal(task.data["train"], (images, classes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "vgg12"}, "network = 'vgg12': must be one of .*vgg11, .*; did you mean vgg11"),
        ({"train_images": 25}, "train_images = 25 and validation_images = 16: there are 40"),
        ({"train_images": 0}, "must be at least 1"),
        ({"validation_images": 0}, "must be at least 1"),
        ({"train_images": -3}, "must be at least 1"),
        ({"width": 0.0}, "width = 0.0: must be above 0"),
        ({"width": -1.0}, "width = -1.0: must be above 0"),
        ({"width": math.inf}, "width = inf: must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_run_begins(change, message, data, tmp_path):
    options = {**SMALL, **change}
    with pytest.raises(SpecError, match=message):
        Cifar10(**options)
    with pytest.raises(SpecError, match=f"task 'cifar10': .*{message}"):
        Plan((run_of({"name": "cifar10", **options}),), tmp_path / "store").prepare()


def test_damaged_data_are_noticed_before_a_run_begins(data):
    with (Cifar10.data_set.archive.place / "data_batch_3.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="damaged"):
        prepare_data([run_of({"name": "cifar10", **SMALL})])


def test_unofficial_data_are_accepted_on_request(data):
    place = Cifar10.data_set.archive.place
    shutil.copy(place / "data_batch_1.bin", place / "data_batch_2.bin")
    with pytest.raises(DataError, match="not the published file"):
        Cifar10(**SMALL)
    Cifar10(**SMALL, official=False)
    prepare_data([run_of({"name": "cifar10", "official": False, **SMALL})])


def test_a_step_tells_loss_and_accuracy_of_its_batch(data):
    task = Cifar10(**SMALL)
    (images, classes), *_ = task.batches(12, torch.Generator().manual_seed(0))
    guesses = torch.cat([(classes[:3] + 1) % 10, classes[3:]])
    scores, seen, losses = 5.0 * nn.functional.one_hot(guesses, 10), [], []

    def model(images):
        seen.append(images)
        return scores

    task.model = model
    logged = task.step((images, classes), losses.append)
    assert equal(seen, [images])
    assert losses == [logged["loss"]]
    assert logged["loss"].item() == pytest.approx(math.log(math.exp(5) + 9) - 5 * 0.75)
    assert logged["accuracy"].item() == 0.75


def test_training_images_are_augmented_and_others_are_not(data):
    task = Cifar10(**{**SMALL, "network": "resnet8", "width": 0.25})
    own = task.batches(10, torch.Generator().manual_seed(3))
    expected = AugmentedPairs(*task.data["train"], 10, torch.Generator().manual_seed(3))
    assert isinstance(own, AugmentedPairs)
    assert equal(list(own), list(expected))
    images, classes = task.data["test"]
    task.model.eval()
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    with torch.no_grad():
        scores = task.model[1]((images / 255 - mean) / deviation)
        figures = task.evaluate("test")
    assert figures["accuracy"] == (scores.argmax(1) == classes).double().mean().item()
    expected = nn.functional.cross_entropy(scores, classes).item()
    assert figures["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_the_model_has_the_width_and_the_classes_of_its_task(name, classes, data):
    task = {"cifar10": Cifar10, "cifar100": Cifar100}[name](**{**SMALL, "width": 0.1})
    convolution = task.model[1][0]
    assert convolution.weight.shape == (6, 3, 3, 3)
    assert task.model(task.data["test"][0][:2]).shape == (2, classes)
    assert (task.selects, task.largest) == ("accuracy", True)


def test_training_lowers_the_loss(data):
    task = {"name": "cifar10", **SMALL, "network": "resnet8", "width": 0.5}
    run = run_of(task, {"name": "adam", "lr": 0.003}, {"epochs": 30, "batch_size": 8})
    rows = [row for row in trained(run).rows if row["kind"] == "epoch"]
    for split in ("train", "validation", "test"):
        assert rows[-1][split]["loss"] < 0.5 * math.log(10)
        assert rows[-1][split]["accuracy"] > 0.5


@pytest.mark.usefixtures("publishing_at_once")
@pytest.mark.parametrize(
    ("task", "protocol"),
    [
        ({"name": "cifar10", **SMALL}, "validation"),  # dropout
        ({"name": "cifar100", **SMALL, "network": "resnet8"}, "paper"),  # BatchNorm
    ],
)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(task, protocol, data, tmp_path):
    train = {"log_every": 1, "epochs": 2, "batch_size": 8}
    run = run_of(task, "sgdf", train, protocol=protocol)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    steps = undisturbed.result()["step"]
    assert steps == 2 * (3 if protocol == "validation" else 5)
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert len(folder.environments()) == steps
    for mine, other in zip(essence(folder), essence(undisturbed), strict=True):
        assert equal(mine, other)
