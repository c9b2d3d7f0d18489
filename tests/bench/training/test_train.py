"""The training loop."""

import math
import time

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bench_tasks import Pair, Plain, Points, run_of, trained
from sgdf.bench.errors import SpecError
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.training.randomness import capture, derived_seed, seed_all
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import NOISE, ORDER, Stopped, Trainer


def same_weights(model, other):
    """Compare bit by bit."""
    pairs = zip(model.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


def test_it_is_the_loop_that_one_would_write_by_hand():
    trainer = trained(run_of(seed=5, schedule={"name": "CosineAnnealingLR"}))

    seed_all(5)
    task = Points()
    model, (inputs, targets) = task.model, task.data["train"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    losses = []
    for epoch in range(3):
        seed_all(derived_seed(5, NOISE, epoch, 0))
        order = torch.Generator().manual_seed(derived_seed(5, ORDER, epoch))
        for chunk in torch.randperm(120, generator=order).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[chunk]), targets[chunk])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    assert same_weights(trainer.model, model)
    epochs = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert epochs[-1]["train"]["loss"] == pytest.approx(sum(losses[-4:]) / 4, rel=1e-12)
    model.eval()
    outputs = model(task.data["test"][0])
    assert (
        epochs[-1]["test"]["accuracy"]
        == (outputs.argmax(1) == task.data["test"][1]).double().mean()
    )


def test_seeds_make_runs_differ_and_nothing_else_does():
    first, again, other = (trained(run_of(seed=seed)) for seed in (1, 1, 2))
    assert same_weights(first.model, again.model)
    assert not same_weights(first.model, other.model)


@pytest.mark.parametrize("task", ["bench_tasks:Points", "bench_tasks:Pair"])
def test_evaluation_changes_nothing(task):
    often = trained(run_of(task, train={"evaluate_every": 1, "log_every": 1}))
    never = trained(run_of(task, train={"evaluate_every": 3, "log_every": 50}))
    assert same_weights(often.model, never.model)
    assert often.rows[-1]["test"] == never.rows[-1]["test"]
    assert len([row for row in often.rows if "test" in row]) == 3
    assert len([row for row in never.rows if "test" in row]) == 1


def test_evaluation_draws_the_same_random_numbers_each_time():
    trainer = Trainer(run_of("bench_tasks:Pair"), Ranks())
    first = trainer.evaluate()
    torch.rand(5)
    assert trainer.evaluate() == first


def test_the_last_epoch_is_always_evaluated():
    trainer = trained(run_of(train={"evaluate_every": 2}))
    assert [row["epoch"] for row in trainer.rows if "test" in row] == [2, 3]


def test_modules_that_a_task_has_put_into_evaluation_mode_stay_there():
    trainer = Trainer(run_of(), Ranks())
    frozen = trainer.model[1]
    frozen.eval()
    trainer.fit(lambda trainer: None)
    assert not frozen.training
    assert trainer.model[3].training
    assert torch.equal(frozen.running_mean, torch.zeros(8))


def test_weights_are_averaged_and_evaluated():
    run = run_of(train={"ema_decay": 0.9})
    trainer = Trainer(run, Ranks())
    by_hand = AveragedModel(trainer.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    trainer.fit(lambda trainer: by_hand.update_parameters(trainer.model))
    assert same_weights(trainer.averaged.module, by_hand.module)
    assert not same_weights(trainer.averaged.module, trainer.model)
    trainer.task.model = by_hand.module.eval()
    with torch.no_grad():
        assert trainer.rows[-1]["test"] == trainer.task.evaluate("test")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision):
    full, mixed = Trainer(run_of(), Ranks()), None
    seen = []
    mixed = Trainer(run_of(train={"precision": precision, "epochs": 10}), Ranks())
    mixed.model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    mixed.model[0].weight.register_hook(lambda grad: seen.append(torch.is_autocast_enabled("cpu")))
    mixed.fit(lambda trainer: None)
    assert set(seen) == {getattr(torch, precision), False}
    assert mixed.update.scaler.is_enabled() == (precision == "float16")
    assert mixed.model[0].weight.dtype == full.model[0].weight.dtype == torch.float32
    assert mixed.rows[-1]["test"]["accuracy"] > 0.8


TASKS_OF_EVERY_KIND = {
    "linear": {"name": "digits-mlp"},
    "convolutions and BatchNorm": {"name": "digits-cnn", "width": 4, "batch_norm": True},
    "an LSTM": {"name": "characters", "characters": 9000, "hidden": 8, "dropout": 0.3},
}


@pytest.mark.parametrize("kind", TASKS_OF_EVERY_KIND)
def test_weights_of_pure_bfloat16_are_bfloat16(kind):
    train = {"epochs": 3, "batch_size": 16, "precision": "pure-bfloat16"}
    trainer = trained(run_of(TASKS_OF_EVERY_KIND[kind], train=train))
    assert {value.dtype for value in trainer.model.parameters()} == {torch.bfloat16}
    assert not trainer.update.scaler.is_enabled()
    epochs = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert epochs[-1]["test"]["loss"] < epochs[0]["test"]["loss"]


def rates(schedule, **train):
    trainer = trained(
        run_of("bench_tasks:Plain", schedule=schedule, train={"log_every": 1, **train})
    )
    return [row["lr"] for row in trainer.rows if row["kind"] == "train"]


def test_schedules_by_epoch_and_by_step():
    # 32 points in batches of 8: four steps in an epoch.
    by_epoch = {"name": "MultiStepLR", "milestones": [[1, 2]]}
    assert rates(by_epoch, batch_size=8)[::4] == pytest.approx([0.1, 0.01, 0.001])
    by_step = {"name": "CosineAnnealingLR", "every": "step"}
    expected = [0.05 * (1 + math.cos(math.pi * step / 12)) for step in range(12)]
    assert rates(by_step, batch_size=8) == pytest.approx(expected)


def test_warm_up_rises_linearly_and_the_schedule_has_the_rest():
    schedule = {"name": "CosineAnnealingLR", "every": "step", "warmup": 4}
    expected = [0.1 * step / 5 for step in range(1, 5)]
    expected += [0.05 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert rates(schedule, batch_size=8) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_schedules_that_cycle(name):
    options = {"max_lr": 0.2, **({"base_lr": 0.1} if name == "CyclicLR" else {})}
    values = rates({"name": name, "every": "step", **options}, batch_size=8)
    assert max(values) <= 0.2 + 1e-9
    assert len(set(values)) > 2


def test_a_plateau_is_waited_for_on_the_validation_loss():
    schedule = {
        "name": "ReduceLROnPlateau",
        "patience": 0,
        "threshold_mode": "abs",
        "threshold": 1e9,
    }
    assert rates(schedule, epochs=4) == pytest.approx([0.1, 0.1, 0.01, 0.001])
    seldom = rates(schedule, epochs=6, evaluate_every=2)
    assert seldom == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("lr", [1e30, 2.0], ids=["not finite", "too large"])
def test_divergence_is_a_result_with_its_step(lr):
    run = run_of(
        "bench_tasks:Plain",
        {"name": "sgd-vanilla", "lr": lr},
        {"batch_size": 2, "log_every": 5, "epochs": 50},
    )
    trainer = trained(run)
    seed_all(0)
    losses, task = [], Plain()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=lr)
    for epoch in range(3):
        order = torch.Generator().manual_seed(derived_seed(0, ORDER, epoch))
        for inputs, targets in task.batches(2, order):
            loss = nn.functional.mse_loss(task.model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    limit = 1000 * max(1, losses[0])
    first_bad = next(step for step, loss in enumerate(losses, 1) if not loss <= limit)
    assert trainer.diverged == first_bad
    assert trainer.step == 5 * math.ceil(first_bad / 5)
    assert trainer.finished
    assert trainer.epoch < 50


def test_divergence_is_told_in_steps_where_a_step_has_several_batches():
    train = {"batch_size": 8, "accumulate": 4, "log_every": 1000, "epochs": 1}
    trainer = trained(run_of("bench_tasks:Plain", {"name": "sgd-vanilla", "lr": 1e30}, train))
    assert (trainer.diverged, trainer.step) == (2, 4)


def test_a_run_that_spikes_below_the_limit_goes_on():
    run = run_of("bench_tasks:Plain", {"name": "sgd-vanilla", "lr": 1e30}, {"epochs": 1})
    assert trained(run).diverged is None  # a single step, whose loss was of the first weights


def test_two_networks_with_an_optimizer_each():
    trainer = trained(run_of("bench_tasks:Pair", "adam", {"batch_size": 16, "epochs": 2}))
    assert set(trainer.optimizers) == {"critic", "generator"}
    critic, generator = (trainer.optimizers[name] for name in ("critic", "generator"))
    assert {state["step"].item() for state in critic.state.values()} == {8}
    assert {state["step"].item() for state in generator.state.values()} == {4}


def test_the_clock_knows_what_time_is_spent_on(monkeypatch):
    class Clock:
        now = 0.0

    clock = Clock()
    monkeypatch.setattr("sgdf.bench.training.trainer.time.perf_counter", lambda: clock.now)

    class Timed(Points):
        def batches(self, batch_size, order):
            batches = super().batches(batch_size, order)

            class Slow:
                def __len__(self):
                    return len(batches)

                def __iter__(self):
                    for batch in batches:
                        clock.now += 1
                        yield batch

            return Slow()

        def step(self, batch, update):
            clock.now += 10
            return super().step(batch, update)

        def evaluate(self, split):
            clock.now += 1000
            return super().evaluate(split)

    monkeypatch.setattr("sgdf.bench.training.trainer.find_task", lambda name: Timed)
    trainer = Trainer(run_of(), Ranks())
    trainer.fit(lambda trainer: setattr(clock, "now", clock.now + 1e6))
    assert trainer.seconds == {"data": 12.0, "step": 120.0, "evaluation": 6000.0}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_compiled_networks_train_the_same(precision):
    train = {"epochs": 1, "precision": precision}
    plain = trained(run_of({"name": "bench_tasks:Points", "dropout": 0.0}, train=train))
    compiled = trained(
        run_of({"name": "bench_tasks:Points", "dropout": 0.0}, train={**train, "compile": True})
    )
    assert compiled.model._compiled_call_impl is not None
    assert list(compiled.model.state_dict()) == list(plain.model.state_dict())
    tolerance = 1e-5 if precision == "float32" else 2e-2
    for a, b in zip(compiled.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_batches_that_cannot_be_split_are_refused():
    with pytest.raises(SpecError, match="batch_size = 32: must be a multiple of 3"):
        run_of(train={"accumulate": 3})
    with pytest.raises(ValueError, match="do not make up one whole step"):
        Trainer(run_of(train={"accumulate": 32, "batch_size": 32 * 64}), Ranks())


def test_batches_that_continue_each_other_are_not_split(monkeypatch):
    message = (
        "each batch continues where the one before it ended, so none can be split into 2 parts"
    )
    with pytest.raises(SpecError, match=f"task 'characters': {message}"):
        run_of("characters", train={"accumulate": 2})
    both = {"name": ["bench_tasks:Points", "characters"]}  # which share one [train]
    with pytest.raises(SpecError, match=f"task 'characters': {message}"):
        run_of(both, train={"accumulate": 2})
    run = run_of(train={"accumulate": 2})
    with pytest.raises(SpecError, match=message):
        resolve_machine(
            read({"task": {"name": "characters"}, "optimizer": {"name": "sgd", "lr": 0.1}}),
            threads=1,
            processes=2,
        )

    class Continuing(Points):
        """Says it of an instance alone, after its class was checked."""

        def __init__(self, **options):
            super().__init__(**options)
            self.sequential = True

    monkeypatch.setattr("sgdf.bench.training.trainer.find_task", lambda name: Continuing)
    with pytest.raises(SpecError, match=message):
        Trainer(run, Ranks())


def test_the_paper_protocol_trains_on_everything_and_looks_at_the_test_data():
    trainer = trained(run_of(protocol="paper"))
    assert trainer.epoch_steps == math.ceil(180 / 32)
    assert "validation" not in trainer.rows[-1]


def test_a_protocol_that_a_task_has_not_the_data_for_is_refused_before_any_run(monkeypatch):
    with pytest.raises(SpecError, match='"paper": trains on validation data, too, which this task'):
        run_of("bench_tasks:Pair", protocol="paper")
    only_test = classmethod(lambda cls, **options: ("validation", "test")[options["every"] == 3 :])
    monkeypatch.setattr("bench_tasks.Pair.splits_with", only_test)
    run_of({"name": "bench_tasks:Pair", "every": 3}, protocol="paper")
    run_of({"name": "bench_tasks:Pair", "every": 2})
    with pytest.raises(SpecError, match="chooses on validation data, but the task has only test"):
        run_of({"name": "bench_tasks:Pair", "every": 3})


def test_the_caller_keeps_its_random_numbers():
    from sgdf.bench.training.randomness import seeded

    before = capture()
    with seeded(3):
        seed_all(4)
        torch.rand(3)
    after = capture()
    assert torch.equal(before["torch"], after["torch"])
    assert before["python"] == after["python"]
    assert torch.equal(before["numpy"][1], after["numpy"][1])


def test_a_pause_can_stop_it():
    trainer = Trainer(run_of(), Ranks())

    def pause(trainer):
        if trainer.step == 2:
            raise Stopped

    with pytest.raises(Stopped):
        trainer.fit(pause)
    assert trainer.step == 2
    assert not trainer.finished


def test_a_loader_that_is_shorter_than_it_says_is_an_error():
    with pytest.raises(ValueError, match=r"an epoch gave 4 steps, but by the length .* has 9"):
        trained(run_of("bench_tasks:Short"))


def test_a_metric_to_select_by_must_be_there(monkeypatch):
    monkeypatch.setattr(Points, "evaluate", lambda self, split: {"loss": 1.0})
    with pytest.raises(ValueError, match="selects by 'accuracy', but evaluates loss"):
        trained(run_of())


def test_a_plateau_needs_a_loss(monkeypatch):
    monkeypatch.setattr(Points, "evaluate", lambda self, split: {"accuracy": torch.tensor(0.5)})
    with pytest.raises(ValueError, match="needs a metric called loss"):
        trained(run_of(schedule={"name": "ReduceLROnPlateau"}))


def test_divergence_at_the_end_of_an_epoch_is_in_that_epoch():
    optimizer = {"name": "sgd-vanilla", "lr": 1e30}
    trainer = trained(run_of("bench_tasks:Plain", optimizer, {"batch_size": 8}))
    assert (trainer.epoch, trainer.diverged) == (0, 2)
    assert not math.isfinite(trainer.rows[-1]["train"]["loss"])


def test_what_was_gone_through_again_is_not_counted_again():
    run = run_of({"name": "bench_tasks:Loaded", "workers": 0}, train={"epochs": 1})
    first = Trainer(run, Ranks())

    def stop(trainer):
        if trainer.step == 3:
            raise Stopped

    with pytest.raises(Stopped):
        first.fit(stop)
    second = Trainer(run, Ranks())
    second.load(first.state())
    before = dict(second.seconds)
    task_batches, slow = second.task.batches, []

    def batches(batch_size, order):
        slow.append(time.sleep(0.2))
        return task_batches(batch_size, order)

    second.task.batches = batches
    second.fit(lambda trainer: None)
    assert slow
    assert second.seconds["data"] - before["data"] < 0.2


@pytest.mark.parametrize(
    ("method", "replacement", "message"),
    [
        ("step", lambda self, batch, update: {"loss": 1.0}, "did not once call update"),
        ("step", lambda self, batch, update: None, "step.. returned NoneType, not numbers by name"),
        (
            "step",
            lambda self, batch, update: update(torch.ones(()), "x"),
            "no optimizer 'x'; allowed",
        ),
        ("evaluate", lambda self, split: {"accuracy": [1, 2]}, "metric 'accuracy' is not a number"),
    ],
)
def test_what_a_task_does_wrong_is_named(method, replacement, message, monkeypatch):
    monkeypatch.setattr(Points, method, replacement)
    with pytest.raises((TypeError, ValueError), match=message):
        trained(run_of())


def test_a_task_needs_a_model(monkeypatch):
    monkeypatch.setattr(Points, "__init__", lambda self: None)
    with pytest.raises(TypeError, match="no attribute model"):
        Trainer(run_of(), Ranks())


def test_an_optimizer_of_several_can_have_options_of_its_own(monkeypatch):
    def optimizers(self, make):
        return {name: make(net.parameters(), lr=0.5) for name, net in self.model.items()}

    monkeypatch.setattr(Pair, "optimizers", optimizers)
    trainer = Trainer(run_of("bench_tasks:Pair"), Ranks())
    groups = [one.param_groups[0] for one in trainer.optimizers.values()]
    assert [(group["lr"], group["momentum"]) for group in groups] == [(0.5, 0.9)] * 2
