"""The table of a run as TOML: whatever a file looks like, what counts is the digest."""

import tomllib

import pytest
import tomli_w

from made_runs import table_of
from sgdf.bench.store import spec_file
from sgdf.bench.store.conform import MismatchError
from sgdf.bench.store.identity import run_key

ODD = {
    "a table within a table": {"optimizer": {"name": "sgd", "groups": {"bias": {"lr": 0.1}}}},
    "tables in a list": {"optimizer": {"name": "sgd", "groups": [{"lr": 0.1}, {"lr": 0.2}]}},
    "a header in a text": {"task": {"name": "mine:T", "text": "a\n[task]\nname = 1\n"}},
    "nothing in a part": {"schedule": {}},
}


def parsed_texts(monkeypatch):
    """Return a list to which each text that tomllib parses from now on is added."""
    spec_file._parse_part.cache_clear()
    texts = []

    def loads(text, loads=tomllib.loads):
        texts.append(text)
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", loads)
    return texts


def test_parts_that_runs_share_are_parsed_once(monkeypatch):
    texts = parsed_texts(monkeypatch)
    tables = [table_of(lr=lr, seed=seed) for lr in (0.1, 0.2) for seed in range(7)]
    for table in tables:
        assert spec_file.parse(tomli_w.dumps(table).encode(), run_key(table)) == table
    # The first lines with seed and protocol, two optimizers, one task, schedule and train.
    assert len(texts) == len(set(texts)) == 7 + 2 + 3


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("multiline", [False, True])
def test_a_table_of_any_shape_is_read(odd, multiline):
    table = {**table_of(), **odd}
    content = tomli_w.dumps(table, multiline_strings=multiline).encode()
    assert spec_file.parse(content, run_key(table)) == table


def test_a_file_that_was_laid_out_anew_is_read():
    table = table_of()
    text = tomli_w.dumps(table).replace("[task]", "# mine\n [ task ] # the data")
    assert spec_file.parse(text.encode(), run_key(table)) == table


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff",
        b"seed = ",
        b"[task]\n[task]\n",
        b"seed = 1\n",
        b"seed = 1979-05-27\n",
        b"a = " + b"[" * 9999,
    ],
)
def test_anything_else_is_no_table(damage):
    with pytest.raises(MismatchError, match="is not the table of"):
        spec_file.parse(damage, run_key(table_of()))


def test_a_change_of_any_character_is_noticed():
    table = table_of()
    content = tomli_w.dumps(table).encode()
    for place in range(0, len(content), 7):
        changed = content[:place] + b"7" + content[place + 1 :]
        try:
            assert spec_file.parse(changed, run_key(table)) == table
        except MismatchError:
            continue


@pytest.mark.parametrize("odd", [{}, *ODD.values()], ids=["nothing odd", *ODD])
def test_the_parts_make_the_same_file_as_the_whole(odd):
    table = {**table_of(lr=True, seed=3), **odd}
    for _ in range(2):
        assert spec_file.encode(table) == tomli_w.dumps(table).encode()
    assert spec_file.encode({**table, "seed": 4}) == tomli_w.dumps({**table, "seed": 4}).encode()


def test_parts_that_are_equal_but_of_another_type_are_other_parts():
    for value in (1, 1.0, True, "1"):
        table = table_of(lr=value)
        assert spec_file.encode(table) == tomli_w.dumps(table).encode()
