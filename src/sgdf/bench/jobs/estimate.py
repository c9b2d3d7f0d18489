"""Estimate how long runs will take: from finished runs like them, or by training for a second."""

from __future__ import annotations

import json
import math
import time

from ..errors import StoreError, first_line
from ..spec.run import Run
from ..store.records import Row, RunTable, Seconds
from ..store.run_folder import Store
from ..tasks import Task
from ..training.randomness import isolated
from ..training.ranks import Ranks
from ..training.trainer import Stopped, Trainer

SAMPLE_SECONDS = 1.0


def estimate(runs: list[Run], store: Store) -> dict[str, float | str]:
    """Return the seconds of training that each of the runs has left, by key.

    Runs that differ only in seed, optimizer or schedule are assumed to take the same time. Where a
    run fails within that second, the reason takes the place of the time.
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
            times = known.get(kind) or known.setdefault(kind, [_time_run(run)])
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


def _time_run(run: Run) -> float:
    """Train for a second, and return how long the whole run would take.

    Nobody knows that of a function that trains by itself: NaN.
    """
    if run.train.by_function:
        return math.nan
    with isolated(run.seed, run.train.threads):
        trainer = Trainer(run, Ranks(alone=True))
        begun = time.monotonic()

        def pause(trainer: Trainer) -> None:
            if trainer.step == 1:  # the first step is slower than the others
                trainer.seconds.update({"step": 0.0, "data": 0.0})
            elif time.monotonic() - begun > SAMPLE_SECONDS:
                raise Stopped

        try:
            trainer.fit(pause)
        except Stopped:
            pass
        else:
            return total_seconds(trainer.seconds)
        step = (trainer.seconds["step"] + trainer.seconds["data"]) / max(1, trainer.step - 1)
        cheap = _time_evaluation(trainer, costly=False)
        evaluations = math.ceil(trainer.epochs / run.train.evaluate_every)
        total = trainer.steps * step + evaluations * cheap
        if type(trainer.task).evaluate_costly is not Task.evaluate_costly:
            every = run.train.costly_every or trainer.epochs
            costly = _time_evaluation(trainer, costly=True) - cheap
            total += math.ceil(trainer.epochs / every) * max(0.0, costly)
        return total


def _time_evaluation(trainer: Trainer, costly: bool) -> float:
    before = trainer.seconds["evaluation"]
    trainer.evaluate(costly)
    return trainer.seconds["evaluation"] - before


def total_seconds(seconds: Seconds) -> float:
    """Return the time of a run, evaluation included."""
    return seconds["step"] + seconds["data"] + seconds["evaluation"]
