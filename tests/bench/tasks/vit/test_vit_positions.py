"""Position embeddings of another grid, against scipy."""

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom

from sgdf.bench.tasks.vit.positions import resized_positions

GRIDS = [(7, 12), (8, 12), (7, 7), (12, 7), (2, 5), (5, 2), (3, 24), (14, 37)]


def positions(grid, hidden=6):
    return torch.randn(1, 1 + grid**2, hidden, generator=torch.Generator().manual_seed(grid))


@pytest.mark.parametrize(("before", "after"), GRIDS)
def test_grids_are_interpolated_as_scipy_zooms_them(before, after):
    given = positions(before)
    plane = given[0, 1:].reshape(before, before, -1).double().numpy()
    expected = zoom(plane, (after / before, after / before, 1), order=1)
    found = resized_positions(given, after)
    assert found.shape == (1, 1 + after**2, 6)
    np.testing.assert_allclose(found[0, 1:].numpy(), expected.reshape(after**2, -1), atol=1e-5)


@pytest.mark.parametrize(("before", "after"), GRIDS)
def test_the_token_of_the_whole_image_and_the_corners_are_kept(before, after):
    given = positions(before)
    found = resized_positions(given, after)
    assert torch.equal(found[:, 0], given[:, 0])
    corners = [found[0, 1:].reshape(after, after, -1)[i, j] for i in (0, -1) for j in (0, -1)]
    known = [given[0, 1:].reshape(before, before, -1)[i, j] for i in (0, -1) for j in (0, -1)]
    torch.testing.assert_close(torch.stack(corners), torch.stack(known))


def test_a_grid_of_the_same_side_is_untouched():
    given = positions(4)
    assert torch.equal(resized_positions(given, 4), given)
