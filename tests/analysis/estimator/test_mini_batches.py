"""Gradients of mini-batches and of all training data, on a training that stays as it is."""

import collections

import pytest
import torch

from bench_tasks import Plain, Points
from sgdf.analysis.estimator.mini_batches import MiniBatches, halve
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks.characters.task import Characters
from sgdf.bench.tasks.digits.task import DigitsMLP


def names_of(task):
    return [name for name, _ in task.model.named_parameters()]


def backward(task, batch):
    """Return the gradients by the way that a training takes."""
    task.model.zero_grad()
    task.loss(batch).backward()
    return {name: param.grad.clone() for name, param in task.model.named_parameters()}


def test_the_full_gradient_is_that_of_all_data_at_once():
    """Whatever the size of the batches: 1,100 examples are four of 256 and a rest of 76."""
    torch.manual_seed(0)
    task = DigitsMLP(hidden=8)
    found = MiniBatches(task, names_of(task), batch_size=16)
    assert len(found.examples) == 5
    expected = backward(task, task.data["train"])
    for name, grad in found.full_gradient().items():
        torch.testing.assert_close(grad.float(), expected[name], rtol=1e-4, atol=1e-7)


def test_fewer_examples_are_taken_if_asked_for():
    task = DigitsMLP(hidden=4)
    found = MiniBatches(task, names_of(task), batch_size=16, examples=300)
    assert found.example_count == 300
    everything = MiniBatches(task, names_of(task), batch_size=16).full_gradient()
    assert not torch.equal(found.full_gradient()["1.weight"], everything["1.weight"])


def test_batch_norm_gets_batches_of_its_own_size_and_dropout_is_off():
    torch.manual_seed(0)
    task = Points(dropout=0.5)
    found = MiniBatches(task, names_of(task), batch_size=24)
    assert [len(inputs) for inputs, _ in found.examples] == [24] * 5
    first, second = found.full_gradient(), found.full_gradient()
    assert all(torch.equal(first[name], second[name]) for name in first)
    batch = found.draw(torch.Generator().manual_seed(0))
    noisy = [found.gradient(batch)["0.weight"] for _ in range(2)]
    assert not torch.equal(*noisy)


def test_gradients_buffers_and_modes_stay_as_they_are():
    torch.manual_seed(0)
    task = Points()
    kept = backward(task, task.data["train"])
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    model, versions = task.model, [value._version for value in task.model.state_dict().values()]
    found = MiniBatches(task, names_of(task), batch_size=24)
    found.observe(found.draw(torch.Generator()))
    found.full_gradient()
    assert task.model is model
    assert all(module.training for module in model.modules())
    assert [value._version for value in model.state_dict().values()] == versions
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(torch.equal(p.grad, kept[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("size", [8, 7])
def test_halves_make_up_the_batch_and_their_difference_the_noise(size):
    torch.manual_seed(0)
    task = Plain()
    found = MiniBatches(task, names_of(task), size)
    batch = found.draw(torch.Generator().manual_seed(0))
    (first, second, share), whole = halve(batch), backward(task, batch)
    ones, others = backward(task, first), backward(task, second)
    assert share == len(first[0]) / size
    seen = found.observe(batch)
    assert found.observe(batch, whole)["weight"].grad is whole["weight"]
    for name, (grad, noise) in seen.items():
        torch.testing.assert_close(grad, whole[name])
        torch.testing.assert_close(grad, share * ones[name] + (1 - share) * others[name])
        expected = (share * (1 - share)) ** 0.5 * (ones[name] - others[name])
        torch.testing.assert_close(noise, expected)


def test_the_noise_has_the_variance_of_the_gradient():
    """But for the share 1 − n/N of it that drawing without replacement leaves; within 20 %.

    The standard error of either variance over 500 mini-batches is below 5 %.
    """
    torch.manual_seed(0)
    task = Plain()
    found, random = MiniBatches(task, ["weight"], 8), torch.Generator().manual_seed(0)
    seen = [found.observe(found.draw(random))["weight"] for _ in range(500)]
    variance = torch.stack([one.grad for one in seen]).var(0).sum().item()
    noise = torch.stack([one.noise for one in seen]).square().mean(0).sum().item()
    assert noise * (1 - 8 / 32) == pytest.approx(variance, rel=0.2)


def test_batches_of_every_kind_are_halved():
    pair = collections.namedtuple("pair", "inputs targets")
    numbers = torch.arange(5)
    first, second, share = halve({"pair": pair(numbers, numbers), "list": [numbers]})
    assert first["pair"].targets.tolist() == [0, 1]
    assert isinstance(second["pair"], pair)
    assert second["list"][0].tolist() == [2, 3, 4]
    assert share == 0.4


@pytest.mark.parametrize("batch", [torch.ones(1), (torch.ones(4), torch.ones(3))])
def test_what_cannot_be_halved_is_refused(batch):
    with pytest.raises(SpecError, match="batches of at least 2 examples, whose tensors have a row"):
        halve(batch)


def test_a_batch_of_other_things_is_refused():
    with pytest.raises(SpecError, match="a part that is a str, not a tensor"):
        halve((torch.ones(4), "four"))


def test_batches_in_a_row_are_refused():
    with pytest.raises(SpecError, match="cannot be drawn at random"):
        MiniBatches(Characters(), [], 16)
