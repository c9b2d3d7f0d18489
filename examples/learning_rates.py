"""Measure how learning rates carry over from SGD, Adam and AdamW: a table and a plot.

A small network on scikit-learn's digits, a grid of learning rates for each optimizer, all
else alike. Part of the training images are set aside for validation; the test set is not
looked at.

It needs the ``bench`` extra: ``pip install '.[bench]'``.
"""

import argparse
import json
import math
import statistics
from multiprocessing import get_context
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from rich.progress import track
from train_digits import digits, network, train

import sgdf

EPOCHS, SEEDS = 15, 3
DECOUPLED = {"weight_decay": 0.05, "decoupled_weight_decay": True}
# For each optimizer: how to build it, and the power of ten in the middle of its grid.
PANELS = {
    "from SGD": {
        "SGD, momentum 0.9": (lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), -1.5),
        "SGDF": (lambda p, lr: sgdf.SGDF(p, lr), -0.5),
    },
    "from Adam": {
        "Adam": (lambda p, lr: torch.optim.Adam(p, lr), -2.5),
        "FilterAdam": (lambda p, lr: sgdf.FilterAdam(p, lr), -2.5),
        "SignSGDF": (lambda p, lr: sgdf.SignSGDF(p, lr), -2.5),
    },
    "from AdamW with decay 0.05": {
        "AdamW": (lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.05), -2.5),
        "FilterAdam, decoupled": (lambda p, lr: sgdf.FilterAdam(p, lr, **DECOUPLED), -2.5),
        "FilterMuon": (lambda p, lr: sgdf.FilterMuon(p, lr, weight_decay=0.05), -2.0),
    },
}
OPTIMIZERS = {name: row for panel in PANELS.values() for name, row in panel.items()}
COLORS = ["#0072B2", "#D55E00", "#009E73"]  # told apart by the colour-blind, too


def grid(middle):
    """Return nine learning rates around a power of ten, two to a decade."""
    return [float(f"{10 ** (middle + offset / 2):.2g}") for offset in range(-4, 5)]


def validation_split():
    """Return 1,100 of the training images and labels, and the 300 others."""
    images, labels, _, _ = digits()
    return images[:1100], labels[:1100], images[1100:], labels[1100:]


def run(job):
    """Train once; return the last epoch's training loss and validation error in per cent."""
    name, lr, seed = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = network()
    optimizer = OPTIMIZERS[name][0](model.parameters(), lr)
    for loss, accuracy in train(model, optimizer, EPOCHS, validation_split()):
        result = {"loss": loss, "error": round(100 * (1 - accuracy), 3)}
        if not math.isfinite(loss):  # a learning rate that is too large: it will not come back
            result["loss"] = None
            break
    return {"optimizer": name, "lr": lr, "seed": seed, **result}


def curve(runs, name, quantity):
    """Return learning rates and, for each, a list of the seeds' values; inf if one diverged."""
    rates = sorted({run["lr"] for run in runs if run["optimizer"] == name})
    found = [
        [run[quantity] for run in runs if (run["optimizer"], run["lr"]) == (name, lr)]
        for lr in rates
    ]
    return rates, [[math.inf if value is None else value for value in values] for values in found]


def table(runs):
    """Return the best learning rates by validation error as a Markdown table."""
    lines = [
        "| optimizer | best lr | validation error there (%) | lr within 1.5 points of it |",
        "|---|---|---|---|",
    ]
    for name in OPTIMIZERS:
        rates, errors = curve(runs, name, "error")
        means = [statistics.fmean(values) for values in errors]
        losses = [statistics.fmean(values) for values in curve(runs, name, "loss")[1]]
        best = min(range(len(rates)), key=lambda index: (round(means[index], 2), losses[index]))
        near = [lr for lr, mean in zip(rates, means, strict=True) if mean <= means[best] + 1.5]
        lines.append(
            f"| {name} | {rates[best]:g} | {means[best]:.2f} "
            f"± {statistics.stdev(errors[best]):.2f} | {min(near):g} to {max(near):g} |"
        )
    return "\n".join(lines)


def plot(runs, path):
    """Draw training loss and validation error against the learning rate."""
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), layout="constrained", sharey="row")
    for (title, panel), column in zip(PANELS.items(), axes.T, strict=True):
        for name, color in zip(panel, COLORS, strict=False):
            for axis, quantity in zip(column, ("loss", "error"), strict=True):
                rates, values = curve(runs, name, quantity)
                low, high = [min(seeds) for seeds in values], [max(seeds) for seeds in values]
                middle = [statistics.median(seeds) for seeds in values]
                axis.plot(rates, middle, label=name, color=color, marker="o", markersize=4)
                axis.fill_between(rates, low, high, color=color, alpha=0.2, linewidth=0)
        column[0].set(title=title, xscale="log", yscale="log")
        column[1].set(xlabel="learning rate", xscale="log", ylim=(0, 12))
        column[0].legend()
        for axis in column:
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("training loss, last epoch")
    axes[1, 0].set_ylabel("validation error (%)")
    figure.suptitle(
        f"A small CNN on scikit-learn's digits, {EPOCHS} epochs: median and range of {SEEDS} seeds"
    )
    figure.savefig(path, dpi=110)


def main():
    """Run the grid from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to")
    parser.add_argument("--processes", type=int, default=2, help="how many runs at a time")
    parser.add_argument("--draw", type=Path, help="draw these runs (a .json) instead of training")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.draw:
        runs = json.loads(options.draw.read_text())
    else:
        jobs = [
            (name, lr, seed)
            for name, (_, middle) in OPTIMIZERS.items()
            for lr in grid(middle)
            for seed in range(SEEDS)
        ]
        with get_context("spawn").Pool(options.processes) as pool:
            runs = list(track(pool.imap(run, jobs), "learning rates", total=len(jobs)))
        lines = ",\n".join(map(json.dumps, runs))
        (options.out / "learning_rates.json").write_text(f"[\n{lines}\n]\n")
    plot(runs, options.out / "learning_rates.png")
    print(table(runs))


if __name__ == "__main__":
    main()
