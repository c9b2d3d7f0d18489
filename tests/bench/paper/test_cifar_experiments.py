"""The bundled CIFAR experiments against the paper's settings."""

from collections import Counter

import pytest

from bench_tasks import run_of
from made_data import SMALL
from sgdf.bench.catalog.optimizers import optimizer_options
from sgdf.bench.paper.published import column
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.report.paper import deviations
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.bundled import bundled_experiments, bundled_searches
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, load_document
from sgdf.bench.tasks.cifar.networks import NETWORKS

OPTIMIZERS = [
    *("sgdf", "sgd", "adam", "radam", "adabound"),
    *("adabelief", "adamw", "msvag", "sophia", "lion"),
]


def bundled(names):
    return pytest.mark.parametrize("name", [name for name in names if name.startswith("cifar")])


@bundled(bundled_experiments())
def test_bundled_experiments_are_on_cifar(name):
    found = load(name)
    assert found.runs
    assert {run.task.name for run in found.runs} <= {"cifar10", "cifar100"}
    assert {run.task.options["network"] for run in found.runs} <= set(NETWORKS)


@bundled(bundled_searches())
def test_bundled_searches_are_on_cifar(name, tmp_path):
    search = read_search(load_document(name), store=tmp_path, storage="")
    assert search.example.task.name in ("cifar10", "cifar100")
    assert search.example.task.options["network"] in NETWORKS
    assert {arm.name for arm in search.candidates} <= set(OPTIMIZERS)


def test_the_papers_experiment_is_all_there():
    runs = load("cifar").runs
    assert len(runs) == len({run.key for run in runs}) == 180
    cells = Counter(
        (run.task.name, run.task.options["network"], run.optimizer.name, run.seed) for run in runs
    )
    assert set(cells) == {
        (task, network, optimizer, seed)
        for task in ("cifar10", "cifar100")
        for network in ("vgg11", "resnet34", "densenet121")
        for optimizer in OPTIMIZERS
        for seed in (0, 1, 2)
    }
    for run in runs:
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (200, 128, "paper")
        assert run.schedule.name == "MultiStepLR"
        assert tuple(run.schedule.options["milestones"]) == (150,)
        assert run.schedule.options["gamma"] == 0.1


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("task", ["cifar10", "cifar100"])
def test_optimizers_have_the_papers_settings(name, task):
    wanted = optimizer_options(name, published_settings(name)[task])
    for run in load("cifar").runs:
        if (run.task.name, run.optimizer.name) == (task, name):
            assert run.optimizer.options == wanted


TITLES = {"vgg11": "VGG11", "resnet34": "ResNet34", "densenet121": "DenseNet121"}


def test_runs_of_the_papers_experiment_do_not_deviate_from_it():
    for run in resolve_machine(load("cifar"), threads=1).runs:
        title = f"CIFAR-{run.task.name[5:]}, {TITLES[run.task.options['network']]}"
        table = column("tab:cifar_values", title)
        (printed,) = (key for key, name in table.optimizers.items() if name == run.optimizer.name)
        assert deviations(table, printed, run.as_table()) == []


def test_in_what_a_small_run_deviates_is_said():
    optimizer = {"name": "sgdf", "lr": 0.5, "betas": [[0.5, 0.999]], "gamma": 1.0}
    table = run_of({"name": "cifar10", **SMALL, "network": "resnet8"}, optimizer).as_table()
    assert deviations(column("tab:cifar_values", "CIFAR-10, VGG11"), "SGDF", table) == [
        "network resnet8 instead of vgg11",
        "width 0.05 instead of 1.0",
        "train_images 24 instead of 45000",
        "validation_images 16 instead of 5000",
        "epochs 3 instead of 200",
        "batch_size 32 instead of 128",
        "betas [[0.5, 0.999]] instead of [[0.9, 0.999]]",
        "gamma 1.0 instead of 0.5",
        "weight_decay 0.0 instead of 0.0005",
    ]
