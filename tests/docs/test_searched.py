"""The settings of bundled experiments: what the recorded searches found, with equal budgets."""

import json
import statistics
from collections import Counter

import pytest

from locations import ROOT
from sgdf.bench.catalog.optimizers import ALL
from sgdf.bench.report.statistics import Sample, holm, p_value
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, load_document

PAGES, RECORDS = ROOT / "docs" / "results", ROOT / "records"
SEARCHED = {
    "digits-search": ["digits-all", "digits", "quickstart"],
    "characters-search": ["characters-all", "characters"],
    "cifar10-small-search": ["cifar10-small"],
    "cifar100-small-search": ["cifar100-small"],
    "ptb-small-search": ["ptb-small"],
    "gain-ablation-cifar-search": ["gain-ablation-cifar"],
    "gain-ablation-characters-search": ["gain-ablation-characters"],
}
COMPARED = {  # by experiment: the page that tells of it, and how
    "digits-all": ("comparison.md", "accuracy", 100.0, 2),
    "characters-all": ("comparison.md", "loss", 1.0, 3),
    "cifar10-small": ("cifar.md", "accuracy", 100.0, 2),
    "cifar100-small": ("cifar.md", "accuracy", 100.0, 2),
    "gain-ablation-cifar": ("learning-rates.md", "accuracy", 100.0, 2),
    "gain-ablation-characters": ("learning-rates.md", "loss", 1.0, 3),
}


def record_of(name):
    (path,) = RECORDS.rglob(f"{name}.json")
    return json.loads(path.read_text())


def best_options(trials, largest):
    """Return the options of the best trial by the rule that docs/guide/tune.md states."""
    finished = [trial for trial in trials if trial["outcome"] == "finished"]
    sign = -1 if largest else 1
    return min(finished, key=lambda trial: (sign * trial["value"], trial["loss"]))["options"]


@pytest.mark.parametrize("name", SEARCHED)
def test_a_record_is_of_the_bundled_search_and_whole(name, tmp_path):
    record = record_of(name)
    search = read_search(load_document(name), store=tmp_path, storage="")
    told = search.document()
    told["train"]["device"] = record["search"]["train"]["device"]  # this machine's may be another
    assert told == record["search"]
    assert record["over"]
    assert list(record["optimizers"]) == [arm.name for arm in search.candidates]
    epochs, seeds = search.example.train.epochs, len(search.method.seeds)
    for found in record["optimizers"].values():
        trials = found["trials"]
        assert [trial["number"] for trial in trials] == list(range(search.method.trials))
        assert {trial["outcome"] for trial in trials} <= {"finished", "pruned", "diverged"}
        spent = Counter({"finished": 0})
        for trial in trials:
            spent[trial["outcome"]] += trial["epochs"]
            assert trial["epochs"] <= epochs * seeds
        assert spent.total() == found["epochs"]
        assert not found["at_edge"]


@pytest.mark.parametrize(
    ("name", "experiment"),
    [(name, experiment) for name, found in SEARCHED.items() for experiment in found],
)
def test_experiments_have_the_best_settings(name, experiment, tmp_path):
    record = record_of(name)
    search = read_search(load_document(name), store=tmp_path, storage="")
    arms = {arm.name: arm for arm in search.candidates}
    runs = resolve_machine(load(experiment), threads=1).runs
    if experiment in COMPARED:
        compared = {run.optimizer.name for run in runs}
        assert compared == set(arms)
        assert not experiment.endswith("-all") or compared == set(ALL)
        assert {run.seed for run in runs} == set(search.seeds)
    assert {run.seed for run in runs}.isdisjoint(search.method.seeds)
    for run in runs:
        trials = record["optimizers"][run.optimizer.name]["trials"]
        best = best_options(trials, record["largest"])
        (searched, *_) = search.runs(arms[run.optimizer.name], best)
        same = {"task", "optimizer", "schedule", "train", "protocol"}
        if run.task.options.get("layers", 1) > 1:  # ptb-small: at the rates of one layer
            same.remove("task")
        assert all(getattr(run, part) == getattr(searched, part) for part in same)


@pytest.mark.parametrize("name", COMPARED)
def test_the_tables_of_the_comparison_are_those_of_the_record(name):
    (problem,) = record_of(name)
    page, metric, scale, digits = COMPARED[name]
    page = (PAGES / page).read_text()
    seeds = {run.seed for run in load(name).runs}
    best_first = []
    for setting in problem["settings"]:
        told = [f"`{setting['optimizer']['name']}`", f"{setting['optimizer']['lr']:g}"]
        for split in ("test", "validation"):
            figure = setting["figures"][f"{split} {metric}"]
            values = list(figure["by seed"].values())
            assert set(figure["by seed"]) == set(map(str, seeds))
            assert statistics.fmean(values) == pytest.approx(figure["mean"])
            assert statistics.stdev(values) == pytest.approx(figure["standard deviation"])
            mean, spread = (scale * figure[key] for key in ("mean", "standard deviation"))
            told.append(f"{mean:.{digits}f} ± {spread:.{digits}f}")
        row = f"| {' | '.join(told)} |"
        assert row in page
        best_first.append((page.index(row), setting["figures"][f"validation {metric}"]["mean"]))
    assert len(best_first) == len({run.optimizer.name for run in load(name).runs})
    means = [round(mean, 9) for _, mean in sorted(best_first)]
    assert means == sorted(means, reverse=problem["largest is best"])


@pytest.mark.parametrize("name", COMPARED)
def test_a_record_is_of_the_bundled_experiment(name):
    (problem,) = record_of(name)
    rates = {s["optimizer"]["name"]: s["optimizer"]["lr"] for s in problem["settings"]}
    runs = load(name).runs
    assert rates == {run.optimizer.name: run.optimizer.options["lr"] for run in runs}
    assert {run.train.epochs for run in runs} == {s["train"]["epochs"] for s in problem["settings"]}


def test_what_the_filter_does_is_what_the_page_says():
    pairs = [("sgdf", "sgd"), ("filter-adam", "adam"), ("filter-muon", "muon")]
    pairs.append(("sign-sgdf", "signsgd"))
    samples = {}
    for name, metric in (("characters-all", "loss"), ("digits-all", "accuracy")):
        (problem,) = record_of(name)
        values = {
            setting["optimizer"]["name"]: setting["figures"][f"test {metric}"]["by seed"]
            for setting in problem["settings"]
        }
        for one, other in pairs:
            differences = [values[one][seed] - values[other][seed] for seed in values[one]]
            samples[name, one] = Sample(tuple(differences))
    page = " ".join((PAGES / "comparison.md").read_text().split())
    for one, _ in pairs:
        sample = samples["characters-all", one]
        low, high = sorted(map(abs, sample.interval))
        assert f"by {abs(sample.mean):.3f} (" in page
        assert f"{low:.3f} to {high:.3f})" in page
        assert (sample.mean > 0) == (one == "sign-sgdf")
    corrected = dict(zip(samples, holm([p_value(s) for s in samples.values()]), strict=True))
    shown = {key for key, value in corrected.items() if value < 0.05}
    assert shown == {("characters-all", "filter-adam"), ("characters-all", "sign-sgdf")}
