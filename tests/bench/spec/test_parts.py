"""``[[part]]``: several grids in one experiment."""

from __future__ import annotations

import pytest

from sgdf.bench.errors import SpecError
from sgdf.bench.spec.document import apply_changes, load_document, parts_of
from sgdf.bench.spec.read import check_names, load, read

TEXT = """
seed = [0, 1]

[train]
epochs = 3
batch_size = 8

[schedule]
name = "CosineAnnealingLR"

[[part]]

[part.task]
name = "logistic"

[[part.optimizer]]
name = "sgdf"
lr = [0.1, 0.2]

[[part]]

[part.task]
name = "digits-mlp"

[part.train]
batch_size = 32

[[part.optimizer]]
name = ["sgd", "adam"]
lr = 0.5
"""


@pytest.fixture
def path(tmp_path):
    written = tmp_path / "several.toml"
    written.write_text(TEXT)
    return written


def test_each_part_is_a_grid_of_its_own_and_inherits_the_rest(path):
    runs = load(path).runs
    got = {
        (run.task.name, run.optimizer.name, run.optimizer.options["lr"], run.train.batch_size)
        for run in runs
    }
    assert got == {
        ("logistic", "sgdf", 0.1, 8),
        ("logistic", "sgdf", 0.2, 8),
        ("digits-mlp", "sgd", 0.5, 32),
        ("digits-mlp", "adam", 0.5, 32),
    }
    assert len(runs) == 8, "each with two seeds"
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4, "a part of the work compares all"
    assert {(run.train.epochs, run.schedule.name) for run in runs} == {(3, "CosineAnnealingLR")}


def test_a_run_has_the_key_that_it_has_without_parts(path, tmp_path):
    alone = tmp_path / "alone.toml"
    alone.write_text(
        'seed = 1\n[train]\nepochs = 3\nbatch_size = 32\n[schedule]\nname = "CosineAnnealingLR"\n'
        '[task]\nname = "digits-mlp"\n[optimizer]\nname = "adam"\nlr = 0.5\n'
    )
    assert load(alone).runs[0].key in {run.key for run in load(path).runs}


def test_a_change_prevails_in_all_parts(path):
    changed = load(path, {"train.batch_size": 5, "optimizer.lr": 0.7, "seed": 4, "name": "other"})
    assert changed.name == "other"
    assert {run.train.batch_size for run in changed.runs} == {5}
    assert {run.optimizer.options["lr"] for run in changed.runs} == {0.7}
    assert {run.seed for run in changed.runs} == {4}
    assert {run.train.epochs for run in changed.runs} == {3}
    steps = load(path, {"train.steps": 9})
    assert {run.train.steps for run in steps.runs} == {9}, "instead of the epochs"


def test_a_change_leaves_the_document_as_it_was(path):
    document = load_document(path)
    apply_changes(document, {"train.batch_size": 5, "name": "other"})
    assert document == load_document(path)


def test_a_child_can_replace_the_parts(path, tmp_path):
    child = tmp_path / "child.toml"
    child.write_text(
        'extends = "several.toml"\n[[part]]\n[part.task]\nname = "logistic"\n'
        '[part.optimizer]\nname = "adam"\n'
    )
    runs = load(child).runs
    assert {(run.task.name, run.optimizer.name) for run in runs} == {("logistic", "adam")}
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ([], r"part = \[\]: stands for no run"),
        ([3], r"part = 3: must be a table"),
        ([{"about": "a"}], r"part.about = 'a': is not for a part"),
        ([{"part": [{}]}], r"part.part = .*: is not for a part"),
        ([{"search": {}}], r"part.search = \{\}: is not for a part"),
        ([{"trian": {}}], r"trian = \{\}: no such key.*mean train\?"),
        ([{"train": {"epochs": []}}], r"train.epochs = \[\]: stands for no run"),
        ([{"optimizer": {"name": "sgd", "lr": [1, 1]}}], r"optimizer.lr = .* twice"),
    ],
)
def test_mistakes_are_named(part, words):
    document = {"task": {"name": "logistic"}, "optimizer": {"name": "sgd"}, "part": part}
    with pytest.raises(SpecError, match=words):
        read(document)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"optimizer": {"name": "sgfd"}}, r"^part 2: optimizer 'sgfd'"),
        ({"optimizer": {"name": "sgd", "lr": "a"}}, r"^part 2: optimizer 'sgd'.*lr"),
        ({"seed": [1, 1]}, r"^part 2: seed = .* twice"),
        ({"seed": -1}, r"^part 2: seed = -1"),
        ({"name": "a"}, r"^part 2: part.name = 'a': is not for a part"),
        ({"train": 3}, r"^part 2: train"),
    ],
)
def test_a_mistake_in_a_part_names_the_part(part, words):
    document = {"task": {"name": "logistic"}, "optimizer": {"name": "sgd"}, "part": [{}, part]}
    with pytest.raises(SpecError, match=words):
        read(apply_changes(document, {}))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"optimizer": {"name": "nonsense"}}, "optimizer 'nonsense'"),
        ({"task": {"name": "nonsense"}}, "task 'nonsense'"),
        ({"train": {"batch_size": "a"}}, "train.batch_size = 'a'"),
        ({"protocol": "none"}, "protocol = 'none'"),
        ({"seed": [-1]}, "seed = -1"),
    ],
)
@pytest.mark.parametrize("reader", [read, check_names])
def test_what_every_part_replaces_is_checked_too(line, words, reader):
    part = {
        "seed": 0,
        "protocol": "validation",
        "task": {"name": "logistic"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "train": {"batch_size": 8},
    }
    with pytest.raises(SpecError, match=words):
        reader(apply_changes({**line, "part": [part]}, {"train.epochs": 1}))


@pytest.mark.parametrize("key", ["part", "part.seed"])
@pytest.mark.parametrize("document", [{"part": [{}]}, {"seed": 1}])
def test_a_part_cannot_be_changed(document, key):
    with pytest.raises(SpecError, match=f"{key} = 3: a part cannot be changed; --set changes"):
        apply_changes(document, {key: 3})


def test_names_are_checked_in_every_part_without_torch(path):
    document = load_document(path)
    check_names(document)
    document["part"][1]["optimizer"][0]["name"] = "sgfd"
    with pytest.raises(SpecError, match="sgfd"):
        check_names(document)


def test_a_document_without_parts_is_its_only_part():
    document = {"seed": 1}
    assert list(parts_of(document).values()) == [document]
