"""The update on a loss: accumulation, clipping, scaling."""

import pytest
import torch

from bench_tasks import run_of, trained
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.bench.training.update import clear_gradients


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_gradients_are_clipped(precision):
    train = {"epochs": 1, "clip_norm": 1e-3, "precision": precision}
    trainer = Trainer(run_of("bench_tasks:Plain", "sgd-vanilla", train), Ranks())
    trainer.update.scaler = torch.amp.GradScaler("cpu", 8.0, enabled=precision == "float16")
    model = trainer.model
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    trainer.fit(lambda trainer: None)
    change = torch.cat([(model.weight - weight).flatten(), model.bias - bias])
    assert change.norm().item() == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_accumulated_batches_are_one_batch():
    whole = trained(run_of("bench_tasks:Plain", train={"batch_size": 32}))
    parts = trained(run_of("bench_tasks:Plain", train={"batch_size": 32, "accumulate": 4}))
    assert parts.step == whole.step
    torch.testing.assert_close(parts.model.weight, whole.model.weight, rtol=1e-5, atol=1e-7)


def test_scaled_gradients_of_several_optimizers_have_one_scale():
    run = run_of("bench_tasks:Pair", "sgd-vanilla", {"precision": "float16", "accumulate": 2})
    trainer = Trainer(run, Ranks())
    update, weights = trainer.update, {}
    update.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    for name, network in trainer.model.items():
        network.bias.data.zero_()
        weights[name] = network.bias
    for update.complete in (False, True):
        update(weights["critic"].sum(), "critic")
        update(weights["generator"].sum(), "generator")
    update.end()
    assert update.scaler.get_scale() == 8.0  # grown once
    assert weights["critic"].item() == pytest.approx(-0.1)
    assert weights["generator"].tolist() == pytest.approx([-0.1, -0.1])


def test_a_loss_reaches_its_own_optimizer_alone():
    trainer = Trainer(run_of("bench_tasks:Pair", "sgd-vanilla"), Ranks())
    task = trainer.task
    before = {name: param.clone() for name, param in task.model.named_parameters()}
    fake = task.model["generator"](torch.ones(4, 2))
    trainer.update(task.model["critic"](fake).sum(), "generator")
    assert all(param.grad is None for param in task.model.parameters())
    moved = {name for name, param in task.model.named_parameters() if not param.equal(before[name])}
    assert moved == {"generator.weight", "generator.bias"}


class Remembering(torch.optim.SGD):
    """Means more by ``zero_grad`` than torch does."""

    cleared = 0

    def zero_grad(self, set_to_none=True):  # noqa: D102 (torch's)
        self.cleared += 1
        super().zero_grad(set_to_none)


def test_gradients_are_cleared_as_the_optimizer_means_it():
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    for build in (torch.optim.SGD, Remembering):
        optimizer = build([{"params": params[:1]}, {"params": params[1:]}], lr=0.1)
        for param in params:
            param.grad = torch.ones(2)
        clear_gradients(optimizer)
        assert [param.grad for param in params] == [None] * 3
    assert optimizer.cleared == 1
