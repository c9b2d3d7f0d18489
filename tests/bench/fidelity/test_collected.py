"""What is collected of a set of images, and the scores of two sets."""

import io
import math

import pytest
import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.fidelity.classifier_score import ClassifierScore
from sgdf.bench.fidelity.collected import Collected, Summary, scores
from sgdf.bench.fidelity.features import Features
from sgdf.bench.fidelity.frechet import Normal, frechet_distance
from sgdf.bench.fidelity.neighbours import precision_and_recall

EVERYTHING = {
    *("frechet_distance", "spatial_frechet_distance", "classifier_score", "precision", "recall"),
}
PUBLISHED = {"fid", "sfid", "inception_score"}


def features(count=60, seed=0, spread=1.0):
    noise = torch.Generator().manual_seed(seed)
    pooled, spatial, classes = (torch.randn(count, n, generator=noise) for n in (6, 9, 4))
    return Features(spread * pooled, spread * spatial, (2 * classes).softmax(1))


def batches(whole, size):
    parts = zip(*(part.split(size) for part in vars(whole).values()), strict=True)
    return [Features(*part) for part in parts]


def collected(*batches, **options):
    found = Collected(**options)
    for batch in batches:
        found.add(batch)
    return found


def moments_of(values):
    values = values.double()
    return values.mean(0), values.T.cov()


REAL, DRAWN = features(60, seed=0), features(50, seed=1, spread=1.5)


def test_scores_are_those_of_their_parts():
    found = scores(
        collected(*batches(REAL, 13), kept=40, split_size=20),
        collected(*batches(DRAWN, 7), kept=40, split_size=20),
        is_inception=False,
        neighbours=2,
    )
    expected = ClassifierScore(20)
    expected.add(DRAWN.probabilities)
    shares = precision_and_recall(REAL.pooled[:40], DRAWN.pooled[:40], 2)
    assert found == pytest.approx(
        {
            "frechet_distance": frechet_distance(
                *moments_of(REAL.pooled), *moments_of(DRAWN.pooled)
            ),
            "spatial_frechet_distance": frechet_distance(
                *moments_of(REAL.spatial), *moments_of(DRAWN.spatial)
            ),
            "classifier_score": expected.value,
            "precision": shares[0],
            "recall": shares[1],
        },
        rel=1e-9,
    )
    assert 0 < shares[0] < 1


def test_only_with_the_published_inception_scores_have_published_names():
    real, drawn = collected(REAL), collected(DRAWN)
    own = scores(real, drawn, is_inception=False)
    assert set(own) == EVERYTHING
    named = scores(real, drawn, is_inception=True)
    assert set(named) == EVERYTHING | PUBLISHED
    assert {name: named[name] for name in own} == own
    assert named["fid"] == own["frechet_distance"]
    assert named["sfid"] == own["spatial_frechet_distance"]
    assert named["inception_score"] == own["classifier_score"]


def test_there_are_only_scores_whose_parts_both_sets_have():
    pooled = collected(Features(REAL.pooled))
    assert set(scores(pooled, pooled, True)) == {"frechet_distance", "fid", "precision", "recall"}
    assert set(scores(pooled, collected(DRAWN), True)) == {
        *("frechet_distance", "fid", "classifier_score", "inception_score"),
        *("precision", "recall"),
    }
    assert set(scores(collected(REAL), pooled, True)) == set(scores(pooled, pooled, True))
    unkept = collected(DRAWN, kept=0)
    assert EVERYTHING - set(scores(collected(REAL), unkept, False)) == {"precision", "recall"}
    assert EVERYTHING - set(scores(unkept, collected(REAL), False)) == {"precision", "recall"}


def test_a_set_is_as_near_to_itself_as_can_be():
    found = scores(collected(REAL), collected(REAL), is_inception=False)
    assert found["frechet_distance"] < 1e-12
    assert found["spatial_frechet_distance"] < 1e-12
    assert (found["precision"], found["recall"]) == (1.0, 1.0)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_collecting_continues_from_its_state_to_the_bit(after):
    parts = batches(DRAWN, 9)
    options = {"kept": 30, "split_size": 20, "kept_dtype": torch.float16}
    whole = collected(*parts, **options)
    buffer = io.BytesIO()
    torch.save(collected(*parts[:after], **options).state(), buffer)
    buffer.seek(0)
    resumed = Collected.of_state(torch.load(buffer, weights_only=True))
    assert resumed.count == min(9 * after, 50)
    for part in parts[after:]:
        resumed.add(part)
    real = collected(REAL)
    assert scores(real, resumed, False) == scores(real, whole, False)
    assert resumed.count == whole.count == 50
    assert torch.equal(resumed.summary().kept, whole.summary().kept)
    assert torch.equal(resumed.summary().pooled.covariance, whole.summary().pooled.covariance)


def test_a_state_has_no_more_bytes_than_what_is_kept():
    found = collected(*batches(DRAWN, 10), kept=20)
    buffer = io.BytesIO()
    torch.save(found.state(), buffer)
    numbers = 4 * (20 * 6) + 8 * (6 * 7 + 9 * 10 + 4)
    assert len(buffer.getvalue()) < numbers + 6000  # names, sizes, alignment


def test_real_images_can_be_given_by_their_moments_alone():
    real = Summary(Normal(*moments_of(REAL.pooled)))
    found = scores(real, collected(DRAWN), is_inception=False)
    assert set(found) == {"frechet_distance", "classifier_score"}
    assert found["frechet_distance"] == pytest.approx(
        scores(collected(REAL), collected(DRAWN), False)["frechet_distance"], rel=1e-12
    )


def test_features_of_different_extractors_are_refused():
    other = collected(Features(torch.randn(20, 5)))
    with pytest.raises(SpecError, match="real images have 6 numbers, and those of drawn ones 5"):
        scores(collected(REAL), other, is_inception=False)


@pytest.mark.parametrize(("few", "many"), [(2, 50), (3, 50), (50, 3), (3, 3)])
def test_sets_without_a_kth_neighbour_have_neither_precision_nor_recall(few, many):
    real, drawn = collected(features(few)), collected(features(many, seed=1))
    assert EVERYTHING - set(scores(real, drawn, False)) == {"precision", "recall"}
    real, drawn = collected(features(4)), collected(features(4, seed=1))
    assert set(scores(real, drawn, False)) == EVERYTHING


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_images_have_no_scores(count):
    few = collected(*batches(features(count), 1)) if count else Collected()
    with pytest.raises(SpecError, match=f"at least 2 images, and there are {count}"):
        scores(collected(REAL), few, is_inception=False)


@pytest.mark.parametrize(
    "other", [Features(DRAWN.pooled, DRAWN.spatial), Features(DRAWN.pooled, None, REAL.spatial)]
)
def test_batches_with_other_parts_are_refused(other):
    found = collected(REAL)
    with pytest.raises(ValueError, match=r"some images have .*, and others have not"):
        found.add(other)
    assert found.count == 60


def test_features_that_are_not_finite_have_scores_that_say_so():
    broken = Features(DRAWN.pooled * math.nan, DRAWN.spatial, DRAWN.probabilities)
    found = scores(collected(REAL), collected(broken), is_inception=False)
    assert {name for name, value in found.items() if math.isnan(value)} == {
        *("frechet_distance", "precision", "recall")
    }
