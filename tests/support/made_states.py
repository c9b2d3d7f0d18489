"""A grid of learning rates in every state that its runs can be in, without the training."""

import itertools
import math

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.store.run_folder import State

GRID = list(itertools.product(("sgd", "adam"), (0.1, 1.0), (0, 1, 2)))
"""The optimizers, learning rates and seeds of the runs."""


def wait(store, **spec):
    begin(store, table_of(**spec))


def start(store, **spec):
    begin(store, table_of(**spec)).append(rows_of([0.2, 0.3]))


def pause(store, **spec):
    folder = begin(store, table_of(**spec))
    folder.append(rows_of([0.2]))
    folder.save(b"a checkpoint", 10)


def fail(store, **spec):
    begin(store, table_of(**spec)).fail("RuntimeError: no")


def diverge(store, **spec):
    make_run(store, [], diverged=3, **spec)


def diverge_late(store, **spec):
    make_run(store, [0.2, 0.3], diverged=15, **spec)


def end_in_nan(store, **spec):
    make_run(store, [math.nan, math.nan], **spec)


def end_in_infinity(store, **spec):
    make_run(store, [math.inf, math.inf], **spec)


def finish(store, **spec):
    make_run(store, [0.3, 0.5 + 0.01 * spec["seed"] + 0.1 * (spec["lr"] == 0.1)], **spec)


def lose_metrics(store, **spec):
    """Write a run whose first epoch has a loss, and metrics and a split, that its last has not."""
    rows = rows_of([0.4, 0.5, 0.3], splits=("validation", "test", "extra"))
    for row in rows[1:]:
        del row["extra"]
        for split in ("train", "validation", "test"):
            del row[split]["loss"]
    rows[0]["test"]["top5 accuracy"] = 98.0
    begin(store, table_of(**spec)).finish(State.FINISHED, result_of(rows), rows)


STATES = (
    *(wait, start, pause, fail, diverge, diverge_late, end_in_nan, end_in_infinity, lose_metrics),
    finish,
)


def make_grid(store, functions):
    """Write the runs of the grid, each by one of the functions, which take turns."""
    for (optimizer, lr, seed), function in zip(GRID, itertools.cycle(functions), strict=False):
        function(store, optimizer=optimizer, lr=lr, seed=seed)
