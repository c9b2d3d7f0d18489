"""Measured runs arranged by setting, and their results beside what was measured."""

import pytest

from bench_tasks import run_of
from sgdf.analysis.conduct import Measured
from sgdf.analysis.runs import AnalysedRun
from sgdf.analysis.settings import MeasuredSetting, by_task, last_test_results


def setting_of(metric, unit, values):
    runs = []
    for value in values:
        figures = {} if value is None else {metric: value}
        result = {"metric": metric, "unit": unit, "last": {"test": figures}}
        runs.append(Measured(AnalysedRun(None, "sgd", None, result), None))
    return MeasuredSetting("sgd", "sgd", tuple(runs))


@pytest.mark.parametrize(
    ("metric", "unit", "heading", "shown"),
    [
        ("accuracy", None, "test accuracy (%)", (50.0, 75.0)),
        ("top-5 accuracy", None, "test top-5 accuracy (%)", (50.0, 75.0)),
        ("hits", "%", "test hits (%)", (50.0, 75.0)),
        ("loss", None, "test loss", (0.5, 0.75)),
    ],
)
def test_results_are_shown_in_the_unit_of_their_metric(metric, unit, heading, shown):
    settings = [setting_of(metric, unit, [0.5, None, 0.75]), setting_of(metric, unit, [None])]
    found, samples = last_test_results(settings)
    assert found == heading
    assert [sample.values for sample in samples] == [shown, ()], "what is missing is left out"


def test_settings_of_different_tasks_are_kept_apart():
    """The same task with another option is another task."""
    tasks = [{"name": "bench_tasks:Points", "hidden": hidden} for hidden in (4, 8, 4)]
    settings = [
        MeasuredSetting(str(i), "sgd", (Measured(AnalysedRun(run_of(task=task), str(i)), None),))
        for i, task in enumerate(tasks)
    ]
    assert [[one.name for one in alike] for alike in by_task(settings)] == [["0", "2"], ["1"]]
