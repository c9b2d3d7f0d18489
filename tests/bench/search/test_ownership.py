"""A search belongs to its folder, wherever the folder is and however it is reached."""

import random
import shutil

import pytest

from searches import finish, results_of, search_of
from sgdf.bench.errors import DamagedError, SpecError
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import SearchResult
from sgdf.bench.store.identity import digest

pytestmark = pytest.mark.usefixtures("publishing_at_once")

SGD = {"epochs": 1, "optimizer": [{"name": "sgd"}]}


def move(folder):
    return folder.rename(folder.with_name("moved"))


def link(folder):
    path = folder.with_name("link")
    path.symlink_to(folder, target_is_directory=True)
    return path


def copy(folder):
    return shutil.copytree(folder, folder.with_name("copy"))


def write_mark_as_earlier_versions(search):
    """Write the digest of the whole URL, which was written before it could be moved."""
    (search.store / "search" / "storage").write_text(digest(search.storage.encode()))


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("elsewhere", [move, link, copy])
def test_a_search_is_resumed_in_another_place(elsewhere, earlier, tmp_path):
    whole = results_of(finish(search_of(tmp_path / "whole", trials=4, **SGD)))
    first = search_of(tmp_path / "store", trials=2, **SGD)
    half = results_of(finish(first))
    if earlier:
        write_mark_as_earlier_versions(first)
    search = search_of(elsewhere(tmp_path / "store"), trials=4, **SGD)
    assert SearchResult(search).spent == 2
    begun = []
    finish(search, lambda run, event: event["event"] == "begin" and begun.append(run))
    assert len(begun) == 2
    assert results_of(SearchResult(search)) == whole
    assert half["sgd"] == whole["sgd"][:2]
    search_of(tmp_path / "whole", trials=4, **SGD)  # and back again


def test_a_search_that_an_earlier_version_began_is_resumed_where_it_is(tmp_path):
    search = search_of(tmp_path, trials=1, **SGD)
    write_mark_as_earlier_versions(search)
    finish(search)
    assert SearchResult(search_of(tmp_path, trials=2, **SGD)).spent == 1


def test_a_search_with_a_storage_elsewhere_is_resumed_after_a_move(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    finish(search_of(tmp_path / "store", storage=url, trials=1, **SGD))
    (tmp_path / "trials.db").rename(tmp_path / "moved.db")
    store = move(tmp_path / "store")
    url = f"sqlite:///{tmp_path / 'moved.db'}"
    assert SearchResult(search_of(store, storage=url, trials=2, **SGD)).spent == 1


def test_an_empty_storage_is_another_one(tmp_path):
    search = search_of(tmp_path / "store", trials=1, **SGD)
    write_mark_as_earlier_versions(search)
    store = move(tmp_path / "store")
    (store / "search.journal").unlink()
    with pytest.raises(SpecError, match=r"--storage: the trials of .* are kept in another one"):
        search_of(store, trials=1, **SGD)


@pytest.mark.parametrize("position", range(8))
def test_an_id_with_a_flipped_bit_is_named_and_can_be_mended(position, tmp_path):
    search = search_of(tmp_path, trials=1, **SGD)
    path = tmp_path / "search" / "id"
    whole = path.read_bytes()
    content = bytearray(whole)
    content[position] ^= 1 << random.Random(position).randrange(8)
    path.write_bytes(content)
    with pytest.raises(DamagedError) as caught:
        search_of(tmp_path, trials=1, **SGD)
    message = str(caught.value)
    assert str(path) in message
    assert f"has {whole.decode()}. No trial is lost: write the id into the file" in message
    with pytest.raises(DamagedError):
        SearchResult(search)
    path.write_bytes(whole + b"\n")  # as an editor leaves it
    search_of(tmp_path, trials=1, **SGD)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"no id", b"0" * 10_000])
def test_a_lost_id_begins_no_new_search(content, tmp_path):
    search_of(tmp_path, trials=1, **SGD)
    path = tmp_path / "search" / "id"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"search/id: is not the id of a search in .*journal"):
        search_of(tmp_path, trials=1, **SGD)


@pytest.mark.parametrize("elsewhere", [move, link])
def test_a_lost_id_is_named_in_another_place_too(elsewhere, tmp_path):
    search_of(tmp_path / "store", trials=1, **SGD)
    store = elsewhere(tmp_path / "store")
    (store / "search" / "id").unlink()
    with pytest.raises(DamagedError, match=r"search/id: is not the id of a search in .*journal"):
        search_of(store, trials=1, **SGD)


def test_a_journal_that_was_put_aside_is_begun_again_whichever_version_began_it(tmp_path):
    search = search_of(tmp_path, trials=1, **SGD)
    write_mark_as_earlier_versions(search)
    (tmp_path / "search.journal").rename(tmp_path / "aside")
    assert SearchResult(search_of(tmp_path, trials=1, **SGD)).spent == 0


def test_a_damaged_id_is_named_without_trials_too(tmp_path):
    search_of(tmp_path, trials=1, **SGD)
    (tmp_path / "search" / "id").write_text("no id")
    (tmp_path / "search.journal").unlink()
    with pytest.raises(DamagedError, match=r"search/id: is not the id of a search, which has 8"):
        search_of(tmp_path, trials=1, **SGD)


def test_a_process_that_died_before_it_made_a_study_begins_again(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    search_of(tmp_path / "other", storage=url, trials=1, **SGD)
    store = tmp_path / "store"
    (store / "search").mkdir(parents=True)
    (store / "search" / "id").write_text("0123abcd")
    search = search_of(store, storage=url, trials=1, **SGD)
    assert SearchJob(search).parts()
