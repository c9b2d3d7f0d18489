"""The fixed vectors of numbers and places."""

import math

import pytest
import torch

from sgdf.bench.tasks.diffusion.positions import grid_positions, waves


def test_waves_are_sines_and_cosines_from_one_to_ten_thousand():
    numbers, width = [0.0, 1.0, 7.5, 999.0], 12
    found = waves(torch.tensor(numbers, dtype=torch.float64), width)
    for row, number in zip(found.tolist(), numbers, strict=True):
        angles = [number / 10_000 ** (2 * k / width) for k in range(width // 2)]
        expected = [*map(math.sin, angles), *map(math.cos, angles)]
        assert row == pytest.approx(expected, abs=1e-12)


def test_half_of_a_place_tells_its_row_and_half_its_column():
    side, width = 5, 16
    table = grid_positions(side, width).view(side, side, width)
    axis = waves(torch.arange(side, dtype=torch.float64), width // 2).float()
    for row in range(side):
        for column in range(side):
            torch.testing.assert_close(table[row, column, : width // 2], axis[row])
            torch.testing.assert_close(table[row, column, width // 2 :], axis[column])


def test_how_alike_two_places_are_depends_on_the_way_between_them():
    table = grid_positions(6, 32).view(6, 6, 32)
    likeness = torch.einsum("abw,cdw->abcd", table, table)
    torch.testing.assert_close(likeness[0, 1, 2, 4], likeness[3, 2, 5, 5])
    assert likeness[2, 2, 2, 2] > likeness[2, 2, 2, 3] > likeness[2, 2, 2, 4]
