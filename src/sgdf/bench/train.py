"""The training loop: one for every task, optimizer and machine.

The task owns a step; the loop owns the clock, evaluation, checkpoints and the log.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .meter import Meter
from .optimizers import optimizer_maker
from .processes import Processes
from .randomness import capture, derived_seed, restore, seed_all, seeded
from .schedule import advance, make_scheduler
from .spec import Run
from .tasks import Task, find_task
from .update import Step, precision

Row = dict[str, Any]
Position = tuple[int, int, int, int | None]
ORDER, EVALUATION = 1, 2  # purposes that a seed is derived for


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
        self.update = Step(self.settings, self.optimizers, self.device)
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
        if processes.count > 1:  # the same model everywhere, but noise of each one's own
            seed_all(derived_seed(run.seed, processes.rank))

    def _divide(self) -> None:
        """Find how a step's batch is made up, and how many steps an epoch has."""
        parts = self.processes.count * self.settings.accumulate
        self.micro_batch, rest = divmod(self.settings.batch_size, parts)
        if rest or (parts > 1 and self.task.sequential):
            reason = "its batches follow on each other" if not rest else "it does not divide evenly"
            raise ValueError(
                f"batch_size = {self.settings.batch_size} cannot be split into {parts} (accumulate "
                f"times processes): {reason}"
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

    def fit(self, pause: Callable[[Trainer], None], log: Callable[[Row], None]) -> None:
        """Train to the end.

        Args:
            pause: called after each step, that of an epoch's last one when it is evaluated:
                the moment to save, or to raise ``Stopped``.
            log: called with each new row of metrics.
        """
        self._log = log
        while not self.finished:
            self._train_epoch(pause)
            if self.diverged is None:
                self.epoch, self.epoch_step = self.epoch + 1, 0
                self._end_epoch()
                pause(self)

    def state(self) -> dict[str, Any]:
        """Return all that the rest of the run depends on, from every process."""
        own = {"random": capture(), "task": self.task.state(), "meter": self.meter.state()}
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

    _resumed: dict[str, Any] | None = None

    def _averaged(self) -> AveragedModel:
        average = get_ema_multi_avg_fn(self.settings.ema_decay)  # type: ignore[no-untyped-call]  # torch's
        return AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)

    def _order(self, epoch: int) -> Any:
        order = torch.Generator().manual_seed(derived_seed(self.run.seed, ORDER, epoch))
        return self.task.batches(self.micro_batch, order)

    def _batches(self) -> Iterator[Any]:
        """Yield the batches that are left of the epoch.

        Those of steps already made are gone through without use, and only then is the
        randomness of the checkpoint restored: so any way of loading data resumes exactly.
        """
        if not self.epoch_step:
            self._resume()
        rank, count = self.processes.rank, self.processes.count
        mine = itertools.islice(iter(self._order(self.epoch)), rank, None, count)
        batches = itertools.islice(mine, self.epoch_steps * self.settings.accumulate)
        for _ in range(self.epoch_step * self.settings.accumulate):
            next(batches)
        self._resume()
        return batches

    def _resume(self) -> None:
        """Set what the next step begins with, if it comes from a checkpoint."""
        if self._resumed:
            self.task.load_state(self._resumed["task"])
            restore(self._resumed["random"])
            self._resumed = None

    def _train_epoch(self, pause: Callable[[Trainer], None]) -> None:
        settings, seconds, task, update = self.settings, self.seconds, self.task, self.update
        by_step = self.run.schedule.every == "step"
        task.model = self.parallel
        now = time.perf_counter()
        for micro, batch in enumerate(self._batches(), start=1):
            loaded = time.perf_counter()
            seconds["data"] += loaded - now
            update.complete = micro % settings.accumulate == 0
            alone = nullcontext() if update.complete else self.processes.alone(self.parallel)
            with precision(settings, self.device), alone:
                values = task.step(batch, update)
            self.meter.add(values)
            if update.complete:
                self.step, self.epoch_step = self.step + 1, self.epoch_step + 1
                if self.averaged:
                    self.averaged.update_parameters(self.model)
                if self.step % settings.log_every == 0:
                    self._note()
                if by_step:
                    for scheduler in self.schedulers.values():
                        scheduler.step()
            now = time.perf_counter()
            seconds["step"] += now - loaded
            if update.complete:
                if self.diverged is not None:
                    break
                if self.epoch_step < self.epoch_steps:  # the end of an epoch has a pause of its own
                    pause(self)
                    now = time.perf_counter()
        task.model = self.model

    def _note(self) -> None:
        """Log the means of the steps since the last time, and notice divergence."""
        means, batches_ago = self.meter.read()
        if batches_ago is not None:
            self.diverged = self.step - batches_ago // self.settings.accumulate
        self._add({"kind": "train", "train": means})

    def _end_epoch(self) -> None:
        """Log the epoch's mean training figures, evaluate, and go on with the schedule."""
        start = time.perf_counter()
        if self.meter.pending:
            self._note()  # waits for the device, whose work it was
        self.seconds["step"] += time.perf_counter() - start
        if self.diverged is not None:
            return
        row: Row = {"kind": "epoch", "train": self.meter.epoch()}
        if self.epoch % self.settings.evaluate_every == 0 or self.epoch == self.settings.epochs:
            row.update(self.evaluate())
        self._add(row)
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
                metrics = {split: self._metrics(split) for split in splits}
        self.seconds["evaluation"] += time.perf_counter() - start
        shared: dict[str, dict[str, float]] = self.processes.share(metrics)
        return shared

    def _metrics(self, split: str) -> dict[str, float]:
        metrics = {name: float(value) for name, value in self.task.evaluate(split).items()}
        if self.task.selects not in metrics:
            raise ValueError(
                f"the task selects by {self.task.selects!r}, but evaluates {', '.join(metrics)}"
            )
        return metrics

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

    def _add(self, row: Row) -> None:
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
        self._log(row)
