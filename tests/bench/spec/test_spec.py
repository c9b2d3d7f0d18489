"""Experiments as TOML: the grid, the hash, and what is said of mistakes."""

import dataclasses
import tomllib

import pytest
import tomli_w

from sgdf.bench.errors import SpecError
from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, read
from sgdf.bench.store.identity import run_key

SPEC = """
name = "mine"
seed = 0

[task]
name = "digits-mlp"

[train]
epochs = 2

[[optimizer]]
name = "sgdf"
lr = 0.5

[[optimizer]]
name = "adam"
"""


def parsed(text=SPEC, **changes):
    return {**tomllib.loads(text), **changes}


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_lists_are_the_grid():
    experiment = read(
        parsed(
            seed=[3, 1],
            task=[{"name": "digits-mlp", "hidden": [16, 32]}, {"name": "digits-cnn"}],
            optimizer=[{"name": ["sgd", "sgdf"], "lr": [0.1, 0.2]}, {"name": "adam"}],
        )
    )
    assert len(experiment.runs) == 2 * (2 + 1) * (2 * 2 + 1)
    assert [run.seed for run in experiment.runs] == [1] * 15 + [3] * 15
    lrs = {r.optimizer.options["lr"] for r in experiment.runs if r.optimizer.name == "sgd"}
    assert lrs == {0.1, 0.2}


def test_a_list_in_a_list_is_a_value():
    runs = read(parsed(optimizer={"name": "adam", "betas": [[0.8, 0.9], [0.5, 0.6]]})).runs
    assert [run.optimizer.options["betas"] for run in runs] == [(0.8, 0.9), (0.5, 0.6)]


def test_equal_runs_are_one():
    tables = [{"name": "sgd", "lr": [1, 0.5]}, {"name": "sgd", "lr": 1.0}]
    assert len(read(parsed(optimizer=tables)).runs) == 2


def test_everything_is_resolved():
    run = read(parsed()).runs[1]
    assert run.optimizer.options["betas"] == (0.9, 0.999)
    assert run.task.options == {"hidden": 64, "layers": 2}
    assert run.train.clip_norm == float("inf")


def test_settings_of_one_optimizer():
    optimizers = [{"name": "sgdf", "train": {"clip_norm": 0.5}}, {"name": "sgd"}]
    sgdf, sgd = read(parsed(optimizer=optimizers)).runs
    assert (sgdf.train.clip_norm, sgd.train.clip_norm) == (0.5, float("inf"))
    assert "train" not in sgdf.optimizer.options


def leaves(table, path=()):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield *path, key


def test_the_key_depends_on_everything():
    table = resolve_machine(read(parsed()), threads=1).runs[0].as_table()
    paths = list(leaves(table))
    assert ("train", "threads") in paths
    assert ("train", "precision") in paths
    keys = {run_key(table)}
    for *parents, last in paths:
        changed = tomllib.loads(tomli_w.dumps(table))
        inner = changed
        for parent in parents:
            inner = inner[parent]
        inner[last] = "something else"
        keys.add(run_key(changed))
    assert len(keys) == len(paths) + 1


@pytest.mark.parametrize("name", bundled_experiments())
def test_a_run_is_an_experiment_of_itself(name, tmp_path):
    runs = resolve_machine(load(name), threads=1).runs
    for run in runs[:: 1 + len(runs) // 300]:  # of thousands, a part is enough
        path = written(tmp_path, tomli_w.dumps(run.as_table()))
        (again,) = resolve_machine(load(path), threads=5).runs
        assert again == run
        assert again.key == run.key
        assert run_key(tomllib.loads(path.read_text())) == run.key


def test_the_hash_stays_the_same_over_time():
    # If this fails, every store that people have is orphaned: that needs a reason.
    table = {"seed": 0, "train": {"clip_norm": float("inf"), "lr": 1e-3}, "a": [[0.9, 1]]}
    assert run_key(table) == run_key(dict(reversed(table.items()))) == "c8d27d6ee5620c64"


@pytest.mark.parametrize("name", bundled_experiments())
def test_bundled_experiments_say_what_they_are(name):
    experiment = load(name)
    assert experiment.about
    assert experiment.name == name
    assert len({run.key for run in experiment.runs}) == len(experiment.runs) > 1


WRONG = {
    "seed = -1": ["seed = -1", "whole number from 0"],
    "seed = []": ["seed = []", "stands for no run"],
    '[optimizer]\nname = "sgd"\nlr = []': ["optimizer.lr = []", "stands for no run"],
    "seed = [0, 1, 0]": ["seed = [0, 1, 0]", "has 0 twice"],
    '[optimizer]\nname = "adam"\nbetas = [[0.9, 0.9], [0.9, 0.9]]': ["has [0.9, 0.9] twice"],
    '[[task]]\nname = "digits-mlp"\n[[task]]\nname = "digits-mlp"': ["'digits-mlp'} twice"],
    "seed = true": ["seed = True", "whole number"],
    'protocol = "best"': ["protocol = 'best'", "validation, paper"],
    "sede = 1": ["sede = 1", "no such key", "did you mean seed?"],
    "[train]\nepochs = 0": ["train.epochs = 0", "at least 1"],
    "[train]\nepochs = 1.5": ["train.epochs = 1.5", "whole number"],
    "[train]\nepoch = 1": ["train.epoch = 1", "no such key", "did you mean epochs?"],
    "[train]\nclip_norm = -1": ["train.clip_norm = -1.0", "above 0"],
    "[train]\nclip_norm = nan": ["train.clip_norm = nan", "must be a string, a number"],
    "[train]\nema_decay = 1": ["train.ema_decay = 1.0", "below 1"],
    '[train]\nprecision = "double"': ["train.precision = 'double'", "bfloat16"],
    '[train]\nprecision = "pure-bfloat16"\nema_decay = 0.9': [
        "train.ema_decay = 0.9",
        'precision = "bfloat16"',
    ],
    '[train]\ndevice = "gpu"': ["train.device = 'gpu'", "device of torch's"],
    "[train]\ncompile = 1": ["train.compile = 1", "true or false"],
    "train = 3": ["train = 3", "must be a table"],
    '[task]\nname = "digit-mlp"': ["task 'digit-mlp'", "no such task", "did you mean digits-mlp?"],
    '[task]\nname = "digits-mlp"\nhiden = 3': ["hiden = 3", "no such option", "hidden"],
    '[task]\nname = "digits-mlp"\nhidden = "wide"': ["hidden = 'wide'", "must be a whole number"],
    '[task]\nname = "../../etc/passwd:x"': ["../../etc/passwd:x", "no such task"],
    '[task]\nname = "nowhere:Task"': ["nowhere:Task", "cannot import", "nowhere"],
    '[task]\nname = "os:system"\ncommand = "true"': ["os:system", "a training function takes"],
    '[task]\nname = "collections:Counter"': ["collections:Counter", "no subclass of"],
    "[task]\nhidden = 3": ["task.name: missing", "given: hidden"],
    '[optimizer]\nname = "sgdff"': ["optimizer 'sgdff'", "no such", "did you mean sgdf?"],
    '[optimizer]\nname = "sgdf"\nlr = -1': ["optimizer 'sgdf'", "lr = -1", "Invalid learning rate"],
    '[optimizer]\nname = "sgdf"\nlr = "1"': ["lr = '1'", "must be a number"],
    '[optimizer]\nname = "sgdf"\nlr = true': ["lr = True", "must be a number"],
    '[optimizer]\nname = "sgdf"\nlr = nan': ["optimizer.lr = nan", "must be a string, a number"],
    '[optimizer]\nname = "sgdf"\nfoo = 2020-01-01': ["optimizer.foo = 2020-01-01", "a number"],
    '[optimizer]\nname = "torch.optim:LBFGS"': [
        "torch.optim:LBFGS",
        "needs a closure, which the bench does not give",
    ],
    '[optimizer]\nname = "sgd-ema"\nbeta = 0.9\nlr = -1': ["lr = -1: Invalid learning rate"],
    '[task]\nname = "digits-mlp"\nhidden = 64.5': ["hidden = 64.5", "must be a whole number"],
    '[task]\nname = "digits-mlp"\nhidden = true': ["hidden = True", "must be a whole number"],
    '[optimizer]\nname = "sgdf"\nmomentum = 0.9': ["'sgdf'", "momentum=0.9 write lr"],
    '[optimizer]\nname = "adam"\nbetas = [0.9, 0.99]': ["betas = 0.9", "betas = [[0.9, 0.999]]"],
    '[optimizer]\nname = "adam"\nlr = 1\nbetas = [[0.9, 1.5]]': [
        "betas = [0.9, 1.5]",
        "Invalid beta",
    ],
    '[optimizer]\nname = "torch.optim:Nothing"': ["torch.optim:Nothing", "cannot import"],
    '[optimizer]\nname = "torch:__version__"': ["torch:__version__", "not a class or function"],
    '[optimizer]\nname = "builtins:dict"': ["builtins:dict", "no signature"],
    '[optimizer]\nname = "json:dumps"': ["json:dumps", "not JSON serializable"],
    '[optimizer]\nname = "builtins:repr"': ["builtins:repr", "not an Optimizer"],
    '[schedule]\nname = "cosine"': ["schedule 'cosine'", "CosineAnnealingLR"],
    '[schedule]\nname = "StepLR"': ["schedule 'StepLR'", "step_size", "missing"],
    '[schedule]\nname = "StepLR"\nstep_size = 0.5\nwarmup = -1': [
        "schedule.warmup = -1",
        "at least 0",
    ],
    '[schedule]\nname = "ConstantLR"\nwarmup = 2': ["warmup = 2", "less than the whole run, 2"],
    '[schedule]\nname = "ReduceLROnPlateau"\nwarmup = 1': ["warmup = 1", "must be 0"],
    '[schedule]\nname = "ReduceLROnPlateau"\nevery = "step"': ["ReduceLROnPlateau", "every"],
    '[schedule]\nname = "StepLR"\nstep_size = 1\nevery = "year"': [
        "schedule.every = 'year'",
        "step",
    ],
    'name = "../escape"': ["name = '../escape'", "letters"],
    'name = "a/b"': ["name = 'a/b'", "letters"],
    'name = ".."': ["name = '..'", "letters"],
    'name = "a..b"': ["name = 'a..b'", "'..'"],
    "name = 1": ["name = 1", "must be a string"],
    "seed = [": ["not valid TOML", "line"],
}


@pytest.mark.parametrize("lines", WRONG)
def test_mistakes_are_named(lines, tmp_path):
    tables = {
        "task": '[task]\nname = "digits-mlp"\n',
        "optimizer": '[optimizer]\nname = "sgd"\n',
        "train": "[train]\nepochs = 2\n",
    }
    rest = "".join(text for key, text in tables.items() if key not in lines.split("\n")[0])
    text = f"{rest}{lines}\n" if lines.startswith("[") else f"{lines}\n{rest}"
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as error:
        load(path)
    for part in [str(path), *WRONG[lines]]:
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["task", "optimizer"])
def test_missing_tables_are_named(missing):
    document = parsed()
    del document[missing]
    with pytest.raises(SpecError, match=rf"\[{missing}\]: missing"):
        read(document)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(SpecError, match=r"no such file, nor a bundled experiment.*mean digits"):
        load("digitz")
    with pytest.raises(SpecError, match="is a folder; give a TOML file"):
        load(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"binary\.toml: cannot be read"):
        load(binary)


def test_too_large_a_grid_is_refused_before_it_is_made():
    many = list(range(10_000))
    with pytest.raises(SpecError, match="10,000,000,000,000,000 runs; at most 100,000"):
        read(
            parsed(
                seed=many,
                optimizer=[{"name": "sgd", "lr": many, "dampening": many, "momentum": many}],
            )
        )


def test_objects_of_the_user_need_no_registration(tmp_path):
    (tmp_path / "things_of_mine.py").write_text(
        "import torch\n"
        "from sgdf.bench.tasks.digits.task import DigitsMLP\n"
        "class Task(DigitsMLP):\n"
        "    def __init__(self, depth: int = 3):\n"
        "        super().__init__(layers=depth)\n"
        "def slow(params, lr=0.5):\n"
        "    return torch.optim.SGD(params, lr=lr / 100)\n"
    )
    path = written(
        tmp_path,
        '[task]\nname = "things_of_mine:Task"\n[optimizer]\nname = "things_of_mine:slow"\n',
    )
    (run,) = load(path).runs
    assert run.task.options == {"depth": 3}
    assert run.optimizer.options == {"lr": 0.5}


def test_a_module_that_raises_is_named(tmp_path):
    (tmp_path / "broken_thing.py").write_text("1 / 0\n")
    path = written(tmp_path, '[task]\nname = "broken_thing:Task"\n[optimizer]\nname = "sgd"\n')
    with pytest.raises(SpecError, match="importing this task raised ZeroDivisionError"):
        load(path)


def test_changes_reach_every_table(tmp_path):
    path = written(tmp_path, SPEC)
    changes = {
        "train.epochs": 7,
        "seed": [1, 2],
        "optimizer.lr": 0.25,
        "schedule.name": "ConstantLR",
    }
    runs = load(path, changes).runs
    assert len(runs) == 4
    assert {run.train.epochs for run in runs} == {7}
    assert {run.optimizer.options["lr"] for run in runs} == {0.25}
    with pytest.raises(SpecError, match=r"mine\.toml: train\.epochs = 0"):
        load(path, {"train.epochs": 0})
    with pytest.raises(SpecError, match="seed is not a table"):
        load(path, {"seed.x": 0})


def test_what_the_machine_leaves_open_is_settled():
    experiment = resolve_machine(read(parsed()), threads=3, processes=1)
    train = experiment.runs[0].train
    assert (train.threads, train.processes) == (3, 1)
    assert train.device != "auto"
    fixed = read(parsed(train={"threads": 2}))
    assert resolve_machine(fixed, threads=3).runs[0].train.threads == 2
    with pytest.raises(SpecError, match=r"train\.processes = 2: there are 1"):
        resolve_machine(read(parsed(train={"processes": 2})), threads=1)
    with pytest.raises(SpecError, match=r"train\.device = 'xpu': not available"):
        resolve_machine(read(parsed(train={"device": "xpu"})), threads=1)


def test_a_warm_up_needs_no_schedule():
    (run,) = read(parsed(optimizer={"name": "sgd"}, schedule={"warmup": 1})).runs
    assert run.schedule.name == "ConstantLR"
    assert run.schedule.options["factor"] == 1.0


def test_the_defaults_of_schedules_are_those_of_torch():
    (run,) = read(parsed(optimizer={"name": "sgd"}, schedule={"name": "LinearLR"})).runs
    assert run.schedule.options["total_iters"] == 5
    (run,) = read(parsed(optimizer={"name": "sgd"}, schedule={"name": "CosineAnnealingLR"})).runs
    assert "T_max" not in run.schedule.options


def test_lists_and_tables_of_a_task_survive(tmp_path):
    (tmp_path / "deep_task.py").write_text(
        "from sgdf.bench.tasks.digits.task import DigitsMLP\n"
        "class Deep(DigitsMLP):\n"
        "    def __init__(self, shape: dict = None, sizes: list = None):\n"
        "        super().__init__()\n"
    )
    table = '[task]\nname = "deep_task:Deep"\nsizes = [[1, 2]]\n[task.shape]\na = [[3, 4]]\n'
    (run,) = load(written(tmp_path, f'{table}[optimizer]\nname = "sgd"\n')).runs
    assert run.task.options == {"sizes": [1, 2], "shape": {"a": [3, 4]}}
    (again,) = read(run.as_table()).runs
    assert again.key == run.key


def test_whole_numbers_for_floats_are_the_same_run():
    runs = [read(parsed(optimizer={"name": "sgd-ema", "lr": lr})).runs[0] for lr in (1, 1.0)]
    assert runs[0].key == runs[1].key


def test_a_changed_setting_holds_for_optimizers_with_one_of_their_own(tmp_path):
    path = written(tmp_path, f"{SPEC}\n[optimizer.train]\nepochs = 9\nbatch_size = 7\n")
    assert [run.train.epochs for run in load(path).runs] == [2, 9]
    runs = load(path, {"train.epochs": 1}).runs
    assert [(run.train.epochs, run.train.batch_size) for run in runs] == [(1, 64), (1, 7)]


def test_batches_must_divide_evenly():
    uneven = read(parsed(train={"batch_size": 10, "accumulate": 4}))
    with pytest.raises(SpecError, match=r"train\.batch_size = 10: must be a multiple of 4"):
        resolve_machine(uneven, threads=1)
    with pytest.raises(SpecError, match="each process needs its own"):
        resolve_machine(read(parsed(train={"device": "cpu:0"})), threads=1, processes=2)


def test_a_name_that_comes_from_the_file_is_told_to_be_set(tmp_path):
    path = tmp_path / "my exp.toml"
    path.write_text(SPEC.replace('name = "mine"', "", 1))
    with pytest.raises(SpecError, match="unless the file says name"):
        load(path)


def test_specs_are_frozen():
    run = read(parsed()).runs[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 5
