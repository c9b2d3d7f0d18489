"""Measured runs arranged by setting, and their results beside what was measured."""

import pytest

from sgdf.analysis.conduct import Measured
from sgdf.analysis.runs import AnalysedRun
from sgdf.analysis.settings import MeasuredSetting, last_test_results


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
