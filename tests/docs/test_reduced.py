"""The CIFAR experiments and their page: what was predicted, what came out, what is said of it."""

import json
import re

import pytest

from locations import ROOT
from sgdf.bench.paper.published import column
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.report.statistics import Sample, holm, p_value
from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.bench.spec.read import load

RECORDS = ROOT / "records" / "cifar"
PAGE = (ROOT / "docs/results/cifar.md").read_text()
WORDS = " ".join(PAGE.replace("−", "-").split())
TABLES = {
    "cifar10-small": ("tab:cifar_values", "CIFAR-10, VGG11"),
    "cifar100-small": ("tab:cifar_values", "CIFAR-100, ResNet34"),
    "cifar-adam-small": ("tab:accuracy_comparison", "CIFAR-100, VGG11"),
}
ALL = {"vgg11", "resnet34", "densenet121"}
FULL_SIZE = {  # by experiment: data sets, networks, and the option that is varied
    "cifar": ({"cifar10", "cifar100"}, ALL, None, set()),
    "cifar-correction": ({"cifar10", "cifar100"}, ALL, "correction", {"paper", "none"}),
    "cifar-gamma": ({"cifar10", "cifar100"}, ALL, "gamma", {0.25, 0.5, 1.0}),
    "cifar-beta1": ({"cifar10", "cifar100"}, ALL, "betas", {(0.5, 0.999), (0.9, 0.999)}),
    "cifar-momentum": ({"cifar100"}, {"vgg11"}, "lr", {0.1}),
    "cifar-adam": ({"cifar100"}, ALL, "lr", {1e-3}),
}
REDUCED = [name for name in bundled_experiments() if re.fullmatch(r"cifar.*-small", name)]


def predicted(name):
    """Return the order that an experiment's file predicts, best first."""
    text = bundled_experiments()[name].read_text()
    return re.search(r"^# (\S+(?: > \S+)+)$", text, re.M).group(1).split(" > ")


def settings_of(name):
    """Return what was kept of an experiment: its settings on all problems."""
    record = json.loads((RECORDS / f"{name}.json").read_text())
    return [setting for problem in record for setting in problem["settings"]]


def told(figure):
    return f"{100 * figure['mean']:.2f} ± {100 * figure['standard deviation']:.2f}"


def difference(better, worse):
    """Return by how many points of test accuracy one setting is above another, seed by seed."""
    one, other = (s["figures"]["test accuracy"]["by seed"] for s in (better, worse))
    return Sample(tuple(100 * (one[seed] - other[seed]) for seed in one))


def interval(sample):
    """Return how the page tells of a difference."""
    low, high = sample.interval
    return f"{sample.mean:.2f} ({low:.2f} to {high:.2f})"


@pytest.mark.parametrize("name", FULL_SIZE)
def test_experiments_at_full_size_are_the_papers(name):
    data_sets, networks, option, values = FULL_SIZE[name]
    runs = load(name).runs
    assert re.search(rf"^\| `{name}` \| {len(runs)} \|", PAGE, re.M)
    assert {run.task.name for run in runs} == data_sets
    assert {run.task.options["network"] for run in runs} == networks
    assert option is None or {run.optimizer.options[option] for run in runs} == values
    for run in runs:
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (200, 128, "paper")
        assert (run.schedule.name, run.schedule.options["milestones"]) == ("MultiStepLR", [150])
        assert run.seed in (0, 1, 2)
        settings = published_settings(run.optimizer.name).get(run.task.name, {})
        for key in settings.keys() - {option}:
            assert run.optimizer.options[key] == settings[key]


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_experiments_have_three_seeds_and_six_optimizers_at_most(name):
    runs = load(name).runs
    assert {run.seed for run in runs} == {0, 1, 2}
    assert len({run.optimizer.name for run in runs}) <= 6
    assert predicted(name)


@pytest.mark.parametrize("name", TABLES)
def test_predictions_are_those_of_the_papers_tables(name):
    label, title = TABLES[name]
    printed = column(label, title)
    values = {printed.optimizers[method]: value[0] for method, value in printed.values.items()}
    compared = {run.optimizer.name for run in load(name).runs}
    assert predicted(name) == sorted(compared, key=lambda one: -values[one])


@pytest.mark.parametrize("name", REDUCED)
def test_records_are_of_the_bundled_experiments(name):
    runs = load(name).runs
    kept = settings_of(name)
    assert len(kept) == len({repr((run.task, run.optimizer)) for run in runs})
    wanted = {(run.task.name, run.optimizer.name, run.optimizer.options["lr"]) for run in runs}
    assert wanted == {
        (s["task"]["name"], s["optimizer"]["name"], s["optimizer"]["lr"]) for s in kept
    }
    for setting in kept:
        assert not setting["lost runs"]
        assert set(setting["figures"]["test accuracy"]["by seed"]) == {"0", "1", "2"}


@pytest.mark.parametrize("name", ["cifar10-small", "cifar100-small", "cifar-momentum-small"])
def test_what_was_seen_is_told_beside_what_was_predicted(name):
    kept = settings_of(name)
    kept.sort(key=lambda setting: -setting["figures"]["test accuracy"]["mean"])
    seen = " > ".join(setting["optimizer"]["name"] for setting in kept)
    order = " > ".join(predicted(name))
    assert f"- predicted: `{order}`\n- seen on test data: `{seen}`\n" in PAGE


@pytest.mark.parametrize("name", ["cifar-momentum-small", "cifar-adam-small"])
def test_tables_of_the_page_are_those_of_the_records(name):
    for setting in settings_of(name):
        optimizer, figures = setting["optimizer"], setting["figures"]
        accuracies = [told(figures[f"{split} accuracy"]) for split in ("test", "validation")]
        assert f"| `{optimizer['name']}` | {optimizer['lr']:g} | {' | '.join(accuracies)} |" in PAGE


def test_the_ablation_is_told_as_it_was_kept():
    titles = {
        ("paper", 0.5, 0.9): "as it is",
        ("none", 0.5, 0.9): "correction none",
        ("paper", 0.25, 0.9): "gamma 0.25",
        ("paper", 1.0, 0.9): "gamma 1",
        ("paper", 0.5, 0.5): "beta1 0.5",
    }
    kept = {}
    for setting in settings_of("cifar-ablation-small"):
        options, last = setting["optimizer"], setting["figures of the last epoch"]
        title = titles[options["correction"], options["gamma"], options["betas"][0][0]]
        kept[title] = setting
        accuracies = [told(last[f"{split} accuracy"]) for split in ("test", "train")]
        assert f"| {title} | {' | '.join(accuracies)} |" in PAGE
        assert last["test accuracy"] == setting["figures"]["test accuracy"]
    usual = kept.pop("as it is")
    assert len(kept) == 4
    samples = {title: difference(usual, setting) for title, setting in kept.items()}
    for sample in samples.values():
        assert f"{sample.mean:.2f} (" in WORDS
        assert interval(sample) in WORDS
    corrected = dict(zip(samples, holm([p_value(s) for s in samples.values()]), strict=True))
    assert [title for title, value in corrected.items() if value < 0.05] == ["beta1 0.5"]


def test_what_the_filter_does_to_adam_is_told():
    kept = {(s["task"]["name"], s["optimizer"]["name"]): s for s in settings_of("cifar-adam-small")}
    samples = [
        difference(kept[task, "filter-adam"], kept[task, "adam"])
        for task in ("cifar10", "cifar100")
    ]
    assert all(interval(sample) in WORDS for sample in samples)
    first, second = holm([p_value(sample) for sample in samples])
    assert f"(p = {first:.3f} and {second:.3f})" in WORDS
    (tuned,) = (s for s in settings_of("cifar10-small") if s["optimizer"]["name"] == "adam")
    assert interval(difference(kept["cifar10", "filter-adam"], tuned)) in WORDS


@pytest.mark.parametrize(
    ("name", "shown"), [("cifar10-small", set()), ("cifar100-small", {"sgd", "radam"})]
)
def test_what_sgdf_is_shown_to_be_better_than_is_told(name, shown):
    kept = {setting["optimizer"]["name"]: setting for setting in settings_of(name)}
    usual = kept.pop("sgdf")
    samples = {other: difference(usual, setting) for other, setting in kept.items()}
    corrected = dict(zip(samples, holm([p_value(s) for s in samples.values()]), strict=True))
    assert {other for other, value in corrected.items() if value < 0.05} == shown
    for other in shown | {"sgd"}:
        assert interval(samples[other]) in WORDS
    means = [f"{samples[other].mean:.2f}" for other in ("adam", "adabelief", "adamw")]
    assert name == "cifar10-small" or f"{means[0]}, {means[1]} and {means[2]}" in WORDS


def test_how_far_training_was_before_the_rate_fell_is_told():
    adaptive = ("adam", "adamw", "radam", "adabelief")
    for name in ("cifar10-small", "cifar100-small"):
        courses = {s["optimizer"]["name"]: s["means by epoch"] for s in settings_of(name)}

        def at(optimizer, split, courses=courses):
            return 100 * courses[optimizer][f"{split} accuracy"]["6"]

        others = sorted(at(one, "train") for one in adaptive)
        told = f"{at('sgdf', 'train'):.1f} of {others[0]:.1f} to {others[-1]:.1f}"
        assert told in WORDS
        assert f"{at('sgdf', 'test'):.1f} %" in WORDS
        gains = {
            one: course["test accuracy"]["8"] - course["test accuracy"]["6"]
            for one, course in courses.items()
        }
        assert max(gains, key=gains.get) == "sgdf"
        assert min(courses, key=lambda one: courses[one]["test accuracy"]["8"]) == "sgd"


def test_the_first_epochs_are_told_as_they_were_kept():
    for setting in settings_of("cifar-begin"):
        course = setting["means by epoch"]
        numbers = [
            f"{100 * course[f'{split} accuracy'][epoch]:.2f}"
            for epoch in ("1", "2")
            for split in ("test", "train")
        ]
        assert f"| `{setting['optimizer']['name']}` | {' | '.join(numbers)} |" in PAGE
        assert setting["task"]["width"] == 1.0
