"""The full-size experiments on drawn images: the paper's settings, and where they are others."""

import itertools

import pytest

from sgdf.bench.errors import SpecError
from sgdf.bench.paper.published import published
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.report.paper import deviations
from sgdf.bench.spec.read import load, read

NINE = {
    *("sgdf", "sgd", "adam", "adamw", "radam"),
    *("rmsprop", "fromage", "adabound", "yogi"),
}


def printed(name, task):
    """Return the options that the paper has for an optimizer."""
    return published_settings(name)[task]


def test_nine_optimizers_train_five_gans_each():
    runs = load("wgan-gp").runs
    found = {(run.optimizer.name, run.seed) for run in runs}
    assert len(runs) == 45
    assert found == set(itertools.product(NINE, range(5)))


def test_the_gan_is_trained_and_scored_as_in_the_published_program():
    for run in load("wgan-gp").runs:
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (100, 64, "last")
        assert run.schedule.options["factor"] == 1.0
        task = run.task.options
        assert (task["side"], task["channels"], task["latent"]) == (64, 64, 100)
        assert (task["penalty"], task["generator_every"]) == (10.0, 5)
        assert (task["samples"], task["compared_with"], task["stretch"]) == (64_000, "train", True)
        assert task["extractor"] == "inception-pytorch-fid"


def test_options_of_the_gan_are_those_of_the_table_and_where_it_is_silent_of_the_program():
    for run in load("wgan-gp").runs:
        options, name = run.optimizer.options, run.optimizer.name
        expected = printed(name, "wgan-gp")
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        assert {key: found[key] for key in expected} == expected
        assert options.get("weight_decay", 0) == 0
        assert options.get("final_lr", 0.01) == 0.01


@pytest.mark.parametrize(("name", "network"), [("dit", "b-4"), ("sit", "b-2")])
def test_diffusion_models_are_trained_as_in_their_papers(name, network):
    for run in load(name).runs:
        assert (run.train.steps, run.train.batch_size, run.train.ema_decay) == (
            400_000,
            256,
            0.9999,
        )
        task = run.task.options
        assert (task["network"], task["class_dropout"], task["guidance"]) == (network, 0.1, 1.0)
        assert (task["samples"], task["sampling_steps"]) == (50_000, 250)
        assert task["flip"]
        assert run.optimizer.options["weight_decay"] == 0.0


@pytest.mark.parametrize("name", ["dit", "sit"])
def test_sign_sgdf_has_adams_settings_and_the_gain_without_its_power(name):
    options = {run.optimizer.name: run.optimizer.options for run in load(name).runs}
    for optimizer in ("adam", "sign-sgdf"):
        expected = printed(optimizer, name)
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in options[optimizer].items()}
        assert {key: found[key] for key in expected} == expected
    assert options["sign-sgdf"]["gamma"] == 1.0
    assert {"signsgd", "signum", "lion"} < set(options)


def test_runs_at_full_size_are_those_beside_which_the_papers_scores_stand():
    names = {"adam": "Adam", "filter-muon": "Muon + SGDF"}
    columns = [one for one in published() if one.label == "tab:sgdf_muon"]
    assert len(columns) == 5
    for run in load("dit").runs:
        for one in columns if run.optimizer.name in names else ():
            table = run.as_table()
            assert deviations(one, names[run.optimizer.name], table) == []
            assert table["task"]["extractor"] in one.only_with["extractor"]


def test_muon_is_the_control_of_filter_muon():
    for name in ("dit", "dit-cifar"):
        rates = {}
        for run in load(name).runs:
            rates.setdefault(run.optimizer.name, set()).add(run.optimizer.options["lr"])
        assert rates["muon"] == rates["filter-muon"]


def test_the_small_photographs_have_three_rates_and_three_seeds():
    runs = load("dit-cifar").runs
    found = {(run.optimizer.name, run.optimizer.options["lr"], run.seed) for run in runs}
    assert len(found) == len(runs) == 27
    assert {run.optimizer.name for run in runs} == {"adam", "muon", "filter-muon"}


@pytest.mark.parametrize(
    ("task", "splits"),
    [
        ({"name": "wgan-gp"}, "only test"),
        ({"name": "wgan-gp", "validation_images": 100}, ""),
        ({"name": "dit", "data": "cifar10", "side": 32, "extractor": "resnet20"}, "only test"),
        ({"name": "sit"}, ""),
    ],
)
def test_choosing_on_validation_images_needs_some_which_is_known_without_data(task, splits):
    document = {"task": task, "optimizer": {"name": "adam", "lr": 0.001}}
    if splits:
        with pytest.raises(SpecError, match=f"the task has {splits}"):
            read(document)
        assert read({**document, "protocol": "last"}).runs
    else:
        assert read(document).runs
