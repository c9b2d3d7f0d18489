"""The meter: means of what steps return, and divergence."""

import math
import weakref

import pytest
import torch

from sgdf.bench.training.meter import Meter
from sgdf.bench.training.ranks import Ranks


def read_all(meter, rows):
    for row in rows:
        meter.add(row)
    return meter.read()


def test_numbers_that_come_now_and_then_are_means_of_their_own():
    meter = Meter(1000.0, Ranks())
    means, ago = read_all(meter, [{"a": 1.0}, {"a": torch.tensor(3.0), "b": 10.0}, {"a": 2}])
    assert means == {"a": 2.0, "b": 10.0}
    assert ago is None
    means, _ = read_all(meter, [{"b": 20.0}])
    assert means == {"b": 20.0}
    assert meter.epoch() == {"a": 2.0, "b": 15.0}
    assert meter.epoch() == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2e3, -2e3])
def test_any_number_that_leaves_its_limits_is_divergence(bad):
    rows = [{"a": 1.0, "b": 0.5}, {"a": 1.0}, {"b": bad}, {"a": 1.0}, {"b": 0.5}]
    assert read_all(Meter(1000.0, Ranks()), rows)[1] == 2
    assert read_all(Meter(1000.0, Ranks()), [{"a": 1, "b": 1}, {"a": bad}, {"b": bad}])[1] == 1
    if not math.isfinite(bad):
        assert read_all(Meter(1000.0, Ranks()), [{"a": bad}, {"a": 1.0}])[1] == 1
        assert read_all(Meter(math.inf, Ranks()), [{"a": 1.0}, {"a": bad}])[1] == 0
    else:
        assert read_all(Meter(math.inf, Ranks()), rows)[1] is None


def test_a_meter_goes_on_where_it_was():
    rows = [{"a": float(i), **({"b": 1.0} if i % 2 else {})} for i in range(9)]
    whole = Meter(1000.0, Ranks())
    expected = read_all(whole, rows), whole.epoch()
    first, second = Meter(1000.0, Ranks()), Meter(1000.0, Ranks())
    for row in rows[:4]:
        first.add(row)
    second.load(first.state())
    assert (read_all(second, rows[4:]), second.epoch()) == expected


def test_a_graph_is_not_kept_for_the_log():
    meter, weight = Meter(1000.0, Ranks()), torch.ones(1, requires_grad=True)
    loss = (weight * 2).sum()
    graph = weakref.ref(loss)
    meter.add({"loss": loss})
    del loss
    assert graph() is None
