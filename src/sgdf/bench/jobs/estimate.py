"""Estimate how long runs will take: from finished runs like them, or by training for a second."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..errors import StoreError, first_line
from ..spec.run import Run
from ..store.records import Row, RunTable, Seconds
from ..store.run_folder import Store
from ..tasks import Supervised, Task
from ..tasks.long_evaluation import LongEvaluation
from ..training.randomness import isolated
from ..training.ranks import Ranks, has_several_networks
from ..training.trainer import Stopped, Trainer

SAMPLE_SECONDS = 1.0
"""How long a run is trained to estimate its time."""
EVALUATION_SECONDS = 3.0
"""After how long an evaluation is broken off; the rest of it is extrapolated."""

Say = Callable[[str], None]


def _say_nothing(line: str) -> None:
    pass


def estimate(runs: list[Run], store: Store, say: Say = _say_nothing) -> dict[str, float | str]:
    """Return the seconds of training that each of the runs has left, by key.

    Runs that differ only in seed, optimizer or schedule are assumed to take the same time. Where a
    run fails within that second, the reason takes the place of the time.

    Args:
        runs: the runs.
        store: where runs like them may be finished.
        say: receives a line about whatever takes its time.
    """
    known: dict[str, list[float]] = {}
    for folder in store.folders():
        try:
            table, result = folder.table(), folder.result()
        except StoreError:  # other runs tell as much
            continue
        if table and result and result["diverged_at_step"] is None:
            known.setdefault(_kind(table), []).append(total_seconds(result["seconds"]))
    left: dict[str, float | str] = {}
    for run in runs:
        kind = _kind(run.as_table())
        try:
            times = known.get(kind) or known.setdefault(kind, [_time_run(run, say)])
        except StoreError:
            raise  # missing data concern the other runs too
        except Exception as error:
            left[run.key] = first_line(error)
            continue
        rows = store.folder(run.key).rows()
        done = _share_done(run, rows[-1]) if rows else 0.0
        left[run.key] = (1 - done) * sum(times) / len(times)
    return left


def _share_done(run: Run, row: Row) -> float:
    """Return how much of a run is done, by its last row of metrics."""
    if run.train.by_function:
        return 0.0  # it starts again from the beginning
    if run.train.steps:
        return row["step"] / run.train.steps
    return row["epoch"] / run.train.epochs


def _kind(table: RunTable) -> str:
    return json.dumps([table["task"], table["train"]], sort_keys=True)


def _time_run(run: Run, say: Say) -> float:
    """Train for a second, and return how long the whole run would take.

    Nobody knows that of a function that trains by itself: NaN.
    """
    if run.train.by_function:
        return math.nan
    say(
        f"Timing {run.task.name} for a few seconds: loading, {SAMPLE_SECONDS:.0f} s of training, "
        f"at most {EVALUATION_SECONDS:.0f} s of evaluation …"
    )
    with isolated(run.seed, run.train.threads):
        trainer = Trainer(run, Ranks(alone=True))
        begun = time.monotonic()

        def pause(trainer: Trainer) -> None:
            if trainer.step == 1:  # the first step is slower than the others
                trainer.seconds.update({"step": 0.0, "data": 0.0})
            elif time.monotonic() - begun > SAMPLE_SECONDS:
                raise Stopped

        try:
            trainer.fit(pause, lambda trainer, costly: _Sample(trainer))
        except Stopped:
            pass
        else:
            return total_seconds(trainer.seconds)
        step = (trainer.seconds["step"] + trainer.seconds["data"]) / max(1, trainer.step - 1)
        cheap, metrics = _time_evaluation(trainer, costly=False, say=say)
        evaluations = math.ceil(trainer.epochs / run.train.evaluate_every)
        total = trainer.steps * step + evaluations * cheap
        if type(trainer.task).evaluate_costly is not Task.evaluate_costly:
            every = run.train.costly_every or trainer.epochs
            # The first one is costly, too, if only those have the metric that decides.
            first = every > run.train.evaluate_every and trainer.metric.name not in metrics
            costly = _time_evaluation(trainer, costly=True, say=say)[0] - cheap
            total += (math.ceil(trainer.epochs / every) + first) * max(0.0, costly)
        return total


def _time_evaluation(trainer: Trainer, costly: bool, say: Say) -> tuple[float, set[str]]:
    """Return how long an evaluation takes, and its metrics; a long one is not awaited."""
    sample = _Sample(trainer)
    metrics: set[str] = set()
    try:
        with sample:
            trainer.evaluation = sample
            found = trainer.evaluate(costly, decides=False)
            metrics = set().union(*found.values())
    except Stopped:
        if sample.share:
            return sample.seconds / sample.share, metrics
        say(f"An evaluation takes more than {sample.seconds:.0f} s, so the estimate is too low.")
    return sample.seconds, metrics


class _Sample(LongEvaluation):
    """A context that breaks an evaluation off after some seconds, when it calls the model.

    An evaluation may tell how far its longest part is. It is assumed to take all of the time.

    Attributes:
        seconds: how long the evaluation took.
        share: how much of it was done; 0 if that is not known.
    """

    def __init__(self, trainer: Trainer) -> None:
        model = trainer.evaluated
        several = has_several_networks(model)
        self.networks = list(model.children()) if several else [model]
        if trainer.settings.compile:  # a hook would have them compiled again
            self.networks = []
        task, self.examples = trainer.task, 0
        if isinstance(task, Supervised):  # which calls the model with each example once
            self.examples = sum(len(task.data[split][0]) for split in trainer.splits)
        self.seconds = self.share = 0.0

    def __enter__(self) -> _Sample:
        self.begun, self.seen, self.told = time.monotonic(), 0, 0.0
        self.hooks = [one.register_forward_pre_hook(self._count) for one in self.networks]
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.monotonic() - self.begun
        self.share = min(1.0, self.seen / self.examples) if self.examples else self.told
        for hook in self.hooks:
            hook.remove()

    def advance(
        self, what: str, done: int, total: int, state: Callable[[], dict[str, Any]] | None = None
    ) -> None:
        """Note how far the evaluation is, and break it off if it is long enough."""
        self.told = min(1.0, done / max(1, total))
        self._break_off()

    def _break_off(self) -> None:
        if time.monotonic() - self.begun > EVALUATION_SECONDS:
            raise Stopped

    def _count(self, network: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._break_off()
        self.seen += len(inputs[0]) if inputs and isinstance(inputs[0], Tensor) else 0


def total_seconds(seconds: Seconds) -> float:
    """Return the time of a run, evaluation included."""
    return seconds["step"] + seconds["data"] + seconds["evaluation"]
