"""KOALA-M: the equations of the filter, and the loop that shows it the loss."""

import copy

import numpy as np
import pytest
import torch

from bench_tasks import equal, run_of, trained
from sgdf.bench.baselines.koala import KoalaM
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

STEPS, SHAPES = 500, ((3, 4), (5,), ())


def bowl(values, rng):
    """Return a noisy loss of arrays, and its noisy gradients."""
    noise = [rng.normal(size=value.shape) for value in values]
    loss = 0.5 * sum((value**2).sum() for value in values) + rng.exponential()
    return loss, [value + 0.5 * more for value, more in zip(values, noise, strict=True)]


class Filter:
    """Davtyan et al. (2022) with whole matrices; the tensors share nothing but the covariance."""

    def __init__(self, values, lr, decay):
        self.lr, self.decay = lr, decay
        self.shapes = [value.shape for value in values]
        self.states = [np.concatenate([value.ravel(), np.zeros(value.size)]) for value in values]
        self.means = [np.zeros(value.size) for value in values]
        self.covariance, self.loss_variance, self.drift = np.diag([0.1, 0.1]), 1.0, 0.01

    @property
    def values(self):
        """The parameters, which are the first half of each state."""
        halves = zip(self.states, self.means, self.shapes, strict=True)
        return [state[: mean.size].reshape(shape) for state, mean, shape in halves]

    def predict(self):
        """Go on with the states, and widen the covariance."""
        away = np.concatenate([value.ravel() for value in self.values]) - np.concatenate(self.means)
        self.drift = 0.9 * self.drift + 0.1 * np.linalg.norm(away) / away.size
        moves = np.array([[1.0, 1.0], [0.0, 0.9]])
        self.states = [np.kron(moves, np.eye(z.size // 2)) @ z for z in self.states]
        self.covariance = moves @ self.covariance @ moves.T + np.diag([self.drift, 0.01])

    def update(self, loss, grads):
        """Correct the states by what the loss is above its target."""
        self.loss_variance = 0.9 * self.loss_variance + 0.1 * loss**2
        ratios = []
        for index, value in enumerate(self.values):
            x, zeros = value.ravel(), np.zeros(value.size)
            measured = loss + self.decay / 2 * x @ x
            target = (1 - self.lr) * measured
            slope = np.concatenate([grads[index].ravel() + self.decay * x, zeros])
            covariance = np.kron(self.covariance, np.eye(x.size))
            variance = slope @ covariance @ slope + self.loss_variance
            gain = covariance @ slope / variance
            self.states[index] = self.states[index] + gain * (target - measured)
            self.means[index] = 0.9 * self.means[index] + 0.1 * self.states[index][: x.size]
            ratios.append(slope @ slope / variance)
        known = self.covariance @ np.diag([1.0, 0.0]) @ self.covariance
        self.covariance = self.covariance - max(ratios) * known


@pytest.mark.parametrize("lr", [1.0, 0.2])
@pytest.mark.parametrize("decay", [0.0, 0.03])
def test_published_equations(decay, lr):
    rng = np.random.default_rng(0)
    reference = Filter([rng.normal(size=shape) for shape in SHAPES], lr, decay)
    params = [torch.nn.Parameter(torch.tensor(value)) for value in reference.values]
    optimizer = KoalaM(params, lr=lr, weight_decay=decay)

    def closure():
        reference.predict()
        loss, grads = bowl(reference.values, rng)
        for param, grad, value in zip(params, grads, reference.values, strict=True):
            np.testing.assert_allclose(param.detach().numpy(), value, rtol=0, atol=1e-11)
            param.grad = torch.tensor(grad)
        reference.update(loss, grads)
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    for param, value in zip(params, reference.values, strict=True):
        np.testing.assert_allclose(param.detach().numpy(), value, rtol=0, atol=1e-11)


def test_a_tensor_with_a_tiny_gradient_keeps_its_prediction():
    moving, still, small = params = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    optimizer = KoalaM(params, eps=0.01)
    optimizer.predict()
    for param in params:
        param.grad = torch.ones(2)
    optimizer.observe(1.0)
    optimizer.step()
    velocity = optimizer.state[moving]["velocity"].clone()
    before = moving.detach().clone()
    still.grad, small.grad = None, torch.full((2,), 0.005)
    optimizer.step(lambda: torch.tensor(1.0))
    assert not moving.equal(before + velocity)
    for param in (still, small):
        assert param.equal(before + velocity)
        assert optimizer.state[param]["velocity"].equal(0.9 * velocity)
    moving.grad = None
    optimizer.predict()
    predicted = optimizer._shared["covariance"]
    optimizer.observe(1.0)
    optimizer.step()
    assert optimizer._shared["covariance"] == predicted  # as nothing was measured


def test_a_step_needs_a_prediction_and_a_loss():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = KoalaM([param])
    param.grad = torch.ones(2)
    for prepare in (lambda: None, lambda: optimizer.observe(1.0)):
        prepare()
        with pytest.raises(RuntimeError, match="before step"):
            optimizer.step()
    optimizer.predict()
    optimizer.step()
    optimizer.predict()
    before = param.detach().clone()
    optimizer.predict()  # again, which changes nothing
    assert param.equal(before)
    with pytest.raises(RuntimeError, match="before step"):  # the loss was of the step before
        optimizer.step()


def test_a_copy_continues_bit_by_bit():
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    optimizer = KoalaM(params)

    def make(optimizer, params, seed):
        noise = torch.Generator().manual_seed(seed)
        for param in params:
            param.grad = torch.randn(param.shape, generator=noise)
        return torch.rand((), generator=noise)

    for seed in range(5):
        optimizer.step(lambda seed=seed: make(optimizer, params, seed))
    optimizer.predict()  # so that this, too, is known to the copy
    copies = [torch.nn.Parameter(param.detach().clone()) for param in params]
    other = KoalaM(copies, lr=0.1, variances=(3.0, 3.0))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(5, 10):
        optimizer.step(lambda seed=seed: make(optimizer, params, seed))
        other.step(lambda seed=seed: make(other, copies, seed))
    assert all(map(torch.equal, params, copies))
    assert equal(optimizer.state_dict(), other.state_dict())


def shown(run):
    """Return a trainer at the end, and the losses that its optimizer was shown."""
    trainer = Trainer(run, Ranks())
    (optimizer,) = trainer.optimizers.values()
    losses, observe = [], optimizer.observe
    optimizer.observe = lambda loss: (losses.append(loss), observe(loss))
    trainer.fit(lambda _: None)
    return trainer, losses


@pytest.mark.parametrize(
    "train", [{}, {"clip_norm": 0.1}, {"precision": "bfloat16"}, {"precision": "float16"}], ids=str
)
def test_the_loop_passes_it_the_loss(train):
    run = run_of("digits-mlp", "koala-m", {"epochs": 1, "log_every": 1, "batch_size": 256, **train})
    trainer, losses = shown(run)
    logged = [row["train"]["loss"] for row in trainer.rows if row["kind"] == "train"]
    assert len(losses) == trainer.step
    assert losses == pytest.approx(logged, rel=1e-6)


def test_the_loss_of_accumulated_batches_is_their_mean():
    options = {"batch_size": 32, "epochs": 10}
    whole, losses = shown(run_of("bench_tasks:Plain", "koala-m", options))
    parts, means = shown(run_of("bench_tasks:Plain", "koala-m", {**options, "accumulate": 4}))
    assert means == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(parts.model.weight, whole.model.weight, rtol=1e-4, atol=1e-6)


def test_the_loss_of_several_processes_is_their_mean():
    trainer = Trainer(run_of("bench_tasks:Plain", "koala-m", {"epochs": 1}), Ranks())
    (optimizer,) = trainer.optimizers.values()
    trainer.ranks.means = lambda values: [0.5 * value for value in values]
    optimizer.predict()
    trainer.update(trainer.model.weight.sum() * 0 + 3.0)
    assert optimizer._shared["loss_variance"] == pytest.approx(0.9 + 0.1 * 1.5**2)


def test_the_loss_is_measured_at_the_prediction_and_evaluation_follows_the_update():
    trainer = Trainer(run_of("bench_tasks:Plain", "koala-m", {"batch_size": 8}), Ranks())
    (optimizer,) = trainer.optimizers.values()
    weight, seen = trainer.model.weight, []
    trainer.model.register_forward_pre_hook(
        lambda module, _: seen.append((module.training, weight.detach().clone()))
    )
    expected = [weight.detach().clone()]

    def after_a_step(_):
        expected.append(weight + optimizer.state[weight]["velocity"])

    trainer.fit(after_a_step)
    measured = [value for training, value in seen if training]
    assert len(measured) == trainer.step == 12
    assert measured[3].equal(expected[3])
    assert not measured[3].equal(measured[2])
    assert seen[-1][1].equal(weight)


def test_two_networks_get_their_own_losses():
    run = run_of("bench_tasks:Pair", "koala-m", {"batch_size": 16, "epochs": 2})
    trainer = Trainer(run, Ranks())
    counts = dict.fromkeys(trainer.optimizers, 0)

    def counting(name, observe):
        def count(loss):
            counts[name] += 1
            observe(loss)

        return count

    for name, optimizer in trainer.optimizers.items():
        optimizer.observe = counting(name, optimizer.observe)
    trainer.fit(lambda _: None)
    assert counts == {"critic": 8, "generator": 4}


def test_it_learns():
    run = run_of("digits-mlp", {"name": "koala-m"}, {"epochs": 8, "batch_size": 64})
    assert trained(run).rows[-1]["validation"]["accuracy"] > 0.9
