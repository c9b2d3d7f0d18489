"""The probe ``estimate``: distances from a gradient that is known."""

import pytest
import torch

from bench_tasks import run_of
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.filter import filter_gradient


def rows_and_gradients(run, **options):
    trainer = Trainer(run, Ranks(), [ProbeSpec("estimate", options, every=1)])
    gradients = []

    def remember(moment):
        own = [one.reshape(-1) for one in moment.gradients().values()]
        gradients.append(torch.cat(own).double())

    trainer.attach(remember)
    trainer.fit(lambda trainer: None)
    return trainer.probes.rows, gradients


def distances(name, estimate, truth):
    return {
        f"cosine_{name}": float(torch.cosine_similarity(estimate, truth, dim=0)),
        f"error_{name}": float((estimate - truth).square().sum() / truth.square().sum()),
    }


def test_the_gradient_of_all_examples_is_the_truth():
    """A batch of all examples is the truth itself; the filters are held against it."""
    run = run_of("bench_tasks:Plain", "sgd-vanilla", {"epochs": 6, "batch_size": 32})
    rows, truths = rows_and_gradients(run, examples=32, betas=(0.5, 0.9))
    mean = filtered = var = torch.zeros_like(truths[0])
    assert len(rows) == len(truths) == 6
    for step, (row, truth) in enumerate(zip(rows, truths, strict=True), start=1):
        mean = 0.5 * mean + 0.5 * truth
        out = filter_gradient(truth, filtered, var, step, betas=(0.5, 0.9), eps=1e-8, gamma=0.5)
        filtered, var = out.mean, out.var
        expected = {
            **distances("raw", truth, truth),
            **distances("ema", mean / (1.0 - 0.5**step), truth),
            **distances("sgdf", out.estimate, truth),
        }
        found = {name: row[name] for name in expected}
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert rows[-1]["error_ema"] > rows[-1]["error_sgdf"] > 1e-3


def test_batch_norm_does_as_in_training():
    """With the statistics of the batch: with running ones the gradient would be another."""
    task = {"name": "bench_tasks:Points", "dropout": 0.0}
    rows, _ = rows_and_gradients(run_of(task, train={"batch_size": 120}), batch_size=120)
    assert len(rows) == 3
    assert max(row["error_raw"] for row in rows) < 1e-6


def test_a_small_batch_is_a_noisy_estimate():
    task = {"name": "bench_tasks:Points", "dropout": 0.0}
    rows, _ = rows_and_gradients(run_of(task, train={"batch_size": 8}), batch_size=40)
    assert all(row["error_raw"] > 0.0 for row in rows)
    assert all(-1.0 <= row["cosine_raw"] < 1.0 for row in rows)


def test_the_last_batch_counts_only_if_it_is_whole():
    """One example alone has no variance, and BatchNorm raises."""
    task = {"name": "bench_tasks:Points", "dropout": 0.0}
    rows, _ = rows_and_gradients(run_of(task), examples=61, batch_size=20)
    assert rows


def test_a_task_without_a_loss_is_refused():
    trainer = Trainer(run_of("bench_tasks:Pair"), Ranks(), [ProbeSpec("estimate", {}, every=1)])
    with pytest.raises(RuntimeError, match=r"the probe 'estimate': SpecError: Pair has no loss"):
        trainer.fit(lambda trainer: None)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="examples and batch_size must be at least 1"):
        Trainer(run_of(), Ranks(), [ProbeSpec("estimate", {"examples": 0})])
