"""From the folder of a run back to its task and trained model."""

import shutil

import pytest
import torch

from bench_tasks import run_of
from kept_runs import do
from sgdf.bench.errors import StoreError
from sgdf.bench.store.identity import run_key
from sgdf.bench.training.open_run import open_run

pytestmark = pytest.mark.usefixtures("publishing_at_once")


@pytest.mark.parametrize("task", ["bench_tasks:Points", "digits-mlp"])
def test_the_model_is_the_trained_one(task, store):
    run = run_of(task)
    folder, _, _ = do(run, store)
    opened, model = open_run(folder.path)
    assert opened.model is model
    assert not model.training
    with torch.no_grad():
        figures = opened.evaluate("test")
    assert figures == pytest.approx(folder.rows()[-1]["test"])


def test_its_loss_has_a_gradient(store):
    folder, _, _ = do(run_of("digits-mlp"), store)
    task, model = open_run(folder.path)
    batch = next(iter(task.batches(16, torch.Generator().manual_seed(0))))
    task.loss(batch).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_averaged_weights_are_given_where_they_are_evaluated(store):
    run = run_of(train={"ema_decay": 0.9})
    folder, _, _ = do(run, store)
    task, _ = open_run(folder.path)
    with torch.no_grad():
        assert task.evaluate("test") == pytest.approx(folder.rows()[-1]["test"])


def test_the_caller_keeps_its_random_numbers(store, run):
    folder, _, _ = do(run, store)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    open_run(folder.path)
    assert torch.equal(torch.rand(3), expected)


def test_a_paused_run_opens_at_its_checkpoint(store, run):
    folder, _, _ = do(run, store, stop_after=2)
    task, model = open_run(folder.path)
    assert model is task.model


def test_a_run_of_several_processes_opens_in_one(store, run):
    folder, _, _ = do(run, store)
    table = run.as_table()
    table["train"]["processes"] = 2
    other = store.folder(run_key(table))
    other.prepare(table)
    for checkpoint in folder.path.glob("*.pt"):
        shutil.copy(checkpoint, other.path)
    task, _ = open_run(other.path)
    with torch.no_grad():
        assert task.evaluate("test") == pytest.approx(folder.rows()[-1]["test"])


def test_what_is_no_run_is_said(store, run, tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        open_run(tmp_path)
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    with pytest.raises(StoreError, match="has no checkpoint yet"):
        open_run(folder.path)
