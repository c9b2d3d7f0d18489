"""Class folders: their order, the index that is kept, and what is said of folders amiss."""

import builtins
import io
import os
import shutil

import numpy as np
import pytest
import torch

from made_pictures import let_it_settle, photograph, write_photographs
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.images import folder_index
from sgdf.bench.tasks.images.folder_index import KEPT
from sgdf.bench.tasks.images.folders import ClassFolders


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def folder(tmp_path):
    return write_photographs(tmp_path / "data", train=3, test=1) / "train"


@pytest.fixture
def walked(monkeypatch):
    """The class folders that were walked."""
    found = []
    pictures_in = folder_index._pictures_in
    monkeypatch.setattr(
        folder_index, "_pictures_in", lambda place: found.append(place.name) or pictures_in(place)
    )
    return found


def paths(folder):
    found = ClassFolders(folder)
    return [os.path.relpath(found.path(number), folder) for number in range(len(found))]


def test_classes_and_files_are_sorted_and_other_files_passed_over(folder):
    (folder / "n02" / "notes.txt").write_text("not a picture")
    (folder / "n02" / ".hidden.jpg").write_text("not one either")
    (folder / "n02" / "folder.jpg").mkdir()
    photograph().save(folder / "n02" / "a.PNG")
    photograph().save(folder / "n02" / "käfer.webp")
    (folder / ".cache").mkdir()
    (folder / "readme.txt").write_text("beside")
    found = ClassFolders(folder)
    assert found.classes == ["n01", "n02", "n03"]
    assert found.targets.tolist() == [0] * 3 + [1] * 5 + [2] * 3
    assert paths(folder) == [
        *(f"n01/n01_{n}.JPEG" for n in range(3)),
        *("n02/a.PNG", "n02/käfer.webp"),
        *(f"n02/n02_{n}.JPEG" for n in range(3)),
        *(f"n03/n03_{n}.JPEG" for n in range(3)),
    ]


def test_a_name_that_is_no_text_is_a_name_all_the_same(folder):
    odd = os.fsencode(folder / "n01") + b"/\xff\xfe.jpg"
    shutil.copy(folder / "n01" / "n01_0.JPEG", odd)
    found = ClassFolders(folder)
    assert os.fsencode(found.path(3)) == odd
    assert found.digest(torch.arange(10))


def test_an_index_is_used_until_a_class_folder_changes(folder, walked):
    let_it_settle(folder)
    first = paths(folder)
    assert walked == ["n01", "n02", "n03"]
    walked.clear()
    assert paths(folder) == first
    assert walked == []
    photograph().save(folder / "n02" / "new.jpg")
    assert "n02/new.jpg" in paths(folder)
    assert walked == ["n02"]
    walked.clear()
    shutil.rmtree(folder / "n01")
    assert not [path for path in paths(folder) if path.startswith("n01")]
    assert "n02/new.jpg" in paths(folder)
    assert set(walked) <= {"n02"}  # which has just been changed


def test_a_folder_that_has_just_changed_is_walked_again(folder, walked):
    """A file could be added at the same tick of the clock, after the walk."""
    ClassFolders(folder)
    walked.clear()
    ClassFolders(folder)
    assert walked == ["n01", "n02", "n03"]


def test_the_digest_is_the_same_with_an_index_and_without(folder):
    let_it_settle(folder)
    rows = torch.arange(9)
    photograph().save(folder / "n03" / f"{'long' * 20}.jpg")
    let_it_settle(folder)
    ClassFolders(folder)
    (folder / "n03" / f"{'long' * 20}.jpg").unlink()
    let_it_settle(folder)
    after = ClassFolders(folder).digest(rows)
    (folder / KEPT).unlink()
    assert ClassFolders(folder).digest(rows) == after


def compressed_by(method, content):
    """Return an archive that says it is compressed in a way that nobody knows."""
    for sign, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        head, *parts = content.split(sign)
        known = [part[: place - 4] + bytes([method, 0]) + part[place - 2 :] for part in parts]
        content = sign.join([head, *known])
    return content


def with_other(content, **arrays):
    """Return an index in which something is not as it should be."""
    file = io.BytesIO()
    with np.load(io.BytesIO(content)) as known:
        np.savez(file, **{**known, **arrays})
    return file.getvalue()


DAMAGED = {
    "empty": lambda content: b"",
    "nonsense": lambda content: b"nonsense",
    "cut off": lambda content: content[:100],
    "another method": lambda content: compressed_by(99, content),
    "the start of an array": lambda content: b"\x93NUMPY\x01\x00",
    "an unknown version": lambda content: content.replace(b"NUMPY\x01\x00", b"NUMPY\x09\x00"),
    "numbers for classes": lambda content: with_other(content, classes=np.arange(3)),
    "numbers for names": lambda content: with_other(content, names=np.arange(9)),
    "too few names": lambda content: with_other(content, counts=np.array([3, 3, 4])),
    "one count": lambda content: with_other(content, counts=np.array(9)),
    "texts for times": lambda content: with_other(content, times=np.array([b"a", b"b", b"c"])),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_index_is_made_again(damage, folder, walked):
    let_it_settle(folder)
    expected = paths(folder)
    (folder / KEPT).write_bytes(damage((folder / KEPT).read_bytes()))
    walked.clear()
    assert paths(folder) == expected
    assert walked == ["n01", "n02", "n03"]
    walked.clear()
    assert paths(folder) == expected
    assert walked == []


def test_an_index_that_holds_objects_is_not_executed(folder, tmp_path):
    let_it_settle(folder)
    expected = paths(folder)
    with (folder / KEPT).open("wb") as file:
        np.savez(file, classes=np.array([Writes(tmp_path / "proof")], object))
    assert paths(folder) == expected
    assert not (tmp_path / "proof").exists()


class Writes:
    """Something that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return builtins.open, (self.path, "w")


def test_where_the_folder_cannot_be_written_to_the_index_is_in_the_cache(
    folder, tmp_path, walked, monkeypatch
):
    let_it_settle(folder)
    refuse(monkeypatch, folder)
    first = paths(folder)
    walked.clear()
    assert paths(folder) == first
    assert walked == []
    assert not (folder / KEPT).exists()
    (kept,) = (tmp_path / "caches" / "sgdf" / "indices").iterdir()
    assert kept.suffix == ".npz"


def test_where_no_index_can_be_kept_there_is_none(folder, tmp_path, monkeypatch):
    let_it_settle(folder)
    refuse(monkeypatch, folder, tmp_path)
    assert len(paths(folder)) == 9
    assert not (tmp_path / "caches").exists() or not list((tmp_path / "caches").rglob("*.npz"))


def refuse(monkeypatch, *roots):
    """Let nothing be written into folders, as if they were read-only; the tests may be root's."""
    write = folder_index.files.write

    def written(path, content, sync=True):
        if path.parent in roots or (roots[-1] in path.parents and len(roots) > 1):
            raise folder_index.StoreError(f"cannot write {path}: read-only")
        write(path, content, sync)

    monkeypatch.setattr(folder_index.files, "write", written)


def test_files_that_are_no_pictures_are_named_in_one_message(folder):
    bad = []
    for number in range(12):
        path = folder / "n02" / f"bad{number:02}.jpg"
        path.write_bytes([b"", b"<html>", b"\xff\xd8"][number % 3])
        bad.append(f"n02/{path.name}")
    (folder / "n01" / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(DataError) as caught:
        ClassFolders(folder, "Ask somebody.")
    named = ", ".join(bad[:10])
    assert str(caught.value) == (
        f"{folder} has files that are not pictures, or cannot be read: {named} and 2 more. Replace "
        "them, or remove them.\nAsk somebody."
    )


def test_when_one_picture_is_repaired_the_other_folders_are_not_walked_again(folder, walked):
    (folder / "n02" / "bad.jpg").write_bytes(b"<html>")
    let_it_settle(folder)
    for _ in range(2):
        walked.clear()
        with pytest.raises(DataError, match="n02/bad"):
            ClassFolders(folder)
    assert walked == ["n02"]
    with (folder / "n02" / "bad.jpg").open("wb") as file:  # which does not change the folder's time
        photograph().save(file, "JPEG")
    walked.clear()
    assert "n02/bad.jpg" in paths(folder)
    assert walked == ["n02"]
    walked.clear()
    assert len(paths(folder)) == 10
    assert walked == []


def test_pictures_without_class_folders_are_refused_with_the_reason(folder, tmp_path):
    flat = tmp_path / "val"
    flat.mkdir()
    for number in range(3):
        photograph().save(flat / f"ILSVRC2012_val_{number:08}.JPEG")
    with pytest.raises(
        DataError, match=f"{flat} itself has 3 pictures, and no folders: each of"
    ) as it:
        ClassFolders(flat, "Move them.")
    assert str(it.value).endswith("nothing else says what its class is.\nMove them.")
    photograph().save(folder / "left.jpg")
    with pytest.raises(DataError, match="itself has 1 pictures, beside its 3 class folders"):
        ClassFolders(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "has no class folders$"),
        ({"n01.tar": None, "n02.tar": None}, "but 2 archives, each to be unpacked in a folder"),
        ({"n01": ["a.txt"], "n02": []}, "n01 and 1 others has no pictures"),
    ],
)
def test_folders_without_pictures_are_refused(content, message, tmp_path):
    place = tmp_path / "train"
    place.mkdir()
    for name, files in content.items():
        if files is None:
            (place / name).write_bytes(b"x")
            continue
        (place / name).mkdir()
        for file in files:
            (place / name / file).write_text("x")
    with pytest.raises(DataError, match=message):
        ClassFolders(place)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=f"there is no folder {tmp_path}/train"):
        ClassFolders(tmp_path / "train")


def test_the_digest_is_of_names_classes_and_contents(folder, tmp_path):
    rows = torch.arange(9)
    before = ClassFolders(folder).digest(rows)
    assert before.endswith("of 9 of 9 pictures")
    assert ClassFolders(folder).digest(rows[:8]) != before
    assert ClassFolders(folder).digest(rows.flip(0)) != before
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert ClassFolders(copy).digest(rows) == before
    content = (copy / "n03" / "n03_2.JPEG").read_bytes()
    (copy / "n03" / "n03_2.JPEG").write_bytes(content[:-1] + b"?")
    assert ClassFolders(copy).digest(rows) != before
    (copy / "n03" / "n03_2.JPEG").write_bytes(content)
    (copy / "n03").rename(copy / "n04")
    assert ClassFolders(copy).digest(rows) != before
