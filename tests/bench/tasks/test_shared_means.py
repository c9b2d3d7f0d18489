"""The means of an evaluation that processes share: of empty shares, and after an interruption."""

import pytest

from sgdf.bench.tasks.long_evaluation import LongEvaluation
from sgdf.bench.tasks.shared_means import SharedMeans

NAMES = ("loss", "accuracy")


class Keeping(LongEvaluation):
    """Keeps what it was told last."""

    def __init__(self):
        self.state, self.told = None, []

    def kept(self, what):
        """Return the state of before."""
        return self.state

    def advance(self, what, done, total, state=None):
        """Keep what is told."""
        self.told.append((what, done, total))
        self.state = state()


def test_batches_count_by_their_examples():
    means = SharedMeans(LongEvaluation(), "images", 4, NAMES)
    means.add(3, loss=6.0, accuracy=1)
    means.add(1, loss=4.0, accuracy=1)
    assert means.result() == ({"loss": 2.5, "accuracy": 0.5}, 4)


def test_an_empty_share_has_all_metrics():
    means = SharedMeans(LongEvaluation(), "images", 0, NAMES)
    assert means.result() == ({"loss": 0, "accuracy": 0}, 0)


def test_they_go_on_from_what_was_kept():
    evaluation = Keeping()
    SharedMeans(evaluation, "images", 4, NAMES).add(3, loss=6.0, accuracy=1)
    kept = dict(evaluation.state)
    again = SharedMeans(evaluation, "images", 4, NAMES)
    assert again.seen == 3
    again.add(1, loss=4.0, accuracy=1)
    assert again.result() == ({"loss": 2.5, "accuracy": 0.5}, 4)
    assert evaluation.told == [("images", 3, 4), ("images", 4, 4)]
    assert kept["examples"] == 3


def test_a_mean_that_was_not_announced_is_an_error():
    means = SharedMeans(LongEvaluation(), "images", 4, NAMES)
    with pytest.raises(KeyError, match="accuracy"):
        means.add(1, loss=1.0)
