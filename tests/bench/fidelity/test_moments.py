"""Moments of batches are those of the whole."""

import io

import numpy as np
import pytest
import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.fidelity import moments as module
from sgdf.bench.fidelity.moments import Moments


def features(count=500, size=7, seed=0):
    """Return features that depend on each other."""
    noise = torch.Generator().manual_seed(seed)
    mixed = torch.randn(size, size, generator=noise, dtype=torch.float64)
    return torch.randn(count, size, generator=noise, dtype=torch.float64) @ mixed


def moments_of(*batches):
    found = Moments(batches[0].shape[1])
    for batch in batches:
        found.add(batch)
    return found


def assert_are_of(moments, whole, tolerance=1e-12):
    whole = whole.double().numpy()
    deviations = whole.std(0)
    np.testing.assert_allclose(
        moments.mean.numpy() / deviations, whole.mean(0) / deviations, rtol=1e-12, atol=1e-12
    )
    scale = np.outer(deviations, deviations)
    np.testing.assert_allclose(
        moments.covariance.numpy() / scale, np.cov(whole, rowvar=False) / scale, atol=tolerance
    )
    assert moments.count == len(whole)


@pytest.mark.parametrize("sizes", [[500], [1, 499], [250, 250], [499, 1], [1] * 500, [3, 400, 97]])
def test_batches_of_any_size_give_the_moments_of_the_whole(sizes):
    whole = features()
    assert_are_of(moments_of(*whole.split(sizes)), whole)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
def test_a_mean_far_from_zero_costs_no_digits(offset):
    """The mean itself is rounded to 1e-16 of the offset, and the features alike."""
    whole = features() + offset
    assert_are_of(moments_of(*whole.split(50)), whole, tolerance=1e-13 + offset * 1e-15)


def test_features_in_float32_and_half_are_added_in_float64():
    whole = features().float() + 1e4
    assert_are_of(moments_of(*whole.split(33)), whole)
    half = features().half()
    assert_are_of(moments_of(*half.split(33)), half)


def test_large_batches_are_divided(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    whole = features()
    divided = moments_of(whole)
    assert torch.equal(divided.covariance, moments_of(*whole.split(64)).covariance)


def test_a_stream_continues_from_its_state_to_the_bit():
    batches = features().split(60)
    whole = moments_of(*batches)
    buffer = io.BytesIO()
    torch.save(moments_of(*batches[:4]).state(), buffer)
    buffer.seek(0)
    resumed = Moments.of_state(torch.load(buffer, weights_only=True))
    for batch in batches[4:]:
        resumed.add(batch)
    assert resumed.count == whole.count
    assert torch.equal(resumed.mean, whole.mean)
    assert torch.equal(resumed.covariance, whole.covariance)


def test_a_state_stays_as_it_was_while_the_stream_goes_on():
    moments = moments_of(features())
    state = moments.state()
    before = moments.covariance
    moments.add(features(seed=1))
    Moments.of_state(state).add(features(seed=2))
    assert torch.equal(Moments.of_state(state).covariance, before)


def test_features_are_left_as_they_are():
    whole = features(5).requires_grad_()
    before = whole.detach().clone()
    found = moments_of(whole)
    assert torch.equal(whole, before)
    assert not found.covariance.requires_grad


def test_one_image_has_no_covariance():
    one = moments_of(features(1))
    with pytest.raises(SpecError, match="at least 2 images, and there are 1"):
        _ = one.covariance
