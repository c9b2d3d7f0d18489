"""The page on small states: what it says is what the records show."""

import csv
import json

import pytest

from jitter import (
    RECORDS,
    TASKS,
    by_seed,
    difference,
    full_state,
    jitter,
    settings_of,
    settings_on_more_seeds,
)
from locations import ROOT
from sgdf.bench.report.statistics import Sample, holm, p_value
from sgdf.bench.spec.read import load

PAGE = (ROOT / "docs/results/states.md").read_text()
README = (ROOT / "README.md").read_text()
WORDS = " ".join(PAGE.split())
DIGITS = {"digits": 5, "characters": 4, "cifar100": 4, "ptb": 4}
TESTS = {
    "digits": ("test accuracy", 100, 2),
    "characters": ("test loss", 1, 3),
    "cifar100": ("test accuracy", 100, 2),
    "ptb": ("test perplexity", 1, 2),
}
SAME_FILTER = ("bfloat16", "int8")


def mean(values):
    return sum(values) / len(values)


def of_full_state(task, metric):
    return mean([mean(runs) for runs in full_state(task, metric).values()])


def row(task, name):
    """Return the row of the page's table for a setting."""
    places = DIGITS[task]
    training = difference(task, name)
    metric, factor, test_places = TESTS[task]
    test = factor * difference(task, name, metric).mean
    verdict = "yes" if training.is_within else "**no**"
    state = settings_of(task)[name]["state bytes a parameter"]
    return (
        f"| {name} | {state:.2f} | {training.mean:+.{places}f} ± {training.spread:.{places}f} | "
        f"{verdict} | {test:+.{test_places}f} |"
    )


def full_row(task):
    metric, factor, places = TESTS[task]
    loss = of_full_state(task, "train loss")
    return (
        f"| *full state itself* | 8.00 | *{loss:.{DIGITS[task]}f}* | *bound "
        f"{difference(task, 'gain 0').bound:.{DIGITS[task]}f}* | "
        f"*{factor * of_full_state(task, metric):.{places}f}* |"
    )


@pytest.mark.parametrize("task", TASKS)
def test_records_are_of_the_bundled_experiments(task):
    runs = load(f"states-{task}").runs
    settings = settings_of(task)
    assert len(settings) * len({run.seed for run in runs}) == len(runs)
    for setting in settings.values():
        assert not setting["lost runs"]
        assert set(by_seed(setting, "train loss")) == {str(run.seed) for run in runs}


@pytest.mark.parametrize("task", TASKS)
def test_the_tables_are_those_of_the_records(task):
    names = [name for name in settings_of(task) if not name.startswith("full")]
    for line in (full_row(task), *(row(task, name) for name in names)):
        assert line in PAGE


def test_the_losses_in_the_readme():
    settings = settings_of("characters")
    for name in ("full", "bfloat16", "int8", "block", "bfloat16-block", "int8-block"):
        loss = settings[name]["figures of the last epoch"]["train loss"]
        shown = f"{loss['mean']:.3f} ± {loss['standard deviation']:.3f}"
        (line,) = (line for line in README.splitlines() if line.startswith(f'| `"{name}"` |'))
        assert line.endswith(f"| {shown} |")
    perplexity = of_full_state("ptb", "test perplexity")
    assert f"{difference('ptb', 'block', 'test perplexity').mean / perplexity:.1%}" == "1.5%"


def test_no_small_state_of_the_same_filter_differs_significantly():
    values = []
    for task in TASKS:
        full = {seed: mean(runs) for seed, runs in full_state(task, "train loss").items()}
        for name in SAME_FILTER:
            own = by_seed(settings_of(task)[name], "train loss")
            values.append(p_value(Sample(tuple(own[seed] - full[seed] for seed in full))))
    smallest = min(holm(values))
    assert smallest >= 0.05
    assert f"the smallest corrected p is {smallest:.2f}" in WORDS


def test_what_is_outside_the_jitter_is_below():
    """No smaller state of the same filter has a higher training loss than jitter explains."""
    outside = {
        (task, name): difference(task, name)
        for task in TASKS
        for name in SAME_FILTER
        if not difference(task, name).is_within
    }
    assert set(outside) == {
        ("digits", "bfloat16"),
        ("digits", "int8"),
        ("cifar100", "bfloat16"),
    }
    assert all(found.mean < 0 for found in outside.values())


def changes_on_more_seeds(task, name):
    settings = settings_on_more_seeds(task)
    own, full = (by_seed(settings[one], "train loss") for one in (name, "full"))
    return Sample(tuple(own[seed] - full[seed] for seed in full))


@pytest.mark.parametrize("task", ["digits", "characters", "cifar100"])
def test_more_seeds_are_those_of_the_bundled_experiments(task):
    seeds = {str(run.seed) for run in load(f"states-{task}-seeds").runs}
    for setting in settings_on_more_seeds(task).values():
        assert not setting["lost runs"]
        assert set(by_seed(setting, "train loss")) == seeds
    assert not seeds & {str(run.seed) for run in load(f"states-{task}").runs}


def test_the_table_on_more_seeds_and_what_it_shows():
    values, reach_below = [], set()
    for task in ("digits", "characters", "cifar100"):
        places, cells = DIGITS[task], []
        tenth = abs(difference(task, "gain 0").mean) / 10
        for name in SAME_FILTER:
            sample = changes_on_more_seeds(task, name)
            low, high = sample.interval
            values.append(p_value(sample))
            assert high < tenth
            if low < -tenth:
                reach_below.add((task, name))
            cells.append(f"{sample.mean:+.{places}f} ({low:+.{places}f} to {high:+.{places}f})")
        seeds = len(by_seed(settings_on_more_seeds(task)["full"], "train loss"))
        assert f"| {task} | {seeds} | {cells[0]} | {cells[1]} | {tenth:.{places}f} |" in PAGE
    assert reach_below == {("cifar100", "bfloat16"), ("cifar100", "int8")}
    assert f"none is significant; the smallest corrected p is {min(holm(values)):.2f}" in WORDS
    assert min(holm(values)) >= 0.05


def test_controls_are_told_apart_on_every_task():
    for task in TASKS:
        for name in ("gain 0", "gain 1"):
            assert not difference(task, name).is_within
    assert jitter("digits") < 1e-4


def test_the_rows_of_rounded_weights():
    (problem,) = json.loads((RECORDS / "pure-bfloat16.json").read_text())
    losses = {}
    for setting in problem["settings"]:
        optimizer = setting["optimizer"]
        loss = setting["figures of the last epoch"]["train loss"]["mean"]
        accuracy = 100 * setting["figures of the last epoch"]["test accuracy"]["mean"]
        column = (setting["train"]["precision"], optimizer["stochastic_rounding"])
        losses.setdefault((optimizer["name"], optimizer["lr"]), {})[column] = (loss, accuracy)
    columns = [("float32", False), ("pure-bfloat16", False), ("pure-bfloat16", True)]
    for (name, lr), cells in losses.items():
        shown = " | ".join(f"{cells[c][0]:.3f}" for c in columns)
        accuracies = " / ".join(f"{cells[c][1]:.1f}" for c in columns)
        assert f"| `{name}` | {lr:g} | {shown} | {accuracies} |" in PAGE


def test_the_ranges_of_good_rates():
    for task in ("digits", "characters", "cifar100"):
        with (RECORDS / f"states-{task}-ranges.csv").open() as file:
            widths = {
                line["optimizer"].rpartition("=")[2]: float(line["width, common level (decades)"])
                for line in csv.DictReader(file)
            }
        assert f"| {task} | {widths['full']:.2f} | {widths['block']:.2f} |" in PAGE
