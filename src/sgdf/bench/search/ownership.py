"""Which trials of a storage belong to a store, wherever the store is.

``search/id`` in the store is part of the names of its studies: one storage can hold the same search
of several stores. ``search/storage`` is there once the studies have been made, and says where.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import optuna
from optuna.storages import BaseStorage

from ..errors import DamagedError, SpecError
from ..store import files, lock
from ..store.identity import digest
from .search import Search
from .storage import open_storage, path_within

ID = re.compile(rb"[0-9a-f]{8}\s*")


def store_id(store: Path) -> str:
    """Return the id of a store, which is drawn and written when it is first searched.

    Raises:
        DamagedError: if the file holds something else.
    """
    path = _id_path(store)
    with files.store_errors(path):
        files.make_folder(path.parent)
    if not files.read(path):
        with lock.wait_for(path.with_name("id.lock")):
            if not files.read(path):  # another process may have written it meanwhile
                files.write(path, uuid.uuid4().hex[:8].encode())
    known = _known_id(store)
    if known is None:
        raise DamagedError(f"{path}: is not the id of a search, which has 8 hexadecimal digits")
    return known


def open_trials(search: Search) -> BaseStorage:
    """Open the storage of a search, and check that it has the trials of the search's store.

    Raises:
        SpecError: if the trials of the store are kept in another storage.
        DamagedError: if the files of the search are not as written; the message says what is kept
            and how to continue.
    """
    # Optuna announces every study and every trial; commands and workers say themselves what is due.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = open_storage(search.storage)
    except DamagedError as error:
        raise DamagedError(
            f"{error}. The runs of all trials are in {search.store / 'runs'}. To continue, rename "
            "the journal and give the same command again: it repeats the trials, but trains no "
            "run again that has a result"
        ) from error
    ids = {name.rpartition("/")[2] for name in optuna.get_all_study_names(storage)}
    if _known_id(search.store) in ids:
        return storage
    mark = files.read(_mark_path(search.store))
    # Earlier versions wrote the digest of the whole URL, which is another one in another place.
    if mark not in (b"", _mark(search), digest(search.storage.encode()).encode()):
        raise SpecError(
            f"--storage: the trials of {search.store} are kept in another one; give that, or "
            "--out another folder"
        )
    is_inside = path_within(search.storage, search.store) is not None  # for this store alone
    has_other = bool(files.read(_id_path(search.store))) and _known_id(search.store) is None
    if ids and (mark or is_inside or has_other):
        raise DamagedError(
            f"{_id_path(search.store)}: is not the id of a search in {_place(search)}, which has "
            f"{' and '.join(sorted(ids))}. No trial is lost: write the id into the file, and give "
            "the same command again"
        )
    return storage


def mark_storage(search: Search) -> None:
    """Write down which storage has the trials of a store, after their studies were made."""
    if files.read(_mark_path(search.store)) != _mark(search):
        files.write(_mark_path(search.store), _mark(search))


def _mark(search: Search) -> bytes:
    """Return a digest that identifies the storage of a search: its URL may hold a password."""
    inside = path_within(search.storage, search.store)
    return digest((inside or search.storage).encode()).encode()


def _known_id(store: Path) -> str | None:
    """Return the id in the file, or None if it has none."""
    content = files.read(_id_path(store))
    return content.decode().strip() if ID.fullmatch(content) else None


def _place(search: Search) -> str:
    """Return where the trials are, without a password."""
    inside = path_within(search.storage, search.store)
    return str(search.store / inside) if inside else "the storage"


def _id_path(store: Path) -> Path:
    return store / "search" / "id"


def _mark_path(store: Path) -> Path:
    return store / "search" / "storage"
