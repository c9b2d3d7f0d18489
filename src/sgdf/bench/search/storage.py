"""Where Optuna keeps the trials of a search: a journal beside the runs, or a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, get_storage
from optuna.storages.journal import JournalStorage
from sqlalchemy.exc import SQLAlchemyError

from ...present.words import plural
from ..errors import DamagedError, SpecError, StoreError, first_line
from .journal import Journal

JOURNAL, SQLITE = "journal:///", "sqlite:///"


def journal_url(path: Path) -> str:
    """Return the URL of a journal in a file."""
    return f"{JOURNAL}{path.absolute()}"


def absolute_url(url: str) -> str:
    """Return the URL of a file with its absolute path, so that it is valid in any directory.

    As in SQLAlchemy, a path after three slashes is relative to the working directory.

    >>> absolute_url("sqlite:////tmp/trials.db"), absolute_url("postgresql://host/trials")
    ('sqlite:////tmp/trials.db', 'postgresql://host/trials')
    """
    for scheme in (JOURNAL, SQLITE):
        if url.startswith(scheme) and len(url) > len(scheme):
            return scheme + str(Path(url.removeprefix(scheme)).absolute())
    return url


def path_within(url: str, folder: Path) -> str | None:
    """Return where the file of a storage is within a folder, or None if it is not there."""
    for scheme in (JOURNAL, SQLITE):
        if url.startswith(scheme) and len(url) > len(scheme):
            path = Path(url.removeprefix(scheme)).resolve()
            if path.is_relative_to(folder.resolve()):
                return str(path.relative_to(folder.resolve()))
    return None


def open_storage(url: str) -> BaseStorage:
    """Open the storage at a URL: ``journal:///path``, or a database as in SQLAlchemy.

    Later I/O errors of the storage are raised as ``StoreError``, like those of a store's files.

    Raises:
        SpecError: if the URL names no storage, or its server does not answer.
        DamagedError: if it is a journal that cannot be read to its end; the message says how many
            trials can be.
    """
    if url.startswith(JOURNAL):
        return cast("BaseStorage", _Guarded(_open_journal(Path(url.removeprefix(JOURNAL)))))
    try:
        return cast("BaseStorage", _Guarded(get_storage(url)))
    except Exception as error:  # of SQLAlchemy or a database driver, or a driver is not installed
        line = str(error).partition("\n")[0]
        raise SpecError(
            f"--storage: cannot be opened: {line}; allowed: {JOURNAL}PATH, {SQLITE}PATH, or the "
            "URL of a database server"
        ) from error


def _open_journal(path: Path) -> JournalStorage:
    journal = Journal(path)
    try:
        return JournalStorage(journal)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except DamagedError as error:
        what, whole = str(error), journal.lines_read
    except StoreError:
        raise
    except Exception as error:  # a line without a digest can make Optuna raise anything
        whole = journal.lines_read - 1
        what = f"{path}: line {whole + 1} is not as it was written: {first_line(error)}"
    before = JournalStorage(Journal(path, most=whole))
    trials = [
        trial
        for study in before.get_all_studies()
        for trial in before.get_all_trials(study._study_id, deepcopy=False)
    ]
    ended = sum(trial.state.is_finished() for trial in trials)
    raise DamagedError(
        f"{what}; the lines before it have {plural(len(trials), 'trial')}, {ended} of them ended"
    )


class _Guarded:
    """Wraps an Optuna storage so that its I/O errors are raised as ``StoreError``."""

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._storage, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return attribute(*arguments, **options)
            except (OSError, StorageInternalError, SQLAlchemyError) as error:
                raise StoreError(f"the storage of the trials: {first_line(error)}") from error

        return call
