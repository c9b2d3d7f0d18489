"""Which boxes stay: cases that were worked out by hand, and the definition in a loop."""

import pytest
import torch

from sgdf.torchvision_fallback.suppression import ROWS, nms


def staying(boxes, scores, threshold, dtype=torch.float32):
    return nms(
        torch.tensor(boxes, dtype=dtype).view(-1, 4), torch.tensor(scores, dtype=dtype), threshold
    ).tolist()


def by_definition(boxes, scores, threshold):
    """Return the boxes that stay, by comparing every box with those that stay already."""
    found = []
    for number in scores.argsort(descending=True, stable=True).tolist():
        left, top, right, bottom = boxes[number].tolist()
        for other in found:
            left_2, top_2, right_2, bottom_2 = boxes[other].tolist()
            width = max(0.0, min(right, right_2) - max(left, left_2))
            height = max(0.0, min(bottom, bottom_2) - max(top, top_2))
            areas = (right - left) * (bottom - top) + (right_2 - left_2) * (bottom_2 - top_2)
            if width * height > threshold * (areas - width * height):
                break
        else:
            found.append(number)
    return found


def test_of_two_that_overlap_the_higher_score_stays():
    boxes = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30]]  # the first two share 90 of 110
    assert staying(boxes, [0.5, 0.9, 0.7], 0.8) == [1, 2]
    assert staying(boxes, [0.5, 0.9, 0.7], 0.82) == [1, 2, 0]


def test_a_box_that_went_suppresses_none():
    boxes = [[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]]  # neighbours share 60 of 140
    assert staying(boxes, [0.9, 0.8, 0.7], 0.4) == [0, 2]


def test_of_equal_scores_the_first_box_counts_as_higher():
    assert staying([[0, 0, 10, 10]] * 3, [0.5] * 3, 0.5) == [0]
    boxes = [[20, 0, 30, 10], [0, 0, 10, 10], [40, 0, 50, 10]]
    assert staying(boxes, [0.5] * 3, 0.5) == [0, 1, 2]


def test_a_box_goes_only_above_the_threshold():
    """Here they share 3 of 10. Rounded to float32 that is above 0.3, in float64 it is 0.3."""
    boxes = [[0, 0, 10, 1], [0, 0, 3, 1]]
    assert staying(boxes, [0.9, 0.8], 0.3, torch.float64) == [0, 1]
    assert staying(boxes, [0.9, 0.8], 0.3) == [0]
    assert staying([[0, 0, 2, 1], [0, 0, 1, 1]], [0.9, 0.8], 0.5) == [0, 1]


def test_boxes_without_an_area_stay():
    boxes = [[5, 5, 5, 5], [5, 5, 5, 5], [0, 0, 10, 10], [5, 0, 5, 10]]
    assert staying(boxes, [0.9, 0.8, 0.7, 0.6], 0.0) == [0, 1, 2, 3]


def test_no_boxes():
    found = nms(torch.empty(0, 4), torch.empty(0), 0.5)
    assert found.shape == (0,)
    assert found.dtype == torch.int64


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.6])
def test_more_boxes_than_are_compared_at_once(threshold):
    corners = 20 * torch.rand(3 * ROWS + 7, 2, 2, dtype=torch.float64)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
    scores = (8 * torch.rand(len(boxes), dtype=torch.float64)).round()  # many are equal
    found = nms(boxes, scores, threshold).tolist()
    assert found == by_definition(boxes, scores, threshold)
    assert len(found) > 1


def test_half_precision_is_computed_in_single():
    """The areas are beyond the range of float16, and the shares would not be numbers."""
    boxes = [[0, 0, 500, 500], [0, 0, 500, 490], [0, 0, 500, 100]]
    assert staying(boxes, [0.9, 0.8, 0.7], 0.5, torch.float16) == [0, 2]


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        (torch.zeros(4), torch.zeros(1), r"shape \(n, 4\), not \(4,\)"),
        (torch.zeros(2, 5), torch.zeros(2), r"shape \(n, 4\), not \(2, 5\)"),
        (torch.zeros(2, 4), torch.zeros(3), r"2 boxes need scores of the shape \(2,\)"),
        (torch.zeros(2, 4), torch.zeros(2, dtype=torch.float64), "scores torch.float64"),
    ],
)
def test_what_does_not_fit_is_refused(boxes, scores, message):
    with pytest.raises(RuntimeError, match=message):
        nms(boxes, scores, 0.5)
