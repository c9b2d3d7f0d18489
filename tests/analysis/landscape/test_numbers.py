"""The share of a plane with a low loss: the area of an ellipse for a quadratic."""

import math

import numpy as np
import pytest

from sgdf.analysis.landscape.measure import Landscape
from sgdf.analysis.landscape.numbers import own_level, share_below


@pytest.mark.parametrize(("first", "second"), [(8.0, 8.0), (3.0, 20.0), (40.0, 4.0)])
@pytest.mark.parametrize(("points", "error"), [(21, 0.04), (81, 0.004)])
def test_the_share_of_a_quadratic_is_the_area_of_an_ellipse(first, second, points, error):
    at = np.array(Landscape(points=points).positions)
    losses = 1.0 + 0.5 * (first * at[None, :] ** 2 + second * at[:, None] ** 2)
    height = own_level(1.0) - 1.0
    area = math.pi * math.sqrt(2.0 * height / first) * math.sqrt(2.0 * height / second)
    assert share_below(losses.tolist(), own_level(1.0)) == pytest.approx(area / 4.0, rel=error)


def test_the_share_lies_between_none_and_all_and_does_not_fall_with_the_level():
    losses = np.random.default_rng(0).uniform(1.0, 2.0, (5, 5)).tolist()
    shares = [share_below(losses, level) for level in (0.9, 1.2, 1.5, 1.8, 2.1)]
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_losses_that_are_not_finite_are_above_every_level():
    losses = [[1.0, 1.0, math.nan], [1.0, 1.0, 1.0], [math.inf, 1.0, 1.0]]
    assert share_below(losses, 2.0) == pytest.approx(0.5, abs=0.01)
