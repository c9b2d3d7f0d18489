"""Which epochs count, and what the result of a run is."""

import pytest

from bench_tasks import run_of
from kept_runs import do
from sgdf.bench.spec.protocol import PROTOCOLS
from sgdf.bench.tasks import Metric
from sgdf.bench.training.result import epochs_that_count

pytestmark = pytest.mark.usefixtures("publishing_at_once")


def test_the_best_on_test_is_called_so(store):
    folder, _, line = do(run_of(protocol="paper"), store)
    result = folder.result()
    assert "selected" not in result
    assert "the best on test" in line
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    assert result["best_on_test"]["test"]["accuracy"] == max(
        row["test"]["accuracy"] for row in rows
    )
    assert result["last"]["test"] == rows[-1]["test"]


def epoch_row(epoch, validation, test):
    row = {"kind": "epoch", "epoch": epoch, "step": 10 * epoch, "train": {}, "test": {"m": test}}
    return {**row, "validation": {"m": validation}} if validation is not None else row


def test_the_epochs_that_count():
    rows = [epoch_row(1, 0.5, 0.9), epoch_row(2, 0.7, 0.3), epoch_row(3, 0.7, 0.8)]
    rows += [epoch_row(4, float("nan"), 0.1), {"kind": "train"}, {"kind": "epoch", "epoch": 5}]
    largest = epochs_that_count(rows, PROTOCOLS["validation"], Metric("m", True))
    assert largest["selected"] == {
        k: rows[1][k] for k in ("epoch", "step", "train", "validation", "test")
    }
    assert largest["last"]["epoch"] == 4
    assert (
        epochs_that_count(rows, PROTOCOLS["validation"], Metric("m", False))["selected"]["epoch"]
        == 1
    )
    test_only = [epoch_row(1, None, 0.9), epoch_row(2, None, 0.3)]
    assert (
        epochs_that_count(test_only, PROTOCOLS["paper"], Metric("m", True))["best_on_test"]["epoch"]
        == 1
    )
    assert (
        epochs_that_count(test_only, PROTOCOLS["paper"], Metric("m", False))["best_on_test"][
            "epoch"
        ]
        == 2
    )
    assert epochs_that_count(rows[4:], PROTOCOLS["validation"], Metric("m", True)) == {}
