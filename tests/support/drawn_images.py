"""What the records of tasks that draw images show, as the rows of tables on their page."""

from __future__ import annotations

import json

from locations import ROOT
from sgdf.bench.report.statistics import Sample, holm, p_value

RECORDS = ROOT / "records" / "generation"
DISTANCE = "frechet_distance"
DIGITS = {"dit-digits": 1, "sit-digits": 1, "dit-cifar": 2}


def settings_of(name):
    """Return the settings of an experiment by optimizer and rate."""
    (problem,) = json.loads((RECORDS / f"{name}.json").read_text())
    return {(s["optimizer"]["name"], s["optimizer"]["lr"]): s for s in problem["settings"]}


def best(name):
    """Return the setting of each optimizer that is best on validation data, by optimizer."""
    found = {}
    for (optimizer, _), setting in settings_of(name).items():
        value = setting["figures"][f"validation {DISTANCE}"]["mean"]
        if optimizer not in found or value < found[optimizer][0]:
            found[optimizer] = value, setting
    return {optimizer: setting for optimizer, (_, setting) in found.items()}


def mean(setting, metric=DISTANCE):
    """Return the mean of a metric on test data, at the chosen epoch."""
    return setting["figures"][f"test {metric}"]["mean"]


def row(name, setting):
    """Return the row of a table for a setting: distance by epoch, at the end, and shares."""
    places = DIGITS[name]
    by_epoch = list(setting["means by epoch"][f"test {DISTANCE}"].values())[:-1]
    distance = setting["figures"][f"test {DISTANCE}"]
    cells = [
        f"`{setting['optimizer']['name']}`",
        f"{setting['optimizer']['lr']:g}",
        *(f"{value:.{places}f}" for value in by_epoch),
        f"{distance['mean']:.{places}f} ± {distance['standard deviation']:.{places}f}",
        *(f"{mean(setting, share):.2f}" for share in ("precision", "recall")),
    ]
    return f"| {' | '.join(cells)} |"


def above(name, one, other):
    """Return by how much the distance of one optimizer is above another's, seed by seed."""
    ones, others = (
        best(name)[optimizer]["figures"][f"test {DISTANCE}"]["by seed"]
        for optimizer in (one, other)
    )
    return Sample(tuple(ones[seed] - others[seed] for seed in ones))


def corrected(name):
    """Return the p-value of every pair of optimizers, corrected by Holm's method."""
    names = sorted(best(name))
    pairs = [(one, other) for i, one in enumerate(names) for other in names[i + 1 :]]
    values = holm([p_value(above(name, *pair)) for pair in pairs])
    return dict(zip(pairs, values, strict=True))
