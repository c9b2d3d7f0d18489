"""What the tests of searches share: a quiet Optuna, and one undisturbed search to compare with."""

import optuna
import pytest

from locations import SUPPORT
from searches import document_of, finish, search_of


@pytest.fixture(autouse=True)
def quiet_optuna():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.fixture
def workers_find_the_tasks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The results of the search of ``document_of()``, done by one process without interruption."""
    result = finish(search_of(tmp_path_factory.mktemp("undisturbed")))
    assert result.complete
    assert result.search.document()["search"]["trials"] == document_of()["search"]["trials"]
    return result
