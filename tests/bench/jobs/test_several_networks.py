"""Several networks that two processes train together, each with an optimizer of its own."""

import os
import random
import signal
import threading
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist

from bench_tasks import equal, essence, run_of, trained
from grids import (
    Diary,
    descendants,
    experiment,
    has_rank,
    needs_proc,
    plan_of,
    under_torchrun,
    wait_for,
)
from locations import SUPPORT
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training import checkpoint
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer


@pytest.fixture(autouse=True)
def _processes_find_the_tasks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


def grid(tmp_path, task, epochs=6, **train):
    """Write a grid of one run of a task; an epoch has four steps."""
    train = {"epochs": epochs, "batch_size": 16, "threads": 1, "log_every": 1, **train}
    optimizer = {"name": "adam", "lr": 0.01}
    task = {"name": task}
    return experiment(tmp_path, task=task, optimizer=optimizer, train=train, seeds=(0,))


def shared(path, store, *options):
    """Train in two processes, and return the folder of the run."""
    output, _ = (process := under_torchrun(path, store, *options)).communicate(timeout=240)
    assert process.returncode == 0, output
    (folder,) = Store(store).folders()
    return folder


def test_two_processes_come_to_the_weights_of_one(tmp_path):
    """With clipping and a double backward pass; to rounding."""
    path = grid(tmp_path, "evaluating_tasks:QuietPair", clip_norm=0.5)
    state = checkpoint.load(shared(path, tmp_path / "store"))
    (run,) = resolve_machine(load(path), threads=1).runs
    alone = trained(run)
    first, second = (process["task"]["weights"] for process in state["processes"])
    assert equal(first, second)
    start = Trainer(run, Ranks()).model.state_dict()
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(state["model"][name], value, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(start[name], value, atol=1e-2)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("task", ["bench_tasks:Pair", "evaluating_tasks:NormedPair"])
def test_two_processes_that_are_killed_resume_bit_by_bit(task, tmp_path):
    """With buffers that each process has of its own, and that training depends on."""
    path, chance = grid(tmp_path, task, epochs=400, ema_decay=0.9), random.Random(0)
    whole = shared(path, tmp_path / "whole")
    store = tmp_path / "parts"
    for number in range(2):
        before = set(store.glob("runs/*/*.pt"))
        process = under_torchrun(path, store, "--checkpoint-every", "0.1")
        wait_for(partial(newer, store, before))
        time.sleep(chance.uniform(0.0, 0.3))
        ranks = sorted(pid for pid in descendants(process.pid) if has_rank(pid))
        os.kill(ranks[number], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        (folder,) = Store(store).folders()
        assert folder.progress() is State.PAUSED, output
    assert equal(essence(shared(path, store)), essence(whole))


def newer(store, before):
    return set(store.glob("runs/*/*.pt")) - before


# In this process, as one of two


class Other:
    """Stands for another process: what it adds to a sum, and what it is sent."""

    def __init__(self, monkeypatch, *gradients):
        self.gradients, self.sums, self.sent = gradients, 0, []
        monkeypatch.setattr(dist, "all_reduce", self.add)
        monkeypatch.setattr(dist, "broadcast", lambda tensor, src: self.sent.append(tensor))

    def add(self, flat):
        """Add the gradients of the other process, and which of them it has."""
        parts = [g if g is not None else torch.zeros(2) for g in self.gradients]
        flat += torch.cat([*parts, torch.tensor([float(g is not None) for g in self.gradients])])
        self.sums += 1


def two_ranks():
    ranks = Ranks(alone=True)
    ranks.count = 2
    return ranks


def params(*gradients):
    found = [torch.nn.Parameter(torch.zeros(2)) for _ in gradients]
    for param, gradient in zip(found, gradients, strict=True):
        param.grad = gradient
    return found


def test_gradients_are_averaged_in_one_sum(monkeypatch):
    other = Other(monkeypatch, torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0]))
    found = params(torch.tensor([3.0, 4.0]), torch.tensor([7.0, 8.0]))
    two_ranks().average_gradients(found)
    assert [param.grad.tolist() for param in found] == [[2.0, 3.0], [6.0, 7.0]]
    assert other.sums == 1


def test_a_gradient_that_one_process_lacks_is_half_the_other(monkeypatch):
    Other(monkeypatch, torch.tensor([1.0, 2.0]), None, None, torch.zeros(2))
    found = params(None, torch.tensor([3.0, 4.0]), None, None)
    two_ranks().average_gradients(found)
    assert [param.grad if param.grad is None else param.grad.tolist() for param in found] == [
        [0.5, 1.0], [1.5, 2.0], None, [0.0, 0.0]
    ]  # fmt: skip


def test_networks_begin_with_the_weights_and_buffers_of_the_first_process(monkeypatch):
    other = Other(monkeypatch)
    model = torch.nn.ModuleDict({"a": torch.nn.BatchNorm1d(2), "b": torch.nn.Linear(2, 1)})
    assert two_ranks().parallel(model) is model
    assert {tensor.data_ptr() for tensor in other.sent} == {
        tensor.data_ptr() for tensor in model.state_dict().values()
    }


def test_buffers_are_kept_for_each_process_only_where_each_has_its_own():
    networks = torch.nn.ModuleList([torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)])
    names = {"0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert set(two_ranks().own_buffers(networks)) == names
    assert two_ranks().own_buffers(networks[0]) == {}
    assert Ranks(alone=True).own_buffers(networks) == {}


def test_processes_wait_for_an_evaluation_of_hours(monkeypatch):
    given = {}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda **options: given.update(options))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    with Ranks():
        assert given["timeout"].total_seconds() > 24 * 3600


def test_a_run_of_one_process_asks_for_no_gradients(tmp_path, monkeypatch):
    monkeypatch.setattr(Ranks, "average_gradients", lambda *arguments: pytest.fail("asked"))
    plan = plan_of(grid(tmp_path, "bench_tasks:Pair", epochs=1), tmp_path / "store")
    plan.work(Diary(), threading.Event())
    assert Store(plan.store).folder(plan.runs[0].key).state() is State.FINISHED


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_averaged_before_they_are_clipped_and_looked_at(accumulate, monkeypatch):
    """Once for each optimizer's step, of its parameters alone."""
    train = {"accumulate": accumulate, "clip_norm": 0.5}
    trainer = Trainer(run_of("bench_tasks:Pair", "sgd-vanilla", train), Ranks())
    update, seen = trainer.update, []
    update.averages = True

    def enlarge(params):
        seen.append(list(params))
        for param in params:
            param.grad = 100.0 * torch.ones_like(param)

    def look(optimizer):
        norms = [param.grad.norm() for param in update.params[optimizer]]
        assert torch.stack(norms).norm().item() == pytest.approx(0.5, rel=1e-4)

    monkeypatch.setattr(trainer.ranks, "average_gradients", enlarge)
    update.before_step = look
    critic = trainer.model["critic"]
    for update.complete in [False] * (accumulate - 1) + [True]:
        assert not seen
        update(critic.weight.sum() + critic.bias.sum(), "critic")
    (params,) = seen
    assert params == list(critic.parameters())
