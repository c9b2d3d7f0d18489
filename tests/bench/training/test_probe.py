"""Probes: they see the gradients between backward and step, and change nothing."""

import random
import time
from typing import ClassVar

import numpy as np
import pytest
import torch

from bench_tasks import equal, essence, run_of
from kept_runs import do
from sgdf.bench.errors import SpecError
from sgdf.bench.jobs.job import read_job
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.spec.read import read
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("publishing_at_once")
NORM = ProbeSpec("gradient-norm", {}, every=2)


class Curious:
    """Draws random numbers, changes modes, and runs the model."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, moment):
        """Do all that a run must not notice."""
        random.random(), np.random.rand(), torch.randn(3)
        moment.task.model.eval()
        moment.task.model(torch.zeros(4, 2))
        return {"step": moment.step, "loss": self.scale}


class Meddler:
    """Changes what it was asked to look at."""

    def __init__(self, what: str = "parameter") -> None:
        self.what = what

    def __call__(self, moment):
        """Change it in place."""
        model = moment.task.model
        if self.what == "parameter":
            next(model.parameters()).mul_(2.0)
        elif self.what == "gradient":
            next(model.parameters()).grad.zero_()
        else:
            for state in moment.optimizers["model"].state.values():
                for value in state.values():
                    value.add_(1.0)


class Witness:
    """Keeps the gradients that it sees."""

    seen: ClassVar[list] = []

    def __call__(self, moment):
        """Keep them."""
        Witness.seen.append(moment.gradients())


def probed(run, store, *probes):
    return do(run, store, probes=probes)


def test_a_probe_sees_the_gradients_of_each_step_it_is_due(store, monkeypatch):
    monkeypatch.setattr(Witness, "seen", [])
    run = run_of(optimizer="sgd-vanilla", train={"epochs": 1, "batch_size": 32, "log_every": 1})
    trainer = Trainer(run, Ranks(), [ProbeSpec(f"{__name__}:Witness", {}, every=1)])
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.fit(lambda trainer: None)
    assert len(Witness.seen) == trainer.step
    rate = 0.1
    moved = {
        name: before[name] - rate * sum(grads[name] for grads in Witness.seen) for name in before
    }
    for name, param in trainer.model.named_parameters():
        torch.testing.assert_close(param.detach(), moved[name], rtol=1e-4, atol=1e-6)


def test_rows_are_kept_in_the_folder_of_the_run(store, run):
    folder, state, _ = probed(run, store, NORM)
    assert state is State.FINISHED
    rows = folder.probe_rows()
    steps = folder.result()["step"]
    assert [row["step"] for row in rows] == list(range(2, steps + 1, 2))
    assert all(row["probe"] == "gradient-norm" and row["norm"] > 0 for row in rows)


def test_a_probed_run_is_the_same_run(tmp_path, run):
    """To the last bit, although the probe draws random numbers and changes modes."""
    plain, watched = Store(tmp_path / "a"), Store(tmp_path / "b")
    do(run, plain)
    probed(run, watched, ProbeSpec(f"{__name__}:Curious", {"scale": 3.0}, every=1), NORM)
    assert equal(essence(plain.folder(run.key)), essence(watched.folder(run.key)))


class Asking:
    """Asks the task for its loss on a batch, as an analysis does."""

    def __call__(self, moment):
        """Return the loss of some batch."""
        batch = next(iter(moment.task.batches(4, torch.Generator().manual_seed(1))))
        return {"loss": float(moment.task.loss(batch)), "step": -1.0}


@pytest.mark.parametrize("task", ["characters", "declaring_tasks:LossOnly"])
def test_a_probe_may_ask_for_the_loss(task, tmp_path):
    """Although a hidden state is carried on by it, or numbers are logged."""
    task = {"name": task, **({"characters": 4000, "hidden": 8} if task == "characters" else {})}
    run = run_of(task, "sgdf", {"epochs": 2, "batch_size": 8, "log_every": 1})
    plain, watched = Store(tmp_path / "a"), Store(tmp_path / "b")
    do(run, plain)
    folder, state, _ = probed(run, watched, ProbeSpec(f"{__name__}:Asking", {}, every=1))
    assert state is State.FINISHED
    assert equal(essence(plain.folder(run.key)), essence(folder))
    assert [row["step"] for row in folder.probe_rows()][:2] == [1, 2]  # the probe's own is ignored


def test_a_row_that_was_cut_short_does_not_spoil_those_after_it(tmp_path, run):
    store = Store(tmp_path)
    do(run, store, stop_after=2, probes=[ProbeSpec("gradient-norm", {}, every=1)])
    folder = store.folder(run.key)
    with (folder.path / "probes.jsonl").open("a") as file:
        file.write('{"probe": "gradient-norm", "st')
    probed(run, store, ProbeSpec("gradient-norm", {}, every=1))
    steps = [row["step"] for row in folder.probe_rows()]
    assert steps == list(range(1, folder.result()["step"] + 1))


def test_a_probe_is_outside_the_key_of_a_run():
    document = {"task": {"name": "bench_tasks:Points"}, "optimizer": {"name": "sgd"}}
    plain = read(document)
    probe = [{"name": "gradient-norm", "every": 3}]
    watched = read({**document, "probe": probe})
    assert [run.key for run in plain.runs] == [run.key for run in watched.runs]
    assert watched.probes == (ProbeSpec("gradient-norm", {}, every=3),)
    assert "probe" not in watched.runs[0].as_table()


def test_probes_reach_the_workers(tmp_path, run):
    plan = Plan((run,), tmp_path, probes=(NORM,))
    assert read_job(plan.as_json()) == plan


@pytest.mark.parametrize("what", ["parameter", "gradient", "state"])
def test_a_probe_that_changes_the_run_is_an_error(what, store):
    run = run_of(optimizer="sgdf")
    meddler = ProbeSpec(f"{__name__}:Meddler", {"what": what}, every=2)
    _, state, line = probed(run, store, meddler)
    assert state is State.FAILED
    assert "changed parameters, buffers, gradients or optimizer state" in line


def test_a_resumed_run_has_each_row_once(tmp_path, run):
    whole, parts = Store(tmp_path / "a"), Store(tmp_path / "b")
    every = ProbeSpec("gradient-norm", {}, every=1)
    probed(run, whole, every)
    do(run, parts, stop_after=2, probes=[every])
    folder = parts.folder(run.key)
    folder.append_probe_rows([{"probe": "gradient-norm", "step": 999, "norm": 0.0}])
    probed(run, parts, every)
    assert folder.probe_rows() == whole.folder(run.key).probe_rows()


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"name": "gradient-nrm"}, "did you mean gradient-norm"),
        ({"name": "gradient-norm", "every": 0}, "probe.every = 0: must be a whole number"),
        ({"every": 3}, "probe.name: missing"),
        ({"name": "gradient-norm", "every_epochs": -1}, "probe.every_epochs = -1: must be a whole"),
        ({"name": "gradient-norm", "every": 3, "every_epochs": 1}, "give one of them"),
        ({"name": "nowhere:Probe"}, "cannot import this probe"),
        ({"name": "gradient-norm", "scale": 2}, "scale = 2: no such option"),
        ("gradient-norm", r"must be a table, \[\[probe\]\]"),
        ({"name": "gain", "betas": [0.9]}, r"probe 'gain': .*expected two numbers: \(0.9,\)"),
        ({"name": "gain", "betas": 0.9}, r"several values at once, as in betas = \[0.9, 0.999\]"),
        ({"name": "estimate", "examples": 0}, "probe 'estimate': examples and batch_size must be"),
    ],
)
def test_mistakes_are_named(probe, message):
    document = {"task": {"name": "bench_tasks:Points"}, "optimizer": {"name": "sgd"}}
    with pytest.raises(SpecError, match=message):
        read({**document, "probe": [probe]})


def test_gradients_are_those_before_the_scaler(monkeypatch):
    """In float16 they are multiplied by a scale, of which a probe sees nothing."""
    norms = {}
    for precision in ("float32", "float16"):
        run = run_of(train={"precision": precision, "epochs": 1})
        trainer = Trainer(run, Ranks(), [ProbeSpec("gradient-norm", {}, every=1)])
        trainer.fit(lambda trainer: None)
        norms[precision] = trainer.probes.rows[0]["norm"]
    assert norms["float16"] == pytest.approx(norms["float32"], rel=0.05)


class Stride:
    """Measures how far the step moves the parameters."""

    def __call__(self, moment):
        """Return a function that measures it after the step."""
        before = [param.clone() for param in moment.task.model.parameters()]
        gradients = moment.gradients().values()

        def measure():
            params = list(moment.task.model.parameters())
            assert all(map(torch.equal, gradients, (param.grad for param in params)))
            moved = [old - new for old, new in zip(before, params, strict=True)]
            return {"ratio": float(moved[0].norm() / params[0].grad.norm())}

        return measure


def test_a_probe_can_measure_right_after_the_step(store):
    run = run_of(optimizer="sgd-vanilla")
    _, state, line = do(run, store, probes=[ProbeSpec(f"{__name__}:Stride", {}, every=5)])
    assert state is State.FINISHED, line
    rows = store.folder(run.key).probe_rows()
    assert [row["step"] for row in rows] == [5, 10]
    assert [row["ratio"] for row in rows] == pytest.approx([0.1, 0.1])  # the learning rate


class Mean:
    """Keeps the running mean of the gradient of the first parameter, over all steps."""

    def __init__(self, weight: float = 0.5, pair: tuple[int, int] = (1, 2)) -> None:
        self.weight, self.mean = weight, torch.zeros(())

    def watch(self, moment):
        """Add a gradient to the mean."""
        self.mean = self.mean.lerp(next(iter(moment.gradients().values())), self.weight)

    def __call__(self, moment):
        """Return the size of the mean."""
        return {"size": float(self.mean.norm())}

    def state(self):
        """Return the mean."""
        return {"mean": self.mean}

    def load_state(self, state):
        """Go on from a mean."""
        self.mean = state["mean"]


MEAN = ProbeSpec(f"{__name__}:Mean", {"weight": 0.5, "pair": (1, 2)}, every=3)


def test_a_probe_that_watches_sees_the_steps_between_its_looks(store, run):
    every = ProbeSpec(MEAN.name, MEAN.options, every=1)
    folder, _, line = probed(run, store, MEAN, every)
    rows = folder.probe_rows()
    looks = [row for row in rows if row["probe"] == MEAN.name]
    assert [row["step"] for row in looks] == [3, 6, 9, 12], line
    sizes = {row["step"]: row["size"] for row in rows if row["probe"] == f"{MEAN.name} 2"}
    assert len(sizes) == 12
    assert [row["size"] for row in looks] == [sizes[row["step"]] for row in looks]


def without_probes(found):
    result, rows, kept, state = found
    return result, rows, kept, {key: value for key, value in state.items() if key != "probes"}


def test_a_resumed_probe_goes_on_from_its_state(tmp_path, run):
    plain, whole, parts = (Store(tmp_path / name) for name in "abc")
    do(run, plain)
    probed(run, whole, MEAN)
    folder, state, _ = do(run, parts, stop_after=5, probes=[MEAN])
    assert state is State.PAUSED
    as_a_worker_gets_it = read_job(Plan((run,), tmp_path, probes=(MEAN,)).as_json()).probes
    probed(run, parts, *as_a_worker_gets_it)
    assert folder.probe_rows() == whole.folder(run.key).probe_rows()
    assert all(row["size"] > 0.0 for row in folder.probe_rows())
    found = [without_probes(essence(store.folder(run.key))) for store in (plain, whole, parts)]
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])


@pytest.mark.parametrize(
    "others",
    [
        (),
        (NORM,),
        (ProbeSpec(MEAN.name, {"weight": 0.25, "pair": (1, 2)}, every=3),),
        (NORM, MEAN),
    ],
)
def test_a_run_resumes_with_other_probes(others, tmp_path, run):
    plain, parts = Store(tmp_path / "a"), Store(tmp_path / "b")
    do(run, plain)
    do(run, parts, stop_after=5, probes=[MEAN])
    folder, state, line = probed(run, parts, *others)
    assert state is State.FINISHED, line
    assert not folder.notices
    found = [without_probes(essence(store.folder(run.key))) for store in (plain, parts)]
    assert equal(*found)


def test_a_state_that_does_not_fit_its_probe_is_left_out(tmp_path, run, monkeypatch):
    plain, parts = Store(tmp_path / "a"), Store(tmp_path / "b")
    do(run, plain)
    do(run, parts, stop_after=5, probes=[MEAN])
    monkeypatch.setattr(Mean, "load_state", lambda self, state: state["another name"])
    folder, state, line = probed(run, parts, MEAN)
    assert state is State.FINISHED, line
    (notice,) = folder.notices
    assert f"the state of its probe '{MEAN.name}' does not fit (KeyError: 'another name')" in notice
    assert not list(folder.path.glob("*.damaged"))
    assert equal(*(without_probes(essence(s.folder(run.key))) for s in (plain, parts)))


class Broken:
    """Cannot look."""

    def __call__(self, moment):
        """Raise."""
        raise IndexError("no such layer")


def test_a_failure_names_the_probe_that_raised(store, run):
    name = f"{__name__}:Broken"
    folder, state, _ = probed(run, store, ProbeSpec(name, {}, every=2))
    assert state is State.FAILED
    failure = folder.failure()
    assert failure.startswith(f"RuntimeError: the probe '{name}': IndexError: no such layer")
    assert "in __call__" in failure


class Wordy:
    """Returns what is no table of numbers, before the step or after it."""

    def __init__(self, after: bool = False) -> None:
        self.after = after

    def __call__(self, moment):
        """Return a text where a number should be."""
        numbers = {"loss": "low"}
        return (lambda: numbers) if self.after else numbers


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_names_the_probe_that_returned_no_numbers(after, store, run):
    name = f"{__name__}:Wordy"
    folder, state, _ = probed(run, store, ProbeSpec(name, {"after": after}, every=2))
    assert state is State.FAILED
    failure = folder.failure()
    assert failure.startswith(f"RuntimeError: the probe '{name}': ValueError: could not convert")


class Largest:
    """Keeps the largest norm, from the sixth step on as a number of NumPy's."""

    largest = 0.0

    def __call__(self, moment):
        """Compare the gradient of this step."""
        if moment.step > 5:
            self.largest = np.maximum(self.largest, float(moment.step))

    def state(self):
        """Return the largest."""
        return {"seen": [{"largest": self.largest}]}

    def load_state(self, state):
        """Continue."""


def test_a_state_that_could_not_be_loaded_again_is_an_error_at_once(store, run):
    """A checkpoint that has it could not be loaded either, and the run would start again."""
    name = f"{__name__}:Largest"
    folder, state, line = do(run, store, every=0.0, probes=[ProbeSpec(name, {}, every=1)])
    assert state is State.FAILED, line
    assert f"the probe '{name}': TypeError: its state has a float64" in folder.failure()
    assert folder.saved() == 5
    assert do(run, store)[1] is State.FINISHED
    assert not list(folder.path.glob("*.damaged"))


class Slow:
    """Takes its time."""

    def __call__(self, moment):
        """Wait, before the step and after it."""
        time.sleep(0.1)
        return lambda: time.sleep(0.1)


def test_the_time_of_probes_is_not_that_of_training(store, run):
    folder, _, _ = probed(run, store, ProbeSpec(f"{__name__}:Slow", {}, every=4))
    seconds = folder.result()["seconds"]
    assert seconds["evaluation"] >= 0.6
    assert seconds["step"] < 0.6


def test_a_probe_can_look_at_the_first_step_of_some_epochs(store):
    run = run_of(train={"epochs": 5, "batch_size": 40})
    folder, _, _ = do(run, store, probes=[ProbeSpec("gradient-norm", {}, every_epochs=2)])
    assert [row["step"] for row in folder.probe_rows()] == [1, 7, 13]
