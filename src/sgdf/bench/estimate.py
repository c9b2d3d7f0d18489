"""How long runs will take: by runs like them that are over, or by trying a second of one."""

from __future__ import annotations

import json
import math
import time
from typing import Any

from .attempt import apart
from .files import StoreError
from .processes import Processes
from .spec import Run
from .store import Store, brief
from .train import Stopped, Trainer

TRIAL_SECONDS = 1.0


def estimate(runs: list[Run], store: Store) -> dict[str, float | str]:
    """Return the seconds of training that each of the runs has left, by key.

    Runs that differ in seed, optimizer or schedule alone are taken to be as long as each
    other. Where a run fails on trial, the reason stands in place of the time.
    """
    known: dict[str, list[float]] = {}
    for folder in store.folders():
        table, result = folder.table(), folder.result()
        if table and result and result["diverged_at_step"] is None:
            known.setdefault(_kind(table), []).append(sum(result["seconds"].values()))
    left: dict[str, float | str] = {}
    for run in runs:
        kind = _kind(run.as_table())
        try:
            times = known.get(kind) or known.setdefault(kind, [_trial(run)])
        except StoreError:
            raise  # the data are not there, and that holds for the others too
        except Exception as error:
            left[run.key] = brief(error)
            continue
        rows = store.folder(run).rows()
        done = rows[-1]["epoch"] / run.train.epochs if rows else 0.0
        left[run.key] = (1 - done) * sum(times) / len(times)
    return left


def _kind(table: dict[str, Any]) -> str:
    return json.dumps([table["task"], table["train"]], sort_keys=True)


def _trial(run: Run) -> float:
    """Train for a moment, and return how long the whole run would take."""
    with apart(run):
        trainer = Trainer(run, Processes(alone=True))
        begun = time.monotonic()

        def pause(trainer: Trainer) -> None:
            if trainer.step == 1:  # the first one is slower than the rest
                trainer.seconds.update(step=0.0, data=0.0)
            elif time.monotonic() - begun > TRIAL_SECONDS:
                raise Stopped

        try:
            trainer.fit(pause)
        except Stopped:
            pass
        else:
            return sum(trainer.seconds.values())
        step = (trainer.seconds["step"] + trainer.seconds["data"]) / max(1, trainer.step - 1)
        before = trainer.seconds["evaluation"]
        trainer.evaluate()
        evaluations = math.ceil(run.train.epochs / run.train.evaluate_every)
        return trainer.steps * step + evaluations * (trainer.seconds["evaluation"] - before)
