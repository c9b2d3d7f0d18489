"""Pets, flowers and food in their published layouts, and what is said where files are missing."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from sgdf.bench.errors import DataError
from sgdf.bench.tasks.vit.data import NAMES, read_data
from sgdf.bench.tasks.vit.layouts import LAYOUTS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    return tmp_path


def picture(path, colour=(200, 100, 0), size=(20, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def write_pets(folder):
    place = folder / "oxford-iiit-pet"
    lists = {
        "trainval": ["# comment", "Abyssinian_201 1 1 1", "beagle_7 5 2 1", "pug_3 27 2 9"],
        "test": ["beagle_100 5 2 1", "pug_9 27 2 9"],
    }
    (place / "annotations").mkdir(parents=True)
    for name, lines in lists.items():
        (place / f"annotations/{name}.txt").write_text("\n".join(lines) + "\n")
        for line in lines[name == "trainval" :]:
            picture(place / f"images/{line.split()[0]}.jpg")
    return place


def write_flowers(folder):
    place = folder / "flowers-102"
    for number in range(1, 9):
        picture(place / f"jpg/image_{number:05d}.jpg")
    labels = np.array([[3, 3, 1, 1, 102, 102, 3, 1]], np.uint8)
    ids = {"trnid": [[1, 4, 6]], "valid": [[3, 5, 2]], "tstid": [[8, 7]]}
    savemat(place / "imagelabels.mat", {"labels": labels})
    savemat(place / "setid.mat", {k: np.array(v, np.uint16) for k, v in ids.items()})
    return place


def write_food(folder):
    place = folder / "food-101"
    (place / "meta").mkdir(parents=True)
    (place / "meta/classes.txt").write_text("apple_pie\nsushi\nwaffles\n")
    lists = {"train": ["waffles/5", "apple_pie/1"], "test": ["sushi/7"]}
    for name, lines in lists.items():
        (place / f"meta/{name}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            picture(place / f"images/{line}.jpg")
    return place


WRITE = {"pets": write_pets, "flowers102": write_flowers, "food101": write_food}
EXPECTED = {  # names and classes of both splits
    "pets": (
        (["images/Abyssinian_201.jpg", "images/beagle_7.jpg", "images/pug_3.jpg"], [0, 4, 26]),
        (["images/beagle_100.jpg", "images/pug_9.jpg"], [4, 26]),
    ),
    "flowers102": (
        ([f"jpg/image_0000{n}.jpg" for n in (1, 4, 6, 3, 5, 2)], [2, 0, 101, 0, 101, 2]),
        (["jpg/image_00008.jpg", "jpg/image_00007.jpg"], [0, 2]),
    ),
    "food101": (
        (["images/waffles/5.jpg", "images/apple_pie/1.jpg"], [2, 0]),
        (["images/sushi/7.jpg"], [1]),
    ),
}
each = pytest.mark.parametrize("name", WRITE)


@each
def test_lists_say_which_images_are_for_what_and_their_classes(name, folder):
    WRITE[name](folder)
    found = LAYOUTS[name].read(official=False)
    for pictures, (names, classes) in zip(found, EXPECTED[name], strict=True):
        assert list(pictures.names) == names
        assert pictures.targets.tolist() == classes


def test_flowers_for_validation_are_the_last_of_their_classes(folder):
    write_flowers(folder)
    train = read_data("flowers102", official=False).train
    held_back = train.part(torch.arange(3, 6))
    names = {train.pictures.names[row] for row in held_back.rows.tolist()}
    assert names == {"jpg/image_00003.jpg", "jpg/image_00005.jpg", "jpg/image_00002.jpg"}


@pytest.mark.parametrize("name", [*WRITE, "imagenet"])
def test_missing_data_are_told_of_in_one_message(name, folder):
    with pytest.raises(DataError) as caught:
        read_data(name)
    message = str(caught.value)
    assert str(folder) in message
    assert "downloaded" in message
    assert "MD5" in message
    assert "--data FOLDER or SGDF_DATA" in message
    if name in LAYOUTS:
        layout = LAYOUTS[name]
        assert f"{layout.place} lacks {', '.join(layout.needs)}" in message
        assert all(f"{url} (MD5 {md5})" in message for url, md5 in layout.archives.items())
    assert list(folder.iterdir()) == []


@each
def test_files_that_are_missing_are_named(name, folder):
    place = WRITE[name](folder)
    lacking = LAYOUTS[name].needs[-1]
    (place / lacking).unlink()
    with pytest.raises(DataError, match=f"lacks {lacking}"):
        LAYOUTS[name].read(official=False)


@each
def test_images_that_are_missing_are_named(name, folder):
    place = WRITE[name](folder)
    names = EXPECTED[name][1][0]
    (place / names[0]).unlink()
    with pytest.raises(DataError, match=f"1 of its images are missing, as {place / names[0]}"):
        LAYOUTS[name].read(official=False)


@each
def test_other_lists_than_the_published_ones_are_taken_only_knowingly(name, folder):
    WRITE[name](folder)
    with pytest.raises(DataError, match="set official = false"):
        LAYOUTS[name].read()


def test_the_published_lists_of_flowers_are_known_by_their_checksums(folder, monkeypatch):
    place = write_flowers(folder)
    layout = LAYOUTS["flowers102"]
    sums = {
        url: hashlib.md5((place / file).read_bytes()).hexdigest()
        for url in layout.archives
        if (place / (file := url.rpartition("/")[2])).exists()
    }
    layout = dataclasses.replace(layout, archives=layout.archives | sums, counts=(6, 2))
    assert len(layout.read()[0]) == 6
    with (place / "setid.mat").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"setid.mat is damaged, or not the published file"):
        layout.read()


DAMAGE = {
    "pets": {"annotations/test.txt": [b"", b"Abyssinian_1\n", b"a 38 1 1\n", b"\xff\xfe 1 1 1"]},
    "flowers102": {"imagelabels.mat": [b"", b"nonsense"], "setid.mat": [b"", b"MATLAB 5.0" * 50]},
    "food101": {"meta/train.txt": [b"", b"soup/5\n"], "meta/classes.txt": [b"", b"\xff\xfe"]},
}


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [(n, f, c) for n, damaged in DAMAGE.items() for f, cs in damaged.items() for c in cs],
)
def test_damaged_lists_are_refused_with_the_remedy(name, file, content, folder):
    place = WRITE[name](folder)
    (place / file).write_bytes(content)
    with pytest.raises(DataError, match="Get these files") as caught:
        LAYOUTS[name].read(official=False)
    assert LAYOUTS[name].title in str(caught.value)


@each
def test_numbers_of_images_and_classes_are_the_published_ones(name):
    layout = LAYOUTS[name]
    expected = {
        "pets": (37, (3_680, 3_669)),
        "flowers102": (102, (2_040, 6_149)),
        "food101": (101, (75_750, 25_250)),
    }
    assert (layout.classes, layout.counts) == expected[name]


def test_the_six_data_sets_and_the_digits_have_names():
    assert set(NAMES) == {*WRITE, "cifar10", "cifar100", "imagenet", "digits"}
