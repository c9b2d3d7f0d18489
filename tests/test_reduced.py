"""The reduced CIFAR experiments: what was predicted, what came out, and what the page says."""

import json
import re
from pathlib import Path

import pytest

from sgdf.bench.published import column
from sgdf.bench.spec import bundled_experiments, load

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "cifar.md").read_text()
TABLES = {
    "cifar10-small": ("tab:cifar_values", "CIFAR-10, VGG11"),
    "cifar100-small": ("tab:cifar_values", "CIFAR-100, ResNet34"),
    "cifar-adam-small": ("tab:accuracy_comparison", "CIFAR-100, VGG11"),
}
REDUCED = [name for name in bundled_experiments() if re.fullmatch(r"cifar.*-small", name)]


def predicted(name):
    """Return the order that an experiment's file predicts, best first."""
    text = bundled_experiments()[name].read_text()
    return re.search(r"^# (\S+(?: > \S+)+)$", text, re.M).group(1).split(" > ")


def record_of(name):
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def test_every_reduced_experiment_fits_two_cores():
    for name in REDUCED:
        runs = load(name).runs
        assert {run.seed for run in runs} == {0, 1, 2}
        assert {run.train.threads for run in runs} == {1}
        assert len({run.optimizer.name for run in runs}) <= 6


@pytest.mark.parametrize("name", TABLES)
def test_predictions_are_those_of_the_papers_tables(name):
    label, title = TABLES[name]
    printed = column(label, title)
    values = {printed.optimizers[method]: value[0] for method, value in printed.values.items()}
    compared = {run.optimizer.name for run in load(name).runs}
    assert predicted(name) == sorted(compared, key=lambda one: -values[one])
