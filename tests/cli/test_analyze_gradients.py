"""``sgdf analyze gradients`` as people type it."""

import json

import pytest
from commands import sgdf

SPEC = """
[task]
name = "digits-mlp"
[train]
epochs = 1
batch_size = 64
device = "cpu"
[optimizer]
name = ["sgd-vanilla", "sgdf"]
lr = 0.1
"""


@pytest.fixture
def small(place):
    (place / "small.toml").write_text(SPEC)
    return place


def test_the_page_is_written_and_the_numbers_of_every_run(small):
    said = sgdf("analyze", "gradients", "small.toml", "--steps", 6, "--every", 2, "--out", "out")
    assert "sgd-vanilla" in said
    assert "Page: out/index.html" in said
    numbers = json.loads((small / "out/results.json").read_text())
    assert numbers["settings"]["steps"] == 6
    assert [run["tensors"]["1.weight"]["gradient"]["step"] for run in numbers["runs"].values()] == [
        [2, 4, 6],
        [2, 4, 6],
    ]
    assert {run["spec"]["train"]["threads"] for run in numbers["runs"].values()} == {1}


def test_the_options_choose_runs_and_change_them(small):
    options = ("--steps", 4, "--optimizer", "sgdf", "--threads", 2, "--set", "seed=7")
    sgdf("analyze", "gradients", "small.toml", *options, "--every", 2)
    folder = small / "results/small/analysis/gradients"
    (run,) = json.loads((folder / "results.json").read_text())["runs"].values()
    assert run["name"] == "sgdf, seed 7"
    assert run["spec"]["train"]["threads"] == 2


def test_a_task_of_several_can_be_chosen(small):
    several = ("--set", 'task.name=["digits-mlp", "digits-cnn"]', "--steps", 2, "--every", 1)
    said = sgdf("analyze", "gradients", "small.toml", *several, "--task", "digits-mlp")
    assert "1.weight" in said


def test_mistakes_are_answered_in_a_line(small):
    for options, answer in (
        (("--tensor", "9.weight"), "no tensor '9.weight'; the model has 1.weight, 1.bias"),
        (("--every", 200), "nothing can be measured every 200 steps"),
        (("--set", 'task.name=["digits-mlp", "digits-cnn"]'), "several tasks"),
        (("--optimizer", "adam"), "no run of adam"),
    ):
        said = sgdf("analyze", "gradients", "small.toml", *options, code=2)
        assert answer in " ".join(said.split())
        assert "Traceback" not in said
