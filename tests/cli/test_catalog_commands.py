"""``sgdf tasks``, ``sgdf optimizers``, ``sgdf experiments``, and the help of every command."""

import dataclasses
import re

import pytest
from commands import sgdf

from locations import ROOT
from sgdf.bench.spec.bundled import bundled_experiments, bundled_searches
from sgdf.bench.spec.document import load_document
from sgdf.bench.spec.read import read
from sgdf.bench.spec.run import Schedule, Training
from sgdf.bench.tasks import TASKS
from sgdf.cli.show.catalog import count_runs


def test_tasks_optimizers_and_experiments_are_listed_and_explained(place):
    tasks, optimizers, experiments = (sgdf(name) for name in ("tasks", "optimizers", "experiments"))
    assert all(name in tasks for name in TASKS)
    assert "momentum=0.9" in optimizers
    assert all(name in experiments for name in (*bundled_experiments(), *bundled_searches()))
    assert "batch_norm" in sgdf("tasks", "digits-cnn")
    assert "hidden: its width" in sgdf("tasks", "bench_tasks:Points")
    assert "betas = [[0.9, 0.999]]" in sgdf("optimizers", "adam")
    assert "# lr has no default" in sgdf("optimizers", "sgdf:UnifiedMomentum")
    text = sgdf("experiments", "digits")
    (place / "copy.toml").write_text(text)
    assert "0 of 18 runs" in sgdf("run", "copy.toml", "--dry-run", "--set", "train.epochs=1")


@pytest.mark.parametrize("name", bundled_experiments())
def test_runs_are_counted_without_building_them(name):
    assert count_runs(load_document(name)) == len(read(load_document(name), build=False).runs)


def test_searches_and_probes_make_no_more_runs():
    document = load_document("digits")
    (first, *others) = document["optimizer"]
    document["optimizer"] = [{**first, "search": {"lr": [0.1, 0.2]}}, *others]
    document["probe"] = [{"name": "a", "every": [1]}, {"name": "b"}]
    assert count_runs(document) == 18


@pytest.mark.parametrize(
    "command",
    [
        *("quickstart", "cost", "run", "tune", "status", "report"),
        *("tasks", "optimizers", "experiments"),
    ],
)
def test_help_has_a_sentence_for_everything(command):
    help_text = sgdf(command, "--help")
    options = re.findall(r"^│ \*? {0,5}(--[\w-]+|-\w|\w+)(.*)", help_text, re.M)
    assert options
    assert all(re.search(r"[a-z]{3,}", rest) for _, rest in options)


def test_every_key_is_in_the_reference():
    page = next((ROOT / "docs").rglob("bench.md")).read_text()
    for field in dataclasses.fields(Training):
        shown = str(field.default).lower() if field.default is False else str(field.default)
        shown = f'`"{shown}"`' if isinstance(field.default, str) else shown
        assert f"| `{field.name}` | {shown} |" in page
    for field in dataclasses.fields(Schedule):
        if field.metadata:
            assert f"`schedule.{field.name}`" in page
    for key in ("name", "about", "seed", "protocol", "[task]", "[optimizer]", "[schedule]"):
        assert f"| `{key}` |" in page


def test_the_options_of_a_task_are_explained_where_its_constructor_is(place):
    """Not those of a base class whose constructor it calls with others."""
    assert "train_images: how many" in sgdf("tasks", "cifar10")
    assert "Args:" not in sgdf("tasks", "declaring_tasks:LossOnly")
    (place / "blobs.py").write_text(
        "from sgdf.bench.tasks import Supervised\n"
        "class Blobs(Supervised):\n"
        '    """Blobs."""\n'
        "    def __init__(self, count: int = 3) -> None: ...\n"
    )
    assert "Args:" not in sgdf("tasks", "blobs:Blobs")
