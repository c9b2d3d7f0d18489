"""What is recorded of a run that diverges: the first number that was not finite."""

import pytest
import torch

from bench_tasks import Plain, Points, run_of, trained
from kept_runs import do
from sgdf.bench.store.records import divergence_in_words
from sgdf.bench.training.nonfinite import first_nonfinite
from sgdf.bench.training.result import line_of, result_of
from sgdf.bench.training.trainer import Trainer


def spoil_input(monkeypatch, value=float("nan")):
    make = Points.__init__

    def spoilt(task, *arguments, **options):
        make(task, *arguments, **options)
        task.data["train"][0][:] = value

    monkeypatch.setattr(Points, "__init__", spoilt)


def test_an_input_that_is_not_finite(monkeypatch):
    spoil_input(monkeypatch)
    result = result_of(trained(run_of()))
    assert result["first_nonfinite"] == {"what": "input", "name": "batch[0]", "step": 1}
    assert line_of(result) == "diverged at step 1: its input, batch[0], is not finite"


def test_a_loss_that_is_not_finite(monkeypatch):
    monkeypatch.setattr(Points, "loss", lambda task, batch: task.model(batch[0]).sum() / 0)
    result = result_of(trained(run_of()))
    assert result["first_nonfinite"] == {"what": "loss", "name": "loss", "step": 1}
    assert "the loss was the first number" in line_of(result)


def test_a_gradient_that_is_not_finite_is_known_by_its_parameter(monkeypatch):
    """The derivative of a root at 0 is infinite, though the root is not."""
    loss = Plain.loss

    def with_root(task, batch):
        return loss(task, batch) + (0 * task.model.bias).pow(2).sum().sqrt()

    monkeypatch.setattr(Plain, "loss", with_root)
    result = result_of(trained(run_of("bench_tasks:Plain")))
    assert result["first_nonfinite"] == {"what": "parameter", "name": "bias", "step": 1}
    assert result["diverged_at_step"] == 2
    assert "the parameter bias was not finite after step 1" in line_of(result)


def test_a_number_of_the_log_alone(monkeypatch):
    def logged(task, batch):
        task.log("norm", float("inf"))
        return Plain.criterion_of(task, batch)

    monkeypatch.setattr(Plain, "criterion_of", Plain.loss, raising=False)
    monkeypatch.setattr(Plain, "loss", logged)
    result = result_of(trained(run_of("bench_tasks:Plain", train={"log_every": 1})))
    assert result["first_nonfinite"] == {"what": "loss", "name": "norm", "step": 1}


def test_a_loss_that_only_grows_has_none():
    run = run_of("bench_tasks:Plain", {"name": "sgd", "lr": 3.0}, {"epochs": 50})
    result = result_of(trained(run))
    assert result["diverged_at_step"]
    assert "first_nonfinite" not in result
    assert divergence_in_words(result) == f"at step {result['diverged_at_step']}"


def test_nothing_is_looked_at_while_losses_are_finite(monkeypatch):
    monkeypatch.setattr("sgdf.bench.training.trainer.first_nonfinite", pytest.fail)
    assert trained(run_of()).nonfinite is None


@pytest.mark.parametrize("stop_after", [4, 5, 7])
def test_a_resumed_run_records_the_same(stop_after, store, tmp_path, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 0.0)
    make = Points.loss

    def late(task, batch, targets=None):
        task.count = getattr(task, "count", 0) + 1
        return make(task, batch, targets) * (float("nan") if task.count >= 5 else 1)

    monkeypatch.setattr(Points, "loss", late)
    monkeypatch.setattr(Points, "state", lambda task: {"count": getattr(task, "count", 0)})
    monkeypatch.setattr(
        Points, "load_state", lambda task, state: setattr(task, "count", state["count"])
    )
    run = run_of(train={"log_every": 4})
    whole, _, _ = do(run, type(store)(tmp_path / "whole"))
    assert whole.result()["first_nonfinite"] == {"what": "loss", "name": "loss", "step": 5}
    stops = iter(range(1, 100))
    fit = Trainer.fit

    def stopping(trainer, pause, *rest):
        def pause_and_stop(trainer):
            pause(trainer)
            if trainer.step == stop_after and next(stops) == 1:
                pause.stop.set()
                pause(trainer)

        return fit(trainer, pause_and_stop, *rest)

    monkeypatch.setattr(Trainer, "fit", stopping)
    do(run, store)
    monkeypatch.setattr(Trainer, "fit", fit)
    folder, _, _ = do(run, store)
    assert len(folder.environments()) == 2
    for key in ("first_nonfinite", "diverged_at_step", "step"):
        assert folder.result()[key] == whole.result()[key]


def test_a_batch_may_be_nested():
    nan = torch.tensor([float("nan")])
    batch = {"ids": torch.arange(3), "parts": [torch.ones(2), (nan, "text")]}
    found = first_nonfinite(batch, None, 7)
    assert found == {"what": "input", "name": "batch['parts'][1][0]", "step": 7}
