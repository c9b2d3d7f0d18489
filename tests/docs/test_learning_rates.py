"""The page about learning rates: its tables are those of the records."""

import csv
from collections import defaultdict

import pytest

from locations import ROOT
from sgdf.bench.report.sample_cells import mean_cell
from sgdf.bench.report.statistics import Sample
from sgdf.bench.spec.read import load

PAGE = ROOT / "docs" / "results" / "learning-rates.md"
RECORDS = ROOT / "records" / "rates"
MOMENTA = (0.0, 0.5, 0.9)


def record(name):
    with (RECORDS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table_under(head):
    """Return the rows of the table of the page whose head begins so, cell by cell."""
    _, _, rest = PAGE.read_text().partition(f"\n| {head}")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# The range of good rates

NAMES = ("sgdf", "sgd-ema", "sgd-cm", "sgd", "adam")
PROBLEMS = {
    "CNN, 16": "digits-cnn batch_norm=False, 20 epochs",
    "CNN, 256": "digits-cnn batch_norm=False, 40 epochs",
    "CNN with BatchNorm, 16": "digits-cnn batch_norm=True, 20 epochs",
    "CNN with BatchNorm, 256": "digits-cnn batch_norm=True, 40 epochs",
    "LSTM, 32": "characters",
    "MLP, 16": "digits-mlp, 20 epochs",
    "MLP, 256": "digits-mlp, 40 epochs",
}


@pytest.mark.parametrize(
    ("name", "head"),
    [("lr-window", "problem | sgdf"), ("lr-window-warmup", "problem, warm-up | sgdf")],
)
def test_the_tables_of_ranges(name, head):
    found = {(row["problem"], row["optimizer"]): row for row in record(name)}
    expected = []
    for title, problem in PROBLEMS.items():
        row = [found[problem, name] for name in NAMES]
        widths = [float(cell["width, common level (decades)"]) for cell in row]
        open_ended = [float(cell["width, common level (decades) is at least"]) for cell in row]
        texts = [f"{'≥ ' * bool(o)}{w:.2f}" for w, o in zip(widths, open_ended, strict=True)]
        best = widths.index(max(widths))
        expected.append([title, *(f"**{t}**" if i == best else t for i, t in enumerate(texts))])
    assert table_under(head) == expected


@pytest.mark.parametrize("name", ["lr-window", "lr-window-warmup"])
def test_the_record_of_ranges_is_whole(name):
    keys = {
        (row["problem"], row["batch_size"], row["optimizer"], row["lr"], row["seed"])
        for row in record(f"{name}-runs")
    }
    assert len(keys) == len(load(name).runs)


def test_what_the_page_says_of_the_warm_up():
    found = {(row["problem"], row["optimizer"]): row for row in record("lr-window-warmup")}
    forms = {
        title: {
            name: float(found[problem, name]["width, common level (decades)"])
            for name in NAMES[:-1]
        }
        for title, problem in PROBLEMS.items()
    }
    behind = {title: max(widths.values()) - widths["sgdf"] for title, widths in forms.items()}
    assert sum(gap == 0.0 for gap in behind.values()) == 4
    assert sum(0.0 < gap <= 0.1 for gap in behind.values()) == 2
    significant = {
        (title, name)
        for title, problem in PROBLEMS.items()
        for name in NAMES[1:]
        if float(found[problem, name]["p, corrected"]) < 0.05
    }
    assert significant == {*(("LSTM, 32", name) for name in NAMES[1:]), ("MLP, 256", "adam")}
    before = {(row["problem"], row["optimizer"]): row for row in record("lr-window")}
    page = " ".join(PAGE.read_text().split())
    small, large = (PROBLEMS[f"CNN with BatchNorm, {size}"] for size in (16, 256))

    def ends(problem, name, column="good rates high"):
        """Return a figure without and with a warm-up."""
        return [float(rows[problem, name][column]) for rows in (before, found)]

    assert "from {:.2g} to {:.2g} (BatchNorm, batches of 256)".format(*ends(large, "sgdf")) in page
    assert "from {:.2g} to beyond {:.1f} (batches of 16)".format(*ends(small, "sgdf")) in page
    assert "from {:.0f} to {:.0f} (LSTM)".format(*ends("characters", "sgdf")) in page
    assert "from {:.1f} to {:.1f} %, as good".format(*ends(large, "sgdf", "mean there")) in page
    factors = [
        ends(problem, name)[1] / ends(problem, name)[0]
        for problem in (small, large)
        for name in NAMES[1:]
    ]
    assert f"by factors of {min(factors):.2g} to {max(factors):.2g} there" in page


def test_what_the_page_says_of_the_ranges():
    found = {(row["problem"], row["optimizer"]): row for row in record("lr-window")}
    page = " ".join(PAGE.read_text().split())
    problems = {title: problem for title, problem in PROBLEMS.items() if title != "LSTM, 32"}

    def figure(column, title, name):
        return float(found[PROBLEMS[title], name][column] or 0.0)

    def width(title, name, level="common"):
        return figure(f"width, {level} level (decades)", title, name)

    near = [t for t in PROBLEMS if width(t, "sgdf") >= max(width(t, n) for n in NAMES) - 0.1]
    assert not near
    assert "It has on none." in page
    forms = {t: {name: width(t, name) for name in NAMES if name != "adam"} for t in PROBLEMS}
    widest = {t for t, widths in forms.items() if max(widths, key=widths.get) == "sgdf"}
    assert widest == {"CNN, 16", "CNN, 256", "MLP, 256"}
    narrowest = {t for t, widths in forms.items() if min(widths, key=widths.get) == "sgdf"}
    assert narrowest == {"CNN with BatchNorm, 16", "CNN with BatchNorm, 256", "MLP, 16"}
    significant = {
        (title, name): figure("sgdf's width minus this one's mean", title, name) > 0.0
        for title in PROBLEMS
        for name in NAMES[1:]
        if figure("p, corrected", title, name) < 0.05
    }
    assert significant == {
        **{("CNN with BatchNorm, 16", name): False for name in ("sgd-ema", "sgd-cm")},
        **{("CNN with BatchNorm, 256", name): False for name in NAMES[1:]},
        **{("LSTM, 32", name): name != "sgd" for name in NAMES[1:]},
    }
    ends = [
        figure("good rates high", title, "sgdf") / figure("good rates high", title, "sgd-ema")
        for title in problems
        if "BatchNorm" not in title
    ]
    assert f"by a factor of {min(ends):.3g} to {max(ends):.2g}" in page
    alike = max(abs(width(title, "sgd-ema") - width(title, "sgd-cm")) for title in PROBLEMS)
    assert f"agree** to {alike:.2f} decades" in page
    assert sum(width(title, "sgd") > width(title, "sgd-cm") for title in PROBLEMS) == 4
    wider_in_large = {
        (kind, name)
        for kind in ("CNN", "CNN with BatchNorm", "MLP")
        for name in NAMES
        if width(f"{kind}, 256", name) >= width(f"{kind}, 16", name)
    }
    assert wider_in_large == {("MLP", "adam")}
    for name, words in (
        ("sgdf", "SGDF's range is"),
        ("sgd-ema", "the running mean's"),
        ("adam", "Adam's"),
    ):
        own = [width(title, name, "own") for title in PROBLEMS]
        assert f"{words} {min(own):.2f} to {max(own):.2f}" in page


# Classical momentum


def losses(name):
    """Return the training losses by batch size, reach and momentum; None of a run that diverged."""
    found = defaultdict(list)
    for row in record(name):
        momentum = float(row["beta"])
        reach = float(f"{float(row['lr']) / (1.0 - momentum):.3g}")
        loss = float(row["train loss"]) if row["train loss"] else None
        found[int(row["batch_size"]), reach, momentum].append(loss)
    return found


def shown(values):
    return "diverged" if None in values else mean_cell(Sample(tuple(values))).text


@pytest.mark.parametrize(("name", "count"), [("momentum-rates", 81), ("momentum-batch", 243)])
def test_the_records_of_momentum_are_whole(name, count):
    rows = record(name)
    recorded = {
        (float(row["lr"]), float(row["beta"]), int(row["batch_size"]), int(row["seed"]))
        for row in rows
    }
    options = [(run.optimizer.options, run) for run in load(name).runs]
    assert recorded == {(o["lr"], o["beta"], run.train.batch_size, run.seed) for o, run in options}
    assert len(recorded) == len(rows) == count
    assert {row["state"] for row in rows} <= {"finished", "diverged"}


def test_the_table_of_momentum_and_rates():
    found = losses("momentum-rates")
    reaches = sorted({reach for _, reach, _ in found})
    expected = [
        [f"{reach:g}", *(shown(found[32, reach, momentum]) for momentum in MOMENTA)]
        for reach in reaches
    ]
    assert table_under("lr / (1 − β) |") == expected


def best(found, batch, momentum):
    """Return the reach with the lowest mean loss at which no run diverged, and the losses."""
    curve = {
        r: v for (b, r, m), v in found.items() if (b, m) == (batch, momentum) and None not in v
    }
    return min(curve.items(), key=lambda item: Sample(tuple(item[1])).mean)


def test_the_table_of_momentum_and_batches():
    found = losses("momentum-batch")
    expected = []
    for batch in (32, 256, 1100):
        cells, means = [], []
        for momentum in MOMENTA:
            reach, values = best(found, batch, momentum)
            cells.append(f"{mean_cell(Sample(tuple(values))).text} at {reach:g}")
            means.append(Sample(tuple(values)).mean)
        expected.append([str(batch), *cells, f"{means[2] / means[0]:.2g}"])
    assert table_under("batch | SGD") == expected
