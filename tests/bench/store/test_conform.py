"""What a file of a run may hold: anything else is refused, with the key and what it must be."""

import copy
import datetime
import math

import pytest

from made_runs import result_of, rows_of, table_of
from sgdf.bench.spec.protocol import PROTOCOLS
from sgdf.bench.store.conform import MismatchError, conform
from sgdf.bench.store.records import Environments, Result, Row, RunTable


def changed(record, key, value):
    """Return a record with another value at a dotted key; ``...`` takes the key away."""
    record = copy.deepcopy(record)
    *path, last = key.split(".")
    inner = record
    for part in path:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return record


def nested(depth):
    return [nested(depth - 1)] if depth else 1


TABLE = table_of()
RESULT = result_of(rows_of([0.5, 0.6]))
(ROW,) = rows_of([0.5])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_bench_writes_is_accepted(protocol):
    assert conform(RunTable, table_of(protocol=protocol)) == table_of(protocol=protocol)
    assert conform(RunTable, table_of(steps=100)) == table_of(steps=100)
    by_function = changed(TABLE, "train", {"by_function": True, "threads": 1})
    assert conform(RunTable, by_function) == by_function
    assert conform(Result, RESULT) == RESULT
    assert conform(Row, ROW) == ROW
    assert conform(Environments, [{"torch": "2"}]) == [{"torch": "2"}]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", ..., "seed: missing"),
        ("seed", "0", "seed: must be a whole number, not a text"),
        ("seed", True, "seed: must be a whole number, not true or false"),
        ("seed", -1, "seed: must be a whole number from 0 to 2^32 - 1"),
        ("protocol", "luck", "protocol: must be one of validation, paper, last"),
        ("protocol", ["paper"], "protocol: must be a text, not a list"),
        ("task", [], "task: must be a table, not a list"),
        ("task.name", ..., "task: must be a table with a name"),
        ("optimizer.name", {}, "optimizer: must be a table with a name"),
        ("optimizer.lr", datetime.date(1979, 5, 27), "optimizer.lr: must be a text, a number"),
        ("optimizer.lr", math.nan, "optimizer.lr: must be a number of 64 bits"),
        ("optimizer.lr", 1 << 64, "optimizer.lr: must be a number of 64 bits"),
        ("optimizer.betas", nested(30), "optimizer.betas: is nested too deeply"),
        ("schedule", 1, "schedule: must be a table, not a whole number"),
        ("train.epochs", ..., "train: must be a table with batch_size, and epochs or steps"),
        ("train.epochs", -3, "train: must be a table with batch_size, and epochs or steps"),
        ("train.batch_size", 1e300, "train: must be a table with batch_size"),
    ],
)
def test_a_table_that_is_none_is_refused(key, value, message):
    with pytest.raises(MismatchError) as refused:
        conform(RunTable, changed(TABLE, key, value))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("metric", 3, "metric: must be a text, not a whole number"),
        ("largest", 1, "largest: must be true or false, not a whole number"),
        ("selected", [], "selected: must be a table, not a list"),
        ("selected.test", 0.5, "selected.test: must be a table, not a number"),
        ("selected.test.accuracy", "0.5", "selected.test.accuracy: must be a number, not a text"),
        ("selected.mine", {"accuracy": None}, "selected.mine.accuracy: must be a number"),
        ("step", -1, "step: must be a whole number from 0 to 10^15"),
        ("step", 10**400, "step: must be a whole number from 0 to 10^15"),
        ("seconds.step", math.inf, "seconds.step: must be a number from 0 to 10^15"),
        ("seconds", {}, "seconds.data: missing"),
        ("outcome", "won", "outcome: must be one of finished, diverged"),
        ("diverged_at_step", "", "diverged_at_step: must be a whole number, not a text"),
    ],
)
def test_a_result_that_is_none_is_refused(key, value, message):
    with pytest.raises(MismatchError) as refused:
        conform(Result, changed(RESULT, key, value))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("value", [None, [], "row", {}, changed(ROW, "kind", "other")])
def test_a_row_that_is_none_is_refused(value):
    with pytest.raises(MismatchError):
        conform(Row, value)


@pytest.mark.parametrize("value", [None, {}, 7, "x", [None], [[]]])
def test_environments_that_are_none_are_refused(value):
    with pytest.raises(MismatchError, match=r"^must be a (list|table), not "):
        conform(Environments, value)


@pytest.mark.parametrize("size", [1e200, 10**400])
def test_figures_that_cannot_be_averaged_count_as_infinite(size):
    row = conform(Row, changed(changed(ROW, "test.loss", size), "train.loss", -size))
    assert (row["test"]["loss"], row["train"]["loss"]) == (math.inf, -math.inf)
    assert math.isnan(conform(Row, changed(ROW, "test.loss", math.nan))["test"]["loss"])


def test_a_key_of_any_length_is_named_in_one_line():
    with pytest.raises(MismatchError) as refused:
        conform(Environments, [{"x" * 1000: {"y": None}}])
    assert len(str(refused.value)) < 200
