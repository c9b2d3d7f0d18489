"""The page on Penn Treebank: what it says is what the records show."""

import json

import pytest

from locations import ROOT
from sgdf.bench.paper.published import column
from sgdf.bench.report.statistics import Sample, holm, p_value
from sgdf.bench.spec.read import load

RECORDS = ROOT / "records" / "ptb"
PAGE = (ROOT / "docs/results/ptb.md").read_text()
WORDS = " ".join(PAGE.split())
LAYERS = (1, 2, 3)


def settings_of(name):
    """Return what was kept of an experiment, by layers, optimizer, rate and clipping."""
    record = json.loads((RECORDS / f"{name}.json").read_text())
    return {
        (
            setting["task"]["layers"],
            setting["optimizer"]["name"],
            setting["optimizer"]["lr"],
            setting["train"]["clip_norm"],
        ): setting
        for problem in record
        for setting in problem["settings"]
    }


def tuned():
    """Return the figures of ptb-small by layers and optimizer."""
    return {key[:2]: setting["figures"] for key, setting in settings_of("ptb-small").items()}


def shown(figures, split="test"):
    figure = figures[f"{split} perplexity"]
    return f"{figure['mean']:.2f} ± {figure['standard deviation']:.2f}"


def above(one, other):
    """Return by how much the test perplexity of one is above that of the other, seed by seed."""
    ones, others = (figures["test perplexity"]["by seed"] for figures in (one, other))
    return Sample(tuple(ones[seed] - others[seed] for seed in ones))


def interval(sample):
    low, high = sample.interval
    return f"{sample.mean:.2f} ({low:.2f} to {high:.2f})"


def mean(figures):
    return figures["test perplexity"]["mean"]


@pytest.mark.parametrize("name", ["ptb-small", "ptb-clipping-small", "ptb-begin"])
def test_records_are_of_the_bundled_experiments(name):
    runs, kept = load(name).runs, settings_of(name)
    assert set(kept) == {
        (
            run.task.options["layers"],
            run.optimizer.name,
            run.optimizer.options["lr"],
            run.train.clip_norm,
        )
        for run in runs
    }
    seeds = {str(run.seed) for run in runs}
    for setting in kept.values():
        assert not setting["lost runs"]
        assert set(setting["figures"]["test perplexity"]["by seed"]) == seeds


def test_the_tables_are_those_of_the_record():
    figures, kept = tuned(), settings_of("ptb-small")
    for layers, name, lr, _ in kept:
        if layers == 1:
            one = figures[1, name]
            row = f"| `{name}` | {lr:g} | {shown(one)} | {shown(one, 'validation')} |"
            assert row in PAGE
    for name in ("adam", "sgdf", "sgd-vanilla"):
        cells = " | ".join(shown(figures[layers, name]) for layers in LAYERS)
        assert f"| `{name}` | {cells} |" in PAGE
    assert all(
        setting["figures"] == setting["figures of the last epoch"] for setting in kept.values()
    )


def test_runs_that_failed_are_named():
    sgdf, sgd = (tuned()[3, name]["test perplexity"]["by seed"] for name in ("sgdf", "sgd-vanilla"))
    assert f"end at {sgd['0']:.2f}, {sgd['1']:.2f} and {sgdf['2']:.2f}" in WORDS
    assert f"end at {sgdf['0']:.2f} and {sgdf['1']:.2f}" in WORDS


@pytest.mark.parametrize("layers", LAYERS)
def test_the_authors_curves_stand_beside_ours(layers):
    published = column("fig:lstm", "1 layer" if layers == 1 else f"{layers} layers")
    for method, (value,) in published.values.items():
        name = published.optimizers[method]
        if (layers, name) in tuned() and method not in published.quoted:
            assert (
                f"| `{name}` | {layers} | {value:g} | {mean(tuned()[layers, name]):.2f} |" in PAGE
            )


def test_differences_are_those_of_the_record():
    figures = {name: one for (layers, name), one in tuned().items() if layers == 1}
    sgdf = figures.pop("sgdf")
    samples = {
        name: above(one, sgdf) if mean(one) > mean(sgdf) else above(sgdf, one)
        for name, one in figures.items()
    }
    corrected = dict(zip(samples, holm([p_value(s) for s in samples.values()]), strict=True))
    assert {name for name, value in corrected.items() if value >= 0.05} == {"adabelief"}
    for name in ("sgd-vanilla", "adam", "adabelief-1e-16", "filter-adam"):
        assert interval(samples[name]) in WORDS
    assert interval(above(figures["adam"], figures["filter-adam"])) in WORDS


def test_shares_are_those_of_the_record():
    def below(layers, one, other):
        return 100 * (1 - mean(tuned()[layers, one]) / mean(tuned()[layers, other]))

    assert f"it is {below(1, 'sgdf', 'sgd-vanilla'):.1f} % below" in WORDS
    assert f"It is {below(1, 'filter-adam', 'adam'):.1f} % below" in WORDS
    one, two = (f"{below(layers, 'adam', 'sgdf'):.0f} %" for layers in (1, 2))
    assert f"It is {one} below SGDF with one layer and {two} with two" in WORDS
    costs = -below(1, "adabelief", "adabelief-1e-16")
    assert f"costs {costs:.0f} %" in WORDS


def test_the_first_epochs_are_those_of_the_record():
    for (_, name, _, _), setting in settings_of("ptb-begin").items():
        course = setting["means by epoch"]
        cells = [
            f"{course[f'{split} perplexity'][epoch]:.2f}"
            for epoch in "12"
            for split in ("validation", "test")
        ]
        assert f"| `{name}` | {' | '.join(cells)} |" in PAGE


def test_the_control_is_that_of_the_record():
    kept = {key[1:]: one["figures"] for key, one in settings_of("ptb-clipping-small").items()}
    rows = {
        "30, 0.25 (SGD's best rate)": (30.0, 30.0, 0.25),
        "60, 0.25 (SGDF's best rate)": (60.0, 60.0, 0.25),
        "2.5 times its own best rate, 0.1": (150.0, 75.0, 0.1),
    }
    pairs = []
    for title, (rate, other_rate, clip) in rows.items():
        sgdf, sgd = kept["sgdf", rate, clip], kept["sgd-vanilla", other_rate, clip]
        pairs.append(above(sgd, sgdf))
        assert f"| {title} | {shown(sgdf)} | {shown(sgd)} | {interval(pairs[-1])} |" in PAGE
    best = kept["sgdf", 60.0, 0.25]
    bound_of_sgdf = above(kept["sgdf", 150.0, 0.1], best)
    bound_of_sgd = above(kept["sgd-vanilla", 30.0, 0.25], kept["sgd-vanilla", 75.0, 0.1])
    low, high = bound_of_sgdf.interval
    assert f"({bound_of_sgdf.mean:.2f} worse, {low:.2f} to {high:.2f}, not significant)" in WORDS
    assert f"0.1 is better by {interval(bound_of_sgd)}" in WORDS
    pairs += [above(kept["sgd-vanilla", 75.0, 0.1], best), bound_of_sgd, bound_of_sgdf]
    assert [value < 0.05 for value in holm([p_value(pair) for pair in pairs])] == 5 * [True] + [
        False
    ]
