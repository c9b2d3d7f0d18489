"""Files that users bring: what is said where they are missing, damaged, or somewhere else."""

import pytest

from made_data import sha256
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.assets import Archive, PublishedFiles

CONTENT = {"one.txt": b"one", "two.txt": b"two"}
FILES = PublishedFiles(
    title="Small texts",
    folder="small",
    files={name: sha256(content) for name, content in CONTENT.items()},
    origin="Their authors send them to anyone who asks",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("SGDF_DATA", str(folder))
    return folder


def write(place, names=tuple(CONTENT)):
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_bytes(CONTENT[name])


def refusal(call=FILES.provide):
    with pytest.raises(DataError) as error:
        call()
    return str(error.value)


def help_of(folder):
    return (
        f"Their authors send them to anyone who asks. Copy them to {folder / 'small'}; or name "
        "another folder with --data FOLDER or SGDF_DATA. It must contain a folder small with these "
        f"files, by SHA-256:\n  {sha256(b'one')}  one.txt\n  {sha256(b'two')}  two.txt"
    )


def test_files_that_are_there_are_read(folder):
    write(folder / "small")
    FILES.provide()
    assert {name: FILES.content(name) for name in CONTENT} == CONTENT


@pytest.mark.parametrize("there", [(), ("one.txt",), ("two.txt",)])
def test_missing_files_are_named_with_where_to_get_them(there, folder):
    write(folder / "small", there)
    missing = ", ".join(name for name in CONTENT if name not in there)
    expected = f"Small texts: {folder / 'small'} lacks {missing}.\n{help_of(folder)}"
    assert refusal() == expected
    for name in CONTENT:
        assert refusal(lambda name=name: FILES.content(name)) == expected
        assert refusal(lambda name=name: FILES.content(name, official=False)) == expected
    assert sorted(path.name for path in (folder / "small").iterdir()) == sorted(there)


def test_a_damaged_file_is_refused_unless_it_is_taken_knowingly(folder):
    write(folder / "small")
    path = folder / "small/two.txt"
    path.write_bytes(b"tow")
    assert refusal(lambda: FILES.content("two.txt")) == (
        f"Small texts: {path} is damaged, or not the published file: its SHA-256 is "
        f"{sha256(b'tow')}. Replace it, or set official = false in [task] to take it knowingly for "
        f"what it is.\n{help_of(folder)}"
    )
    assert FILES.content("two.txt", official=False) == b"tow"
    assert FILES.content("one.txt") == b"one"


def test_a_folder_in_the_place_of_a_file_is_none(folder):
    write(folder / "small", ["one.txt"])
    (folder / "small/two.txt").mkdir()
    assert f"{folder / 'small'} lacks two.txt" in refusal()


@pytest.mark.parametrize(
    ("where", "given"),
    [("data", "data/small"), ("data/texts", "data"), ("data", "data/empty")],
    ids=["too deep", "too high", "beside"],
)
def test_a_folder_near_by_is_proposed(where, given, tmp_path, folder, monkeypatch):
    write(tmp_path / where / "small")
    (tmp_path / given).mkdir(exist_ok=True)
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / given))
    near = tmp_path / where
    assert refusal() == (
        f"Small texts: {tmp_path / given / 'small'} lacks one.txt, two.txt, but {near / 'small'} "
        f"has all files; did you mean --data {near}?"
    )


def test_files_in_the_folder_of_all_data_are_found(tmp_path, monkeypatch):
    write(tmp_path / "other")
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "other"))
    assert refusal() == (
        f"Small texts: the files are in {tmp_path / 'other'} itself; rename it to small, and say "
        f"--data {tmp_path}"
    )


def test_a_folder_that_does_not_exist_is_named_and_no_download_is_promised(folder):
    folder.rmdir()
    assert refusal() == (
        f"Small texts: {folder / 'small'} lacks one.txt, two.txt: there is no folder {folder}.\n"
        f"{help_of(folder)}"
    )
    assert not folder.exists()


def test_an_archive_is_not_downloaded_to_a_folder_that_does_not_exist(folder):
    folder.rmdir()
    archive = Archive(
        title="Packed", folder="packed", files=FILES.files, url="file:///no", sha256="0", size=1
    )
    assert refusal(archive.provide).startswith(
        f"Packed: {folder / 'packed'} lacks one.txt, two.txt: there is no folder {folder}; make it "
        f"first if they are to be downloaded to it.\nGet file:///no (SHA-256 0) and unpack it in"
    )
    assert not folder.exists()
