"""What a task may declare: its loss, its splits, its length in steps, its costly metrics."""

import json

import pytest
import torch

from bench_tasks import Points, equal, essence, run_of, trained
from declaring_tasks import Costly, LossOnly
from kept_runs import do
from sgdf.bench.errors import SpecError
from sgdf.bench.spec.read import read
from sgdf.bench.store.run_folder import State
from sgdf.bench.tasks import Metric, find_task
from sgdf.bench.tasks.cifar.augment import AugmentedPairs
from sgdf.bench.tasks.sequence import Windows
from sgdf.bench.tasks.supervised import ShuffledPairs
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("publishing_at_once")


LOSS_ONLY = "declaring_tasks:LossOnly"


def rows_of(trainer):
    return [{key: row[key] for key in row if key != "seconds"} for row in trainer.rows]


def test_a_loss_alone_is_a_step():
    train = {"log_every": 1, "batch_size": 32}
    short = trained(run_of(LOSS_ONLY, "sgdf", train))
    long = trained(run_of("declaring_tasks:StepToo", "sgdf", train))
    assert rows_of(short) == rows_of(long)
    assert set(short.rows[0]["train"]) == {"loss", "size"}


def test_a_number_is_logged_only_in_the_steps_that_log_it(monkeypatch):
    def loss(self, batch):
        self.count = getattr(self, "count", 0) + 1
        if self.count % 2:
            self.log("odd", float(self.count))
        return self.model(batch).square().mean()

    monkeypatch.setattr(LossOnly, "loss", loss)
    trainer = trained(run_of(LOSS_ONLY, train={"log_every": 1, "epochs": 2}))
    steps = [row for row in trainer.rows if row["kind"] == "train"]
    assert [row["train"].get("odd") for row in steps] == [1.0, None, 3.0, None, 5.0, None]


def test_a_task_with_neither_loss_nor_step_is_refused():
    with pytest.raises(SpecError, match=r"this has no loss \(or step\)"):
        find_task("declaring_tasks:NoLoss")


def test_options_are_checked_when_a_file_is_read():
    with pytest.raises(SpecError, match=r"task '.*LossOnly': checks = -1: must be at least 0"):
        run_of({"name": LOSS_ONLY, "checks": -1})


def test_a_check_that_raises_anything_else_is_named(monkeypatch):
    monkeypatch.setattr(LossOnly, "check", classmethod(lambda cls, **options: options["missing"]))
    with pytest.raises(SpecError, match="its check raised KeyError: 'missing'"):
        run_of(LOSS_ONLY)


def test_supervised_tasks_answer_for_a_batch_and_for_outputs():
    """The second is how subclasses of before call it."""
    task = find_task("digits-mlp")()
    inputs, targets = (part[:8] for part in task.data["train"])
    assert torch.equal(task.loss((inputs, targets)), task.loss(task.model(inputs), targets))


def test_supervised_tasks_may_still_set_their_loss(monkeypatch):
    """As a function of outputs and targets, after the constructor of the class."""

    def initialise(self):
        original(self)
        self.loss = lambda outputs, targets: (
            2.0 * torch.nn.functional.cross_entropy(outputs, targets)
        )

    original = Points.__init__
    once = trained(run_of(train={"epochs": 1}))
    monkeypatch.setattr(Points, "__init__", initialise)
    twice = trained(run_of(train={"epochs": 1}, optimizer={"name": "sgd", "lr": 0.05}))
    first = [trainer.rows[-1]["train"]["loss"] for trainer in (once, twice)]
    assert first[1] == pytest.approx(2.0 * first[0], rel=1e-4)


def test_names_that_a_task_of_before_uses_otherwise_harm_nothing(monkeypatch):
    def initialise(self):
        original(self)
        self.metric, self.splits = "mine", {"train": 1, "validation": 2, "test": 3}

    original = LossOnly.__init__
    monkeypatch.setattr(LossOnly, "__init__", initialise)
    monkeypatch.setattr(LossOnly, "metric", None)
    monkeypatch.setattr(LossOnly, "selects", "distance", raising=False)
    monkeypatch.setattr(LossOnly, "check", lambda self, batch: batch)
    trainer = trained(run_of({"name": LOSS_ONLY}))
    assert trainer.metric == Metric("distance")
    assert trainer.splits == ("validation", "test")


# Splits


def test_every_split_of_the_task_is_evaluated():
    trainer = trained(run_of("declaring_tasks:Shifted", "sgd"))
    last = trainer.rows[-1]
    assert last["test-shifted"]["distance"] == last["test"]["distance"] + 1
    assert set(trainer.evaluate()) == {"validation", "test", "test-shifted"}


def test_validation_data_that_are_trained_on_are_not_evaluated():
    trainer = Trainer(run_of("declaring_tasks:Shifted", "sgd", protocol="paper"), Ranks())
    assert trainer.splits == ("test", "test-shifted")


def test_a_task_with_test_data_alone_has_the_papers_protocol():
    with pytest.raises(SpecError, match='protocol = "last" chooses nothing'):
        run_of("declaring_tasks:OnTestAlone")
    trainer = trained(run_of("declaring_tasks:OnTestAlone", protocol="paper"))
    assert set(trainer.rows[-1]) >= {"test"}


def test_a_report_needs_test_data():
    with pytest.raises(SpecError, match="it needs test"):
        run_of("declaring_tasks:WithoutTest")


@pytest.mark.parametrize("name", ["train", "seconds", "lr"])
def test_a_split_has_no_name_that_a_row_of_metrics_uses(name, monkeypatch):
    monkeypatch.setattr(LossOnly, "splits", ("validation", "test", name))
    with pytest.raises(SpecError, match=f"{name} is not allowed as a name"):
        run_of(LOSS_ONLY)


def test_splits_may_be_a_list_and_depend_on_the_options(monkeypatch):
    def initialise(self, checks=0):
        original(self)
        self.splits = ["validation", "test", "extra"]

    original = LossOnly.__init__
    monkeypatch.setattr(LossOnly, "__init__", initialise)
    assert Trainer(run_of(LOSS_ONLY), Ranks()).splits == ("validation", "test", "extra")


def test_a_metric_without_a_direction_is_refused_when_the_file_is_read(monkeypatch):
    monkeypatch.setattr(LossOnly, "metric", Metric("energy"))
    with pytest.raises(SpecError, match="is the largest value the best"):
        run_of(LOSS_ONLY)


# Skipped batches


def test_batches_can_be_skipped():
    """What is left is what the whole would have given, for each kind of batches."""
    pairs = torch.arange(20.0).view(10, 2), torch.arange(10)
    images = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8), torch.arange(10)

    def generator():
        return torch.Generator().manual_seed(3)

    for make in (
        lambda: ShuffledPairs(pairs, 3, generator()),
        lambda: AugmentedPairs(*images, 3, generator()),
        lambda: Windows(torch.arange(50), 2, 7),
    ):
        whole = list(make())
        for count in range(len(whole) + 1):
            left = make().skip(count)
            assert len(left) == len(whole) - count
            assert equal(list(left), whole[count:])
        assert equal(list(make().skip(1).skip(1)), whole[2:])


def test_batches_can_be_dealt_out_to_processes():
    """Each has every so many of what the whole would have given, and can still skip some."""
    data = torch.arange(20.0).view(10, 2), torch.arange(10)
    images = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8), torch.arange(10)
    for make in (
        lambda: ShuffledPairs(data, 3, torch.Generator().manual_seed(3)),
        lambda: AugmentedPairs(*images, 3, torch.Generator().manual_seed(3)),
    ):
        whole = list(make())
        for rank in (0, 1, 2):
            assert equal(list(make().dealt(rank, 3)), whole[rank::3])
        assert equal(list(make().skip(1).dealt(1, 2)), whole[2::2])
        assert equal(list(make().dealt(0, 2).skip(1)), whole[2::2])


class Counted(ShuffledPairs):
    """Counts the batches that were loaded."""

    loaded = 0

    def __iter__(self):
        for batch in super().__iter__():
            Counted.loaded += 1
            yield batch


def test_a_resumed_run_loads_no_batch_twice(store, monkeypatch):
    def batches(self, batch_size, order):
        return Counted(self.data["train"], batch_size, order)

    monkeypatch.setattr(Points, "batches", batches)
    run = run_of(train={"log_every": 1, "batch_size": 8})
    monkeypatch.setattr(Counted, "loaded", 0)
    do(run, store)
    in_one_go = Counted.loaded
    monkeypatch.setattr(Counted, "loaded", 0)
    other = type(store)(store.path / "other")
    do(run, other, stop_after=5)
    _, state, _ = do(run, other)
    assert state is State.FINISHED
    assert in_one_go <= Counted.loaded <= in_one_go + 1  # one may be loaded ahead
    assert equal(essence(store.folder(run.key)), essence(other.folder(run.key)))


# Length in steps


def test_a_run_can_be_so_many_steps_long(store):
    train = {"steps": 7, "log_every": 1, "batch_size": 8}
    run = run_of(train=train, length="steps")
    trainer = trained(run)
    assert (trainer.step, trainer.steps) == (7, 7)
    epochs = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert [row["step"] for row in epochs][-1] == 7
    assert "test" in epochs[-1]
    assert trainer.epochs == len(epochs)


@pytest.mark.parametrize("stop_after", [1, 3, 5, 6])
def test_a_run_in_steps_resumes_bit_by_bit(stop_after, store):
    run = run_of(train={"steps": 7, "log_every": 1, "batch_size": 24}, length="steps")
    do(run, store)
    other = type(store)(store.path / "other")
    do(run, other, stop_after=stop_after)
    _, state, _ = do(run, other)
    assert state is State.FINISHED
    assert equal(essence(store.folder(run.key)), essence(other.folder(run.key)))


def test_the_first_steps_are_those_of_a_longer_run():
    short = trained(run_of(train={"steps": 4, "log_every": 1}, length="steps"))
    long = trained(run_of(train={"epochs": 3, "log_every": 1}))
    kept = [row for row in rows_of(long) if row["kind"] == "train"][:4]
    assert [row for row in rows_of(short) if row["kind"] == "train"] == kept


def test_new_keys_are_in_the_table_only_where_they_are_used():
    """So that runs of before keep their names."""
    plain = run_of().as_table()["train"]
    assert "epochs" in plain
    assert not {"steps", "costly_every"} & set(plain)
    stepped = run_of(train={"steps": 9}, length="steps").as_table()["train"]
    assert stepped["steps"] == 9
    assert "epochs" not in stepped
    (again,) = read(
        json.loads(json.dumps(run_of(train={"steps": 9}, length="steps").as_table()))
    ).runs
    assert again.key == run_of(train={"steps": 9}, length="steps").key


def test_steps_and_epochs_together_are_refused():
    with pytest.raises(SpecError, match="in steps or in epochs, not both"):
        run_of(train={"steps": 9, "epochs": 3}, length="steps")


# Costly metrics


@pytest.mark.parametrize(("every", "epochs_with"), [(0, [5]), (2, [2, 4, 5]), (1, [1, 2, 3, 4, 5])])
def test_costly_metrics_have_an_interval_of_their_own(every, epochs_with, monkeypatch):
    monkeypatch.setattr(Costly, "calls", 0)
    trainer = trained(run_of("declaring_tasks:Costly", train={"epochs": 5, "costly_every": every}))
    rows = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert [row["epoch"] for row in rows if "fid" in row["test"]] == epochs_with
    assert Costly.calls == 2 * len(epochs_with)
    assert all("distance" in row["test"] for row in rows)


def test_a_costly_metric_can_choose_among_the_epochs_that_have_it(store, monkeypatch):
    """The first evaluation has it, so that a wrong name is noticed at once."""
    values = iter([3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 4.0, 4.0])
    monkeypatch.setattr(Costly, "evaluate_costly", lambda self, split: {"fid": next(values)})
    run = run_of("declaring_tasks:ChosenByCostly", train={"epochs": 5, "costly_every": 2})
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    assert [row["epoch"] for row in rows if "fid" in row["test"]] == [1, 2, 4, 5]
    assert folder.result()["selected"]["epoch"] == 4


def test_a_wrong_name_is_noticed_at_the_first_evaluation(monkeypatch):
    monkeypatch.setattr(Costly, "metric", Metric("acuracy", larger_is_better=True))
    with pytest.raises(ValueError, match="selects by 'acuracy'"):
        trained(run_of("declaring_tasks:Costly", train={"epochs": 1000}))


def test_costly_metrics_are_due_between_other_evaluations_too():
    train = {"epochs": 7, "evaluate_every": 2, "costly_every": 3}
    trainer = trained(run_of("declaring_tasks:Costly", train=train))
    rows = [row for row in trainer.rows if "test" in row]
    assert [row["epoch"] for row in rows] == [2, 3, 4, 6, 7]
    assert [row["epoch"] for row in rows if "fid" in row["test"]] == [3, 6, 7]


def test_a_unit_is_recorded_only_where_it_is_declared(store, monkeypatch):
    folder, _, _ = do(run_of(LOSS_ONLY), store)
    assert "unit" not in folder.result()
    monkeypatch.setattr(LossOnly, "metric", Metric("distance", unit="m"))
    folder, _, _ = do(run_of(LOSS_ONLY, seed=1), store)
    assert folder.result()["unit"] == "m"
