"""The metric of a task: its direction, how it is declared, how it is shown."""

import pytest

from bench_tasks import Plain, Points, run_of, trained
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks import TASKS, Metric, find_task
from sgdf.bench.tasks.base import metric_of
from sgdf.bench.tasks.metric import known_direction, shown_as


@pytest.mark.parametrize(
    "name", ["accuracy", "acc", "val_acc", "top-1 accuracy", "mAP", "f1", "AUC"]
)
def test_larger_is_known_to_be_better(name):
    assert Metric(name).is_maximized
    assert Metric(name).direction == "larger is better"


@pytest.mark.parametrize(
    "name", ["loss", "error", "error_rate", "perplexity", "rmse", "FID", "nll"]
)
def test_smaller_is_known_to_be_better(name):
    assert not Metric(name).is_maximized
    assert Metric(name).direction == "smaller is better"


@pytest.mark.parametrize("name", ["energy", "m", "accuracy loss", "floss", "scored"])
def test_a_name_that_tells_nothing_needs_a_direction(name):
    assert known_direction(name) is None
    with pytest.raises(SpecError, match=rf'metric = Metric\("{name}", larger_is_better=True\)'):
        _ = Metric(name).is_maximized
    assert Metric(name, larger_is_better=True).is_maximized
    assert not Metric(name, larger_is_better=False).is_maximized


@pytest.mark.parametrize("direction", ["smaller", "min", 0.5])
def test_a_direction_is_true_or_false(direction):
    """Else any text would count as True, and the worst epoch as the best."""
    with pytest.raises(SpecError, match="larger_is_better must be True or False"):
        Metric("mae", direction)


def test_a_name_alone_is_no_metric():
    class Careless(Plain):
        metric = "mae"

    with pytest.raises(SpecError, match=r'write metric = Metric\("mae"\)'):
        metric_of(Careless)


def test_a_stated_direction_comes_before_the_name():
    assert not Metric("accuracy", larger_is_better=False).is_maximized
    assert Metric("loss", larger_is_better=True).is_maximized


def test_bundled_tasks_declare_their_metric_on_the_class():
    """So that it is known before any data are loaded."""
    for name in TASKS:
        assert isinstance(find_task(name).metric, Metric), name


def test_an_older_task_without_a_direction_is_maximised_where_its_name_says_so():
    """It was minimised in silence once: the worst epoch was reported as the best."""

    class Accurate(Plain):
        selects = "acc"

    assert metric_of(Accurate).is_maximized


def test_an_unknown_name_without_a_direction_is_an_error_that_names_the_line_to_add(monkeypatch):
    monkeypatch.setattr(Plain, "selects", "energy", raising=False)
    with pytest.raises(SpecError, match=r'Add to the task: metric = Metric\("energy", larger_is_b'):
        trained(run_of("bench_tasks:Plain", "sgd-vanilla"))


def test_the_older_pair_of_attributes_still_holds():
    class Old(Plain):
        selects, largest = "energy", False

    assert metric_of(Old) == Metric("energy", False)

    class Older(Plain):
        selects, largest = "score", False  # against its name, and stated

    assert not metric_of(Older).is_maximized


def test_a_declared_metric_comes_before_what_targets_suggest(monkeypatch):
    monkeypatch.setattr(Points, "metric", Metric("loss"))
    trainer = trained(run_of())
    assert trainer.metric == Metric("loss")


@pytest.mark.parametrize(
    ("name", "unit", "values", "shown"),
    [
        ("accuracy", None, [0.5, 1.0], (100.0, "%")),
        ("top5 accuracy", None, [0.5], (100.0, "%")),
        ("accuracy", None, [0.5, 97.0], (1.0, "")),
        ("hits", "%", [0.5], (100.0, "%")),
        ("hits", "%", [50.0], (1.0, "%")),
        ("hits", None, [0.5], (1.0, "")),
        ("time", "ms", [0.5], (1.0, "ms")),
        ("accuracy", "", [0.5], (1.0, "")),
        ("accuracy", None, [], (100.0, "%")),
    ],
)
def test_per_cent_has_one_rule(name, unit, values, shown):
    assert shown_as(name, unit, values) == shown
