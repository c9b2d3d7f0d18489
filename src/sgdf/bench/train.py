"""The training loop: one for every task, optimizer and machine.

The task owns a step; the loop owns the clock, evaluation, checkpoints and the log.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .meter import Meter, checked
from .optimizers import optimizer_maker
from .processes import Processes
from .randomness import capture, derived_seed, restore, seed_all, seeded
from .schedule import advance, make_scheduler
from .spec import Run
from .tasks import Task, find_task
from .update import Step, precision

Row = dict[str, Any]
Position = tuple[int, int, int, int | None]
ORDER, NOISE, EVALUATION = 1, 2, 3  # purposes that a seed is derived for


class Stopped(Exception):  # noqa: N818  # no error
    """The run was asked to stop; its checkpoint is saved."""


class Trainer:
    """One run in the making: all that it consists of, and how it goes on.

    Args:
        run: what to train.
        processes: those that train it together.
    """

    def __init__(self, run: Run, processes: Processes) -> None:
        self.run, self.processes, self.settings = run, processes, run.train
        self.device = processes.device(run.train.device)
        seed_all(run.seed)
        self.task: Task = find_task(run.task.name)(**run.task.options)
        if run.protocol == "paper":
            self.task.train_on_validation()
        if not isinstance(getattr(self.task, "model", None), nn.Module):
            raise TypeError("the task has no attribute model that is a torch.nn.Module")
        self.task.to(self.device)
        self.model = self.task.model
        self.optimizers = dict(
            self.task.optimizers(optimizer_maker(run.optimizer.name, run.optimizer.options))
        )
        if self.settings.compile:
            several = isinstance(self.model, nn.ModuleDict)
            for network in self.model.children() if several else [self.model]:
                network.compile()
        self.parallel = processes.parallel(self.model)
        self.averaged = self._averaged() if self.settings.ema_decay else None
        self.update = Step(self.settings, self.optimizers, self.device, processes)
        self._divide()
        length = self.settings.epochs * (self.epoch_steps if run.schedule.every == "step" else 1)
        self.schedulers = {
            name: make_scheduler(
                optimizer, run.schedule.name, run.schedule.options, run.schedule.warmup, length
            )
            for name, optimizer in self.optimizers.items()
        }
        self.epoch = self.epoch_step = self.step = 0
        self.diverged: int | None = None
        self.meter = Meter(self.settings.diverges_at, processes)
        self.seconds = {"step": 0.0, "data": 0.0, "evaluation": 0.0}
        self.rows: list[Row] = []
        self._resumed: dict[str, Any] | None = None
        self._epoch_start: dict[str, Any] = {}

    def _divide(self) -> None:
        """Find how a step's batch is made up, and how many steps an epoch has."""
        parts = self.processes.count * self.settings.accumulate
        self.micro_batch = self.settings.batch_size // parts
        if parts > 1 and self.task.sequential:
            raise ValueError(
                f"its batches follow on each other, and cannot be split into {parts} "
                "(accumulate times processes)"
            )
        self.epoch_steps = len(self._order(0)) // parts
        if not self.epoch_steps:
            raise ValueError("the training data do not make up one whole step")

    @property
    def steps(self) -> int:
        """How many steps the whole run has."""
        return self.settings.epochs * self.epoch_steps

    @property
    def position(self) -> Position:
        """Epochs done, steps done of the next one, steps in all, and where it diverged."""
        return self.epoch, self.epoch_step, self.step, self.diverged

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.epoch == self.settings.epochs or self.diverged is not None

    def fit(self, pause: Callable[[Trainer], None]) -> None:
        """Train to the end.

        Args:
            pause: called after each step, that of an epoch's last one when it is evaluated:
                the moment to look at ``rows``, to save, or to raise ``Stopped``.
        """
        while not self.finished:
            self._train_epoch(pause)
            if self.diverged is None:
                self.epoch, self.epoch_step = self.epoch + 1, 0
                self._end_epoch()
                pause(self)

    def state(self) -> dict[str, Any]:
        """Return all that the rest of the run depends on, from every process."""
        task = self.task.state()
        own = {
            "random": capture(),
            "task": task,
            "epoch": self._epoch_start if self.epoch_step else task,
            "meter": self.meter.state(),
        }
        return {
            "model": self.model.state_dict(),
            "averaged": self.averaged and self.averaged.state_dict(),
            "optimizers": {name: one.state_dict() for name, one in self.optimizers.items()},
            "schedulers": {name: one.state_dict() for name, one in self.schedulers.items()},
            "scaler": self.update.scaler.state_dict(),
            "processes": self.processes.gather(own),
            "position": self.position,
            "seconds": dict(self.seconds),
            "rows": list(self.rows),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.model.load_state_dict(state["model"])
        if self.averaged:
            self.averaged.load_state_dict(state["averaged"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        for name, scheduler in self.schedulers.items():
            scheduler.load_state_dict(state["schedulers"][name])
        self.update.scaler.load_state_dict(state["scaler"])
        self.epoch, self.epoch_step, self.step, self.diverged = state["position"]
        self.seconds, self.rows = dict(state["seconds"]), list(state["rows"])
        self._resumed = state["processes"][self.processes.rank]
        self.meter.load(self._resumed["meter"])

    def _averaged(self) -> AveragedModel:
        average = get_ema_multi_avg_fn(self.settings.ema_decay)  # type: ignore[no-untyped-call]  # torch's
        return AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)

    def _order(self, epoch: int) -> Any:
        order = torch.Generator().manual_seed(derived_seed(self.run.seed, ORDER, epoch))
        return self.task.batches(self.micro_batch, order)

    def _batches(self) -> Iterator[Any]:
        """Return the batches that are left of the epoch.

        Every epoch begins with random numbers of its own, and a resumed one also with the
        state that the task then had; batches already used are gone through again. So
        whatever way a task loads its data, it resumes exactly.
        """
        rank, count, resumed = self.processes.rank, self.processes.count, self._resumed
        seed_all(derived_seed(self.run.seed, NOISE, self.epoch, rank))
        if resumed:
            self.task.load_state(resumed["epoch"])
        state = self.task.state()
        self._epoch_start = copy.deepcopy(state) if state else {}
        mine = itertools.islice(iter(self._order(self.epoch)), rank, None, count)
        batches = itertools.islice(mine, self.epoch_steps * self.settings.accumulate)
        if resumed and self.epoch_step:
            for _ in itertools.islice(batches, self.epoch_step * self.settings.accumulate):
                pass
            self.task.load_state(resumed["task"])
            restore(resumed["random"])
        self._resumed = None
        return batches

    def _train_epoch(self, pause: Callable[[Trainer], None]) -> None:
        settings, seconds, task, update = self.settings, self.seconds, self.task, self.update
        by_step = self.run.schedule.every == "step"
        plain = settings.precision == "float32" and settings.accumulate == 1
        make_step = task.step if plain and not update.observers else self._step_in_context
        task.model = self.parallel
        resumed, now = self._resumed is not None, time.perf_counter()
        batches = self._batches()
        if resumed:  # what was done before has been counted before
            now = time.perf_counter()
        for micro, batch in enumerate(batches, start=1):
            loaded = time.perf_counter()
            seconds["data"] += loaded - now
            update.complete = micro % settings.accumulate == 0
            self.meter.add(make_step(batch, update))
            if update.complete:
                if update.stepped:
                    update.end()
                self.step, self.epoch_step = self.step + 1, self.epoch_step + 1
                if update.curious:
                    update.look_again(task, batch, self.step)
                if self.averaged:
                    self.averaged.update_parameters(self.model)
                if self.step % settings.log_every == 0 or self.epoch_step == self.epoch_steps:
                    self._read()
                if by_step:
                    for scheduler in self.schedulers.values():
                        scheduler.step()
            now = time.perf_counter()
            seconds["step"] += now - loaded
            if update.complete and self.epoch_step < self.epoch_steps:
                if self.diverged is not None:
                    break
                pause(self)  # the end of an epoch has one of its own
                now = time.perf_counter()
        task.model = self.model
        if self.epoch_step < self.epoch_steps and self.diverged is None:
            raise ValueError(
                f"an epoch gave {self.epoch_step} steps, but by the length of its batches it "
                f"has {self.epoch_steps}"
            )
        if not update.used:
            raise ValueError("the task's step() did not once call update(loss) in a whole epoch")

    def _step_in_context(self, batch: Any, update: Step) -> Mapping[str, Tensor | float]:
        """Make a step of a precision, or a part of one that other processes do not see yet."""
        update.look_ahead()
        alone = nullcontext() if update.complete else self.processes.alone(self.parallel)
        with precision(self.settings, self.device), alone:
            return self.task.step(batch, update)

    def _read(self) -> None:
        """Read the meter, log it if that is due, and notice divergence."""
        means, batches_ago = self.meter.read()
        if batches_ago is not None:
            self.diverged = self.step - batches_ago // self.settings.accumulate
        if self.step % self.settings.log_every == 0 or self.diverged is not None:
            self._log({"kind": "train", "train": means})

    def _end_epoch(self) -> None:
        """Log the epoch's mean training figures, evaluate, and go on with the schedule."""
        row: Row = {"kind": "epoch", "train": self.meter.epoch()}
        if self.epoch % self.settings.evaluate_every == 0 or self.epoch == self.settings.epochs:
            row.update(self.evaluate())
        self._log(row)
        watched = row.get("validation" if self.run.protocol == "validation" else "train")
        if self.run.schedule.every == "epoch":
            for scheduler in self.schedulers.values():
                advance(scheduler, watched)

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Return the metrics of each split that the protocol looks at."""
        start = time.perf_counter()
        splits = ("validation", "test") if self.run.protocol == "validation" else ("test",)
        metrics = None
        if self.processes.rank == 0:
            with self._evaluating():
                found = {split: self.task.evaluate(split) for split in splits}
                metrics = {split: checked(found[split], self.task.selects) for split in splits}
        self.seconds["evaluation"] += time.perf_counter() - start
        shared: dict[str, dict[str, float]] = self.processes.share(metrics)
        return shared

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluate the averaged weights, if any, and leave everything as it was."""
        model = self.task.model = self.averaged.module if self.averaged else self.model
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        randomness = seeded(derived_seed(self.run.seed, EVALUATION))
        try:
            with torch.no_grad(), precision(self.settings, self.device), randomness:
                yield
        finally:
            for module, training in modes:
                module.training = training
            self.task.model = self.model

    def _log(self, row: Row) -> None:
        optimizer = next(iter(self.optimizers.values()))
        rate = float(optimizer.param_groups[0]["lr"])
        row = {
            **row,
            "step": self.step,
            "epoch": self.epoch,
            "lr": rate,
            "seconds": dict(self.seconds),
        }
        self.rows.append(row)
