"""CIFAR with the paper's networks: the networks, the task, its data and its experiments.

Long for the many parts that a task of the paper has.
"""

import json
import math
import os
import shutil
import sys
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from test_store import do
from torch import nn
from typer.testing import CliRunner

from bench_tasks import equal, essence, run_of, trained
from made_data import NOWHERE, PUBLISHED, real_data, tiny, unpacked
from sgdf.bench.catalog.optimizers import optimizer_options
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.jobs.job import job_line, read_job
from sgdf.bench.jobs.plan import Plan, prepare_data
from sgdf.bench.paper.published import column
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.report.paper import deviations
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.bundled import bundled_experiments, bundled_searches
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, load_document
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.assets import data_folder
from sgdf.bench.tasks.cifar.augment import AugmentedPairs
from sgdf.bench.tasks.cifar.data import CIFAR10, CIFAR100, DEVIATION, MEAN
from sgdf.bench.tasks.cifar.networks import NETWORKS, with_published_weights
from sgdf.bench.tasks.cifar.task import Cifar10, Cifar100
from sgdf.cli import app

SMALL = {"network": "vgg11", "width": 0.05, "train_images": 24, "validation_images": 16}
OPTIMIZERS = [
    *("sgdf", "sgd", "adam", "radam", "adabound"),
    *("adabelief", "adamw", "msvag", "sophia", "lion"),
]


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def on_paper(name, classes=10, width=1.0):
    """Return a network that has shapes only."""
    with torch.device("meta"):
        return NETWORKS[name](classes, width)


# The networks


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vgg11", 9_750_922),
        ("vgg11_bn", 9_756_426),
        ("resnet18", 11_173_962),
        ("resnet34", 21_282_122),
        ("densenet121", 6_956_298),
        ("resnet20", 269_722),
    ],
)
def test_networks_have_as_many_parameters_as_published_ones(name, count):
    assert parameters(on_paper(name)) == count


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_a_score_for_each_class(name):
    network = NETWORKS[name](7, 0.125)
    scores = network(torch.randn(2, 3, 32, 32))
    assert scores.shape == (2, 7)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vgg11", (512, 1, 1)),
        ("vgg11_bn", (512, 1, 1)),
        ("resnet8", (64, 8, 8)),
        ("resnet18", (512, 4, 4)),
        ("resnet20", (64, 8, 8)),
        ("resnet34", (512, 4, 4)),
        ("resnet56", (64, 8, 8)),
        ("densenet121", (1024, 4, 4)),
    ],
)
def test_networks_make_the_image_smaller_stage_by_stage(name, shape):
    network = on_paper(name)
    (head,) = [i for i, layer in enumerate(network) if isinstance(layer, nn.Flatten)]
    pooled = isinstance(network[head - 1], nn.AdaptiveAvgPool2d)
    features = network[: head - pooled](torch.empty(2, 3, 32, 32, device="meta"))
    assert features.shape == (2, *shape)


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_go_with_the_square_of_the_width(name):
    for width in (0.5, 0.25):
        share = parameters(on_paper(name, width=width)) / parameters(on_paper(name))
        assert share == pytest.approx(width**2, rel=0.1)


def test_classes_are_rows_of_the_last_layer_alone():
    for name in NETWORKS:
        *features, last = on_paper(name, classes=100).parameters()
        few = list(on_paper(name).parameters())
        assert last.shape == (100,)
        assert [own.shape for own in features[:-1]] == [other.shape for other in few[:-2]]


@pytest.mark.parametrize("name", ["vgg11", "vgg11_bn"])
def test_convolutions_of_vgg_begin_with_normal_weights_by_fan_out(name):
    """Each of 32 figures would be 4.5 deviations off for one seed in 147,000."""
    network = NETWORKS[name](10, 1.0)
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert len(layers) == 8
    for layer in layers:
        weights = layer.weight.detach().double() / math.sqrt(2 / (9 * layer.out_channels))
        count = weights.numel()
        assert abs(weights.sum().item()) < 4.5 * math.sqrt(count)
        assert abs(weights.square().sum().item() - count) < 4.5 * math.sqrt(2 * count)
        assert not layer.bias.any()


def test_vgg_drops_half_before_each_hidden_layer_of_its_classifier():
    names = [type(module).__name__ for module in on_paper("vgg11").children()]
    head = ["Flatten", *["Dropout", "Linear", "ReLU"] * 2, "Linear"]
    assert names[-len(head) :] == head
    assert Counter(names)["Dropout"] == 2
    assert {module.p for module in on_paper("vgg11") if isinstance(module, nn.Dropout)} == {0.5}
    network = NETWORKS["vgg11"](10, 0.125)
    images = torch.randn(1, 3, 32, 32)
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


@real_data
def test_published_weights_of_resnet20_score_what_was_published(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar10")))
    network = with_published_weights("resnet20", PUBLISHED / "packed/cifar10_resnet20.npz").eval()
    content = (data_folder() / "cifar-10-batches-bin/test_batch.bin").read_bytes()
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(10_000, 3073)
    with torch.no_grad():
        scores = [network(part[:, 1:].reshape(-1, 3, 32, 32)) for part in records.split(500)]
    assert (torch.cat(scores).argmax(1) == records[:, 0]).sum() == 9173


@real_data
def test_published_weights_fit_their_own_network_alone(tmp_path):
    path = PUBLISHED / "packed/cifar10_resnet56.npz"
    assert parameters(with_published_weights("resnet56", path)) == 853_018
    with pytest.raises(ValueError, match=r"resnet56\.npz has \d+ arrays, but resnet20 has \d+"):
        with_published_weights("resnet20", path)


def test_weights_of_other_shapes_are_refused(tmp_path):
    state = NETWORKS["resnet20"](10, 0.5).state_dict()
    arrays = {key: value.numpy() for key, value in state.items() if value.is_floating_point()}
    np.savez(tmp_path / "narrow.npz", **arrays)
    with pytest.raises(ValueError, match=r"narrow\.npz has no weights of resnet20"):
        with_published_weights("resnet20", tmp_path / "narrow.npz")


def test_weights_are_taken_in_their_order(tmp_path):
    state = NETWORKS["resnet20"](10, 1.0).state_dict()
    values = [torch.rand_like(v) for v in state.values() if v.is_floating_point()]
    np.savez(tmp_path / "w.npz", *(value.numpy() for value in values))
    network = with_published_weights("resnet20", tmp_path / "w.npz")
    own = [value for value in network.state_dict().values() if value.is_floating_point()]
    assert equal(own, values)


# The task


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Let the tasks have small data sets, of 40 and 200 training images, in a folder."""
    folder = tmp_path / "data"
    monkeypatch.setenv("SGDF_DATA", str(folder))
    monkeypatch.setattr(Cifar10, "data_set", tiny(CIFAR10, folder, per_class=4))
    monkeypatch.setattr(Cifar100, "data_set", tiny(CIFAR100, folder, per_class=2))
    return folder


def as_set(images):
    return {image.numpy().tobytes() for image in images}


def balanced(classes, kinds):
    counts = classes.bincount(minlength=kinds)
    return counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("kind", "kinds"), [(Cifar10, 10), (Cifar100, 100)])
def test_splits_are_balanced_and_have_nothing_in_common(kind, kinds, data):
    (images, _), (test_images, test_classes) = kind.data_set.read()
    for train, validation in ((24, 16), (13, 7), (len(images) - 15, 15)):
        options = {**SMALL, "train_images": train, "validation_images": validation}
        splits = kind(**options).data
        assert [len(part[0]) for part in splits.values()] == [train, validation, len(test_images)]
        assert all(balanced(classes, kinds) for _, classes in splits.values())
        parts = [as_set(part[0]) for part in splits.values()]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert set.union(*parts[:2]) <= as_set(images)
        assert equal(splits["test"], (test_images, test_classes))


def test_one_split_does_not_depend_on_the_size_of_the_other(data):
    def split(name, **sizes):
        return Cifar10(**{**SMALL, **sizes}).data[name]

    assert equal(split("validation"), split("validation", train_images=5))
    assert equal(split("train"), split("train", validation_images=3))
    for mine, whole in zip(split("train", train_images=9), split("train"), strict=True):
        assert torch.equal(mine, whole[:9])


def test_the_paper_protocol_trains_on_the_validation_images_too(data):
    (images, classes), _ = Cifar10.data_set.read()
    task = Cifar10(**SMALL)
    task.train_on_validation()
    assert list(task.data) == ["train", "test"]
    assert equal(task.data["train"], (images, classes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "vgg12"}, "network = 'vgg12': must be one of vgg11, .*; did you mean vgg11"),
        ({"train_images": 25}, "train_images = 25 and validation_images = 16: there are 40"),
        ({"train_images": 0}, "must be at least 1"),
        ({"validation_images": 0}, "must be at least 1"),
        ({"train_images": -3}, "must be at least 1"),
        ({"width": 0.0}, "width = 0.0: must be above 0"),
        ({"width": -1.0}, "width = -1.0: must be above 0"),
        ({"width": math.inf}, "width = inf: must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_run_begins(change, message, data, tmp_path):
    options = {**SMALL, **change}
    with pytest.raises(SpecError, match=message):
        Cifar10(**options)
    with pytest.raises(SpecError, match=f"task 'cifar10': .*{message}"):
        Plan((run_of({"name": "cifar10", **options}),), tmp_path / "store").prepare()


def test_damaged_data_are_noticed_before_a_run_begins(data):
    with (Cifar10.data_set.archive.place / "data_batch_3.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="damaged"):
        prepare_data([run_of({"name": "cifar10", **SMALL})])


def test_unofficial_data_are_accepted_on_request(data):
    place = Cifar10.data_set.archive.place
    shutil.copy(place / "data_batch_1.bin", place / "data_batch_2.bin")
    with pytest.raises(DataError, match="not the published file"):
        Cifar10(**SMALL)
    Cifar10(**SMALL, official=False)
    prepare_data([run_of({"name": "cifar10", "official": False, **SMALL})])


def test_a_step_tells_loss_and_accuracy_of_its_batch(data):
    task = Cifar10(**SMALL)
    (images, classes), *_ = task.batches(12, torch.Generator().manual_seed(0))
    guesses = torch.cat([(classes[:3] + 1) % 10, classes[3:]])
    scores, seen, losses = 5.0 * nn.functional.one_hot(guesses, 10), [], []

    def model(images):
        seen.append(images)
        return scores

    task.model = model
    logged = task.step((images, classes), losses.append)
    assert equal(seen, [images])
    assert losses == [logged["loss"]]
    assert logged["loss"].item() == pytest.approx(math.log(math.exp(5) + 9) - 5 * 0.75)
    assert logged["accuracy"].item() == 0.75


def test_training_images_are_augmented_and_others_are_not(data):
    task = Cifar10(**{**SMALL, "network": "resnet8", "width": 0.25})
    own = task.batches(10, torch.Generator().manual_seed(3))
    expected = AugmentedPairs(*task.data["train"], 10, torch.Generator().manual_seed(3))
    assert isinstance(own, AugmentedPairs)
    assert equal(list(own), list(expected))
    images, classes = task.data["test"]
    task.model.eval()
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    with torch.no_grad():
        scores = task.model[1]((images / 255 - mean) / deviation)
        figures = task.evaluate("test")
    assert figures["accuracy"] == (scores.argmax(1) == classes).double().mean().item()
    expected = nn.functional.cross_entropy(scores, classes).item()
    assert figures["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_the_model_has_the_width_and_the_classes_of_its_task(name, classes, data):
    task = {"cifar10": Cifar10, "cifar100": Cifar100}[name](**{**SMALL, "width": 0.1})
    convolution = task.model[1][0]
    assert convolution.weight.shape == (6, 3, 3, 3)
    assert task.model(task.data["test"][0][:2]).shape == (2, classes)
    assert (task.selects, task.largest) == ("accuracy", True)


def test_training_lowers_the_loss(data):
    task = {"name": "cifar10", **SMALL, "network": "resnet8", "width": 0.5}
    run = run_of(task, {"name": "adam", "lr": 0.003}, {"epochs": 30, "batch_size": 8})
    rows = [row for row in trained(run).rows if row["kind"] == "epoch"]
    for split in ("train", "validation", "test"):
        assert rows[-1][split]["loss"] < 0.5 * math.log(10)
        assert rows[-1][split]["accuracy"] > 0.5


@pytest.mark.usefixtures("told_at_once")
@pytest.mark.parametrize(
    ("task", "protocol"),
    [
        ({"name": "cifar10", **SMALL}, "validation"),  # dropout
        ({"name": "cifar100", **SMALL, "network": "resnet8"}, "paper"),  # BatchNorm
    ],
)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(task, protocol, data, tmp_path):
    train = {"log_every": 1, "epochs": 2, "batch_size": 8}
    run = run_of(task, "sgdf", train, protocol=protocol)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    steps = undisturbed.result()["step"]
    assert steps == 2 * (3 if protocol == "validation" else 5)
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert len(folder.environments()) == steps
    for mine, other in zip(essence(folder), essence(undisturbed), strict=True):
        assert equal(mine, other)


# Data that are not there


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder where commands are given that change nothing elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))  # and what --data sets is undone
    return tmp_path


def sgdf(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


FEW = ("--set", "seed=0", "--set", "task.network=vgg11", "--set", "task.name=cifar10")


def test_missing_data_are_told_of_before_any_run_begins(place, data):
    shutil.rmtree(data)
    for options, folder in (([], data), (["--data", "elsewhere"], place / "elsewhere")):
        output = sgdf("run", "cifar", *FEW, *options, code=2)
        assert f"CIFAR-10: {folder}/cifar-10-batches-bin lacks data_batch_1.bin" in output
        assert f"Get {NOWHERE} (SHA-256 {CIFAR10.archive.sha256})" in output
        assert f"unpack it in {folder}; or say --data FOLDER, or set SGDF_DATA" in output
        assert not (place / "results").exists()


def test_a_search_without_its_data_does_not_begin(place, data):
    shutil.rmtree(data)
    output = sgdf("tune", "cifar-search", "--data", "elsewhere", code=2)
    assert f"CIFAR-10: {place / 'elsewhere'}/cifar-10-batches-bin lacks" in output
    assert not (place / "results").exists()


@pytest.mark.parametrize("command", [("run", "cifar"), ("tune", "cifar-search")])
def test_a_dry_run_without_data_says_so_once(command, place, data):
    shutil.rmtree(data)
    output = sgdf(*command, "--dry-run", code=2)
    assert output.count("Downloading") == output.count("Get ") == 1
    assert all(sha256 in output for sha256 in Cifar10.data_set.archive.files.values())


def test_a_task_that_cannot_be_made_leaves_no_runs_behind(place, data, monkeypatch):
    def fails(classes, width):
        raise MemoryError("too wide")

    monkeypatch.setitem(NETWORKS, "resnet8", fails)
    output = sgdf("run", spec(place), code=2)
    assert "task 'cifar10': MemoryError: too wide" in output
    assert not (place / "results").exists()


def spec(place):
    path = place / "mine.toml"
    path.write_text(
        '[task]\nname = "cifar10"\nnetwork = "resnet8"\nwidth = 0.1\ntrain_images = 24\n'
        "validation_images = 16\n[train]\nepochs = 2\nbatch_size = 8\nthreads = 1\nlog_every = 1\n"
        '[optimizer]\nname = ["sgdf", "sgd"]\nlr = 0.1\n'
    )
    return path


def test_data_are_found_where_the_command_line_says(place, data):
    data.rename(place / "moved")
    sgdf("run", spec(place), code=2)
    assert "2 finished" in sgdf("run", spec(place), "--data", "moved")
    assert data_folder() == place / "moved"


def test_finished_runs_need_no_data(place, data):
    sgdf("run", spec(place))
    shutil.rmtree(data)
    assert "2 runs, 2 done" in sgdf("run", spec(place))
    more = sgdf("run", spec(place), "--set", "seed=[0, 1]", code=2)
    assert "lacks data_batch_1.bin" in more


@pytest.mark.usefixtures("told_at_once")
@pytest.mark.parametrize(("steps", "left"), [(0, State.WAITING), (2, State.PAUSED)])
def test_a_run_whose_data_vanish_waits_for_them(steps, left, place, data):
    plan = Plan(resolve_machine(load(spec(place)), threads=1).runs[:1], place / "store")
    plan.prepare()
    (run,) = plan.runs
    if steps:
        do(run, Store(plan.store), stop_after=steps)
    data.rename(place / "away")
    events = []
    plan.work(lambda key, event: events.append(event), threading.Event())
    assert events[-1]["event"] == "end"
    assert events[-1]["state"] == "paused"
    assert "lacks data_batch_1.bin" in events[-1]["line"]
    folder = Store(plan.store).folder(run.key)
    assert folder.state() is left
    assert folder.failure() is None
    with pytest.raises(DataError):
        plan.prepare()
    shutil.rmtree(data)  # without files
    (place / "away").rename(data)
    plan.prepare()
    plan.work(lambda key, event: None, threading.Event())
    assert folder.state() is State.FINISHED


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_data_folder_needs_a_name(command, place):
    assert "a folder needs a name" in sgdf(command, "cifar", "--data", "", code=2)
    assert os.environ["SGDF_DATA"] == str(place / "data")


def test_a_worker_finds_the_data_where_its_starter_does(place, data, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SGDF_DATA", "relative")
    plan = Plan((run_of(),), place / "store")
    line = job_line("sgdf.bench.jobs.plan:Plan.from_table", json.loads(plan.as_json()))
    assert json.loads(plan.as_json())["data"] == str(place / "relative")
    monkeypatch.delenv("SGDF_DATA")
    monkeypatch.chdir("/")
    assert read_job(line).keys == plan.keys
    assert data_folder() == place / "relative"
    monkeypatch.setenv("SGDF_DATA", "/own")
    read_job(line)
    assert os.environ["SGDF_DATA"] == "/own"


# The experiments


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
        assert deviations(column("tab:cifar_values", title), run.as_table()) == []


def test_in_what_a_small_run_deviates_is_said():
    optimizer = {"name": "sgdf", "lr": 0.5, "betas": [[0.5, 0.999]], "gamma": 1.0}
    table = run_of({"name": "cifar10", **SMALL, "network": "resnet8"}, optimizer).as_table()
    assert deviations(column("tab:cifar_values", "CIFAR-10, VGG11"), table) == [
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
