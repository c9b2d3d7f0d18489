"""Pictures of files: which pixels come out, and what is said of files that are none."""

import numpy as np
import pytest
import torch
from PIL import Image

from made_pictures import photograph
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.assets import data_folder
from sgdf.bench.tasks.images.crops import PositionNumbers, RandomCrop
from sgdf.bench.tasks.images.folder_index import FORMATS
from sgdf.bench.tasks.images.pictures import CentralPicture, TrainingPicture

BILINEAR = Image.Resampling.BILINEAR


def numbers(count=1, seed=0):
    return PositionNumbers(torch.Generator().manual_seed(seed)).of(0, count)


def test_a_piece_is_cut_out_resized_and_flipped(tmp_path):
    path = tmp_path / "picture.png"
    photograph((120, 90)).save(path)
    seen = set()
    for row in numbers(30):
        law = RandomCrop()
        box, flipped = law.box(120, 90, row), law.is_flipped(row)
        with Image.open(path) as picture:
            piece = np.asarray(picture.crop(box).resize((32, 32), BILINEAR))
        expected = piece[:, ::-1] if flipped else piece
        assert np.array_equal(TrainingPicture(32)(path, row), expected)
        seen.add(flipped)
    assert seen == {False, True}


def test_an_evaluation_has_the_centre_of_the_resized_picture(tmp_path):
    path = tmp_path / "picture.jpg"
    photograph((121, 90)).save(path)
    with Image.open(path) as picture:
        resized = picture.resize((49, 37), BILINEAR)
    assert np.array_equal(CentralPicture(32, 37)(path), np.asarray(resized.crop((8, 2, 40, 34))))


def test_a_smaller_picture_is_made_of_all_pixels(tmp_path):
    """Antialiasing: a fine grid becomes grey, instead of the lines that a sampler would meet."""
    grid = np.indices((64, 64)).sum(0) % 2 * 255
    Image.fromarray(np.stack([grid] * 3, 2).astype(np.uint8)).save(tmp_path / "grid.png")
    small = CentralPicture(8, 8)(tmp_path / "grid.png").astype(int)
    assert abs(small - 128).max() <= 2


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "1"])
def test_pictures_of_any_kind_become_red_green_and_blue(mode, tmp_path):
    path = tmp_path / ("picture.jpg" if mode in ("L", "CMYK") else "picture.png")
    photograph((80, 80), mode=mode).save(path)
    for made in (TrainingPicture(32)(path, numbers()[0]), CentralPicture(32, 36)(path)):
        assert (made.shape, made.dtype) == ((32, 32, 3), np.uint8)


def differences(paths, side):
    """Return the mean and the largest difference that reduced decoding makes to each piece."""
    found = []
    for path, row in zip(paths, numbers(len(paths)), strict=True):
        full = TrainingPicture(side, reduced=False)(path, row).astype(int)
        reduced = TrainingPicture(side)(path, row).astype(int)
        found.append((abs(full - reduced).mean(), abs(full - reduced).max()))
    return np.array(found)


def test_reduced_decoding_changes_pixels_by_less_than_one_of_255_on_average(tmp_path):
    paths = [tmp_path / f"{number}.jpg" for number in range(20)]
    for number, path in enumerate(paths):
        photograph((640, 480), number).save(path, quality=90)
    found = differences(paths, 64)
    assert (found[:, 0] > 0).mean() > 0.8  # it was reduced
    assert found[:, 0].max() < 1.0
    assert found[:, 1].max() < 25


def test_reduced_decoding_of_photographs_changes_as_little():
    place = data_folder() / "voc_bccd" / "BCCD" / "JPEGImages"
    if not place.is_dir():
        pytest.skip(f"needs the photographs of BCCD in {place}")
    found = differences(sorted(place.glob("*.jpg"))[:60], 64)
    assert (found[:, 0] > 0).mean() > 0.8
    assert found[:, 0].max() < 1.0
    assert found[:, 1].max() < 25


@pytest.mark.parametrize("side", [33, 64, 100, 224])
def test_pieces_that_are_not_twice_as_large_are_decoded_whole(side, tmp_path):
    path = tmp_path / "picture.jpg"
    photograph((2 * side - 1, 2 * side - 1)).save(path)
    assert not differences([path] * 20, side).any()


def test_what_a_reduced_picture_lacks_is_at_its_edge_only(tmp_path):
    """A half of an odd number of lines has one more than that; no piece is moved by it."""
    ramp = np.broadcast_to(np.linspace(0, 255, 641)[None, :, None], (481, 641, 3))
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "ramp.jpg", quality=95)
    found = differences([tmp_path / "ramp.jpg"] * 40, 64)
    assert found[:, 1].max() <= 3


def damaged_files(folder):
    photograph((200, 200)).save(folder / "cut.jpg", quality=90)
    whole = (folder / "cut.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    photograph((200, 200)).save(folder / "cut.png")
    whole = (folder / "cut.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "page.jpg").write_text("<html>")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "folder.jpg").mkdir()
    return [*folder.iterdir(), folder / "missing.jpg"]


def test_the_error_of_a_file_names_it(tmp_path):
    paths = damaged_files(tmp_path)
    assert len(paths) == 6
    for path in paths:
        for decode in (
            lambda path: TrainingPicture(32)(path, numbers()[0]),
            CentralPicture(32, 32),
        ):
            with pytest.raises(DataError, match=f"{path} cannot be read as a picture: .") as caught:
                decode(path)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF"])
def test_common_formats_are_read_whatever_the_name(kind, tmp_path):
    path = tmp_path / "picture.jpg"
    photograph((40, 40)).save(path, kind)
    assert path.read_bytes().startswith(FORMATS[kind])
    assert CentralPicture(32, 32)(path).shape == (32, 32, 3)


@pytest.mark.parametrize("kind", ["EPS", "TGA", "ICO"])
def test_no_other_format_is_opened_whatever_the_name(kind, tmp_path):
    """An EPS would be run by Ghostscript."""
    path = tmp_path / "picture.jpg"
    photograph((40, 40)).save(path, kind)
    with Image.open(path) as picture:
        assert picture.format == kind
    with pytest.raises(DataError, match=f"{path} cannot be read as a picture: cannot identify"):
        CentralPicture(32, 32)(path)
