"""Compare SGDF, SGD with momentum and Adam on small images: a table and a plot.

Each optimizer has the learning rate that the paper gives it for CIFAR; nothing is
tuned here. The test set is only looked at, never chosen by.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from train_digits import network, train

import sgdf

OPTIMIZERS = {
    "SGDF, lr 0.5": lambda params: sgdf.SGDF(params, lr=0.5, weight_decay=5e-4),
    "SGD, lr 0.1, momentum 0.9": lambda params: torch.optim.SGD(
        params, lr=0.1, momentum=0.9, weight_decay=5e-4
    ),
    "Adam, lr 0.001": lambda params: torch.optim.Adam(params, lr=1e-3, weight_decay=5e-4),
}


def compare(epochs, seeds, console):
    """Return for each optimizer an array of seeds x epochs x (loss, accuracy)."""
    columns = TextColumn("{task.description:33}"), BarColumn(), MofNCompleteColumn()
    curves = {}
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(OPTIMIZERS) * seeds * epochs)
        for name, build in OPTIMIZERS.items():
            runs = []
            for seed in range(seeds):
                progress.update(bar, description=f"{name}, seed {seed}")
                torch.manual_seed(seed)
                model = network()
                runs.append([])
                for point in train(model, build(model.parameters()), epochs):
                    runs[-1].append(point)
                    progress.advance(bar)
            curves[name] = np.array(runs)
    return curves


def table(curves):
    """Return the last epoch's figures, as mean and standard deviation over the seeds."""
    result = Table(title="Digits after the last epoch, mean ± sd")
    for title in ("optimizer", "training loss", "test accuracy (%)", "seeds"):
        result.add_column(title, justify="left" if title == "optimizer" else "right")
    for name, runs in curves.items():
        loss, accuracy = runs[:, -1, 0], 100 * runs[:, -1, 1]
        result.add_row(name, summary(loss, 4), summary(accuracy, 2), str(len(runs)))
    return result


def summary(values, digits):
    """Return mean and spread as text; one run has no spread."""
    text = f"{values.mean():.{digits}f}"
    return f"{text} ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else text


def plot(curves, path):
    """Draw loss and accuracy over the epochs with the range over the seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, runs in curves.items():
        epochs = np.arange(1, runs.shape[1] + 1)
        for axis, values in zip(axes, (runs[..., 0], 100 * runs[..., 1]), strict=True):
            axis.plot(epochs, values.mean(0), label=name, marker="o", markersize=3)
            axis.fill_between(epochs, values.min(0), values.max(0), alpha=0.2)
    axes[0].set(xlabel="epoch", ylabel="training loss", yscale="log")
    axes[1].set(xlabel="epoch", ylabel="test accuracy (%)")
    for axis in axes:
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    axes[1].legend(title="mean, and range over seeds")
    figure.suptitle("A small CNN on scikit-learn's digits")
    figure.savefig(path, dpi=150)


def positive(text):
    """Parse a whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def picture(text):
    """Parse the name of a picture, and make its folder before time is spent on it."""
    path = Path(text)
    if path.suffix not in (".png", ".pdf", ".svg") or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a .png, .pdf or .svg file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def main():
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epochs", type=positive, default=20, help="passes over the data")
    parser.add_argument("--seeds", type=positive, default=3, help="runs of each optimizer")
    parser.add_argument(
        "--plot", type=picture, default="results/quickstart.png", help="picture to write"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)  # as fast for so small a network, and the same sums everywhere
    console = Console()
    curves = compare(options.epochs, options.seeds, console)
    console.print(table(curves))
    plot(curves, options.plot)
    console.print(f"Plot: {options.plot}")


if __name__ == "__main__":
    main()
