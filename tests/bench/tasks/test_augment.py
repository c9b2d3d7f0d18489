"""Crops and flips of whole batches: as image by image, and by their statistics."""

import itertools

import pytest
import torch
from scipy import stats

from sgdf.bench.tasks.cifar.augment import AugmentedPairs, crop
from sgdf.bench.tasks.cifar.data import DEVIATION, MEAN
from sgdf.bench.tasks.images.normalised import Normalised

PLACES = 9
WAYS = list(itertools.product(range(PLACES), range(PLACES), (False, True)))


def piece(image, down, right, flipped):
    """Crop one image pixel by pixel."""
    channels, height, width = image.shape
    found = torch.zeros_like(image)
    for channel, row, column in itertools.product(range(channels), range(height), range(width)):
        above, left = row + down - 4, column + right - 4
        if 0 <= above < height and 0 <= left < width:
            place = width - 1 - column if flipped else column
            found[channel, row, place] = image[channel, above, left]
    return found


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 5, 8), (1, 9, 4)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_way_to_crop_and_flip_is_as_image_by_image(shape, dtype):
    images = torch.randint(1, 256, (len(WAYS), *shape)).to(dtype)
    before = images.clone()
    down, right, flipped = map(torch.tensor, zip(*WAYS, strict=True))
    found = crop(images, down, right, flipped)
    expected = [piece(image, *way) for image, way in zip(images, WAYS, strict=True)]
    assert found.dtype == dtype
    assert torch.equal(found, torch.stack(expected))
    assert torch.equal(images, before)


def test_what_is_done_to_a_batch_is_not_done_to_the_images():
    images = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)
    before = images.clone()
    crop(images, *torch.full((2, 2), 4), torch.zeros(2, dtype=torch.bool)).fill_(0)
    assert torch.equal(images, before)


def telling(count, side=12):
    """Return images whose pixels tell where they are, and in which image."""
    rows = torch.arange(1, side + 1)[:, None].expand(side, side)
    numbers = torch.arange(count)
    parts = [
        rows.expand(count, side, side),
        rows.T.expand(count, side, side),
        (numbers // 256)[:, None, None].expand(count, side, side),
        (numbers % 256)[:, None, None].expand(count, side, side),
    ]
    return torch.stack(parts, 1).to(torch.uint8)


def told(images):
    """Return number, place and flip of each of these images, by the pixels in the middle."""
    row, column, high, low = images[:, :, 6, 6].long().T
    flipped = images[:, 1, 6, 7].long() < column
    down = row - 1 - 6 + 4
    right = column - 1 - torch.where(flipped, 11 - 6, 6) + 4
    return 256 * high + low, down, right, flipped


def batches(count, batch_size, seed):
    targets = torch.arange(count) * 3
    return AugmentedPairs(telling(count), targets, batch_size, torch.Generator().manual_seed(seed))


def test_what_the_pixels_tell_is_what_was_done():
    down, right, flipped = map(torch.tensor, zip(*WAYS, strict=True))
    found = told(crop(telling(len(WAYS)), down, right, flipped))
    for mine, other in zip(found, (torch.arange(len(WAYS)), down, right, flipped), strict=True):
        assert torch.equal(mine, other)


def test_an_epoch_has_every_image_once_with_its_target():
    epoch = batches(300, 64, seed=0)
    found = list(epoch)
    assert len(found) == len(epoch) == 5
    assert [len(images) for images, _ in found] == [64, 64, 64, 64, 300 - 4 * 64]
    images, targets = map(torch.cat, zip(*found, strict=True))
    numbers = told(images)[0]
    assert images.dtype == torch.uint8
    assert sorted(numbers.tolist()) == list(range(300))
    assert numbers.tolist() != list(range(300))
    assert torch.equal(targets, 3 * numbers)


@pytest.mark.parametrize("seed", range(3))
def test_crops_and_flips_are_uniform(seed):
    """Each chi-square test would fail for one seed in 1,000 if all is as it should be."""
    count = 100 * len(WAYS)
    ((images, _),) = batches(count, count, seed)
    numbers, down, right, flipped = told(images)
    ways = (down * PLACES + right) * 2 + flipped
    assert stats.chisquare(ways.bincount(minlength=len(WAYS))).pvalue > 1e-3
    # Nor do they depend on the image, or on when its turn comes.
    for which in (numbers, torch.arange(count)):
        table = torch.zeros(10, len(WAYS) // 2)
        table.index_put_((which * 10 // count, ways // 2), torch.ones(count), accumulate=True)
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3
    # Where an image stands in the order says nothing of its number.
    table = torch.zeros(10, 10)
    places = torch.arange(count) * 10 // count
    table.index_put_((places, numbers * 10 // count), torch.ones(count), accumulate=True)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3


def test_the_generator_alone_decides():
    torch.manual_seed(1)
    first = list(batches(50, 16, seed=7))
    state = torch.get_rng_state()
    again = list(batches(50, 16, seed=7))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    third = list(batches(50, 16, seed=7))
    for one, *others in zip(first, again, third, strict=True):
        assert all(torch.equal(a, b) for other in others for a, b in zip(one, other, strict=True))
    other = list(batches(50, 16, seed=8))
    for mine, theirs in zip(told(first[0][0]), told(other[0][0]), strict=True):
        assert not torch.equal(mine, theirs)


def test_a_batch_does_not_depend_on_the_ones_before():
    order = torch.Generator().manual_seed(0)
    epoch = AugmentedPairs(telling(50), torch.arange(50), 8, order)
    expected = list(epoch)
    torch.rand(3, generator=order)
    one, other = iter(epoch), iter(epoch)
    next(one)
    for number, (images, targets) in enumerate(other):
        assert torch.equal(images, expected[number][0])
        assert torch.equal(targets, expected[number][1])
        images.fill_(0)
    assert torch.equal(next(one)[0], expected[1][0])


def test_what_happens_to_an_image_does_not_depend_on_the_size_of_batches():
    small, large = (torch.cat([images for images, _ in batches(50, size, 0)]) for size in (7, 50))
    assert torch.equal(small, large)


def test_bytes_are_normalised_by_channel():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1)
    before = images.clone()
    layer = Normalised(MEAN, DEVIATION)
    found = layer(images)
    mean, deviation = (
        torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (MEAN, DEVIATION)
    )
    expected = (images.double() / 255 - mean) / deviation
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert not found.is_contiguous()
    assert torch.equal(images, before)
    assert not layer.state_dict()  # checkpoints have only what is trained
    torch.testing.assert_close(layer.double()(images), expected, rtol=0, atol=1e-6)
