"""The probe ``gain``: the gain of the optimizer's own filter, or of one beside it."""

import math

import pytest
import torch

from bench_tasks import Points, run_of
from sgdf.analysis.probes.filter_beside import FilterBeside
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.filter import filter_gradient


def probed(run, *probes):
    """Return the rows of probes, and the gradients of each step."""
    trainer, gradients = Trainer(run, Ranks(), probes), []

    def remember(moment):
        gradients.append(moment.gradients())

    trainer.attach(remember)
    trainer.fit(lambda trainer: None)
    return trainer.probes.rows, gradients


def mean_gains(gradients, betas, gamma=0.5):
    """Return, for each step, the mean gain over all elements and the mean of its power."""
    means, state = [], {name: (0.0 * one, 0.0 * one) for name, one in gradients[0].items()}
    for step, named in enumerate(gradients, start=1):
        gains = []
        for name, gradient in named.items():
            out = filter_gradient(gradient, *state[name], step, betas=betas, eps=1e-8, gamma=gamma)
            state[name] = out.mean, out.var
            gains.append(out.gain.reshape(-1))
        gain = torch.cat(gains)
        means.append((float(gain.mean()), float(gain.pow(gamma).mean())))
    return means


@pytest.mark.parametrize(
    ("optimizer", "options", "betas"),
    [
        ({"name": "sgdf", "lr": 0.1, "betas": [[0.8, 0.99]]}, {}, (0.8, 0.99)),
        ({"name": "sgd", "lr": 0.1}, {"betas": (0.7, 0.9)}, (0.7, 0.9)),
        ({"name": "adam", "lr": 0.01}, {}, (0.9, 0.999)),
    ],
)
def test_the_means_are_those_of_the_filter_that_is_stated(optimizer, options, betas):
    run = run_of(optimizer=optimizer, train={"epochs": 2})
    rows, gradients = probed(run, ProbeSpec("gain", options, every=3))
    expected = mean_gains(gradients, betas)
    assert [row["step"] for row in rows] == [3, 6]
    for row in rows:
        found = row["mean"], row["powered_mean"]
        assert found == pytest.approx(expected[row["step"] - 1], rel=1e-4)


def test_large_parameters_are_sampled_and_count_with_all_their_elements():
    task = {"name": "bench_tasks:Points", "hidden": 3000}
    rows, gradients = probed(run_of(task, train={"epochs": 1}), ProbeSpec("gain", {}, every=4))
    (row,), expected = rows, mean_gains(gradients, (0.9, 0.999))[3]
    assert row["mean"] == pytest.approx(expected[0], abs=0.02)
    assert row["mean"] != pytest.approx(expected[0], rel=1e-6)


class Waves(Points):
    """The task with a model of complex numbers, of which a few are measured."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Spectrum()


class Spectrum(torch.nn.Module):
    """A filter of 1,500 frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = torch.nn.Parameter(torch.ones(2, 1500, dtype=torch.complex64))

    def forward(self, inputs):
        """Return three classes."""
        waves = inputs.to(torch.complex64) @ self.filter
        return torch.stack([waves.real.mean(1), waves.imag.mean(1), inputs[:, 0]], dim=1)


def test_complex_parameters_are_measured_by_their_parts():
    run = run_of(f"{__name__}:Waves", optimizer={"name": "sgd", "lr": 0.1}, train={"epochs": 1})
    rows, _ = probed(run, ProbeSpec("gain", {}, every=4))
    assert 0.0 < rows[0]["mean"] < 1.0


def test_a_gradient_that_is_not_finite_is_forgotten():
    """In float16 the step on it is left out, and the next ones are finite again."""
    beside = FilterBeside((0.9, 0.999))
    first, second = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])
    beside.see("model", first)
    beside.see("model", torch.tensor([math.inf, 1.0]))
    found = beside.see("model", second)
    other = FilterBeside((0.9, 0.999))
    other.see("model", first)
    torch.testing.assert_close(found.estimate, other.see("model", second).estimate)


@pytest.mark.parametrize("optimizer", ["sgdf", "sgd"])
def test_the_gain_on_steady_noise_is_beside(optimizer):
    rows, _ = probed(run_of(optimizer=optimizer), ProbeSpec("gain", {}, every=10))
    # With beta2 near 1, by the formula of sgdf.monitor.
    weight = 2.0 * 19.0
    steady = math.sqrt(math.pi / weight) * math.exp(1 / weight) * math.erfc(math.sqrt(1 / weight))
    assert rows[0]["mean_expected"] == pytest.approx(steady, rel=0.01)
    assert rows[0]["mean_expected"] < rows[0]["powered_mean_expected"] < 1.0


def test_wrong_betas_are_refused():
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1"):
        Trainer(run_of(), Ranks(), [ProbeSpec("gain", {"betas": (0.9, 2.0)})])
