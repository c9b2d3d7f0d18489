"""The three average precisions, on cases that can be reckoned by hand."""

import itertools
import math

import numpy as np
import pytest
import torch

from sgdf.bench.tasks.detection.average_precision import MOST, AveragePrecision
from sgdf.bench.tasks.detection.boxes import Found, Truth

NAMES = ("ap50", "voc07", "voc10")


def truth(*things):
    """Return what a photograph has, of pairs of class and place, and a flag where difficult."""
    return Truth(
        torch.tensor([box_at(place) for _, place, *_ in things]).view(-1, 4),
        torch.tensor([number for number, *_ in things], dtype=torch.long),
        torch.tensor([bool(rest) for _, _, *rest in things], dtype=torch.bool),
    )


def found(*things):
    """Return what was found, of triples of class, place and score."""
    return Found(
        torch.tensor([box_at(place) for _, place, _ in things]).view(-1, 4),
        torch.tensor([score for *_, score in things]),
        torch.tensor([number for number, *_ in things], dtype=torch.long),
    )


def box_at(place):
    """Return a box of 10 by 10 that shares nothing with those at other whole places."""
    return [20.0 * place, 0.0, 20.0 * place + 10, 10.0]


def collected(*photographs, classes=1):
    averages = AveragePrecision(classes)
    for one in photographs:
        averages.add(*one)
    return averages


def means(*photographs, classes=1):
    return collected(*photographs, classes=classes).means()


def equal(averages, ap50, voc07, voc10):
    return averages == pytest.approx({"ap50": ap50, "voc07": voc07, "voc10": voc10}, abs=1e-12)


def test_a_detector_that_finds_everything_and_nothing_else_has_one():
    assert equal(means((found((1, 0, 0.9), (1, 1, 0.8)), truth((1, 0), (1, 1)))), 1, 1, 1)


def test_the_three_averages_of_one_curve():
    """Of four boxes the detections find one, miss, find one: precisions 1, 1/2 and 2/3.

    So P is 1 up to a recall of 1/4, 2/3 up to 1/2, and 0 beyond. That are 26 recalls of COCO and 3
    of VOC up to 1/4, and 25 and 3 more up to 1/2.
    """
    case = (
        found((1, 0, 0.9), (1, 9, 0.8), (1, 1, 0.7)),
        truth((1, 0), (1, 1), (1, 2), (1, 3)),
    )
    expected = (26 + 25 * 2 / 3) / 101, (3 + 3 * 2 / 3) / 11, 0.25 + 0.25 * 2 / 3
    assert equal(means(case), *expected)


@pytest.mark.parametrize("tenth", range(1, 11))
def test_a_recall_of_whole_tenths_reaches_its_point(tenth):
    case = (
        found(*((1, place, 0.9) for place in range(tenth))),
        truth(*((1, place) for place in range(10))),
    )
    assert means(case)["voc07"] == pytest.approx((tenth + 1) / 11, abs=1e-12)


def test_only_the_order_of_scores_counts():
    true = truth((1, 0), (1, 1))
    first = means((found((1, 0, 0.9), (1, 7, 0.8), (1, 1, 0.7)), true))
    assert first == means((found((1, 1, 0.002), (1, 7, 0.02), (1, 0, 0.03)), true))
    assert first != means((found((1, 0, 0.9), (1, 7, 0.95), (1, 1, 0.7)), true))


def test_detections_of_equal_score_count_in_the_order_in_which_they_came():
    wrong, right = (found((1, 7, 0.5)), truth()), (found((1, 0, 0.5)), truth((1, 0)))
    assert equal(means(right, wrong), 1, 1, 1)
    assert equal(means(wrong, right), 0.5, 0.5, 0.5)
    within = (found((1, 7, 0.5), (1, 0, 0.5)), truth((1, 0)))
    assert equal(means(within), 0.5, 0.5, 0.5)


def test_a_second_detection_of_a_box_lowers_what_comes_after_it():
    case = found((1, 0, 0.9), (1, 0, 0.8), (1, 1, 0.7)), truth((1, 0), (1, 1))
    # P is 1 up to 1/2, then 2/3.
    assert equal(means(case), (51 + 50 * 2 / 3) / 101, (6 + 5 * 2 / 3) / 11, 0.5 + 0.5 * 2 / 3)


def test_difficult_boxes_neither_help_nor_harm():
    plain = found((1, 0, 0.9), (1, 9, 0.8), (1, 1, 0.7)), truth((1, 0), (1, 1), (1, 2))
    found_too = (
        found((1, 5, 0.99), (1, 0, 0.9), (1, 5, 0.85), (1, 9, 0.8), (1, 1, 0.7)),
        truth((1, 0), (1, 5, "difficult"), (1, 1), (1, 2)),
    )
    missed = plain[0], found_too[1]
    assert means(found_too) == means(missed) == means(plain)


def test_a_detection_of_another_class_finds_nothing():
    averages = means((found((2, 0, 0.9)), truth((1, 0), (2, 1))), classes=2)
    assert equal(averages, 0, 0, 0)


def test_a_class_without_boxes_is_left_out_of_the_mean():
    case = found((1, 0, 0.9), (2, 3, 0.99), (3, 4, 0.8)), truth((1, 0), (3, 4, "difficult"))
    averages = collected(case, classes=3)
    assert equal(averages.means(), 1, 1, 1)
    assert averages.by_class() == {name: {1: 1.0} for name in NAMES}


def test_a_class_of_which_nothing_is_found_counts_as_zero():
    case = found((1, 0, 0.9)), truth((1, 0), (2, 1))
    averages = collected(case, classes=2)
    assert averages.by_class()["voc10"] == {1: 1.0, 2: 0.0}
    assert equal(averages.means(), 0.5, 0.5, 0.5)


def test_photographs_without_detections_or_without_boxes_count():
    empty = found(), truth((1, 0))
    assert equal(means((found((1, 0, 0.9)), truth((1, 0))), empty), 51 / 101, 6 / 11, 0.5)
    bare = found((1, 0, 0.95)), truth()
    assert equal(means((found((1, 0, 0.9)), truth((1, 0))), bare), 0.5, 0.5, 0.5)
    assert equal(means(empty), 0, 0, 0)


def test_without_any_box_there_is_no_average():
    with pytest.raises(ValueError, match="no box"):
        means((found((1, 0, 0.9)), truth((1, 1, "difficult"))))


def test_a_box_is_found_in_its_own_photograph_alone():
    averages = means((found((1, 1, 0.9)), truth((1, 0))), (found((1, 0, 0.8)), truth((1, 1))))
    assert equal(averages, 0, 0, 0)


def test_coco_looks_at_a_hundred_detections_of_a_class_in_a_photograph():
    many = [(1, 5, 0.9)] * MOST
    case = found(*many, (1, 0, 0.1)), truth((1, 0))
    averages = means(case)
    assert averages["ap50"] == 0
    assert averages["voc10"] == pytest.approx(1 / (MOST + 1))
    of_two = found(*many, (2, 0, 0.1)), truth((2, 0))
    assert means(of_two, classes=2)["ap50"] == 1


def test_the_two_rules_differ_by_the_pixel_at_the_end():
    """Of ten pixels and 3.3 of shift 6.7 / 13.3 are common by VOC, 5.7 / 12.3 by COCO."""
    true = Truth(torch.tensor([[1.0, 1, 10, 100]]), torch.tensor([1]), torch.tensor([False]))
    shifted = Found(torch.tensor([[4.3, 1, 13.3, 100]]), torch.tensor([0.9]), torch.tensor([1]))
    averages = means((shifted, true))
    assert (averages["ap50"], averages["voc07"]) == (0, 1)


def random_photographs(seed, count=12):
    numbers = np.random.default_rng(seed)
    for _ in range(count):
        boxes = random_boxes(numbers, int(numbers.integers(0, 6)))
        there = Truth(
            boxes,
            torch.from_numpy(numbers.integers(1, 4, len(boxes))),
            torch.from_numpy(numbers.random(len(boxes)) < 0.3),
        )
        noisy = torch.cat([boxes + 4 * torch.from_numpy(numbers.standard_normal(boxes.shape)),
                           random_boxes(numbers, 3)]).float()  # fmt: skip
        scores = torch.from_numpy(numbers.integers(0, 8, len(noisy)) / 8).float()
        classes = torch.cat([there.classes, torch.from_numpy(numbers.integers(1, 4, 3))])
        yield Found(noisy, scores, classes), there


def random_boxes(numbers, count):
    corner, size = numbers.random((count, 2)) * 60, 10 + numbers.random((count, 2)) * 30
    return torch.from_numpy(np.concatenate([corner, corner + size], 1)).float()


def literal_voc(photographs, number, points):
    """VOC's algorithm step by step: all detections of a class in one list, one after the other."""
    positives, listed = 0, []
    taken = set()
    for image, (own, there) in enumerate(photographs):
        positives += int(((there.classes == number) & ~there.difficult).sum())
        for row in torch.nonzero(own.classes == number).flatten().tolist():
            listed.append((-float(own.scores[row]), image, row))
    hits, misses, curve = 0, 0, []
    for _, image, row in sorted(listed, key=lambda one: one[0]):
        own, there = photographs[image]
        best, which = 0.0, None
        a = own.boxes[row].double().tolist()
        for box in torch.nonzero(there.classes == number).flatten().tolist():
            b = there.boxes[box].double().tolist()
            wide = min(a[2], b[2]) - max(a[0], b[0]) + 1
            tall = min(a[3], b[3]) - max(a[1], b[1]) + 1
            if wide > 0 and tall > 0:
                total = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (
                    b[3] - b[1] + 1
                )
                overlap = wide * tall / (total - wide * tall)
                if overlap > best:
                    best, which = overlap, box
        if best >= 0.5:
            if there.difficult[which]:
                continue
            if (image, which) in taken:
                misses += 1
            else:
                hits += 1
                taken.add((image, which))
        else:
            misses += 1
        curve.append((hits / positives, hits / (hits + misses)))
    if points:
        levels = [max((p for r, p in curve if r >= k / 10 - 1e-9), default=0) for k in range(11)]
        return sum(levels) / 11
    recalls = sorted({0.0, *(r for r, _ in curve)})
    return sum(
        (after - before) * max(p for r, p in curve if r >= after)
        for before, after in itertools.pairwise(recalls)
    )


@pytest.mark.parametrize("seed", range(5))
def test_random_detections_score_as_by_vocs_algorithm_step_by_step(seed):
    photographs = list(random_photographs(seed))
    averages = collected(*photographs, classes=3).by_class()
    for number in (1, 2, 3):
        for name, points in (("voc07", True), ("voc10", False)):
            expected = literal_voc(photographs, number, points)
            assert averages[name][number] == pytest.approx(expected, abs=1e-12)
    assert 0.05 < averages["ap50"][1] < 0.95


def test_collecting_continues_from_a_state_to_the_bit():
    photographs = list(random_photographs(7))
    whole = collected(*photographs, classes=3)
    half = AveragePrecision.of_state(collected(*photographs[:6], classes=3).state())
    for one in photographs[6:]:
        half.add(*one)
    assert half.by_class() == whole.by_class()
    assert all(torch.equal(half.state()[key], value) for key, value in whole.state().items())


def test_of_each_detection_ten_bytes_are_kept():
    photographs = list(random_photographs(3))
    state = collected(*photographs, classes=3).state()
    count = sum(len(own.scores) for own, _ in photographs)
    assert sum(t.numel() * t.element_size() for t in state.values()) == 10 * count + 3 * 8


def test_averages_are_shares():
    for seed in range(3):
        for value in means(*random_photographs(seed), classes=3).values():
            assert 0 <= value <= 1
            assert math.isfinite(value)
