"""Probes: they see the gradients between backward and step, and change nothing."""

import random
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
        ({"name": "nowhere:Probe"}, "cannot import this probe"),
        ({"name": "gradient-norm", "scale": 2}, "scale = 2: no such option"),
        ("gradient-norm", r"must be a table, \[\[probe\]\]"),
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
