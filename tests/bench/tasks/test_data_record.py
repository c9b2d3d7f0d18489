"""What is recorded about the data of a task: digests of its splits, and rows that they share."""

import pytest
import torch

from sgdf.bench.tasks import Supervised, data_record, find_task
from sgdf.bench.tasks.data_record import count_shared_rows, digest_rows


def pair(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=generator), torch.arange(count) % 3


class Split(Supervised):
    """Its test data contain the first of its training data ``shared`` times."""

    def __init__(self, shared=0, seed=0):
        train, test = pair(30, seed), pair(20, seed + 1)
        for ours, theirs in zip(test, train, strict=True):
            ours[:shared] = theirs[0]
        super().__init__(torch.nn.Linear(4, 3), train, pair(10, seed + 2), test)


def test_every_split_has_a_digest_that_depends_on_its_data_alone():
    one, again, other = Split(), Split(), Split(seed=5)
    assert one.describe_data() == again.describe_data()
    assert set(one.describe_data()) == {
        "data of train", "data of validation", "data of test", "test rows in train"
    }  # fmt: skip
    assert one.describe_data()["data of test"].endswith(" of 20 rows")
    for split in ("train", "validation", "test"):
        assert one.describe_data()[f"data of {split}"] != other.describe_data()[f"data of {split}"]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[0].__setitem__((7, 2), 9.0),
        lambda rows: rows[1].__setitem__(7, 2),
    ],
    ids=["an input", "a target"],
)
def test_one_other_value_is_another_digest(change):
    rows = pair(20)
    before = digest_rows(*rows)
    change(rows)
    assert digest_rows(*rows) != before


def test_order_type_and_shape_count():
    inputs, targets = pair(20)
    digests = {
        digest_rows(inputs, targets),
        digest_rows(inputs.flip(0), targets.flip(0)),
        digest_rows(inputs.double(), targets),
        digest_rows(inputs.view(20, 2, 2), targets),
        digest_rows(inputs[:19], targets[:19]),
    }
    assert len(digests) == 5


def test_of_large_data_some_rows_are_hashed_and_it_is_stated(monkeypatch):
    monkeypatch.setattr(data_record, "HASHED_BYTES", 10 * (4 * 4 + 8))
    rows = pair(100)
    before = digest_rows(*rows)
    assert before.endswith(" of 10 of 100 rows")
    rows[0][5] += 1.0  # between two of the rows that are hashed
    assert digest_rows(*rows) == before
    rows[0][90] += 1.0  # the last of them
    assert digest_rows(*rows) != before


def test_test_rows_that_were_trained_on_are_counted():
    assert Split().describe_data()["test rows in train"] == "0 of 20"
    assert Split(shared=3).describe_data()["test rows in train"] == "3 of 20"
    (inputs, targets), empty = pair(5), (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    assert count_shared_rows((inputs, targets), (inputs, (targets + 1) % 3)) == 0
    assert count_shared_rows((inputs, targets), empty) == 0


def test_data_that_would_take_long_are_not_compared(monkeypatch):
    monkeypatch.setattr(data_record, "COMPARED_ROWS", 49)
    assert "test rows in train" not in Split().describe_data()
    monkeypatch.setattr(data_record, "COMPARED_ROWS", 50)
    assert "test rows in train" in Split().describe_data()
    monkeypatch.setattr(data_record, "COMPARED_BYTES", 50 * 24 - 1)
    assert "test rows in train" not in Split().describe_data()


@pytest.mark.parametrize("data", [torch.zeros(3, 4).to_sparse(), torch.zeros(3, 0), [1, 2, 3]])
def test_data_that_are_no_plain_tensors_have_no_digest(data):
    task = Split()
    task.data["test"] = data, data
    assert set(task.describe_data()) == {"data of train", "data of validation"}


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.uint8])
def test_data_of_any_type(dtype):
    inputs = pair(20)[0].to(dtype)
    assert digest_rows(inputs, inputs) == digest_rows(inputs.clone(), inputs.clone())
    assert count_shared_rows((inputs, inputs), (inputs[:4], inputs[:4])) == 4


def test_no_random_number_is_drawn():
    task, before = Split(), torch.get_rng_state()
    task.describe_data()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["digits-mlp", "digits-cnn", "logistic", "characters"])
def test_bundled_tasks_record_their_data(name):
    facts = find_task(name)().describe_data()
    assert {"data of train", "data of validation", "data of test"} <= set(facts)
    assert facts.get("test rows in train", "0 of 397").startswith("0 of")
