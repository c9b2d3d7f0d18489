"""Statistics that are written: to TensorBoard, to W&B."""

import math

import pytest
import torch

import sgdf


def test_scalars_and_histograms_reach_tensorboard(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="no tensorboard")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    weight = torch.nn.Parameter(torch.randn(30))
    optimizer = sgdf.SGDF([("weight", weight)], lr=0.1)
    with tensorboard.SummaryWriter(tmp_path) as writer:
        monitor = sgdf.monitor.attach(optimizer, every=2, writer=writer)
        for _ in range(5):
            weight.grad = torch.randn(30)
            optimizer.step()
        bad = torch.nn.Parameter(torch.ones(2))
        bad.grad = torch.full((2,), math.nan)
        other = sgdf.SGDF([("bad", bad)])
        sgdf.monitor.attach(other, every=1, writer=tensorboard.SummaryWriter(tmp_path / "bad"))
        other.step()  # no gain to draw, and no reason to stop
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    tags = read.Tags()
    assert set(tags["scalars"]) == {
        f"sgdf/{tag}"
        for name in monitor.latest["total"]
        for tag in (f"total/{name}", f"{name}/weight")
    }
    assert tags["histograms"] == ["sgdf/gain/weight"]
    points = read.Scalars("sgdf/total/gain_mean")
    assert [point.step for point in points] == [2, 4]
    assert points[-1].value == pytest.approx(monitor.latest["total"]["gain_mean"])
    assert read.Histograms("sgdf/gain/weight")[-1].histogram_value.num == 30


class Run:
    """The part of a W&B run that matters, as W&B describes it: steps are counted by calls."""

    def __init__(self):
        self.rows, self.axes = [], []

    def define_metric(self, name, step_metric=None):
        """Draw a metric over another."""
        self.axes.append((name, step_metric))

    def log(self, data, step=None, commit=None):
        """Record a row."""
        assert step is None  # one that lies behind would be dropped
        self.rows.append(data)


def test_scalars_reach_a_run():
    run = Run()
    weight = torch.nn.Parameter(torch.randn(30))
    optimizer = sgdf.SGDF([("weight", weight)], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=2, writer=run)
    for _ in range(5):
        weight.grad = torch.randn(30)
        optimizer.step()
    assert run.axes == [("sgdf/*", "sgdf/step")]
    assert [row["sgdf/step"] for row in run.rows] == [2, 4]
    total, own = monitor.latest["total"], monitor.latest["params"]["weight"]
    assert run.rows[-1] == {
        "sgdf/step": 4,
        **{f"sgdf/total/{name}": value for name, value in total.items()},
        **{f"sgdf/{name}/weight": value for name, value in own.items()},
    }


def test_a_run_that_defines_no_metric_gets_every_row():
    class Strict(Run):
        """Refuse to draw over another metric."""

        def define_metric(self, name, step_metric=None):
            """Fail."""
            raise OSError("no metric")

    run = Strict()
    weight = torch.nn.Parameter(torch.randn(30))
    optimizer = sgdf.SGDF([("weight", weight)], lr=0.1)
    sgdf.monitor.attach(optimizer, every=1, writer=run)
    weight.grad = torch.randn(30)
    with pytest.warns(UserWarning, match="could not write: OSError: no metric"):
        optimizer.step()
    optimizer.step()
    optimizer.step()
    assert [row["sgdf/step"] for row in run.rows] == [1, 2, 3]


def test_anything_with_a_log_will_do():
    class Log:
        """Keep what is logged."""

        def __init__(self):
            self.rows = []

        def log(self, data):
            """Record a row."""
            self.rows.append(data)

    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = sgdf.SGDF([weight], lr=0.1)
    log = Log()
    sgdf.monitor.attach(optimizer, every=1, writer=log)
    optimizer.step()
    assert log.rows[0]["sgdf/step"] == 1
