"""A record keeps what was measured, whatever happens to its process or its file."""

import math
import os

from sgdf.analysis.record import Record


def test_values_survive_and_belong_to_their_settings(tmp_path):
    record = Record(tmp_path, "run", {"probes": 3})
    record.keep("trace", [1.0, 2.0])
    assert Record(tmp_path, "run", {"probes": 3})["trace"] == [1.0, 2.0]
    assert "trace" not in Record(tmp_path, "run", {"probes": 4})
    assert "trace" not in Record(tmp_path, "other", {"probes": 3})


def test_values_that_are_not_finite_or_missing_survive(tmp_path):
    values = [math.nan, math.inf, None, {"text": "a", "truth": True, "nothing": None}]
    Record(tmp_path, "run", {}).keep("loss", values)
    (number, *others) = Record(tmp_path, "run", {})["loss"]
    assert math.isnan(number)
    assert others == values[1:]


def test_a_damaged_file_is_measured_again(tmp_path):
    record = Record(tmp_path, "run", {})
    record.keep("trace", 1.0)
    for content in ("{", "[]", '{"values": 3}', '{"settings": {}, "values": [], "finished": 1}'):
        record.path.write_text(content)
        again = Record(tmp_path, "run", {})
        assert again.values == {}
        assert not again.finished


def test_a_finished_record_has_no_scratch_files(tmp_path):
    record = Record(tmp_path, "run", {})
    (record.make_scratch() / "products").write_bytes(b"12345678")
    record.finish()
    assert Record(tmp_path, "run", {}).finished
    assert not record.scratch.exists()


def test_a_record_that_another_process_holds_is_not_claimed(tmp_path):
    record = Record(tmp_path, "run", {})
    with record.claim() as ours:
        assert ours
        read, write = os.pipe()
        child = os.fork()
        if not child:  # locks are of processes: a second one has to ask
            with Record(tmp_path, "run", {}).claim() as free:
                os.write(write, b"1" if free else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1) == b"0"
    with Record(tmp_path, "run", {}).claim() as ours:
        assert ours


def test_a_claim_reads_what_another_process_has_added(tmp_path):
    record = Record(tmp_path, "run", {})
    Record(tmp_path, "run", {}).keep("trace", 2.0)
    with record.claim():
        assert record["trace"] == 2.0
