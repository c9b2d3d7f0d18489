"""The classifier score of probabilities made by hand."""

import io
import math

import numpy as np
import pytest
import torch

from sgdf.bench.fidelity.classifier_score import ClassifierScore


def score_of(*batches, split_size=5000):
    score = ClassifierScore(split_size)
    for batch in batches:
        score.add(batch)
    return score


def probabilities(count, classes=5, seed=0):
    noise = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(count, classes, generator=noise)).softmax(1)


def directly(part):
    """Return the score of one split by its definition."""
    part = part.double().numpy()
    return np.exp(np.mean(np.sum(part * (np.log(part) - np.log(part.mean(0))), 1)))


def test_images_that_look_like_nothing_score_1():
    assert score_of(torch.full((40, 10), 0.1)).value == pytest.approx(1.0, abs=1e-12)


def test_images_that_look_alike_score_1():
    assert score_of(probabilities(1).expand(30, -1)).value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 10, 1008])
def test_images_of_every_class_without_doubt_score_their_number(classes):
    assert score_of(torch.eye(classes)).value == pytest.approx(classes, rel=1e-12)


def test_half_of_the_classes_give_half_of_the_score():
    assert score_of(torch.eye(10)[:5]).value == pytest.approx(5.0, rel=1e-12)


def test_it_is_the_mean_over_splits_in_the_order_of_drawing():
    whole = probabilities(300)
    expected = np.mean([directly(part) for part in whole.split(100)])
    assert score_of(whole, split_size=100).value == pytest.approx(expected, rel=1e-12)
    assert directly(whole) != pytest.approx(expected, rel=1e-4)


def test_a_last_split_that_is_not_full_counts_like_the_others():
    whole = probabilities(250)
    expected = np.mean([directly(part) for part in whole.split(100)])
    assert score_of(whole, split_size=100).value == pytest.approx(expected, rel=1e-12)
    first = np.mean([directly(part) for part in whole[:200].split(100)])
    assert first != pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("sizes", [[250], [99, 2, 149], [1] * 250, [100, 100, 50]])
def test_splits_do_not_depend_on_batches(sizes):
    whole = probabilities(250)
    found = score_of(*whole.split(sizes), split_size=100)
    assert found.value == pytest.approx(score_of(whole, split_size=100).value, rel=1e-13)
    assert found.count == 250


def test_it_continues_from_its_state_to_the_bit():
    batches = probabilities(330).split(47)
    whole = score_of(*batches, split_size=100)
    buffer = io.BytesIO()
    torch.save(score_of(*batches[:3], split_size=100).state(), buffer)
    buffer.seek(0)
    resumed = ClassifierScore.of_state(torch.load(buffer, weights_only=True))
    for batch in batches[3:]:
        resumed.add(batch)
    assert resumed.value == whole.value


def test_a_state_stays_as_it_was_while_the_stream_goes_on():
    score = score_of(probabilities(130), split_size=100)
    state, before = score.state(), score.value
    score.add(probabilities(90, seed=1))
    ClassifierScore.of_state(state).add(probabilities(90, seed=2))
    assert ClassifierScore.of_state(state).value == before


def test_no_images_have_no_score():
    assert math.isnan(ClassifierScore().value)


@pytest.mark.filterwarnings("ignore:std")  # theirs, of the scores of one split
@pytest.mark.filterwarnings("ignore:Metric `InceptionScore` will save all extracted features")
def test_it_is_torchmetrics_with_splits_of_the_same_images():
    image = pytest.importorskip(
        "torchmetrics.image.inception", reason="torchmetrics is not installed"
    )
    whole = probabilities(400)

    class Classifier(torch.nn.Module):
        def forward(self, images):
            return whole.log()

    theirs = image.InceptionScore(feature=Classifier(), splits=1)
    theirs.update(torch.zeros(400, 3, 4, 4, dtype=torch.uint8))
    assert score_of(whole).value == pytest.approx(float(theirs.compute()[0]), rel=1e-5)
