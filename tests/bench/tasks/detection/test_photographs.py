"""Photographs with boxes: what is read from folders in VOC's layout, and what is refused."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from made_photographs import LISTS, SHAPES, annotation, thing, write_photographs
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.detection.photographs import BCCD, VOC, digest_of

pytest.importorskip("PIL", reason="needs Pillow, which writes the photographs")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with sixteen photographs in VOC's layout."""
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    return write_photographs(tmp_path) / "made" / "SHAPES"


def refused(photographs=SHAPES, **options):
    with pytest.raises(DataError) as error:
        photographs.read(**options)
    return str(error.value)


def test_every_split_has_its_photographs_in_the_order_of_its_list(place):
    splits = SHAPES.read()
    names = [path.path.stem for part in splits.values() for path in part]
    assert names == [f"{number:04}" for number in range(16)]
    assert {name: len(part) for name, part in splits.items()} == SHAPES.counts
    assert all(one.path.parent == place / "JPEGImages" for one in splits["test"])


@pytest.mark.usefixtures("place")
def test_boxes_are_around_what_they_name():
    """In the middle of the last thing drawn are its colours."""
    expected = [(230, 60, 50), (40, 90, 220), (60, 200, 80)]
    for photograph in SHAPES.read()["train"]:
        truth, pixels = photograph.annotation.truth, photograph.pixels()
        left, top, right, bottom = truth.boxes[-1].tolist()
        middle = pixels[:, int(top + bottom) // 2, int(left + right) // 2].int()
        colour = torch.tensor(expected[int(truth.classes[-1]) - 1])
        assert (middle - colour).abs().max() < 30


@pytest.mark.usefixtures("place")
def test_pixels_can_be_scaled():
    photograph = SHAPES.read()["train"][1]
    assert photograph.pixels().shape == (3, 48, 64)
    small = photograph.pixels((32, 24))
    assert small.shape == (3, 24, 32)
    means = photograph.pixels().float().unfold(1, 2, 2).unfold(2, 2, 2).mean((3, 4))
    assert (means - small.float()).abs().mean() < 8


@pytest.mark.usefixtures("place")
def test_a_set_of_two_folders_has_the_photographs_of_both():
    both = dataclasses.replace(
        SHAPES,
        splits={**SHAPES.splits, "train": (("made/SHAPES", "train"), ("made/SHAPES", "val"))},
    )
    assert len(both.read(official=False)["train"]) == 12


def test_missing_files_are_named_in_one_message(place):
    for name in ("JPEGImages/0003.jpg", "Annotations/0003.xml", "Annotations/0004.xml"):
        (place / name).unlink()
    (place / "ImageSets/Main/test.txt").unlink()
    message = refused()
    first = message.partition("\n")[0]
    for name in ("0003.jpg", "0003.xml", "0004.xml", "and 1 more"):
        assert name in first
    assert "The test writes them." in message
    assert str(place) in message
    assert "--data FOLDER" in message


@pytest.mark.parametrize("photographs", [VOC, BCCD])
def test_without_data_the_message_says_where_to_get_them_and_where_to_put_them(
    tmp_path, monkeypatch, photographs
):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    message = refused(photographs)
    assert "http" in message
    assert "train.txt" in message
    for parts in photographs.splits.values():
        for folder, _ in parts:
            assert str(tmp_path / folder) in message


def test_the_message_about_voc_has_the_checksums_of_three_archives(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    assert refused(VOC).count(".tar") == 3


def test_the_published_lists_of_voc_have_16551_photographs_to_train_on():
    assert VOC.counts["train"] + VOC.counts["validation"] == 5_011 + 11_540
    assert VOC.counts["test"] == 4_952
    assert len(VOC.classes) == 20


def test_another_number_of_photographs_is_taken_only_knowingly(place):
    (place / "ImageSets/Main/train.txt").write_text("0000\n0001\n")
    assert "2 photographs, not 8" in refused()
    assert len(SHAPES.read(official=False)["train"]) == 2
    (place / "ImageSets/Main/train.txt").write_text("\n")
    assert "0 photographs" in refused(official=False)


@pytest.mark.parametrize(
    ("name", "why"),
    [("../0001", "no name"), (".hidden", "no name"), ("0001\n0001", "twice")],
)
def test_lists_with_impossible_names_are_refused(place, name, why):
    (place / "ImageSets/Main/train.txt").write_text(f"{name}\n")
    assert why in refused(official=False)


def test_lists_that_are_no_text_are_refused(place):
    (place / "ImageSets/Main/val.txt").write_bytes(b"\xff\xfe\x00")
    assert "val.txt cannot be read" in refused()


def test_damaged_annotations_are_named(place):
    (place / "Annotations/0002.xml").write_bytes(annotation(thing("dog", (1, 2, 3, 4))))
    assert "0002.xml: 'dog' is none of the classes square, bar, dot" in refused()


@pytest.mark.parametrize("damage", ["cut", "text", "other size", "folder"])
def test_damaged_photographs_are_refused_in_a_sentence(place, damage):
    path = place / "JPEGImages/0001.jpg"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_text("no photograph")
    elif damage == "other size":
        path.write_bytes((place / "JPEGImages/0000.jpg").read_bytes())
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(DataError, match=r"0001\.jpg cannot be read"):
        SHAPES.read()["train"][1].pixels()


@pytest.mark.usefixtures("place")
def test_a_digest_changes_with_boxes_flags_and_pixels(place):
    def digests():
        splits = SHAPES.read()
        return [digest_of(splits["test"], with_pixels) for with_pixels in (True, False)]

    before = digests()
    assert before == digests()
    assert all(digest.endswith(" of 4 photographs") for digest in before)
    path = place / "Annotations/0015.xml"
    content = path.read_bytes()
    seen = [before]
    for old, new in ((b"<xmin>", b"<xmin>1"), (b"<difficult>0", b"<difficult>1")):
        path.write_bytes(content.replace(old, new, 1))
        seen.append(digests())
    path.write_bytes(content)
    photograph = place / "JPEGImages/0012.jpg"
    pixels = bytearray(photograph.read_bytes())
    pixels[-40] ^= 1
    photograph.write_bytes(pixels)
    seen.append([digests()[0], "of as many bytes"])
    for column in zip(*seen, strict=True):
        assert len(set(column)) == len(column)
    assert digests()[1] == before[1]


def test_every_list_is_read_once_per_folder_not_once_per_photograph(place, monkeypatch):
    seen = []
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: seen.append(path) or listed(path))
    SHAPES.read()
    assert len(seen) == 2 * len(LISTS)


real = pytest.mark.skipif(
    not (Path(os.environ.get("SGDF_DATA", "")) / "voc_bccd").is_dir(),
    reason="needs voc_bccd in the folder SGDF_DATA",
)


@real
def test_the_photographs_of_blood_have_the_published_boxes_but_for_two():
    counts = [0, 0, 0]
    for part in BCCD.read().values():
        for photograph in part:
            assert (photograph.annotation.width, photograph.annotation.height) == (640, 480)
            for number in photograph.annotation.truth.classes.tolist():
                counts[number - 1] += 1
    assert sum(counts) == 4_888 - 2
    assert counts[1] == 372


@real
def test_the_photographs_of_blood_can_be_read():
    for photograph in BCCD.read()["test"][:5]:
        pixels = photograph.pixels((240, 180))
        assert pixels.shape == (3, 180, 240)
        assert pixels.float().std() > 10
