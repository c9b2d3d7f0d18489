"""Names of runs: what is in them, and that naming many runs takes time in proportion to them."""

import itertools
import random

import pytest

from call_counts import count_calls
from made_runs import table_of
from sgdf.bench.spec.labels import Labels, labels


def slow_setting(table, tables):
    """Return the parts of a setting's name by their definition: each run is held against all."""

    def differing(others, kind):
        return {
            key: value
            for key, value in table.get(kind, {}).items()
            if any(other.get(kind, {}).get(key) != value for other in others)
        }

    parts = []
    for kind in ("task", "optimizer"):
        name = table[kind]["name"]
        alike = [other for other in tables if other[kind]["name"] == name]
        options = differing(alike, kind).items()
        parts.append(" ".join([name, *(f"{key}={text(value)}" for key, value in options)]))
    for kind in ("schedule", "train"):
        parts += [f"{kind}.{key}={value}" for key, value in differing(tables, kind).items()]
    if len({other.get("protocol") for other in tables}) > 1:
        parts.append(f"{table['protocol']} protocol")
    return parts


def text(value):
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else str(value)


def any_table(draw):
    """Return the table of a run; any value may differ, be missing, or be of another type."""
    table = table_of(
        optimizer=draw.choice(["sgd", "adam", "mine:Own"]),
        lr=draw.choice([0, 0.0, False, 0.1, 1, 1.0, True, "0.1", float("nan")]),
        seed=draw.randrange(3),
        task=draw.choice([{"name": "points"}, {"name": "points", "noise": 1}, {"name": "lines"}]),
        protocol=draw.choice(["validation", "paper"]),
        batch_size=draw.choice([32, 64]),
    )
    for kind in ("optimizer", "schedule", "train"):
        for key in draw.sample(sorted(table[kind]), draw.randrange(2)):
            if key != "name":
                del table[kind][key]
    if draw.random() < 0.2:
        del table[draw.choice(["schedule", "train"])]
    return table


@pytest.mark.parametrize("seed", range(60))
def test_a_label_names_what_differs_from_any_other_run(seed):
    draw = random.Random(seed)
    tables = [any_table(draw) for _ in range(draw.randrange(1, 12))]
    names = Labels(tables)
    for table in tables:
        assert names.setting(table) == slow_setting(table, tables)


def test_every_run_of_a_grid_has_a_label_of_its_own():
    grid = itertools.product(["sgd", "adam"], [0.1, 0.2], range(3), [1, 2])
    tables = {
        str(number): table_of(optimizer=name, lr=lr, seed=seed, epochs=epochs)
        for number, (name, lr, seed, epochs) in enumerate(grid)
    }
    names = labels(tables)
    assert len(set(names.values())) == len(tables)
    assert names["0"] == "points, sgd lr=0.1, train.epochs=1, seed 0"


def test_four_times_the_runs_need_four_times_the_work():
    def work(runs):
        tables = {str(i): table_of(lr=i % 7, seed=i, batch_size=i % 3 + 1) for i in range(runs)}
        return count_calls(lambda: labels(tables))

    assert work(400) < 4.4 * work(100)
