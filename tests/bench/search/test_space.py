"""The values that a search may try: ranges, choices, grids and their defaults."""

import math

import pytest
from optuna.trial import FixedTrial

from sgdf.bench.catalog.optimizers import OPTIMIZERS
from sgdf.bench.errors import SpecError
from sgdf.bench.search.space import (
    Choices,
    Range,
    default_space,
    fill_grid,
    latin_hypercube,
    read_space,
)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.1, "must be a list of values, or a range"),
        ([], "needs at least one value"),
        ({"low": 0.1}, "has the numbers low and high"),
        ({"low": 0.1, "high": "1"}, "has the numbers low and high"),
        ({"low": 0.1, "high": True}, "has the numbers low and high"),
        ({"low": 0.1, "high": math.inf}, "has the numbers low and high"),
        ({"low": 0.1, "high": 1, "step": 2}, "has the numbers low and high"),
        ({"low": 0.1, "high": 1, "log": 1}, "has the numbers low and high"),
        ({"low": 1.0, "high": 0.1}, "low must be less than high"),
        ({"low": 0.0, "high": 0.1}, "above 0 unless log = false"),
    ],
)
def test_values_that_are_no_space_are_refused(value, message):
    with pytest.raises(SpecError, match=f"search.lr = .*{message}"):
        read_space({"lr": value})


def test_numbers_from_a_range_have_few_digits():
    rates = Range(0.01, 1.0)
    assert rates.draw(FixedTrial({"lr": 0.123456}), "lr") == 0.123
    assert Range(0.0123456, 1.0).draw(FixedTrial({"lr": 0.0123456}), "lr") == 0.0123456
    close = Range(0.99, 0.9999, log=False)
    assert [close.draw(FixedTrial({"b": b}), "b") for b in (0.999234, 0.999876)] == [
        0.99923,
        0.99988,
    ]
    assert Range(1, 5, log=False).draw(FixedTrial({"k": 3}), "k") == 3


def test_choices_may_be_lists():
    betas = read_space({"betas": [[0.9, 0.99], (0.9, 0.999)]})["betas"]
    assert betas.draw(FixedTrial({"betas": "[0.9, 0.999]"}), "betas") == [0.9, 0.999]
    assert betas.table == [[0.9, 0.99], [0.9, 0.999]]


def test_the_edge_of_a_range_is_a_tenth_of_its_decades():
    rates = Range(1e-4, 1.0)
    assert [rates.at_edge(rate) for rate in (2e-4, 3e-4, 0.3, 0.5)] == [True, False, False, True]
    assert Range(0.0, 1.0, log=False).at_edge(0.95)
    assert not Range(0.0, 1.0, log=False).at_edge(0.85)
    assert [Choices((0.1, 1.0, 0.5)).at_edge(value) for value in (0.1, 0.5, 1.0)] == [1, 0, 1]
    assert not Choices((0.1, 0.2)).at_edge(0.1)
    assert not Choices((True, False)).at_edge(True)


def test_a_latin_hypercube_has_a_point_in_each_part_of_every_range():
    space = {"lr": Range(1e-4, 10.0), "k": Choices(("a", "b")), "n": Range(1, 5, log=False)}
    points = latin_hypercube(space, 5, seed=3)
    assert sorted(math.floor(math.log10(point["lr"])) for point in points) == [-4, -3, -2, -1, 0]
    assert {point["k"] for point in points} == {"a", "b"}
    assert {type(point["n"]) for point in points} == {int}
    assert points == latin_hypercube(space, 5, seed=3) != latin_hypercube(space, 5, seed=4)


def test_every_bundled_optimizer_is_searched_over_four_decades():
    for name in OPTIMIZERS:
        (rates,) = default_space(name, "tpe").values()
        assert math.isclose(math.log10(rates.high / rates.low), 4.0)
        assert "lr" in default_space(name, "grid")


def test_an_optimizer_that_is_not_bundled_has_no_default_space():
    for sampler in ("tpe", "grid"):
        with pytest.raises(SpecError, match="no default values to search"):
            default_space("torch.optim:ASGD", sampler)


def test_grids_have_as_many_points_as_there_are_trials():
    for name in OPTIMIZERS:
        space = fill_grid(default_space(name, "grid"), 12)
        assert math.prod(len(choices.values) for choices in space.values()) >= 12
        assert len(set(space["lr"].values)) == len(space["lr"].values)
        paper = default_space(name, "grid")["lr"].values
        assert space["lr"].values[: len(paper)] == paper


def test_a_grid_that_is_large_enough_is_not_changed():
    space = default_space("adam", "grid")
    assert fill_grid(space, 30) == space


@pytest.mark.parametrize("values", [(0.1,), (0.0, 0.1), ("a", "b")])
def test_a_grid_that_cannot_be_filled_is_refused(values):
    with pytest.raises(SpecError, match="too few for 5 trials"):
        fill_grid({"lr": Choices(values)}, 5)


def test_a_range_in_a_grid_is_refused():
    with pytest.raises(SpecError, match=r"search\.lr: a range is no grid"):
        fill_grid({"lr": Range(0.1, 1.0)}, 5)
