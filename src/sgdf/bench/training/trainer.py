"""The training loop: one for every task, optimizer and machine.

The task owns a step; the loop owns the clock, evaluation, checkpoints and the log.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ..catalog.optimizers import optimizer_maker
from ..catalog.schedules import advance, make_scheduler
from ..spec.protocol import PROTOCOLS
from ..spec.run import PURE_BFLOAT16, ProbeSpec, Run
from ..store.records import Figures, FirstNonfinite, Row, Seconds
from ..tasks import Task, find_task
from ..tasks.base import metric_of, refuse_to_split, splits_of
from ..tasks.long_evaluation import LongEvaluation
from .averaging import average_of
from .evaluation import Evaluator, can_be_shared
from .meter import Meter
from .nonfinite import first_nonfinite
from .probe import Moment, Probe, Probes
from .randomness import capture, derived_seed, restore, seed_all
from .ranks import Ranks, has_several_networks
from .update import LossUpdate, precision

Position = tuple[int, int, int, int | None]
"""Epochs done, steps done of the next one, steps in all, and where the run diverged."""
ORDER, NOISE, EVALUATION = 1, 2, 3  # purposes that a seed is derived for


class Stopped(Exception):  # noqa: N818  # no error
    """The run was asked to stop; its checkpoint is saved."""


AroundEvaluation = Callable[["Trainer", bool], AbstractContextManager[LongEvaluation | None]]
"""Returns a context for an evaluation of a trainer, which is costly or not.

The context gives what the task tells how far it is, or None if nobody wants to know.
"""


def _nothing(trainer: Trainer, costly: bool) -> AbstractContextManager[None]:
    return nullcontext()


class Trainer:
    """One run in training: its task, model, optimizers and schedule, and the loop over them.

    Args:
        run: the run to train.
        ranks: the processes that train it together.
        probes: probes that look at its gradients.
    """

    def __init__(self, run: Run, ranks: Ranks, probes: Sequence[ProbeSpec] = ()) -> None:
        self.run, self.ranks, self.settings = run, ranks, run.train
        self.device = ranks.device(run.train.device)
        seed_all(run.seed)
        self.task: Task = find_task(run.task.name)(**run.task.options)
        self.metric = metric_of(self.task)
        self.protocol = PROTOCOLS[run.protocol]
        self.splits = self.protocol.splits(splits_of(self.task))
        if self.protocol.trains_on_validation and "validation" in splits_of(self.task):
            self.task.train_on_validation()
        if not isinstance(getattr(self.task, "model", None), nn.Module):
            raise TypeError("the task has no attribute model that is a torch.nn.Module")
        self.task.to(self.device)
        if self.settings.precision == PURE_BFLOAT16:
            self.task.model.to(torch.bfloat16)
        self.model = self.task.model
        self.optimizers = dict(
            self.task.optimizers(optimizer_maker(run.optimizer.name, run.optimizer.options))
        )
        if self.settings.compile:
            several = has_several_networks(self.model)
            for network in self.model.children() if several else [self.model]:
                network.compile()
        self.parallel = ranks.parallel(self.model)
        averaging = average_of(self.task, self.settings.ema_decay)
        self.averaging, self.averaged = averaging, averaging and averaging.average
        self.evaluated = averaging.evaluated if averaging else self.model
        self.update = LossUpdate(self.settings, self.optimizers, self.device, ranks)
        self.update.averages = ranks.count > 1 and self.parallel is self.model
        self._divide()
        length = self.steps if run.schedule.every == "step" else self.epochs
        self.schedulers = {
            name: make_scheduler(
                optimizer, run.schedule.name, run.schedule.options, run.schedule.warmup, length
            )
            for name, optimizer in self.optimizers.items()
        }
        self.epoch = self.epoch_step = self.step = 0
        self.diverged: int | None = None
        self.nonfinite: FirstNonfinite | None = None
        self.update.at_bad_loss = self._find_nonfinite
        self.meter = Meter(self.settings.diverges_at, ranks)
        self.seconds: Seconds = {"step": 0.0, "data": 0.0, "evaluation": 0.0}
        self.rows: list[Row] = []
        self.probes = Probes(probes if ranks.rank == 0 else ())
        if self.probes:
            self._let_probes_look()
        self.evaluation = LongEvaluation()  # what the task is offered in an evaluation
        self._resumed: dict[str, Any] | None = None
        self._epoch_start: dict[str, Any] = {}
        self._batch: Any = None
        self._looking = 0.0  # seconds that probes took of the current step

    def _divide(self) -> None:
        """Compute the size of a micro-batch and the number of steps in an epoch."""
        parts = self.ranks.count * self.settings.accumulate
        self.micro_batch = self.settings.batch_size // parts
        refuse_to_split(self.task, self.ranks.count, self.settings.accumulate)
        self.epoch_steps = len(self._order(0)) // parts
        if not self.epoch_steps:
            raise ValueError("the training data do not make up one whole step")
        self.steps = self.settings.steps or self.settings.epochs * self.epoch_steps
        self.epochs = math.ceil(self.steps / self.epoch_steps)

    def _steps_of_this_epoch(self) -> int:
        """Return how many steps the current epoch has: the last one may be cut short."""
        return min(self.epoch_steps, self.steps - self.epoch * self.epoch_steps)

    @property
    def position(self) -> Position:
        """Completed epochs, steps of the current one, all steps, and the step of divergence."""
        return self.epoch, self.epoch_step, self.step, self.diverged

    @property
    def finished(self) -> bool:
        """Whether the run needs no more steps."""
        return self.epoch == self.epochs or self.diverged is not None

    def fit(
        self, pause: Callable[[Trainer], None], around_evaluation: AroundEvaluation = _nothing
    ) -> None:
        """Train to the end.

        Args:
            pause: called after each step (after the evaluation, for the last step of an epoch).
                It may look at ``rows``, save a checkpoint, or raise ``Stopped``.
            around_evaluation: a context for each evaluation. It may save a checkpoint first: a
                run that resumes from that begins with the evaluation.
        """
        while not self.finished:
            self._train_epoch(pause)
            if self.diverged is None:
                figures = self._evaluate_if_due(around_evaluation)
                self.epoch, self.epoch_step = self.epoch + 1, 0
                self._end_epoch(figures)
                pause(self)

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on, from every process."""
        task = self.task.state()
        own = {
            "random": capture(),
            "task": task,
            "epoch": self._epoch_start if self.epoch_step else task,
            "meter": self.meter.state(),
            "buffers": self.ranks.own_buffers(self.model),
        }
        return {
            "model": self.model.state_dict(),
            "averaged": self.averaged and self.averaged.state_dict(),
            "optimizers": {name: one.state_dict() for name, one in self.optimizers.items()},
            "schedulers": {name: one.state_dict() for name, one in self.schedulers.items()},
            "scaler": self.update.scaler.state_dict(),
            "processes": self.ranks.gather(own),
            "position": self.position,
            "nonfinite": self.nonfinite,
            "seconds": dict(self.seconds),
            "rows": list(self.rows),
            "probes": self.probes.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Resume from what ``state`` returned."""
        self.model.load_state_dict(state["model"])
        if self.averaged:
            self.averaged.load_state_dict(state["averaged"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            # Torch's schedulers warn if no step came before theirs, but it did in another process.
            optimizer._opt_called = True  # type: ignore[attr-defined]
        for name, scheduler in self.schedulers.items():
            scheduler.load_state_dict(state["schedulers"][name])
        self.update.scaler.load_state_dict(state["scaler"])
        self.epoch, self.epoch_step, self.step, self.diverged = state["position"]
        self.nonfinite = state.get("nonfinite")  # which earlier versions did not save
        self.seconds, self.rows = copy.copy(state["seconds"]), list(state["rows"])
        self._resumed = state["processes"][self.ranks.rank]
        self.meter.load(self._resumed["meter"])
        if buffers := self._resumed.get("buffers"):  # which earlier versions did not save
            self.model.load_state_dict(buffers, strict=False)
        self.probes.load(state.get("probes", {}))  # which earlier versions did not save

    def _order(self, epoch: int) -> Any:
        order = torch.Generator().manual_seed(derived_seed(self.run.seed, ORDER, epoch))
        return self.task.batches(self.micro_batch, order)

    def _batches(self) -> Iterator[Any]:
        """Return the batches that are left of the epoch.

        Every epoch begins with random numbers of its own, and a resumed one also with the
        state that the task had at its start. Batches already used are skipped or, where that is
        impossible, loaded again. So every task resumes exactly, however it loads its data.
        """
        rank, count, resumed = self.ranks.rank, self.ranks.count, self._resumed
        seed_all(derived_seed(self.run.seed, NOISE, self.epoch, rank))
        if resumed:
            self.task.load_state(resumed["epoch"])
        state = self.task.state()
        self._epoch_start = copy.deepcopy(state) if state else {}
        order, wanted = self._order(self.epoch), self._steps_of_this_epoch()
        used = self.epoch_step * self.settings.accumulate if resumed else 0
        skipped = used if hasattr(order, "skip") else 0
        if skipped:
            order = order.skip(skipped * count)
        if count > 1 and hasattr(order, "dealt"):
            mine = iter(order.dealt(rank, count))
        else:
            mine = itertools.islice(iter(order), rank, None, count)
        batches = itertools.islice(mine, wanted * self.settings.accumulate - skipped)
        if resumed and self.epoch_step:
            for _ in itertools.islice(batches, used - skipped):
                pass
            self.task.load_state(resumed["task"])
            restore(resumed["random"])
        self._resumed = None
        return batches

    def _train_epoch(self, pause: Callable[[Trainer], None]) -> None:
        settings, seconds, task, update = self.settings, self.seconds, self.task, self.update
        by_step, wanted = self.run.schedule.every == "step", self._steps_of_this_epoch()
        begun_at = self.epoch_step
        plain = settings.precision == "float32" and settings.accumulate == 1
        make_step = task.step if plain and not update.observers else self._step_in_context
        task.model = self.parallel
        resumed, now = self._resumed is not None, time.perf_counter()
        batches = self._batches()
        if resumed:  # the time before the resume is in ``seconds`` already
            now = time.perf_counter()
        for micro, batch in enumerate(batches, start=1):
            loaded = time.perf_counter()
            seconds["data"] += loaded - now
            update.complete = micro % settings.accumulate == 0
            self._batch = batch
            self.meter.add(make_step(batch, update))
            if update.complete:
                if update.stepped:
                    update.end()
                self.step, self.epoch_step = self.step + 1, self.epoch_step + 1
                if update.curvature:
                    update.measure_curvature(task, batch, self.step)
                if self.averaging:
                    self.averaging.update()
                if self.step % settings.log_every == 0 or self.epoch_step == wanted:
                    self._read()
                if by_step:
                    for scheduler in self.schedulers.values():
                        scheduler.step()
            now = time.perf_counter()
            seconds["step"] += now - loaded - self._looking
            seconds["evaluation"] += self._looking
            self._looking = 0.0
            if update.complete and self.epoch_step < wanted:
                if self.diverged is not None:
                    break
                pause(self)  # the last step of an epoch pauses after its evaluation
                now = time.perf_counter()
        task.model = self.model
        if self.epoch_step < wanted and self.diverged is None:
            raise ValueError(
                f"an epoch gave {self.epoch_step} steps, but by the length of its batches it "
                f"has {wanted}"
            )
        if not update.used and begun_at < wanted:
            raise ValueError("the task's step() did not once call update(loss) in a whole epoch")

    def _step_in_context(self, batch: Any, update: LossUpdate) -> Mapping[str, Tensor | float]:
        """Take a step in mixed precision, or an accumulated part of one without communication."""
        update.predict()
        alone = nullcontext() if update.complete else self.ranks.without_sync(self.parallel)
        with precision(self.settings, self.device), alone:
            return self.task.step(batch, update)

    def _read(self) -> None:
        """Read the meter, log the means if that is due, and detect divergence."""
        means, batches_ago = self.meter.read()
        if batches_ago is not None:
            self.diverged = self.step - batches_ago // self.settings.accumulate
            bad = [name for name, mean in means.items() if not math.isfinite(mean)]
            if bad and self.nonfinite is None:  # on another device, or a number of the log alone
                self.nonfinite = first_nonfinite(self._batch, None, self.diverged, bad[0])
        if self.step % self.settings.log_every == 0 or self.diverged is not None:
            self._log("train", {"train": means})

    def _find_nonfinite(self) -> None:
        """Find what is not finite where a loss is not; called before the step on that loss."""
        if self.nonfinite is None:
            self.nonfinite = first_nonfinite(self._batch, self.model, self.step + 1)

    def _evaluate_if_due(self, around_evaluation: AroundEvaluation) -> dict[str, Figures]:
        """Return the metrics at the end of this epoch; none if no evaluation is due."""
        epoch, settings = self.epoch + 1, self.settings
        costly = epoch == self.epochs or bool(
            settings.costly_every and epoch % settings.costly_every == 0
        )
        if not costly and epoch % settings.evaluate_every:
            return {}
        with around_evaluation(self, costly) as evaluation:
            # The others record nothing, also where they evaluate shares of the data.
            self.evaluation = (evaluation if self.ranks.rank == 0 else None) or LongEvaluation()
            figures = self.evaluate(costly)
        self.evaluation = LongEvaluation()
        return figures

    def _end_epoch(self, evaluated: dict[str, Figures]) -> None:
        """Log the epoch's mean training figures and its metrics, and advance the schedule."""
        figures: dict[str, Figures] = {"train": self.meter.epoch(), **evaluated}
        self._log("epoch", figures)
        if self.run.schedule.every == "epoch":
            for scheduler in self.schedulers.values():
                advance(scheduler, figures.get(self.protocol.watched))

    def evaluate(self, costly: bool = False, decides: bool = True) -> dict[str, Figures]:
        """Return the metrics of each split that the protocol looks at.

        Args:
            costly: include those that the task finds too costly for every evaluation.
            decides: whether the first evaluation of a run has to be a costly one if the metric
                that decides is costly, so that a wrong name is noticed.
        """
        start, metrics = time.perf_counter(), None
        together = can_be_shared(self.task, self.ranks)
        if together or self.ranks.rank == 0:
            evaluator = Evaluator(
                task=self.task,
                model=self.evaluated,
                metric=self.metric,
                splits=self.splits,
                settings=self.settings,
                device=self.device,
                seed=derived_seed(self.run.seed, EVALUATION),
                ranks=self.ranks if together else None,
            )
            first = decides and not any("test" in row for row in self.rows)
            metrics = evaluator.metrics(costly, first, self.evaluation)
            if metrics is None:
                metrics = evaluator.metrics(True, first, self.evaluation)
        self.seconds["evaluation"] += time.perf_counter() - start
        shared: dict[str, Figures] = self.ranks.broadcast(metrics)
        return shared

    def attach(self, probe: Probe) -> None:
        """Let one more probe look at every step."""
        self.probes.add(probe, getattr(probe, "__name__", type(probe).__name__))
        self._let_probes_look()

    def _let_probes_look(self) -> None:
        self.update.before_step, self.update.after_step = self._look, self._look_after_step

    def _look(self, optimizer: str) -> None:
        """Let the probes look at the step that an optimizer is about to take."""
        update = self.update
        scale = update.scaler.get_scale() if update.scales and update.clip_norm is None else 1.0
        moment = Moment(
            step=self.step + 1,
            epoch=self.epoch,
            optimizer=optimizer,
            task=self.task,
            optimizers=self.optimizers,
            batch=self._batch,
            scale=scale,
            epoch_step=self.epoch_step,
        )
        with self._probing():
            self.probes.look(moment)

    def _look_after_step(self) -> None:
        """Let the probes that asked for it look at the step that an optimizer has taken."""
        with self._probing():
            self.probes.look_after_step()

    @contextmanager
    def _probing(self) -> Iterator[None]:
        """Show probes the bare model, and count their time as that of an evaluation."""
        start = time.perf_counter()
        model, self.task.model = self.task.model, self.model
        yield
        self.task.model = model
        self._looking += time.perf_counter() - start

    def _log(self, kind: Literal["train", "epoch"], figures: dict[str, Figures]) -> None:
        optimizer = next(iter(self.optimizers.values()))
        row = {
            "kind": kind,
            **figures,
            "step": self.step,
            "epoch": self.epoch,
            "lr": float(optimizer.param_groups[0]["lr"]),
            "seconds": dict(self.seconds),
        }
        self.rows.append(cast("Row", row))
