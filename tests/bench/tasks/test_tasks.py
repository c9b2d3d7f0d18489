"""The bundled tasks: what each of them promises, and what is particular to some."""

import itertools

import pytest
import torch
from torch import nn

from bench_tasks import run_of
from made_data import FEW_WORDS
from sgdf.bench.tasks import TASKS, find_task
from sgdf.bench.training.randomness import seed_all
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.result import result_of
from sgdf.bench.training.trainer import Trainer

# Whose data need not be there: test_cifar.py and tests/bench/tasks/{imagenet,vit} make their own.
FETCHED = {"cifar10", "cifar100", "imagenet", "vit"}
pytestmark = pytest.mark.usefixtures("words")
DRAWING = {"wgan-gp", "dit", "sit"}  # judged by what they draw: tests/bench/tasks/{wgan,diffusion}
DETECTING = {"voc", "bccd"}  # which need torchvision: tests/vision
each_task = pytest.mark.parametrize(
    "name", [name for name in TASKS if name not in FETCHED | DRAWING | DETECTING]
)


def trainer_of(name, **train):
    train = {"epochs": 1, "batch_size": 32, **train}
    lr = 0.003
    return Trainer(
        run_of({"name": name, **small(name)}, {"name": "adam", "lr": lr}, train),
        Ranks(),
    )


def small(name):
    return {"characters": {"characters": 20_000, "hidden": 32}, "ptb": FEW_WORDS}.get(name, {})


@each_task
def test_training_lowers_the_loss(name):
    trainer = trainer_of(name, epochs=5, log_every=10)
    before = trainer.evaluate()
    trainer.fit(lambda trainer: None)
    after = trainer.evaluate()
    assert all(after[split]["loss"] < 0.9 * before[split]["loss"] for split in after)
    assert trainer.metric.name in after["validation"]


@each_task
def test_splits_have_nothing_in_common(name):
    data = find_task(name)(**small(name)).data
    assert list(data) == ["train", "validation", "test"]
    inputs = [part[0] if isinstance(part, tuple) else part for part in data.values()]
    starts = [
        part.untyped_storage().data_ptr() + part.storage_offset() * part.element_size()
        for part in inputs
    ]
    ends = [start + part.nbytes for start, part in zip(starts, inputs, strict=True)]
    if name == "ptb":  # whose splits are files of their own
        spans = sorted(zip(starts, ends, strict=True))
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    else:
        assert ends[:2] == starts[1:]  # consecutive stretches of one tensor


@each_task
def test_the_examples_are_counted(name):
    trainer = trainer_of(name)
    counts = result_of(trainer)["examples"]
    assert list(counts) == ["train", "validation", "test"]
    for split, part in trainer.task.data.items():
        assert counts[split] == len(part[0] if isinstance(part, tuple) else part) > 0


def test_a_task_that_cannot_count_its_examples_keeps_its_result(monkeypatch):
    trainer = trainer_of("digits-mlp")
    monkeypatch.setattr(trainer.task, "count_examples", lambda: 1 / 0)
    result = result_of(trainer)
    assert "examples" not in result
    assert result["parameters"] > 0


@each_task
def test_the_paper_protocol_has_no_validation_data(name):
    task, paper = (find_task(name)(**small(name)) for _ in range(2))
    paper.train_on_validation()
    sizes = [len(part[0]) if isinstance(part, tuple) else len(part) for part in task.data.values()]
    train = paper.data["train"]
    added = 0 if name == "ptb" else sizes[1]  # which leaves them out, as the published programs do
    assert len(train[0] if isinstance(train, tuple) else train) == sizes[0] + added
    assert list(paper.data) == ["train", "test"]


@each_task
def test_an_epoch_sees_all_training_data_once(name):
    task = find_task(name)(**small(name))
    batches = task.batches(32, torch.Generator().manual_seed(0))
    assert len(list(batches)) == len(batches)
    seen = torch.cat([inputs.flatten() for inputs, _ in batches]).sort().values
    if task.sequential:
        columns = batches.columns[:-1]
        assert torch.equal(seen, columns.flatten().sort().values)
    else:
        assert torch.equal(seen, task.data["train"][0].flatten().sort().values)


@each_task
def test_options_change_the_model(name):
    changes = {
        "digits-mlp": {"hidden": 8, "layers": 3},
        "digits-cnn": {"width": 4, "batch_norm": True},
        "characters": {
            "hidden": 8,
            "layers": 2,
            "dropout": 0.5,
            "length": 8,
            "characters": 9000,
        },
        "logistic": {"penalty": 10.0},
        "ptb": {
            "layers": 1,
            "embedding": 8,
            "hidden": 8,
            "vocabulary": 100,
            "input_dropout": 0.0,
            "between_dropout": 0.0,
            "output_dropout": 0.0,
            "word_dropout": 0.0,
            "weight_drop": 0.0,
            "activation": 0.0,
            "slowness": 0.0,
            "length": 8,
            "vary_length": False,
            "train_recurrent": False,
        },
    }
    for option, value in changes[name].items():
        seed_all(0)
        usual = find_task(name)(**small(name))
        seed_all(0)
        other = find_task(name)(**{**small(name), option: value})
        assert fingerprint(usual) != fingerprint(other), option


def fingerprint(task):
    task.model.train()
    (optimizer,) = task.optimizers(lambda params: torch.optim.SGD(params, lr=0.1)).values()
    logged = []

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for batch in list(task.batches(16, torch.Generator().manual_seed(0)))[:2]:
        logged.append(task.step(batch, update)["loss"].item())
    return logged


def test_figures_do_not_depend_on_the_batches_of_evaluation(monkeypatch):
    task = find_task("digits-mlp")()
    with torch.no_grad():
        whole = task.evaluate("test")
        monkeypatch.setattr("sgdf.bench.tasks.supervised.EVALUATION_BATCH", 30)
        parts = task.evaluate("test")
    assert parts == pytest.approx(whole, rel=1e-5)


def test_figures_of_text_do_not_depend_on_how_it_is_cut():
    whole, parts = (
        find_task("characters")(characters=20_000, hidden=16, length=length) for length in (400, 7)
    )
    parts.model.load_state_dict(whole.model.state_dict())
    with torch.no_grad():
        assert parts.evaluate("test") == pytest.approx(whole.evaluate("test"), rel=1e-5)


def test_each_epoch_of_text_begins_without_memory():
    task = find_task("characters")(characters=20_000, hidden=16)
    batches = task.batches(4, torch.Generator())
    task.step(next(iter(batches)), lambda loss: None)
    assert task.hidden is not None
    task.batches(4, torch.Generator())
    assert task.hidden is None


def test_the_text_is_carried_on_from_batch_to_batch():
    trainer = Trainer(run_of({"name": "characters", "characters": 20_000, "hidden": 16}), Ranks())
    batches = list(trainer.task.batches(4, torch.Generator()))
    first, second = batches[0], batches[1]
    assert torch.equal(first[0][1:], first[1][:-1])
    assert torch.equal(first[1][-1], second[0][0])
    assert trainer.task.hidden is None
    trainer.task.step(first, lambda loss: None)
    carried = trainer.task.hidden
    with torch.no_grad():
        fresh, _ = trainer.model(second[0], None)
        going_on, _ = trainer.model(second[0], carried)
    assert not torch.allclose(fresh[0], going_on[0])
    loss = trainer.task.step(second, lambda loss: None)["loss"]
    expected = nn.functional.cross_entropy(going_on.flatten(0, 1), second[1].flatten())
    torch.testing.assert_close(loss, expected)


def test_logistic_regression_is_convex_and_starts_at_zero():
    task = find_task("logistic")(penalty=0.1)
    (inputs, targets), linear = task.data["train"], task.model[1]
    assert not linear.weight.any()

    def loss(weight):
        linear.weight.data = weight
        return task.loss(task.model(inputs), targets).item()

    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        a, b = torch.randn(2, 10, 64, generator=generator)
        gap = (loss(a) + loss(b)) / 2 - loss((a + b) / 2)
        assert gap >= 0.1 / 8 * (a - b).square().sum().item() * (1 - 1e-4)  # strongly so
