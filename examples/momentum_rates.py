"""Compare SGD at four momenta with SGDF at rates of equal lr / (1 - momentum): tables and a plot.

It trains nothing: it reads the runs.csv of three reports, by default those in records/.
records/README.md has the commands that made them.

It needs the ``bench`` extra: ``pip install '.[bench]'``.
"""

import argparse
import csv
import itertools
import math
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RECORDS = Path(__file__).resolve().parent.parent / "records/momentum_rates"
# For each experiment: its title, the metric, its unit on paper and the range to draw.
TASKS = {
    "cifar-momentum-rates": ("MLP, CIFAR-10", "validation accuracy", 100, (30, 41)),
    "digits-momentum-rates": ("CNN, digits", "validation accuracy", 100, (88, 99)),
    "characters-momentum-rates": ("LSTM, characters", "validation loss", 1, (1.98, 2.6)),
}
MOMENTA = (0.0, 0.5, 0.9, 0.95)
SGDF = None  # in place of a momentum
STYLES = {  # told apart by the colour-blind, and in print
    0.0: ("#E69F00", ":", "v"),
    0.5: ("#009E73", "-.", "s"),
    0.9: ("#0072B2", "--", "^"),
    0.95: ("#CC79A7", (0, (1, 1)), "D"),
    SGDF: ("#D55E00", "-", "o"),
}


def read(path, metric, unit):
    """Return the values of all seeds by momentum, and in it by lr / (1 - momentum)."""
    found = {momentum: {} for momentum in (*MOMENTA, SGDF)}
    with path.open() as file:
        for row in sorted(csv.DictReader(file), key=lambda row: float(row["lr"])):
            momentum = float(row["momentum"]) if row["optimizer"] == "sgd" else SGDF
            reach = float(f"{float(row['lr']) / (1 - (momentum or 0)):.6g}")
            found[momentum].setdefault(reach, []).append(unit * float(row[metric] or "nan"))
    return found


def is_higher_better(metric):
    """Return whether a metric is an accuracy, and not a loss."""
    return metric.endswith("accuracy")


def best(curve, metric):
    """Return the lr / (1 - momentum) with the best mean; none of its seeds may have diverged."""
    means = {reach: statistics.fmean(values) for reach, values in curve.items()}
    finite = {reach: mean for reach, mean in means.items() if math.isfinite(mean)}
    return (max if is_higher_better(metric) else min)(finite, key=finite.get)


def show(values):
    """Return mean and standard deviation over the seeds."""
    if lost := sum(math.isnan(value) for value in values):
        return f"{lost} of {len(values)} diverged"
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"


def equal_factors(curves, momentum, metric):
    """Return the factors on SGD's lr with which SGDF gives the same mean, one for each rate.

    Only rates below the best are used, where a larger rate is better for both: between two of
    them SGDF's mean is interpolated.
    """
    ours, theirs = curves[SGDF], curves[momentum]
    rising = [reach for reach in ours if reach <= best(ours, metric)]
    found = []
    for reach in (reach for reach in theirs if reach < best(theirs, metric)):
        wanted = statistics.fmean(theirs[reach])
        for low, high in itertools.pairwise(rising):
            ends = statistics.fmean(ours[low]), statistics.fmean(ours[high])
            if min(ends) <= wanted < max(ends):
                share = (wanted - ends[0]) / (ends[1] - ends[0])
                found.append(low * (high / low) ** share / (reach * (1 - momentum)))
    return found


def factors(curves):
    """Return the factor from SGD's lr to SGDF's at each momentum as a Markdown table."""
    lines = [
        "| task | momentum | best lr of SGD | validation | best lr of SGDF | validation "
        "| ratio of the best | factor for equal results | by the rule |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (title, metric, *_) in TASKS.items():
        ours = best(curves[name][SGDF], metric)
        for momentum in MOMENTA:
            reach = best(curves[name][momentum], metric)
            lr = reach * (1 - momentum)
            equal = sorted(equal_factors(curves[name], momentum, metric))
            lines.append(
                f"| {title} | {momentum:g} | {lr:g} | {show(curves[name][momentum][reach])} "
                f"| {ours:g} | {show(curves[name][SGDF][ours])} | {ours / lr:.3g} "
                f"| {statistics.geometric_mean(equal):.2g} ({equal[0]:.2g} to {equal[-1]:.2g}) "
                f"| {1 / (1 - momentum):g} |"
            )
    return "\n".join(lines)


def carried_over(curves, momentum=0.9):
    """Return SGD beside SGDF at 10 and at 5 times its rate as a Markdown table."""
    lines = [
        "| task | lr of SGD | SGD | SGDF at 10 times | SGDF at 5 times |",
        "|---|---|---|---|---|",
    ]
    for name, (title, *_) in TASKS.items():
        ours = curves[name][SGDF]
        for reach, values in curves[name][momentum].items():
            if reach / 2 in ours:
                lines.append(
                    f"| {title} | {reach * (1 - momentum):g} | {show(values)} "
                    f"| {show(ours[reach])} | {show(ours[reach / 2])} |"
                )
    return "\n".join(lines)


def plot(curves, path):
    """Draw the results against lr / (1 - momentum)."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for (name, (title, metric, _, limits)), axis in zip(TASKS.items(), axes, strict=True):
        for momentum, curve in curves[name].items():
            color, line, marker = STYLES[momentum]
            label = "SGDF" if momentum is SGDF else f"SGD, momentum {momentum:g}"
            middle = [statistics.median(values) for values in curve.values()]
            low, high = [min(v) for v in curve.values()], [max(v) for v in curve.values()]
            axis.plot(
                *(list(curve), middle), label=label, color=color, linestyle=line, marker=marker
            )
            axis.fill_between(list(curve), low, high, color=color, alpha=0.12, linewidth=0)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(curve), [f"{reach:g}" for reach in curve])
        unit = " (%)" if is_higher_better(metric) else ""
        axis.set(title=title, xlabel="lr / (1 − momentum)", ylabel=metric + unit, ylim=limits)
        axis.grid(alpha=0.3)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)


def main():
    """Print the tables and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder with the runs")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    curves = {
        name: read(options.records / f"{name}.csv", metric, unit)
        for name, (_, metric, unit, _) in TASKS.items()
    }
    plot(curves, options.out / "momentum_rates.png")
    print(factors(curves), carried_over(curves), sep="\n\n")


if __name__ == "__main__":
    main()
