"""Small images as bytes: what is read, how they are resized, what is refused."""

import numpy as np
import pytest
import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.tasks.digits.data import digits
from sgdf.bench.tasks.images.pixels import read_pixels, resized, to_bytes, to_numbers


def test_digits_are_bytes_in_the_splits_of_the_other_tasks():
    pixels, splits = read_pixels("digits"), digits()
    assert (pixels.colours, pixels.class_count) == (1, 10)
    for split, (images, labels) in splits.items():
        assert pixels.images[split].dtype is torch.uint8
        assert torch.equal(pixels.images[split].float(), (255 * images).round())
        assert torch.equal(pixels.classes[split], labels)


def test_bytes_are_the_same_after_a_way_through_numbers():
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_bytes(to_numbers(levels)), levels)
    assert to_bytes(torch.tensor([-2.0, 2.0])).tolist() == [0, 255]


def test_smaller_images_are_averages_of_squares():
    images = torch.randint(256, (3, 2, 12, 12), dtype=torch.uint8)
    expected = images.numpy().reshape(3, 2, 4, 3, 4, 3).mean((3, 5))
    assert np.array_equal(resized(images, 4).numpy(), np.rint(expected).astype(np.uint8))


def test_larger_images_keep_planes_and_their_own_size_is_left_alone():
    slope = torch.arange(8, dtype=torch.uint8).mul(20).expand(1, 1, 8, 8)
    larger = resized(slope, 16)[0, 0, 5].tolist()
    assert larger[1:-1] == [round(20 * (i / 2 - 0.25)) for i in range(1, 15)]
    assert resized(slope, 8) is slope


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("mnist",), "data = 'mnist': must be one of digits, cifar10"),
        (("cifar", -1), "data = 'cifar'.*cifar10"),
        (("digits", -1), "must not be negative"),
        (("cifar10", 0, 1), "validation_images = 1: must be 0, or at least 2"),
        (("digits", 5), 'leave them at 0 with data = "digits"'),
    ],
)
def test_what_cannot_be_read_is_refused(options, message):
    with pytest.raises(SpecError, match=message):
        read_pixels(*options)


def test_digests_tell_images_apart():
    assert read_pixels("digits").digest == read_pixels("digits").digest
    changed = read_pixels("digits")
    changed.images["test"][0, 0, 3, 3] ^= 1
    assert changed.digest != read_pixels("digits").digest
