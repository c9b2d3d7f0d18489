"""The runs that an analysis is about: finished ones, each once, as many as were asked for."""

import shutil

import pytest

from bench_tasks import run_of
from kept_runs import do
from sgdf.analysis.runs import experiment_runs, trained_runs
from sgdf.bench.errors import SpecError
from sgdf.bench.store.run_folder import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of three runs: two seeds of one optimizer, and one seed of another."""
    store = Store(tmp_path_factory.mktemp("store"))
    for optimizer, seed in (("sgd", 0), ("sgd", 1), ("sgdf", 0)):
        do(run_of(optimizer=optimizer, seed=seed, train={"epochs": 1}), store)
    return store


def test_a_run_that_two_folders_hold_counts_once(store, tmp_path):
    """Twice it would make the spread over seeds too small."""
    shutil.copytree(store.path, tmp_path / "copy")
    folders = [*store.folders(), *Store(tmp_path / "copy").folders()]
    runs = trained_runs(folders)
    assert [run.name for run in runs] == ["sgd, seed 0", "sgd, seed 1", "sgdf, seed 0"]
    assert {run.folder.parents[1] for run in runs} == {store.path}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"seeds": [0, 7]}, "no run with seed 7; there are runs with seed 0 and 1"),
        ({"optimizers": ["sgd", "adam"]}, "no run of adam; there are runs of sgd and sgdf"),
        (
            {"optimizers": ["sgdf"], "seeds": [1]},
            "no run of sgdf with seed 1; there are runs of sgdf with seed 0",
        ),
    ],
)
def test_a_choice_that_no_run_fits_is_refused(store, choice, message):
    with pytest.raises(SpecError, match=f"^{message}$"):
        trained_runs(list(store.folders()), **choice)


def test_the_chosen_runs_are_returned(store):
    runs = trained_runs(list(store.folders()), optimizers=["sgd"], seeds=[1])
    assert [run.name for run in runs] == ["sgd, seed 1"]


def test_a_task_is_chosen_by_its_name_or_by_its_options(tmp_path):
    path = tmp_path / "three.toml"
    path.write_text(
        """
[[task]]
name = "logistic"
penalty = [0.01, 0.1]
[[task]]
name = "digits-mlp"
[train]
steps = 1
[optimizer]
name = "sgd"
lr = 0.1
"""
    )

    def chosen(*tasks):
        return [run.task for run in experiment_runs([str(path)], tasks=tasks)]

    assert sorted(chosen()) == ["digits-mlp", "logistic penalty=0.01", "logistic penalty=0.1"]
    assert chosen("digits-mlp") == ["digits-mlp"]
    assert len(chosen("logistic")) == 2
    assert len(chosen("logistic penalty=0.1")) == 1
    with pytest.raises(SpecError, match="no run of the task digits; there are runs of"):
        chosen("digits")


def test_a_task_has_the_same_name_whatever_is_chosen(tmp_path):
    """Among the runs of adam alone, the two tasks would differ in one option only."""
    path = tmp_path / "three.toml"
    path.write_text(
        """
train = { steps = 1 }
[[part]]
task = { name = "characters", layers = [1, 2] }
optimizer = { name = "adam" }
[[part]]
task = { name = "characters", hidden = 32 }
optimizer = { name = "sgd" }
"""
    )
    runs = experiment_runs([str(path)], optimizers=["adam"])
    assert len({run.task for run in runs}) == 2
    for run in runs:
        chosen = experiment_runs([str(path)], optimizers=["adam"], tasks=[run.task])
        assert [one.task for one in chosen] == [run.task]
