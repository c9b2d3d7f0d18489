"""The probe ``update-size``: how far a step moves the weights."""

import math

import pytest
import torch

from bench_tasks import run_of
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

ALL = [ProbeSpec("update-size", {}, every=1), ProbeSpec("gradient-norm", {}, every=1)]


def test_the_update_of_plain_sgd_is_the_rate_times_the_gradient():
    trainer = Trainer(run_of(optimizer="sgd-vanilla"), Ranks(), ALL)
    start = torch.cat([param.detach().reshape(-1) for param in trainer.model.parameters()])
    first = float(start.double().norm())
    trainer.fit(lambda trainer: None)
    rows = sorted(trainer.probes.rows, key=lambda row: (row["step"], row["probe"]))
    assert rows[1]["weights"] == pytest.approx(first)
    assert len(rows) == 2 * trainer.step
    for norm, size in zip(rows[::2], rows[1::2], strict=True):
        assert size["ratio"] == pytest.approx(0.1 * norm["norm"] / size["weights"], rel=1e-4)


def test_each_optimizer_of_a_task_has_its_own():
    run = run_of("bench_tasks:Pair", "sgd-vanilla", {"epochs": 1, "batch_size": 16})
    trainer = Trainer(run, Ranks(), ALL[:1])
    trainer.fit(lambda trainer: None)
    found = [(row["step"], row["optimizer"]) for row in trainer.probes.rows]
    assert found == [
        (1, "critic"), (2, "critic"), (2, "generator"), (3, "critic"), (4, "critic"),
        (4, "generator"),
    ]  # fmt: skip
    assert all(math.isfinite(row["ratio"]) for row in trainer.probes.rows)
