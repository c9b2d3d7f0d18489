"""The page on drawn images: what it says is what the records show."""

import itertools
import json
import statistics

import pytest

from locations import ROOT
from sgdf.bench.report.statistics import Sample, holm, p_value
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.read import load, load_document

RECORDS = ROOT / "records" / "generation"
PAGE = (ROOT / "docs/results/generation.md").read_text()
WORDS = " ".join(PAGE.replace("−", "-").split())
SEARCHED = ["dit-digits", "sit-digits", "wgan-small"]
EXPERIMENTS = [*SEARCHED, "dit-cifar"]
BEFORE = {
    "dit-digits": ("22", "44"),
    "sit-digits": ("22", "44"),
    "wgan-small": ("8", "16"),
    "dit-cifar": ("2",),
}
"""The epochs before the last one of which a table has the distance."""
DISTANCE = "frechet_distance"


def settings_of(name):
    """Return what was kept of an experiment, by optimizer and rate."""
    (problem,) = json.loads((RECORDS / f"{name}.json").read_text())
    return {(s["optimizer"]["name"], s["optimizer"]["lr"]): s for s in problem["settings"]}


def values(setting, split="test", metric=DISTANCE):
    """Return a metric by seed; infinite where the run diverged."""
    found = setting["figures"].get(f"{split} {metric}", {}).get("by seed", {})
    return {seed: found.get(seed, float("inf")) for seed in "012"}


def mean(setting, split="test", metric=DISTANCE):
    return statistics.mean(values(setting, split, metric).values())


def best_of(name):
    """Return the setting of each optimizer that is best on validation data."""
    best = {}
    for (optimizer, _), setting in settings_of(name).items():
        before = best.get(optimizer, setting)
        best[optimizer] = min(before, setting, key=lambda s: mean(s, "validation"))
    return best


def above(one, other):
    """Return by how much the distance of one is above that of the other, seed by seed."""
    ones, others = values(one), values(other)
    return Sample(tuple(ones[seed] - others[seed] for seed in ones))


def significant_pairs(name):
    """Return the pairs of optimizers that differ significantly, by Holm's correction over all."""
    pairs = list(itertools.combinations(best_of(name).items(), 2))
    corrected = holm([p_value(above(one, other)) for (_, one), (_, other) in pairs])
    return {
        frozenset((one, other))
        for ((one, _), (other, _)), value in zip(pairs, corrected, strict=True)
        if value < 0.05
    }


def interval(sample):
    low, high = sample.interval
    return f"{sample.mean:.1f} ({low:.1f} to {high:.1f})"


def share_above(one, other):
    return f"{100 * (mean(one) / mean(other) - 1):.0f} %"


def shown(setting):
    found = list(values(setting).values())
    return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"


def course(setting):
    """Return the mean distance at each evaluation that had one."""
    return setting["means by epoch"][f"test {DISTANCE}"]


@pytest.mark.parametrize("name", SEARCHED)
def test_rates_are_the_best_that_the_search_found_and_the_next_one_at_an_edge(name, tmp_path):
    record = json.loads((RECORDS / f"{name}-search.json").read_text())
    search = read_search(load_document(f"{name}-search"), store=tmp_path, storage="")
    compared_rates = {}
    for run in load(name).runs:
        compared_rates.setdefault(run.optimizer.name, set()).add(run.optimizer.options["lr"])
    assert list(record["optimizers"]) == [arm.name for arm in search.candidates]
    assert set(record["optimizers"]) == set(compared_rates)
    for optimizer, found in record["optimizers"].items():
        finished = [trial for trial in found["trials"] if trial["outcome"] == "finished"]
        best = min(finished, key=lambda trial: trial["value"])["options"]["lr"]
        tried = {trial["options"]["lr"] for trial in found["trials"]}
        further = compared_rates[optimizer] - {best}
        assert best in compared_rates[optimizer]
        assert len(further) == (len(found["at_edge"]) > 0)
        assert all(lr > max(tried) or lr < min(tried) for lr in further)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_records_are_of_the_bundled_experiments(name):
    runs, kept = load(name).runs, settings_of(name)
    assert set(kept) == {(run.optimizer.name, run.optimizer.options["lr"]) for run in runs}
    assert {run.seed for run in runs} == {0, 1, 2}
    for setting in kept.values():
        assert setting["task"] == runs[0].as_table()["task"]
        steps = {
            key: setting["train"][key] for key in ("steps", "epochs") if key in setting["train"]
        }
        assert all(getattr(runs[0].train, key) == value for key, value in steps.items())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_tables_are_those_of_the_records(name):
    for optimizer, setting in best_of(name).items():
        cells = " | ".join(f"{course(setting)[epoch]:.1f}" for epoch in BEFORE[name])
        more = " | ".join(f"{mean(setting, metric=m):.2f}" for m in ("precision", "recall"))
        lr = setting["optimizer"]["lr"]
        assert f"| `{optimizer}` | {lr:g} | {cells} | {shown(setting)} | {more} |" in PAGE


@pytest.mark.parametrize("name", ["dit-digits", "sit-digits"])
def test_sign_sgdf_is_below_adam_at_every_evaluation(name):
    best = best_of(name)
    assert list(course(best["adam"])) == ["22", "44", "66"]
    for epoch, value in course(best["adam"]).items():
        assert course(best["sign-sgdf"])[epoch] < value
    assert interval(above(best["adam"], best["sign-sgdf"])) in WORDS
    assert frozenset(("adam", "sign-sgdf")) not in significant_pairs(name)


def test_what_is_said_of_the_dit_on_digits_holds():
    best, pairs = best_of("dit-digits"), significant_pairs("dit-digits")
    assert pairs == {frozenset(("filter-muon", "signsgd"))}
    assert f"is {share_above(best['signum'], best['sign-sgdf'])} above Sign SGDF" in WORDS
    below = [share_above(best[one], best["adam"]) for one in ("filter-muon", "muon")]
    assert (
        "FilterMuon is {} below Adam (expected: 6 %) and Muon {},".format(
            *(cell.removeprefix("-") for cell in below)
        )
        in WORDS
    )
    assert share_above(best["filter-muon"], best["muon"]) == "-2 %"
    assert "FilterMuon 2 % below Muon" in WORDS
    for name in ("muon", "filter-muon"):
        assert mean(best[name], metric="recall") > mean(best["adam"], metric="recall")
    assert max(best, key=lambda name: mean(best[name])) == "lion"
    found = values(best["lion"]).values()
    assert "with {:.1f}, {:.1f} and {:.1f}".format(*found) in WORDS
    assert settings_of("dit-digits")["lion", 0.01]["lost runs"] == 3


def test_what_is_said_of_the_sit_on_digits_holds():
    best = best_of("sit-digits")
    assert significant_pairs("sit-digits") == set()
    assert f"it is {share_above(best['signum'], best['sign-sgdf'])} above it" in WORDS
    assert all(mean(setting) < 8.63 + 2.5 for setting in best.values())


def test_what_is_said_of_the_gan_holds():
    best = best_of("wgan-small")
    assert significant_pairs("wgan-small") == set()
    order = sorted(best, key=lambda name: mean(best[name]))
    assert order[0] == "rmsprop"
    below = share_above(best["rmsprop"], best["adam"]).removeprefix("-")
    assert f"{below} below Adam; the other four" in WORDS
    others = [mean(best[name]) for name in order[1:]]
    assert max(others) < 1.04 * min(others)
    assert share_above(best["sgdf"], best["adam"]) == "-3 %"
    spread = {name: statistics.stdev(values(best[name]).values()) for name in best}
    assert spread["sgdf"] <= spread["adam"]
    ends = [v for setting in settings_of("wgan-small").values() for v in values(setting).values()]
    assert f"ends at {max(ends):.1f}" in WORDS
    median = statistics.median(values(best["adam"]).values())
    assert max(ends) < 2 * median
    rates = {name: setting["optimizer"]["lr"] for name, setting in best.items()}
    assert (rates["sgd"], rates["rmsprop"]) == (0.001, 0.00632)
    search = json.loads((RECORDS / "wgan-small-search.json").read_text())["optimizers"]["sgd"]
    outcome = {trial["options"]["lr"]: trial["outcome"] for trial in search["trials"]}
    assert outcome[0.01] == "diverged"


def test_what_is_said_of_the_photographs_holds():
    best = best_of("dit-cifar")
    assert significant_pairs("dit-cifar") == set()
    assert share_above(best["filter-muon"], best["adam"]) == "0 %"
    for name in ("adam", "filter-muon"):
        assert share_above(best["muon"], best[name]) == "-6 %"
    assert f"by {interval(above(best['adam'], best['muon']))} from Adam" in WORDS
    rates = {name: setting["optimizer"]["lr"] for name, setting in best.items()}
    assert rates == {"adam": 0.00316, "muon": 0.01, "filter-muon": 0.01}
