"""Runs to report on, with the files that training would write, but without the training."""

import itertools
import math

import tomli_w

from sgdf.bench.store.identity import run_key
from sgdf.bench.store.run_folder import RunFolder, State, files

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "مُحسِّن العربية",
    "a|b*c_d`e`[f](g)",
    "50 % & $x_1$ \\input{/etc/passwd} ~ ^ {}",
    "=cmd|' /C calc'!A0",
    "two\nlines\x07\u2028and more",
    'name: with, commas "and quotes"',
    "]]>--><!--",
    "\U0001f600 emoji",
]
"""Names, messages and metrics that would break a format that does not escape them."""

ENVIRONMENT = {"date": "2026-11-16", "cpu": "a CPU", "cores": "2", "torch": "2.13.0", "sgdf": "0"}


def table_of(optimizer="sgd", lr=0.1, seed=0, task="points", protocol="validation", **train):
    """Return the spec of a run; with ``steps`` its length is in steps, else in epochs."""
    options = task if isinstance(task, dict) else {"name": task}
    length = {} if "steps" in train else {"epochs": 4}
    return {
        "seed": seed,
        "protocol": protocol,
        "task": options,
        "optimizer": {"name": optimizer, "lr": lr, "betas": [[0.9, 0.999]]},
        "schedule": {"name": "ConstantLR", "every": "epoch", "warmup": 0},
        "train": {**length, "batch_size": 64, "clip_norm": math.inf, **train},
    }


def rows_of(values, splits=("validation", "test"), metric="accuracy", steps=10, seconds=0.5):
    """Return a row for each epoch, given the metric's value, which is the same on every split."""
    return [
        {
            "kind": "epoch",
            "train": {"loss": 1.0 / (epoch + 1)},
            **{split: {metric: value, "loss": 1.0 - value} for split in splits},
            "step": steps * epoch,
            "epoch": epoch,
            "lr": 0.1,
            "seconds": {"step": seconds * epoch, "data": 0.0, "evaluation": 9.0},
        }
        for epoch, value in enumerate(values, start=1)
    ]


def result_of(
    rows, metric="accuracy", largest=True, protocol="validation", diverged=None, unit=None
):
    """Return the result that a run with these rows would have."""
    split = "validation" if protocol == "validation" else "test"
    name = "selected" if protocol == "validation" else "best_on_test"
    judged = [row for row in rows if metric in row[split]]
    chosen = {}
    if judged:
        best = (max if largest else min)(judged, key=lambda row: row[split][metric])
        chosen = {name: best, "last": rows[-1]}
    return {
        "metric": metric,
        "largest": largest,
        **({} if unit is None else {"unit": unit}),
        **chosen,
        "step": rows[-1]["step"] if rows else 0,
        "epoch": len(rows),
        "diverged_at_step": diverged,
        "seconds": rows[-1]["seconds"] if rows else {"step": 0.0, "data": 0.0, "evaluation": 0.0},
        "parameters": 100,
        "examples": {"train": 1200, "validation": 300, "test": 400},
        "state_bytes": 800,
        "weights": "",
    }


def make_run(
    store,
    values,
    *,
    metric="accuracy",
    largest=True,
    diverged=None,
    unit=None,
    splits=(),
    environment=None,
    **spec,
):
    """Write a finished run, or a diverged one, and return its folder.

    ``splits`` are those of the task's own choosing, beside those that the protocol needs;
    ``environment`` has entries of the run's environment that differ from the usual ones.
    """
    table = table_of(**spec)
    known = ("validation", "test") if table["protocol"] == "validation" else ("test",)
    rows = rows_of(values, (*known, *splits), metric)
    folder = begin(store, table, environment)
    state = State.FINISHED if diverged is None else State.DIVERGED
    result = result_of(rows, metric, largest, table["protocol"], diverged, unit)
    folder.finish(state, result, rows)
    return folder


def begin(store, table, environment=None):
    """Write a run that is waiting, and return its folder."""
    folder = RunFolder(store / "runs" / run_key(table))
    folder.path.mkdir(parents=True)
    files.write(folder.path / "spec.toml", tomli_w.dumps(table).encode())
    known = {**ENVIRONMENT, "optimizer source": table["optimizer"]["name"]}
    folder.add_environment({**known, **(environment or {})})
    return folder


def filled(store):
    """Write runs of three optimizers with two rates on two problems, and three without a result.

    Each setting has three seeds. A seventh setting of one problem has a diverged, a failed and an
    unfinished run.
    """
    for task, optimizer, lr, seed in itertools.product(
        ("points", "lines"), ("sgdf", "sgd", "mine:Own"), (0.1, 1.0), (0, 1, 2)
    ):
        top = (
            {"sgdf": 0.9, "sgd": 0.8, "mine:Own": 0.7}[optimizer]
            - 0.05 * (lr == 1.0)
            + 0.003 * seed
        )
        make_run(
            store, [0.3, 0.6, top, top - 0.01], optimizer=optimizer, lr=lr, seed=seed, task=task
        )
    make_run(store, [0.1], optimizer="sgd", lr=10.0, seed=0, diverged=15)
    begin(store, table_of(optimizer="sgd", lr=10.0, seed=1)).fail("RuntimeError: <b>no</b>")
    half = begin(store, table_of(optimizer="sgd", lr=10.0, seed=2))
    half.append(rows_of([0.2, 0.3]))
    return store
