"""Rows of epochs in little memory: the same rows, and few objects."""

import math

import pytest

from made_runs import rows_of
from sgdf.bench.report import epoch_rows
from sgdf.bench.report.epoch_rows import EpochRows


@pytest.mark.parametrize("count", [0, 1, 5])
def test_packed_rows_are_those_that_were_packed(count):
    rows = rows_of([0.1 * epoch for epoch in range(count)])
    packed = EpochRows(rows)
    assert list(packed) == rows
    assert len(packed) == count
    for index in (slice(None), slice(-1, None), slice(1, 3)):
        assert packed[index] == rows[index]
    for index in range(-count, count):
        assert packed[index] == rows[index]
    with pytest.raises(IndexError):
        packed[count]
    with pytest.raises(IndexError):
        packed[-count - 1]


def test_numbers_that_are_not_finite_survive():
    rows = rows_of([math.inf, -math.inf, 0.1, 1e-300])
    assert list(EpochRows(rows)) == rows
    (row,) = EpochRows(rows_of([math.nan]))
    assert math.isnan(row["test"]["accuracy"])


def test_rows_take_a_fraction_of_the_memory_of_objects():
    rows = rows_of([0.001 * epoch for epoch in range(200)])
    assert len(EpochRows(rows)._packed) < 50 * len(rows)


def test_the_last_row_is_there_without_unpacking(monkeypatch):
    packed = EpochRows(rows_of([0.1, 0.2]))
    monkeypatch.setattr(epoch_rows, "_unpack", None)
    assert packed[-1]["epoch"] == 2
    assert packed[-1:] == [packed[-1]]
