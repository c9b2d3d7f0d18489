"""A damaged journal: what is readable is said, and the search can be continued."""

import json
import os
import random

import pytest

from searches import finish, results_of, search_of
from sgdf.bench.errors import DamagedError
from sgdf.bench.search.journal import Journal
from sgdf.bench.search.results import SearchResult
from sgdf.bench.search.storage import journal_url, open_storage

pytestmark = pytest.mark.usefixtures("publishing_at_once")

END = 6  # Optuna's code for the end of a trial
SGD = {"trials": 2, "epochs": 1, "optimizer": [{"name": "sgd"}]}


def without_digests(content):
    """Return a journal as earlier versions wrote it."""
    logs = [json.loads(line) for line in content.splitlines()]
    for log in logs:
        del log["sum"]
    return b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished search."""
    search = search_of(tmp_path_factory.mktemp("finished"), **SGD)
    return finish(search)


@pytest.fixture
def journal(finished):
    """The journal of the finished search, which is whole again afterwards."""
    path = finished.search.store / "search.journal"
    whole = path.read_bytes()
    yield path
    path.unlink()
    path.write_bytes(whole)


def flip(content, position, bit):
    return content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :]


def open_results(search):
    """Return the results of a search, and None or what is said about its damage."""
    try:
        return SearchResult(search), None
    except DamagedError as error:
        return None, str(error)


def test_a_flipped_bit_is_noticed_wherever_it_is(finished, journal):
    whole, chance, noticed = journal.read_bytes(), random.Random(0), 0
    for _ in range(300):
        position = chance.randrange(len(whole))
        journal.write_bytes(flip(whole, position, 1 << chance.randrange(8)))
        result, message = open_results(finished.search)
        if result is None:
            line = whole.count(b"\n", 0, position) + 1
            assert f"{journal}: line {line} of " in message
            assert f"runs of all trials are in {finished.search.store / 'runs'}" in message
            noticed += 1
        else:  # in the name of a digest, or at the end of the last line, which is written again
            assert len(result.optimizers[0].trials) == 2
            assert position == len(whole) - 1 or results_of(result) == results_of(finished)
    assert noticed > 280


def test_a_journal_of_an_earlier_version_never_ends_in_a_traceback(finished, journal):
    whole, chance, noticed = without_digests(journal.read_bytes()), random.Random(0), 0
    journal.write_bytes(whole)
    assert results_of(SearchResult(finished.search)) == results_of(finished)
    for _ in range(300):
        position = chance.randrange(len(whole))
        journal.write_bytes(flip(whole, position, 1 << chance.randrange(8)))
        result, message = open_results(finished.search)
        assert result or str(journal) in message
        noticed += result is None
    assert noticed > 150


def test_the_message_counts_the_trials_that_are_readable(finished, journal):
    lines = journal.read_bytes().splitlines(keepends=True)
    last_end = max(n for n, line in enumerate(lines) if json.loads(line)["op_code"] == END)
    journal.write_bytes(b"".join([*lines[:last_end], b"{}}\n", *lines[last_end + 1 :]]))
    message = (
        rf"line {last_end + 1} of {len(lines)} is not as it was written; the lines before it have "
        r"2 trials, 1 of them ended\. The runs of all trials are in \S+\. To continue, rename the "
        "journal and give the same command again"
    )
    with pytest.raises(DamagedError, match=message):
        SearchResult(finished.search)
    journal.write_bytes(b"\xff\n" + b"".join(lines[1:]))
    with pytest.raises(DamagedError, match=r"line 1 of .* have 0 trials, 0 of them ended"):
        SearchResult(finished.search)


def test_a_search_whose_journal_was_put_aside_trains_no_finished_run_again(tmp_path, undisturbed):
    search = search_of(tmp_path)
    finish(search)
    journal = tmp_path / "search.journal"
    journal.rename(tmp_path / "search.journal.damaged")
    begun = []
    again = search_of(tmp_path)
    finish(again, lambda run, event: event["event"] == "begin" and begun.append(run))
    assert results_of(SearchResult(again)) == results_of(undisturbed)
    pruned = [trial for one in undisturbed.optimizers for trial in one.trials if not trial.value]
    assert len(begun) <= len(pruned)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"[]", b"null", b"7"])
def test_a_line_that_is_no_operation_is_named(line, tmp_path):
    path = tmp_path / "search.journal"
    path.write_bytes(b'{"op_code":0}\n' + line + b"\n")
    with pytest.raises(DamagedError, match=rf"{path}: line 2 of 2 is not as it was written"):
        list(Journal(path).read_logs(0))


@pytest.mark.usefixtures("_watchdog")
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_named(kind, tmp_path):
    path = tmp_path / "search.journal"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(DamagedError, match=rf"{path} is a {kind}, not a file"):
        open_storage(journal_url(path))


def test_nothing_is_written_through_a_link(tmp_path):
    path, elsewhere = tmp_path / "search.journal", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    path.symlink_to(elsewhere)
    with pytest.raises(DamagedError, match="is a link, not a file"):
        Journal(path).append_logs([{"op_code": 0}])
    assert elsewhere.read_bytes() == b"precious"


def test_lines_of_earlier_and_this_version_can_be_mixed(tmp_path):
    path = tmp_path / "search.journal"
    path.write_bytes(b'{"op_code":0}\n')
    Journal(path).append_logs([{"op_code": 1}, {"op_code": 2}])
    assert [log["op_code"] for log in Journal(path).read_logs(0)] == [0, 1, 2]
    assert all("sum" not in log for log in Journal(path).read_logs(0))
