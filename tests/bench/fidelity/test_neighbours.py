"""Precision and recall of sets whose neighbours can be counted by hand."""

import math

import pytest
import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.fidelity import neighbours as module
from sgdf.bench.fidelity.kept_features import KeptFeatures
from sgdf.bench.fidelity.neighbours import precision_and_recall


def line(*places):
    """Return features on a line."""
    return torch.tensor(places, dtype=torch.float32)[:, None]


def directly(real, drawn, neighbours):
    """Return precision and recall from all differences in float64, one after the other."""
    real, drawn = real.double(), drawn.double()

    def covered(points, centres):
        among = (centres[:, None] - centres).norm(dim=2)
        reach = among.sort(1).values[:, neighbours]  # the first is the point itself
        return ((points[:, None] - centres).norm(dim=2) <= reach).any(1).double().mean().item()

    return covered(drawn, real), covered(real, drawn)


def test_points_on_a_line():
    """The balls of 0, 1, 3, 7 reach to their nearest: 1, 1, 2, 4; those of 2, 2.5, 30: ½, ½, 27½.

    Within the first are 2 and 2.5, not 30. Within the others: only 3, at the rim of 2.5's ball,
    and 7, in that of 30, which reaches down to 2.5.
    """
    found = precision_and_recall(line(0, 1, 3, 7), line(2, 2.5, 30), neighbours=1)
    assert found == (2 / 3, 2 / 4)


def test_the_reach_goes_to_the_kth_other_point():
    real = line(0, 1, 10, 100)  # with k = 2 they reach 10, 9, 10, 99
    assert precision_and_recall(real, line(-10, -11, 300, 301), 2)[0] == 1 / 4
    assert precision_and_recall(real, line(-10, -11, 300, 301), 1)[0] == 0


def test_precision_and_recall_are_not_the_same():
    one_place, many = line(5, 5.1, 5.2, 5.3), line(0, 2, 4, 6, 8, 10, 12)
    assert precision_and_recall(many, one_place, 1) == (1.0, 0.0)
    assert precision_and_recall(one_place, many, 1) == (0.0, 1.0)


def test_equal_sets_have_all_of_both():
    noise = torch.randn(200, 30)
    assert precision_and_recall(noise, noise.clone()) == (1.0, 1.0)


def test_sets_far_apart_have_nothing_of_both():
    noise = torch.randn(200, 30)
    assert precision_and_recall(noise, noise + 1000) == (0.0, 0.0)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_duplicates_have_balls_of_no_size_that_hold_their_copies(offset):
    point = torch.rand(1, 2048) + offset
    copies, other = point.repeat(10, 1), point.repeat(10, 1) + 1.0
    assert precision_and_recall(copies, copies.clone()) == (1.0, 1.0)
    assert precision_and_recall(copies, other) == (0.0, 0.0)
    mixed = torch.cat([copies[:5], other[:5]])
    assert precision_and_recall(copies, mixed) == (0.5, 1.0)


@pytest.mark.parametrize(("beyond", "precision"), [(0.0, 1.0), (1e-13, 1.0), (1e-11, 0.5)])
def test_what_is_on_the_rim_up_to_rounding_is_within(beyond, precision):
    """The balls of 0 and 1 reach from -1 to 2; a rounded square can be off by some 1e-16."""
    real, drawn = (torch.tensor([[a], [b]]).double() for a, b in ((0.0, 1.0), (0.5, 2.0)))
    drawn[1] += beyond
    assert precision_and_recall(real, drawn, 1)[0] == precision


def test_copies_of_real_points_are_within_their_balls_beside_a_point_far_away():
    """Rounding is judged by the two points of a distance, not by the farthest of the set."""
    real = line(0, 0, 0, 0, 3000)  # whose balls reach 0, 0, 0, 0 and 3000
    assert precision_and_recall(real, line(0, -0.001, -0.002, -0.003), 3)[0] == 1 / 4


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("neighbours", [1, 3, 5])
def test_it_is_what_all_differences_say(neighbours, offset):
    real, drawn = torch.randn(120, 6) + offset, 1.3 * torch.randn(90, 6) + offset + 0.4
    found = precision_and_recall(real, drawn, neighbours)
    assert found == pytest.approx(directly(real, drawn, neighbours), abs=1e-12)
    assert 0 < found[0] < 1
    assert 0 < found[1] < 1


def test_blocks_change_nothing(monkeypatch):
    real, drawn = torch.randn(120, 6), 1.3 * torch.randn(90, 6) + 0.4
    found = precision_and_recall(real, drawn)
    for block in (7, 64):
        monkeypatch.setattr(module, "BLOCK", block)
        assert precision_and_recall(real, drawn) == found


def test_features_in_half_are_compared_in_float64():
    real, drawn = torch.randn(60, 6).half(), (1.3 * torch.randn(50, 6)).half()
    assert precision_and_recall(real, drawn) == pytest.approx(directly(real, drawn, 3))


@pytest.mark.parametrize(("neighbours", "count"), [(3, 3), (5, 4)])
def test_more_neighbours_than_there_are_are_refused(neighbours, count):
    few, many = line(*range(count)), line(*range(20))
    message = rf"neighbours = {neighbours}: must be .* less than .* images, which is {count}$"
    for real, drawn in ((many, few), (few, many)):
        with pytest.raises(SpecError, match=message):
            precision_and_recall(real, drawn, neighbours)


@pytest.mark.parametrize("neighbours", [0, -1])
def test_no_neighbours_are_refused(neighbours):
    with pytest.raises(SpecError, match=f"neighbours = {neighbours}: must be at least 1"):
        precision_and_recall(line(0, 1, 2), line(0, 1, 2), neighbours)


def test_features_that_are_not_finite_have_no_shares():
    noise = torch.randn(10, 3)
    broken = noise.clone()
    broken[4, 1] = math.inf
    assert all(math.isnan(share) for share in precision_and_recall(noise, broken))


def test_the_first_features_are_kept():
    whole = torch.randn(30, 4)
    kept = KeptFeatures(25)
    for part in whole.split(7):
        kept.add(part)
    assert torch.equal(kept.features, whole[:25])
    assert kept.count == 25
    assert kept.features.dtype == torch.float32


def test_kept_features_are_copies():
    whole = torch.randn(30, 4)
    kept = KeptFeatures(25)
    kept.add(whole)
    before = whole.clone()
    whole.zero_()
    assert torch.equal(kept.features, before[:25])


def test_features_can_be_kept_in_half():
    kept = KeptFeatures(5, torch.float16)
    kept.add(torch.randn(3, 4))
    again = KeptFeatures.of_state(kept.state())
    again.add(torch.randn(3, 4))
    assert again.features.dtype == torch.float16
    assert again.features.shape == (5, 4)
    assert KeptFeatures.of_state(KeptFeatures(5, torch.float16).state()).dtype == torch.float16
