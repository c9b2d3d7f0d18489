"""The full-size experiments on Penn Treebank: the paper's settings, and where they are others."""

import itertools

import pytest

from sgdf.bench.paper.settings import published_settings
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.read import load, load_document

TEN = {
    *("sgdf", "sgd-vanilla", "adam", "radam", "adamw"),
    *("msvag", "adabound", "yogi", "fromage", "adabelief"),
}
SGDF_CLIPPING = {1: 0.1, 2: 0.15, 3: 0.25}


def printed(name):
    """Return the options that the table has for an optimizer; its SGD is the one with momentum."""
    if name == "sgd-vanilla":
        return {k: v for k, v in published_settings("sgd")["ptb"].items() if k != "momentum"}
    return published_settings(name)["ptb"]


def depth(run):
    return run.task.options["layers"]


def test_each_of_ten_optimizers_has_three_depths_and_seeds():
    runs = load("ptb").runs
    assert len(runs) == 90
    assert {(run.optimizer.name, depth(run), run.seed) for run in runs} == set(
        itertools.product(TEN, (1, 2, 3), (0, 1, 2))
    )


@pytest.mark.parametrize("name", ["ptb", "ptb-clipping"])
def test_all_is_trained_as_published_but_for_the_recurrent_matrices(name):
    for run in load(name).runs:
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (200, 20, "paper")
        assert run.schedule.name == "MultiStepLR"
        assert run.schedule.options["milestones"] == [100, 145]
        assert run.schedule.options["gamma"] == 0.1
        assert run.task.options["train_recurrent"]


def test_options_are_those_of_the_table_and_where_it_is_silent_of_the_program():
    for run in load("ptb").runs:
        options, name = run.optimizer.options, run.optimizer.name
        assert {key: options[key] for key in printed(name)} == printed(name)
        assert run.train.clip_norm == (SGDF_CLIPPING[depth(run)] if name == "sgdf" else 0.25)
        assert options.get("momentum", 0) == 0
        assert options.get("final_lr", 30) == 30


def test_the_control_crosses_optimizers_with_pairs_of_rate_and_clipping():
    pairs = {layers: {(60, clipping), (30, 0.25)} for layers, clipping in SGDF_CLIPPING.items()}
    runs = load("ptb-clipping").runs
    assert len(runs) == 36
    for layers, name, seed in itertools.product(pairs, ("sgdf", "sgd-vanilla"), (0, 1, 2)):
        assert pairs[layers] == {
            (run.optimizer.options["lr"], run.train.clip_norm)
            for run in runs
            if (depth(run), run.optimizer.name, run.seed) == (layers, name, seed)
        }


def test_half_of_the_control_are_runs_of_the_comparison():
    comparison, control = ({run.key for run in load(name).runs} for name in ("ptb", "ptb-clipping"))
    assert len(comparison & control) == 18


def test_the_search_has_the_values_of_the_table(tmp_path):
    search = read_search(load_document("ptb-search"), store=tmp_path, storage="")
    assert {arm.name for arm in search.candidates} == TEN
    assert search.example.protocol == "validation"
    assert depth(search.example) == 1
    for arm in search.candidates:
        for option, values in arm.space.items():
            tried = [tuple(v) if isinstance(v, list) else v for v in values.values]
            assert printed(arm.name)[option] in tried, (arm.name, option)
