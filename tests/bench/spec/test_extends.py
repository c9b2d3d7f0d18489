"""An experiment that extends another, and names that are checked without torch."""

import subprocess
import sys

import pytest

from sgdf.bench.catalog.schedules import SCHEDULERS
from sgdf.bench.errors import SpecError
from sgdf.bench.spec.document import apply_changes, load_document
from sgdf.bench.spec.read import load


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return put


BASE = """
about = "the base"
seed = [0, 1]
[task]
name = "digits-mlp"
hidden = 8
[train]
epochs = 3
batch_size = 32
[schedule]
name = "StepLR"
step_size = 2
[[optimizer]]
name = "sgd"
lr = 0.1
[[optimizer]]
name = "adam"
"""


def test_what_a_file_does_not_say_it_takes_from_the_other(write):
    write("base.toml", BASE)
    path = write("mine.toml", 'extends = "base.toml"\n[train]\nepochs = 5\n')
    document = load_document(path)
    assert document["train"] == {"epochs": 5, "batch_size": 32}
    assert document["seed"] == [0, 1]
    assert len(document["optimizer"]) == 2
    assert document["name"] == "mine"
    assert "about" not in document
    assert "extends" not in document
    assert {run.train.epochs for run in load(path).runs} == {5}


def test_optimizers_and_tables_that_name_another_object_replace(write):
    write("base.toml", BASE)
    path = write(
        "mine.toml",
        'extends = "base.toml"\n[task]\nname = "digits-cnn"\n[schedule]\nname = "ConstantLR"\n'
        '[optimizer]\nname = "lion"\n',
    )
    document = load_document(path)
    assert document["task"] == {"name": "digits-cnn"}
    assert document["schedule"] == {"name": "ConstantLR"}
    assert document["optimizer"] == {"name": "lion"}


def test_an_optimizer_of_the_same_name_inherits_nothing(write):
    write("one.toml", '[task]\nname = "digits-mlp"\n[optimizer]\nname = "sgd"\nlr = 0.1\n')
    path = write("mine.toml", 'extends = "one.toml"\n[optimizer]\nname = "sgd"\nnesterov = true\n')
    assert load_document(path)["optimizer"] == {"name": "sgd", "nesterov": True}


def test_files_can_extend_through_several(write):
    write("base.toml", BASE)
    write("middle.toml", 'extends = "base.toml"\n[task]\nhidden = 9\n')
    document = load_document(write("mine.toml", 'extends = "middle.toml"\nseed = 4\n'))
    assert (document["task"]["hidden"], document["seed"]) == (9, 4)


def test_a_length_takes_the_place_of_the_other_kind(write):
    write("base.toml", BASE)
    document = load_document(write("mine.toml", 'extends = "base.toml"\n[train]\nsteps = 5\n'))
    assert document["train"] == {"steps": 5, "batch_size": 32}


def test_files_may_lie_in_several_folders(write, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "there.toml").write_text('extends = "../mine.toml"\n')
    path = write("mine.toml", 'extends = "inner/there.toml"\n')
    with pytest.raises(SpecError, match="extends itself"):
        load_document(path)


def test_a_bundled_experiment_can_be_extended_from_anywhere(write):
    document = load_document(write("mine.toml", 'extends = "digits"\nseed = 9\n'))
    assert document["task"] == load_document("digits")["task"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "digts"', "extends = 'digts': no such file.*did you mean digits"),
        ("extends = 3", "extends = 3: must be the name"),
        ('extends = "mine.toml"', "extends itself"),
        ('extends = "broken.toml"', "extends = 'broken.toml': is not valid TOML"),
    ],
)
def test_mistakes_are_named(text, message, write):
    write("broken.toml", "x = [")
    with pytest.raises(SpecError, match=message):
        load_document(write("mine.toml", text))


def test_a_length_given_on_the_command_line_replaces_the_files():
    document = load_document("digits")
    stepped = apply_changes(document, {"train.steps": 10})
    assert "epochs" not in stepped["train"]
    assert "steps" not in apply_changes(stepped, {"train.epochs": 2})["train"]


def test_a_changed_length_holds_for_a_grid_and_for_optimizers_with_their_own():
    several = {"train": [{"epochs": 3}, {"epochs": 4, "batch_size": 8}], "optimizer": {}}
    changed = apply_changes(several, {"train.steps": 9})
    assert changed["train"] == [{"steps": 9}, {"steps": 9, "batch_size": 8}]
    own = {"train": {"epochs": 3}, "optimizer": [{"name": "sgd", "train": {"epochs": 5}}]}
    assert apply_changes(own, {"train.steps": 9})["optimizer"] == [{"name": "sgd", "train": {}}]
    with pytest.raises(SpecError, match="cannot be set, train is not a table"):
        apply_changes({"train": 3}, {"train.steps": 9})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[task]\nname="digits-mlp"\n[optimizer]\nname="sgdff"', "did you mean sgdf?"),
        ('[task]\nname="digit-mlp"\n[optimizer]\nname="sgdf"', "did you mean digits-mlp?"),
        (
            '[task]\nname="digits-mlp"\n[optimizer]\nname="sgdf"\n[schedule]\nname="StpLR"',
            "StepLR?",
        ),
        ('[task]\nname="digits-mlp"\n[optimizer]\nname="sgdf"\n[train]\nepoch=3', "epochs?"),
        ('[tasks]\nname="digits-mlp"\n[optimizer]\nname="sgdf"', "did you mean task?"),
    ],
)
def test_names_and_keys_are_checked_before_torch_is_imported(text, message, write):
    program = (
        "import sys\n"
        "from sgdf.bench.errors import SpecError\n"
        "from sgdf.bench.spec.read import load\n"
        "try:\n"
        "    load(sys.argv[1])\n"
        "except SpecError as error:\n"
        "    print('torch' in sys.modules, error)\n"
    )
    command = [sys.executable, "-c", program, write("mine.toml", text)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith("False "), result.stdout + result.stderr
    assert message in result.stdout


def test_schedulers_are_torchs():
    """The names are written down, for they are checked without torch."""
    import inspect

    from torch.optim import lr_scheduler

    composed = {"LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler", "LRScheduler"}
    theirs = {
        name
        for name, value in vars(lr_scheduler).items()
        if inspect.isclass(value) and issubclass(value, lr_scheduler.LRScheduler)
    }
    assert set(SCHEDULERS) == {n for n in theirs - composed if not n.startswith("_")}


def test_a_class_that_is_misspelt_gets_a_hint(write):
    path = write("mine.toml", '[task]\nname="digits-mlp"\n[optimizer]\nname="torch.optim:Adma"')
    with pytest.raises(SpecError, match="did you mean Adam"):
        load(path)
