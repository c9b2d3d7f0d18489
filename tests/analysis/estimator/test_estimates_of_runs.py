"""The estimates along whole trainings: nothing of the run changes, and a kill loses little."""

import dataclasses
import functools
import math
import re

import pytest
import torch

from bench_tasks import Plain, run_of
from sgdf.analysis.conduct import Measured, measure_runs
from sgdf.analysis.estimator import page, signals
from sgdf.analysis.estimator.errors import Errors
from sgdf.analysis.estimator.of_runs import EstimatesOfRuns
from sgdf.analysis.estimator.relative_errors import (
    measured_steps,
    relative_curve,
    relative_errors,
    tensors,
)
from sgdf.analysis.page import write_analysis
from sgdf.analysis.record import Record
from sgdf.analysis.replay import replay
from sgdf.analysis.runs import AnalysedRun
from sgdf.bench.errors import SpecError

QUICK = EstimatesOfRuns(every=5, draws=3, beta1=(0.9,), steps=12)


def points(seed=0, **train):
    """Return a run with BatchNorm and dropout; its last batch of an epoch is smaller."""
    run = run_of(train={"threads": 1, "batch_size": 50, **train}, length="epochs", seed=seed)
    return AnalysedRun(run, "sgd")


def weights(trainer):
    return [value.clone() for value in trainer.model.state_dict().values()]


def test_measuring_does_not_change_a_bit_of_the_training(tmp_path, monkeypatch):
    analysed, trainers = points(epochs=4), []

    def kept(*arguments, **options):
        trainers.append(replay(*arguments, **options))
        return trainers[-1]

    monkeypatch.setattr("sgdf.analysis.estimator.of_runs.replay", kept)
    record = Record(tmp_path, "run", {})
    QUICK.measure(analysed, record, lambda share: None)
    plain = replay(analysed.run, steps=12)
    assert all(map(torch.equal, weights(trainers[0]), weights(plain)))
    assert trainers[0].step == plain.step == 12


def test_a_measurement_that_was_killed_is_continued(tmp_path):
    """The first step that was kept is not measured again, and the rest is the same to the bit."""
    whole, cut = Record(tmp_path, "whole", {}), Record(tmp_path, "cut", {})
    shares = []
    QUICK.measure(points(epochs=4), whole, shares.append)
    assert shares == pytest.approx([step / 13 for step in range(1, 13)])
    assert [step["step"] for step in measured_steps(whole)] == [5, 10]
    marked = whole["5"] | {"mark": "kept"}
    cut.keep("5", marked)
    QUICK.measure(points(epochs=4), cut, lambda share: None)
    assert measured_steps(cut) == [marked, whole["10"]]


def test_a_step_has_the_errors_of_every_filter_and_tensor(tmp_path):
    record = Record(tmp_path, "run", {})
    QUICK.measure(points(epochs=4), record, lambda share: None)
    (first, _) = measured_steps(record)
    assert list(first["errors"]) == [one.name for one in QUICK.filters()]
    for by_tensor in first["errors"].values():
        assert list(by_tensor) == tensors([first])
        for bias, variance, mse in by_tensor.values():
            assert bias + variance == pytest.approx(mse)
    assert sum(first["gain"][0]) > 0


class PartlyUsed(Plain):
    """Has a frozen parameter, one that is never used, and one that is used now and then."""

    def __init__(self) -> None:
        super().__init__()
        for name, trained in (("frozen", False), ("unused", True), ("rare", True)):
            weight = torch.nn.Parameter(torch.ones(1), requires_grad=trained)
            self.model.register_parameter(name, weight)
        self.losses = 0

    def loss(self, batch, targets=None):
        """Return the loss, which depends on the rare parameter from the second step on."""
        self.losses += 1
        loss = super().loss(batch, targets)
        return loss * self.model.rare.sum() if self.losses > 1 else loss


def test_parameters_without_a_gradient_have_no_error(tmp_path):
    run = run_of("test_estimates_of_runs:PartlyUsed", train={"threads": 1, "batch_size": 8})
    record = Record(tmp_path, "run", {})
    QUICK.measure(AnalysedRun(run, "sgd"), record, lambda share: None)
    steps = measured_steps(record)
    assert set(tensors(steps)) == {"weight", "bias", "unused", "rare"}
    assert math.isnan(relative_errors(steps, "unused")["half-batch Kalman"].mse)
    assert math.isfinite(relative_errors(steps)["half-batch Kalman"].mse)
    assert not any(steps[0]["errors"]["SGDF, β 0.9"]["unused"])


def made_step(number, **errors):
    return {
        "step": number,
        "squared gradient": {"a": 1.0, "b": 1.0},
        "errors": {
            name: {"a": list(one), "b": list(other)} for name, (one, other) in errors.items()
        },
    }


def test_relative_errors_divide_means_over_steps():
    plain, better = Errors(0.0, 4.0, 4.0), Errors(1.0, 1.0, 2.0)
    steps = [
        made_step(1, **{"raw gradient": (plain, plain), "x": (better, plain)}),
        made_step(2, **{"raw gradient": (better, better), "x": (better, better)}),
    ]
    # Sums over tensors and steps: 6 + 4 of 8 + 4.
    assert relative_errors(steps)["x"] == pytest.approx(Errors(3 / 12, 7 / 12, 10 / 12))
    assert relative_errors(steps, "a")["x"].mse == pytest.approx(4 / 6)
    assert relative_curve(steps, "x") == pytest.approx([6 / 8, 1.0])


def test_a_raw_gradient_without_an_error_is_no_unit():
    """As that of a batch of all training data."""
    exact, other = Errors(0.0, 0.0, 0.0), Errors(1.0, 0.0, 1.0)
    steps = [made_step(1, **{"raw gradient": (exact, exact), "x": (other, other)})]
    assert math.isnan(relative_errors(steps)["x"].mse)
    assert math.isnan(relative_curve(steps, "x")[0])


def test_the_page_has_all_tables_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SIGNALS", ())  # they take seconds, and have a test of their own
    analysis = dataclasses.replace(QUICK, every=2)
    runs = [points(seed) for seed in (0, 1)]
    measured = measure_runs(analysis, runs, tmp_path, lambda run, share: None)
    document = write_analysis(analysis, measured, "sgdf analyze estimator", tmp_path)
    assert document.summary[0].startswith("Of 1 setting, the estimate of SGDF, β 0.9 is closer")
    written = {path.name for path in tmp_path.glob("*/*.*") if path.parent.name != "records"}
    tables = {"errors-0-9", "parts", "tensors", "gain-classes", "signals"}
    assert written == {f"estimator-{name}.csv" for name in tables} | {
        f"estimator-{name}.{kind}" for name in ("training", "gain") for kind in ("png", "pdf")
    }
    assert "needs at least 3 seeds" in document.summary[1]
    for plot in document.plots:
        if plot.name == "estimator-training":
            (panel,) = plot.figure.axes
            low, high = panel.get_ylim()
            assert sum(low <= tick <= high for tick in panel.get_yticks()) >= 3
    text = (tmp_path / "tables/estimator-parts.csv").read_text()
    assert text.count("half-batch Kalman") == 1


def test_the_estimates_are_tested_over_three_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SIGNALS", ())
    analysis = dataclasses.replace(QUICK, every=2)
    runs = [points(seed) for seed in (0, 1, 2)]
    measured = measure_runs(analysis, runs, tmp_path, lambda run, share: None)
    summary = analysis.contents(measured).summary
    assert re.search(r"than EMA, β 0.9 in [01] \(significantly in [01] of 1 tested\)", summary[0])
    assert not any("needs at least" in line for line in summary)


def test_a_gain_without_a_standard_error_has_a_dash_and_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SIGNALS", ())
    analysis = dataclasses.replace(QUICK, every=2, steps=4)
    measured = measure_runs(analysis, [points()], tmp_path, lambda run, share: None)
    (table,) = [
        one for one in analysis.contents(measured).tables if one.name == "estimator-gain-classes"
    ]
    texts = [cell.text for cell in table.rows[0][1:] if "±" in cell.text]
    assert texts
    assert all(text.endswith("± –") for text in texts)
    assert "fewer than three" in table.about


def test_a_page_without_measurements_says_so(tmp_path):
    empty = Measured(points(), Record(tmp_path, "run", {}))
    assert QUICK.contents([empty]).summary == [
        "No run has a step that was measured; choose a smaller --every."
    ]


def test_signals_stand_beside_the_best_estimate(monkeypatch):
    quick = functools.partial(signals.measure_signal, steps=200, settled=100, elements=100)
    monkeypatch.setattr(page, "measure_signal", quick)
    table = page._signal_table(0.9)
    by_name = {row[0].text: row for row in table.rows}
    assert "*" in by_name["jumping"][1].text
    assert "*" not in by_name["oscillating"][1].text
    column = table.columns.index("half-batch Kalman")
    assert by_name["oscillating"][column].order < by_name["oscillating"][3].order


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"clip_norm": 1.0}, "clip_norm = 1: a clipped gradient has another mean"),
        ({"accumulate": 2}, "accumulate = 2: only one batch of a step can be seen"),
        ({"precision": "bfloat16"}, "precision = 'bfloat16': gradients are measured in float32"),
    ],
)
def test_other_gradients_are_refused(tmp_path, train, message):
    with pytest.raises(SpecError, match=message):
        QUICK.measure(points(**train), Record(tmp_path, "run", {}), lambda share: None)


def test_several_optimizers_are_refused(tmp_path):
    run = AnalysedRun(run_of("bench_tasks:Pair", train={"threads": 1}), "pair")
    with pytest.raises(SpecError, match="it has several optimizers"):
        QUICK.measure(run, Record(tmp_path, "run", {}), lambda share: None)


def test_a_run_that_diverges_keeps_what_was_measured_before(tmp_path):
    run = run_of(
        "bench_tasks:Plain",
        {"name": "sgd-vanilla", "lr": 1e12},
        {"threads": 1, "batch_size": 8, "steps": 40},
        length="steps",
    )
    record = Record(tmp_path, "run", {})
    EstimatesOfRuns(every=1, draws=2, beta1=(0.9,)).measure(
        AnalysedRun(run, "sgd"), record, lambda share: None
    )
    steps = measured_steps(record)
    assert 0 < len(steps) < 40
    assert all(
        math.isfinite(value) for step in steps for value in step["squared gradient"].values()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 1}, "draws = 1: a variance takes at least 2"),
        ({"every": 0}, "every = 0: must be at least 1"),
        ({"beta1": ()}, "beta1 = .*: must be one or more between 0 and 1"),
        ({"beta1": (1.0,)}, "beta1 = .*1.0.*: must be one or more between 0 and 1"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        EstimatesOfRuns(**changes)
