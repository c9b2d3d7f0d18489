"""Watch the filter on scikit-learn's digits: what the monitor shows in a few situations.

Trains a small network with SGDF and prints what the monitor says. Then trains it at several
batch sizes and learning rates, and prints the medians of the monitor's statistics over the second
half of each training.

It needs the ``bench`` extra: ``pip install '.[bench]'``.
"""

import statistics

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from train_digits import network, train

import sgdf

SITUATIONS = {
    "lr 0.5, batch 64": {},
    "batch 4, 3 epochs": {"batch_size": 4, "epochs": 3},
    "batch 1,400, 150 epochs": {"batch_size": 1400, "epochs": 150},
    "lr 0.005": {"lr": 0.005},
    "lr 3": {"lr": 3.0},
    "gamma 1": {"gamma": 1.0},
    "betas (0.5, 0.999)": {"betas": (0.5, 0.999)},
    "betas (0.9, 0.99)": {"betas": (0.9, 0.99)},
}
COLUMNS = {
    "gain": "gain_mean",
    "5 %": "gain_q05",
    "50 %": "gain_q50",
    "95 %": "gain_q95",
    "residual / gradient": "residual_ratio",
    "cosine": "cosine",
    "update / weight": "update_ratio",
}


def listen(epochs=20):
    """Train once; print a line for each measurement, and at the end what they show."""
    torch.manual_seed(0)
    model = network()
    optimizer = sgdf.SGDF(model.parameters(), lr=0.5)
    monitor = sgdf.monitor.attach(optimizer, every=100, log=print, model=model)
    for _ in train(model, optimizer, epochs):
        pass
    print(monitor)


def watch(seed, lr=0.5, batch_size=64, epochs=20, **options):
    """Train once; return the median statistics and the last loss and accuracy."""
    torch.manual_seed(seed)
    model = network()
    optimizer = sgdf.SGDF(model.parameters(), lr=lr, **options)
    monitor = sgdf.monitor.attach(optimizer, every=5)
    for loss, accuracy in train(model, optimizer, epochs, batch_size=batch_size):
        result = {"training loss": loss, "test accuracy": accuracy}
    half = len(monitor.history["step"]) // 2
    medians = {name: statistics.median(x[half:]) for name, x in monitor.history.items()}
    return medians | result


def main():
    """Print the words, then the table."""
    torch.set_num_threads(1)
    listen()
    table = Table(title="SGDF on digits: medians over the second half, means of three seeds")
    for title in ("", *COLUMNS, "training loss", "test accuracy"):
        table.add_column(title, justify="left" if not title else "right")
    jobs = [(name, seed) for name in SITUATIONS for seed in range(3)]
    found = {job: watch(job[1], **SITUATIONS[job[0]]) for job in track(jobs, "training")}
    for name in SITUATIONS:
        mean = {
            key: statistics.fmean(found[name, seed][key] for seed in range(3))
            for key in found[name, 0]
        }
        shown = [f"{mean[key]:.3f}" for key in list(COLUMNS.values())[:-1]]
        shown += [f"{mean['update_ratio']:.5f}", f"{mean['training loss']:.4f}"]
        table.add_row(name, *shown, f"{mean['test accuracy']:.2%}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
