"""An evaluation: what the task is told before it, and what is restored after it."""

import pytest

from bench_tasks import run_of, trained
from declaring_tasks import Costly, LossOnly
from sgdf.bench.tasks import Task
from sgdf.bench.tasks.long_evaluation import LongEvaluation
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer


@pytest.fixture
def calls(monkeypatch):
    """The calls that evaluations made to tasks that have costly metrics, in order."""
    made = []
    monkeypatch.setattr(
        Costly, "begin_evaluation", lambda self, costly: made.append(("begin", costly))
    )
    evaluate, evaluate_costly = LossOnly.evaluate, Costly.evaluate_costly
    monkeypatch.setattr(
        LossOnly, "evaluate", lambda self, split: made.append(split) or evaluate(self, split)
    )
    monkeypatch.setattr(
        Costly,
        "evaluate_costly",
        lambda self, split: made.append(f"costly {split}") or evaluate_costly(self, split),
    )
    return made


CHEAP = [("begin", False), "validation", "test"]
COSTLY = [("begin", True), "validation", "costly validation", "test", "costly test"]


def test_an_evaluation_begins_once_before_its_splits(calls):
    trained(run_of("declaring_tasks:Costly", train={"epochs": 3}))
    assert calls == [*CHEAP, *CHEAP, *COSTLY]


def test_the_first_evaluation_begins_again_if_the_metric_that_decides_is_costly(calls):
    trained(run_of("declaring_tasks:ChosenByCostly", train={"epochs": 3}))
    assert calls == [("begin", False), "validation", *COSTLY, *CHEAP, *COSTLY]


def test_the_same_random_numbers_are_drawn_after_beginning_again(monkeypatch):
    import torch

    drawn = []
    monkeypatch.setattr(
        Costly, "begin_evaluation", lambda self, costly: drawn.append(torch.rand(()).item())
    )
    trained(run_of("declaring_tasks:ChosenByCostly", train={"epochs": 2}))
    assert len(drawn) == 3
    assert len(set(drawn)) == 1


def test_the_model_is_in_evaluation_mode_when_an_evaluation_begins(monkeypatch):
    modes = []
    monkeypatch.setattr(
        Costly, "begin_evaluation", lambda self, costly: modes.append(self.model.training)
    )
    trainer = trained(run_of("declaring_tasks:Costly", train={"epochs": 1}))
    assert modes == [False]
    assert trainer.model.training


@pytest.mark.parametrize("how", ["ends", "raises"])
def test_a_task_has_what_the_loop_offers_for_the_evaluation_only(how, monkeypatch):
    offered, seen = LongEvaluation(), []

    def evaluate(self, split):
        seen.append(self.evaluation)
        return {"distance": 1.0} if how == "ends" else {}["nothing"]

    monkeypatch.setattr(LossOnly, "evaluate", evaluate)
    trainer = Trainer(run_of("declaring_tasks:LossOnly"), Ranks())
    trainer.evaluation = offered
    try:
        trainer.evaluate()
    except KeyError:
        assert how == "raises"
    assert set(seen) == {offered}
    assert trainer.task.evaluation is Task.evaluation


def test_a_task_of_before_may_use_the_names_for_something_else(monkeypatch):
    monkeypatch.setattr(LossOnly, "evaluation", property(lambda self: [1, 2]))
    monkeypatch.setattr(LossOnly, "averaged", 5)
    trainer = trained(run_of("declaring_tasks:LossOnly", train={"epochs": 1, "ema_decay": 0.5}))
    assert trainer.task.evaluation == [1, 2]
    assert "distance" in trainer.rows[-1]["test"]
