"""Records on disk that are not what the bench writes, though they can be read."""

import pytest

from made_runs import result_of, rows_of
from sgdf.bench.errors import DamagedError
from sgdf.bench.store.record_files import naming_file, read_result, read_rows, with_digest
from sgdf.bench.store.records import ProbeRow


def test_rows_end_before_one_that_is_nested_too_deeply(tmp_path):
    path = tmp_path / "probes.jsonl"
    path.write_bytes(b'{"step": 1}\n' + b"[" * 100_000 + b'\n{"step": 2}\n')
    assert read_rows(path, ProbeRow) == [{"step": 1}]


def test_a_file_that_exhausts_the_stack_is_named(tmp_path):
    path = tmp_path / "result.json"
    with pytest.raises(DamagedError, match=rf"{path}: is nested too deeply"), naming_file(path):
        raise RecursionError
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(DamagedError, match=rf"{path}: is nested too deeply"):
        read_result(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": None}, "outcome: missing"),
        ({"metrics": None}, "metrics: missing"),
        ({"outcome": "diverged"}, "diverged_at_step: must be a step if the run diverged"),
        ({"diverged_at_step": 3}, "diverged_at_step: must be a step if the run diverged"),
    ],
)
def test_a_result_that_contradicts_itself_is_damaged(changes, message, tmp_path):
    path = tmp_path / "result.json"
    whole = {"outcome": "finished", **result_of(rows_of([0.5])), "metrics": "0" * 16}
    path.write_bytes(with_digest(whole))
    assert read_result(path)["outcome"] == "finished"
    changed = {**whole, **changes}
    path.write_bytes(
        with_digest({k: v for k, v in changed.items() if v is not None or k not in changes})
    )
    with pytest.raises(DamagedError, match=rf"{path}: {message}"):
        read_result(path)
