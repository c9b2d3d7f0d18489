"""Averages of one part of a model: that part alone is averaged and evaluated."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bench_tasks import Pair, equal, essence, run_of
from kept_runs import do
from sgdf.bench.errors import SpecError
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training import checkpoint
from sgdf.bench.training.averaging import AveragedPart
from sgdf.bench.training.open_run import open_run
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

TRAIN = {"ema_decay": 0.9, "log_every": 1, "epochs": 2}


@pytest.fixture
def generator_averaged(monkeypatch):
    monkeypatch.setattr(Pair, "averaged", "generator")


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.usefixtures("generator_averaged")
def test_only_the_named_part_is_averaged_and_evaluated(monkeypatch):
    trainer = Trainer(run_of("bench_tasks:Pair", "adam", TRAIN), Ranks())
    multi_avg_fn = get_ema_multi_avg_fn(0.9)
    live = trainer.model["generator"]
    by_hand = AveragedModel(live, multi_avg_fn=multi_avg_fn, use_buffers=True)
    seen, evaluate = [], Pair.evaluate
    monkeypatch.setattr(
        Pair, "evaluate", lambda task, split: seen.append(task.model) or evaluate(task, split)
    )
    trainer.fit(lambda trainer: by_hand.update_parameters(live))
    assert equal(weights(trainer.averaged.module), weights(by_hand.module))
    assert not equal(weights(trainer.averaged.module), weights(live))
    assert seen[-1]["critic"] is trainer.model["critic"]
    assert seen[-1]["generator"] is trainer.averaged.module
    assert trainer.task.model is trainer.model
    assert trainer.model["generator"] is live
    assert not any("critic" in name for name in trainer.averaged.state_dict())


@pytest.mark.usefixtures("generator_averaged")
def test_what_is_not_averaged_trains_as_without_averages():
    plain = {key: value for key, value in TRAIN.items() if key != "ema_decay"}
    ends = []
    for train in (TRAIN, plain):
        trainer = Trainer(run_of("bench_tasks:Pair", "adam", train), Ranks())
        trainer.fit(lambda trainer: None)
        ends.append(weights(trainer.model))
    assert equal(*ends)


@pytest.mark.usefixtures("generator_averaged", "publishing_at_once")
def test_a_run_with_an_averaged_part_resumes_bit_by_bit(tmp_path):
    run = run_of("bench_tasks:Pair", "adam", TRAIN)
    whole, _, _ = do(run, Store(tmp_path / "whole"))
    parts = Store(tmp_path / "parts")
    for step in range(1, whole.result()["step"]):
        do(run, parts, stop_after=step)
    folder, state, _ = do(run, parts)
    assert state is State.FINISHED
    assert equal(essence(folder), essence(whole))


@pytest.mark.usefixtures("generator_averaged")
def test_an_opened_run_has_the_average_in_place_of_the_part(store):
    folder, _, _ = do(run_of("bench_tasks:Pair", "adam", TRAIN), store)
    state = checkpoint.load(folder)
    task, model = open_run(folder.path)
    assert task.model is model
    averages = {
        name.removeprefix("module."): value
        for name, value in state["averaged"].items()
        if name != "n_averaged"
    }
    assert equal(weights(model["generator"]), averages)
    assert not model["generator"].training
    assert equal(
        weights(model["critic"]),
        {name: state["model"][f"critic.{name}"] for name in ("weight", "bias")},
    )


def test_the_whole_model_is_averaged_in_the_old_layout(store):
    folder, _, _ = do(run_of("bench_tasks:Pair", "adam", TRAIN), store)
    state = checkpoint.load(folder)
    names = {f"module.{name}" for name in state["model"]}
    assert set(state["averaged"]) == {"n_averaged", *names}


def test_a_part_of_a_part_can_be_averaged():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), "b": nn.ReLU()})
    averaging = AveragedPart(model, "a.1", 0.5)
    averaging.update()
    with torch.no_grad():
        model["a"][1].weight += 2.0
    averaging.update()
    found = averaging.evaluated["a"]
    assert found[0] is model["a"][0]
    assert found[1].weight.item() == pytest.approx(model["a"][1].weight.item() - 1.0)
    assert averaging.evaluated["b"] is model["b"]
    assert found(torch.ones(1, 1)).item() != model["a"](torch.ones(1, 1)).item()


@pytest.mark.parametrize("name", ["generatr", "generator.0", "generator.weight"])
def test_a_name_that_is_no_part_is_refused(name, monkeypatch):
    monkeypatch.setattr(Pair, "averaged", name)
    with pytest.raises(SpecError, match=rf"averaged = '{name}': .* are critic, generator"):
        Trainer(run_of("bench_tasks:Pair", train=TRAIN), Ranks())
