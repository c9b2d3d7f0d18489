"""Reference files in the layout of ADM's evaluator, whole and broken."""

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch

from sgdf.bench.errors import DataError
from sgdf.bench.fidelity.collected import Collected, scores
from sgdf.bench.fidelity.features import Features
from sgdf.bench.fidelity.reference import reference_of


def brightness(images):
    """Return features as an extractor does: the mean of each colour."""
    return Features(images.double().mean((2, 3)))


@pytest.fixture
def images():
    noise = np.random.default_rng(0)
    return noise.integers(0, 256, (70, 5, 4, 3), dtype=np.uint8)


@pytest.fixture
def arrays(images):
    """What a file has: moments of the images, as if they were of more."""
    features = images.astype(np.float64).mean((1, 2))
    return {
        "mu": features.mean(0),
        "sigma": np.cov(features, rowvar=False),
        "mu_s": np.ones(2, dtype=np.float32),
        "sigma_s": np.eye(2, dtype=np.float32),
        "arr_0": images,
    }


def write(folder, arrays, save=np.savez):
    path = folder / "reference.npz"
    save(path, **arrays)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_moments_and_images_are_read(tmp_path, arrays, images, save):
    reference = reference_of(write(tmp_path, arrays, save))
    assert np.array_equal(reference.pooled.mean, arrays["mu"])
    assert np.array_equal(reference.pooled.covariance, arrays["sigma"])
    assert reference.spatial.covariance.dtype == torch.float64
    assert reference.images == 70
    batches = list(reference.batches(32))
    assert [tuple(batch.shape) for batch in batches] == [(32, 3, 5, 4), (32, 3, 5, 4), (6, 3, 5, 4)]
    assert np.array_equal(torch.cat(batches).permute(0, 2, 3, 1), images)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("first", [0, 1, 32, 69, 70])
def test_images_are_read_from_one_of_them_on(tmp_path, arrays, images, save, first):
    batches = list(reference_of(write(tmp_path, arrays, save)).batches(32, first))
    found = torch.cat(batches) if batches else torch.zeros(0, 3, 5, 4)
    assert np.array_equal(found.permute(0, 2, 3, 1), images[first:])


def test_the_digest_is_of_the_moments_and_the_images(tmp_path, arrays):
    before = reference_of(write(tmp_path, arrays)).digest
    digests = {before}
    assert reference_of(write(tmp_path, arrays, np.savez_compressed)).digest == before
    for name in arrays:
        changed = arrays[name].copy()
        changed.flat[5 % changed.size] += 1
        digests.add(reference_of(write(tmp_path, {**arrays, name: changed})).digest)
    del arrays["arr_0"]
    digests.add(reference_of(write(tmp_path, arrays)).digest)
    assert len(digests) == 7


def test_scores_against_a_file_are_those_against_its_images(tmp_path, arrays):
    reference = reference_of(write(tmp_path, arrays))
    real, drawn = Collected(kept=40), Collected(kept=40)
    for batch in reference.batches(16):
        real.add(brightness(batch))
        drawn.add(brightness(255 - batch))
    summary = reference.summary(brightness, kept=40, batch=16)
    found = scores(summary, drawn, is_inception=False)
    assert found == pytest.approx(scores(real, drawn, is_inception=False), rel=1e-10)
    assert 0 < found["precision"] < 1
    assert len(summary.kept) == 40


def test_without_images_or_extractor_there_is_no_precision(tmp_path, arrays):
    with_images = reference_of(write(tmp_path, arrays))
    assert with_images.summary().kept is None
    assert with_images.summary(brightness, kept=0).kept is None
    del arrays["arr_0"]
    without = reference_of(write(tmp_path, arrays))
    assert without.images == 0
    assert without.summary(brightness).kept is None


def test_spatial_moments_may_be_absent(tmp_path, arrays):
    del arrays["mu_s"], arrays["sigma_s"]
    assert reference_of(write(tmp_path, arrays)).spatial is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mu": None, "sigma": None}, "it has mu_s, sigma_s beside images"),
        ({"sigma": None}, "of mu and sigma, it has mu alone"),
        ({"mu_s": None}, "of mu_s and sigma_s, it has sigma_s alone"),
        ({"mu": np.ones(4)}, r"mu and sigma have the shapes \(4,\) and \(3, 3\)"),
        ({"mu": np.ones((3, 1))}, r"the shapes \(3, 1\) and"),
        ({"mu": np.ones(3, dtype=np.int64)}, "not floating-point"),
        ({"mu": np.array([None] * 3)}, "allow_pickle=False"),
        ({"arr_0": np.ones((2, 5, 4, 3))}, "its arr_0 has the shape .* and the type float64"),
        ({"arr_0": np.ones((2, 5, 4), np.uint8)}, r"its arr_0 has the shape \(2, 5, 4\)"),
        ({"arr_0": np.ones((2, 3, 5, 4), np.uint8)}, r"its arr_0 has the shape \(2, 3, 5, 4\)"),
        ({"arr_0": np.asfortranarray(np.ones((2, 5, 4, 3), np.uint8))}, "its arr_0 has the shape"),
        ({"arr_0": np.array([None])}, "is no reference file"),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, changes, message):
    arrays |= changes
    path = write(tmp_path, {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DataError, match=message) as caught:
        reference_of(path)
    assert str(path) in str(caught.value)
    assert "must be an .npz file with the arrays mu (d)" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but no archive", b"\x93NUMPY", b"text"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "reference.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is no reference file"):
        reference_of(path)


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "mu.npy", np.ones(3))
    with pytest.raises(DataError, match="is no reference file"):
        reference_of(tmp_path / "mu.npy")


def test_a_pickle_is_not_executed(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("trap").touch, ())

    path = tmp_path / "reference.npz"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="is no reference file"):
        reference_of(path)
    assert not (tmp_path / "trap").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.npz: there is no such file"):
        reference_of(tmp_path / "absent.npz")


def test_fewer_images_than_announced_are_noticed(tmp_path, arrays, images):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": (71, 5, 4, 3), "fortran_order": False, "descr": "|u1"}
    )
    del arrays["arr_0"]
    path = write(tmp_path, arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("arr_0.npy", header.getvalue() + images.tobytes())
    reference = reference_of(path)
    assert reference.images == 71
    with pytest.raises(DataError, match="the file ends before its last image"):
        list(reference.batches(32))


def test_an_image_that_is_cut_short_is_noticed(tmp_path, arrays):
    path = write(tmp_path, arrays)
    reference = reference_of(path)
    content = path.read_bytes()
    start = content.index(arrays["arr_0"].tobytes()[:40])
    path.write_bytes(content[: start + 100] + bytes(200) + content[start + 300 :])
    with pytest.raises(DataError, match=r"its images cannot be read: .*CRC"):
        list(reference.batches(32))
    path.unlink()
    with pytest.raises(DataError, match="its images cannot be read"):
        list(reference.batches(32))
