"""The probe ``sharpness``: the largest eigenvalue of a Hessian that is known."""

import math

import pytest
import torch

from bench_tasks import run_of
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

SHARPNESS = ProbeSpec("sharpness", {"examples": 512}, every=3)


def test_the_hessian_of_a_linear_map_is_that_of_its_inputs():
    """Of a mean squared error it is twice the mean of the squared inputs, wherever it is."""
    run = run_of("bench_tasks:Plain", "sgd-vanilla", {"epochs": 6, "batch_size": 32})
    trainer = Trainer(run, Ranks(), [SHARPNESS])
    trainer.fit(lambda trainer: None)
    inputs, _ = trainer.task.data["train"]
    columns = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1).double()
    largest = float(torch.linalg.eigvalsh(2.0 * columns.T @ columns / len(columns))[-1])
    assert [row["step"] for row in trainer.probes.rows] == [3, 6]
    assert [row["largest"] for row in trainer.probes.rows] == pytest.approx([largest] * 2, rel=1e-3)


def test_the_normalised_value_is_times_the_square_of_the_weights():
    trainer = Trainer(run_of(train={"epochs": 1}), Ranks(), [SHARPNESS])
    squares = []

    def remember(moment):
        params = moment.task.model.parameters()
        squares.append(sum(float(param.detach().double().square().sum()) for param in params))

    trainer.attach(remember)
    trainer.fit(lambda trainer: None)
    (row,) = trainer.probes.rows
    assert row["largest_normalised"] == pytest.approx(row["largest"] * squares[2])


def test_a_run_that_diverges_has_diverged_with_the_probe_too():
    run = run_of(optimizer={"name": "sgd", "lr": 1e30})
    trainer = Trainer(run, Ranks(), [ProbeSpec("sharpness", {}, every=1)])
    trainer.fit(lambda trainer: None)
    assert trainer.diverged is not None
    assert math.isnan(trainer.probes.rows[-1]["largest"])


def test_a_hidden_state_of_the_training_does_not_matter():
    task = {"name": "characters", "hidden": 2, "characters": 20_000}
    run = run_of(task, {"name": "sgd-vanilla", "lr": 1e-30}, {"epochs": 1, "batch_size": 32})
    trainer = Trainer(run, Ranks(), [ProbeSpec("sharpness", {"examples": 20}, every=3)])
    trainer.fit(lambda trainer: None)
    first, *others = [row["largest"] for row in trainer.probes.rows]
    assert others
    assert others == pytest.approx([first] * len(others))


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="examples must be at least 1"):
        Trainer(run_of(), Ranks(), [ProbeSpec("sharpness", {"examples": 0})])
