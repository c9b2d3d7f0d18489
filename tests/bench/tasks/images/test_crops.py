"""Random pieces: their law by statistics, each at an error rate of one in a million."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from sgdf.bench.tasks.images.crops import (
    NUMBERS,
    PositionNumbers,
    RandomCrop,
    central_box,
    resized_for_centre,
)

ERROR = 1e-6
"""How probable it is that a right law fails a test; the seed is fixed, so it does or does not."""


def boxes(law, width, height, count=20_000, seed=0):
    rows = PositionNumbers(torch.Generator().manual_seed(seed)).of(0, count)
    return np.array([law.box(width, height, row) for row in rows]), rows


def sizes(found):
    return found[:, 2] - found[:, 0], found[:, 3] - found[:, 1]


def test_where_every_piece_fits_area_ratio_and_place_have_their_laws():
    """In so large a square that rounding to pixels is far below what the tests can see."""
    law, side = RandomCrop(area=(0.1, 0.5)), 10**6
    found, _ = boxes(law, side, side)
    wide, tall = sizes(found)
    uniform = {
        "area": (wide * tall / side**2 - 0.1) / 0.4,
        "ratio": np.log(wide / tall) / (2 * math.log(4 / 3)) + 0.5,
        "left": found[:, 0] / (side - wide),
        "top": found[:, 1] / (side - tall),
    }
    for name, numbers in uniform.items():
        assert stats.kstest(numbers, "uniform").pvalue > ERROR, name
    for one in uniform:
        for other in uniform:
            if one < other:
                assert stats.spearmanr(uniform[one], uniform[other]).pvalue > ERROR, (one, other)


def test_every_place_is_as_likely_the_last_ones_included():
    """Of pieces of 6 pixels in 8, there are nine places."""
    found, _ = boxes(RandomCrop(area=(0.5, 0.5), ratio=(1.0, 1.0)), 8, 8, count=9_000)
    places = Counter((left, top) for left, top, *_ in found.tolist())
    assert set(places) == {(left, top) for left in range(3) for top in range(3)}
    assert stats.chisquare(list(places.values())).pvalue > ERROR


def written_out(width, height, rng):
    """Return a piece by the definition of the law, with other random numbers."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = rng.integers(width - wide + 1), rng.integers(height - tall + 1)
            return left, top, left + wide, top + tall
    return None


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (300, 300), (640, 200)])
def test_pieces_of_photographs_have_the_law_of_ten_tries(size):
    rng = np.random.default_rng(1)
    drawn = [box for _ in range(20_000) if (box := written_out(*size, rng))]
    found, _ = boxes(RandomCrop(), *size)
    fallback = central_piece(*size)
    own = np.array([box for box in found.tolist() if tuple(box) != fallback])
    assert abs(len(own) - len(drawn)) < 5 * math.sqrt(20_000 * 0.25)
    drawn = np.array(drawn)
    for place in range(4):
        assert stats.ks_2samp(own[:, place], drawn[:, place]).pvalue > ERROR
    for mine, other in zip(sizes(own), sizes(drawn), strict=True):
        assert stats.ks_2samp(mine, other).pvalue > ERROR


def central_piece(width, height):
    """Return the largest piece in the centre with a ratio from 3/4 to 4/3."""
    wide, tall = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


@pytest.mark.parametrize("size", [(3000, 100), (100, 3000), (90, 2001)])
def test_after_ten_tries_it_is_the_largest_piece_in_the_centre(size):
    """Nearly always in so long a picture, since a piece of 8 % of its area has to fit."""
    found, _ = boxes(RandomCrop(), *size, count=200)
    counts = Counter(map(tuple, found.tolist()))
    assert counts[central_piece(*size)] >= 190


def test_every_piece_is_inside_of_its_picture_and_has_pixels():
    rng = np.random.default_rng(0)
    for size in [(1, 1), (1, 7), (2, 3), (9, 2), *rng.integers(1, 60, (40, 2)).tolist()]:
        found, _ = boxes(RandomCrop(), *size, count=100)
        wide, tall = sizes(found)
        assert (found[:, :2] >= 0).all()
        assert (found[:, 2] <= size[0]).all()
        assert (found[:, 3] <= size[1]).all()
        assert min(*wide, *tall) >= 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_as_many_pieces_are_flipped_as_the_law_says(share):
    law = RandomCrop(flip=share)
    rows = PositionNumbers(torch.Generator().manual_seed(0)).of(0, 20_000)
    flipped = sum(map(law.is_flipped, rows))
    assert stats.binomtest(flipped, 20_000, share).pvalue > ERROR


def test_numbers_are_uniform_and_those_of_different_positions_independent():
    numbers = PositionNumbers(torch.Generator().manual_seed(0)).of(0, 5_000)
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > ERROR
    assert len(np.unique(numbers)) == numbers.size
    for shift in (1, 2, NUMBERS):
        flat = numbers.ravel()
        assert stats.pearsonr(flat[:-shift], flat[shift:]).pvalue > ERROR


def test_numbers_of_a_position_depend_on_it_and_on_the_seed_alone():
    numbers = PositionNumbers(torch.Generator().manual_seed(3))
    whole = numbers.of(0, 50)
    for first, count in ((0, 1), (1, 1), (17, 20), (49, 1)):
        assert np.array_equal(numbers.of(first, count), whole[first : first + count])
    other = PositionNumbers(torch.Generator().manual_seed(4)).of(0, 50)
    assert not (whole == other).any()


@pytest.mark.parametrize(
    ("size", "resized", "box"),
    [
        ((500, 375), (341, 256), (58, 16, 282, 240)),  # 341.33 is cut off
        ((375, 500), (256, 341), (16, 58, 240, 282)),
        ((640, 427), (383, 256), (80, 16, 304, 240)),  # half a pixel goes to the even one
        ((100, 100), (256, 256), (16, 16, 240, 240)),
    ],
)
def test_the_centre_is_that_of_the_published_evaluation(size, resized, box):
    assert resized_for_centre(*size, 256) == resized
    assert central_box(*resized, 224) == box
