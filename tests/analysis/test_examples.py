"""Measurements of a loss use the same training examples every time, and leave the task alone."""

import pytest
import torch

from bench_tasks import Pair, Plain, Points
from made_data import SMALL, tiny
from sgdf.analysis.example_counts import count_examples
from sgdf.analysis.examples import describe_examples, mean_loss, training_batches
from sgdf.analysis.hessian import Hessian
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks import Task
from sgdf.bench.tasks.characters.task import Characters
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.tasks.cifar.task import CifarTask


def test_examples_are_training_rows_as_they_are_and_the_same_for_every_task(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    monkeypatch.setattr(CifarTask, "data_set", tiny(CIFAR10, tmp_path), raising=False)
    tasks = [CifarTask(**SMALL) for _ in range(2)]
    first, second = (training_batches(task, 20, 8) for task in tasks)
    assert [count_examples(batch) for batch in first] == [8, 8, 4]
    for (images, classes), (others, other_classes) in zip(first, second, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(classes, other_classes)
    rows = {image.numpy().tobytes() for image in tasks[0].data["train"][0]}
    chosen = {image.numpy().tobytes() for images, _ in first for image in images}
    assert len(chosen) == 20
    assert chosen <= rows
    assert describe_examples(tasks[0], first) == "20 training examples, without augmentation"


def test_classes_are_balanced_and_the_seed_chooses():
    task = Points()
    inputs, classes = training_batches(task, 30)[0]
    assert torch.bincount(classes).tolist() == [10, 10, 10]
    assert not torch.equal(training_batches(task, 30, seed=1)[0][0], inputs)
    assert count_examples(training_batches(task, 10**6, 10**6)[0]) == 120


def test_targets_that_are_numbers_are_chosen_by_chance():
    (batch,) = training_batches(Plain(), 10)
    assert len(batch[0]) == 10
    assert mean_loss(Plain(), [batch]) > 0.0


def test_other_tasks_give_their_first_batches():
    task = Characters(hidden=8, characters=20_000)
    batches = training_batches(task, 60, 20)
    assert len(batches) == 3
    assert describe_examples(task, batches).startswith("the first batches of an epoch (3)")
    assert mean_loss(task, batches) == mean_loss(task, batches), "the hidden state was carried on"
    assert task.hidden is None


def test_every_pass_over_the_batches_begins_in_the_same_state():
    task = Characters(hidden=8, characters=20_000)
    batches = training_batches(task, 60, 20)
    task.loss(next(iter(task.batches(7, torch.Generator()))))  # as training does meanwhile
    first, second = ([task.loss(batch).item() for batch in batches] for _ in range(2))
    assert first == second
    vector = torch.ones(sum(param.numel() for param in task.model.parameters()))
    hessian = Hessian(task.model, lambda _, batch: task.loss(batch), batches)
    assert torch.equal(hessian @ vector, hessian @ vector), "of one and the same matrix"


def test_the_loss_is_the_mean_over_examples_and_draws_the_same_numbers():
    task = Points(dropout=0.5)  # in training mode: the mask is random
    task.model[1].momentum = 0.0
    batches = training_batches(task, 50, 40)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert mean_loss(task, batches) == mean_loss(task, batches)
    assert torch.equal(torch.random.get_rng_state(), before)
    task.model.eval()
    rows = [torch.cat(parts) for parts in zip(*batches, strict=True)]
    assert mean_loss(task, batches) == pytest.approx(task.loss(rows).item(), rel=1e-6)


def test_batches_that_draw_from_global_generators_are_the_same_each_time():
    class Noisy(Task):
        def batches(self, batch_size, order):
            return [torch.rand(batch_size) for _ in range(5)]

        def loss(self, batch):
            return batch.mean()

        def evaluate(self, split):
            return {}

    first, second = (training_batches(Noisy(), 40, 20) for _ in range(2))
    assert len(first) == 2
    assert all(map(torch.equal, first, second))


def test_a_task_without_a_loss_is_refused():
    with pytest.raises(SpecError, match=r"Pair has no loss\(batch\)"):
        training_batches(Pair(), 10)


def test_batches_that_cannot_be_counted_weigh_the_same():
    class Objects(Task):
        def batches(self, batch_size, order):
            return [1.0, 2.0]

        def loss(self, batch):
            return torch.tensor(batch)

        def evaluate(self, split):
            return {}

    assert mean_loss(Objects(), training_batches(Objects(), 2, 1)) == 1.5
