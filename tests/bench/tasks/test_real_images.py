"""The real images that drawn ones are compared with: splits, stretching, kept features."""

import numpy as np
import pytest
import torch

from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.fidelity.features import Features
from sgdf.bench.tasks.images import real_features
from sgdf.bench.tasks.images.extractors import find_extractor
from sgdf.bench.tasks.images.pixels import read_pixels
from sgdf.bench.tasks.images.real_images import PublishedImages, RealImages, stretched
from sgdf.bench.tasks.long_evaluation import LongEvaluation


class Means:
    """An extractor whose features are the means of the colours, and which counts its images."""

    name, is_inception, digest = "means", False, "1"

    def __init__(self):
        self.seen = 0

    def __call__(self, images):
        """Return the means."""
        self.seen += len(images)
        return Features(images.float().mean((2, 3)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    return tmp_path


def random_images(count, colours=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, colours, 4, 4), generator=generator, dtype=torch.uint8)


def test_empty_splits_are_none():
    assert RealImages({"validation": random_images(0), "test": random_images(3)}, 4).splits == (
        "test",
    )


def test_a_single_image_is_refused_before_anything_is_drawn():
    with pytest.raises(SpecError, match="1 real image of test: to compare takes at least 2"):
        RealImages({"validation": random_images(2), "test": random_images(1)}, 4)


def test_images_are_compared_in_three_colours_of_one_size():
    real = RealImages({"test": random_images(3, colours=1)}, side=8)
    assert real.prepared(real.images["test"]).shape == (3, 3, 8, 8)


def test_stretching_uses_each_images_own_extremes():
    images = random_images(5) // 4 + 30
    found = stretched(images).flatten(1)
    assert (found.amin(1) == 0).all()
    assert (found.amax(1) == 255).all()
    in_order = found.gather(1, images.flatten(1).argsort(1)).int()
    assert (in_order.diff(dim=1) >= 0).all()
    assert stretched(torch.full((1, 3, 4, 4), 7, dtype=torch.uint8)).unique().tolist() == [0]


def test_features_of_many_images_are_computed_once_and_kept(folder, monkeypatch):
    monkeypatch.setattr(real_features, "KEPT_FROM", 100)
    images, means = random_images(600), Means()
    whole = RealImages({"test": images}, 4).features("test", means, LongEvaluation()).summary()
    assert means.seen == 600
    again = RealImages({"test": images}, 4).features("test", means, LongEvaluation()).summary()
    assert means.seen == 600
    assert torch.equal(whole.pooled.covariance, again.pooled.covariance)
    assert torch.equal(whole.kept, again.kept)


@pytest.mark.parametrize("change", ["image", "side", "stretch", "extractor", "damage"])
def test_kept_features_are_not_those_of_anything_else(change, folder, monkeypatch):
    monkeypatch.setattr(real_features, "KEPT_FROM", 100)
    images, means = random_images(120), Means()
    RealImages({"test": images}, 4).features("test", means, LongEvaluation())
    if change == "image":
        images = images.clone()
        images[7, 0, 0, 0] ^= 1
    elif change == "extractor":
        means.digest = "2"
    elif change == "damage":
        (path,) = (folder / "fidelity").iterdir()
        path.write_bytes(path.read_bytes()[:-100])
    side, stretch = 8 if change == "side" else 4, change == "stretch"
    RealImages({"test": images}, side, stretch).features("test", means, LongEvaluation())
    assert means.seen == 240


def test_features_that_cannot_be_kept_are_computed_all_the_same(folder, monkeypatch):
    monkeypatch.setattr(real_features, "KEPT_FROM", 100)
    (folder / "fidelity").write_text("in the way")
    means = Means()
    found = RealImages({"test": random_images(120)}, 4).features("test", means, LongEvaluation())
    assert (found.count, means.seen) == (120, 120)


def test_digits_are_told_from_noise():
    pixels, extractor = read_pixels("digits"), find_extractor("digits-cnn")
    probabilities = extractor(pixels.images["test"].expand(-1, 3, -1, -1)).probabilities
    assert (probabilities.argmax(1) == pixels.classes["test"]).float().mean() > 0.93
    assert extractor(random_images(3)).pooled.shape == (3, 32)


class Watched(LongEvaluation):
    """Keeps the states of features, and stops when a number of them is there."""

    def __init__(self, state=None, stop_at=10**9):
        self.state, self.stop_at, self.told = state, stop_at, []

    def kept(self, what):
        """Return what was given."""
        return self.state

    def advance(self, what, done, total, state=None):
        """Note it."""
        self.told.append((done, total))
        self.state = state()
        if done >= self.stop_at:
            raise KeyboardInterrupt


def reference_file(folder, images, shift=0.0):
    numbers = images.movedim(1, 3).numpy()
    features = images.double().mean((2, 3)).numpy() + shift
    arrays = {"mu": features.mean(0), "sigma": np.cov(features.T)}
    np.savez(folder / "real.npz", **arrays, arr_0=numbers)
    return PublishedImages("real.npz")


def test_features_of_a_file_are_computed_once_and_kept(folder, monkeypatch):
    monkeypatch.setattr(real_features, "KEPT_FROM", 100)
    images, means = random_images(150), Means()
    whole = reference_file(folder, images).features("test", means, LongEvaluation())
    assert means.seen == 150
    assert torch.equal(whole.kept, images.float().mean((2, 3)))
    again = PublishedImages("real.npz").features("test", means, LongEvaluation())
    assert means.seen == 150
    assert torch.equal(whole.kept, again.kept)
    assert torch.equal(whole.pooled.covariance, again.pooled.covariance)


@pytest.mark.parametrize("change", ["images", "moments", "extractor", "kept"])
def test_features_of_another_file_are_not_taken(change, folder, monkeypatch):
    monkeypatch.setattr(real_features, "KEPT_FROM", 50)
    means = Means()
    reference_file(folder, random_images(120)).features("test", means, LongEvaluation())
    changed = random_images(120, seed=1) if change == "images" else random_images(120)
    real = reference_file(folder, changed, shift=1.0 if change == "moments" else 0.0)
    means.digest = "2" if change == "extractor" else "1"
    kept = 100 if change == "kept" else 10_000
    found = real.features("test", means, LongEvaluation(), kept)
    assert means.seen == 120 + min(120, kept)
    assert torch.equal(found.kept, changed[:kept].float().mean((2, 3)))


def test_features_of_a_file_continue_to_the_bit(folder):
    images, whole, rest = random_images(150), Means(), Means()
    real = reference_file(folder, images)
    expected = real.features("test", whole, LongEvaluation())
    stopped = Watched(stop_at=128)
    with pytest.raises(KeyboardInterrupt):
        real.features("test", Means(), stopped)
    continued = Watched(stopped.state)
    assert torch.equal(real.features("test", rest, continued).kept, expected.kept)
    assert (rest.seen, continued.told) == (22, [(150, 150)])


def test_a_file_without_images_has_no_features_to_compute(folder):
    np.savez(folder / "real.npz", mu=np.ones(3), sigma=np.eye(3))
    means = Means()
    assert PublishedImages("real.npz").features("test", means, LongEvaluation()).kept is None
    assert means.seen == 0


def test_statistics_of_a_file_are_the_test_data(folder):
    numbers = np.random.default_rng(0).normal(size=(50, 3))
    np.savez(folder / "real.npz", mu=numbers.mean(0), sigma=np.cov(numbers.T))
    real = PublishedImages("real.npz")
    assert real.splits == ("test",)
    summary = real.features("test", Means(), LongEvaluation())
    assert np.allclose(summary.pooled.mean, numbers.mean(0))
    assert list(real.digests()) == ["data of test"]
    with pytest.raises(DataError, match="there is no such file"):
        PublishedImages("other.npz")
