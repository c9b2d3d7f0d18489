"""Which detections are right, by COCO's rule and by VOC's."""

import torch

from sgdf.bench.tasks.detection.boxes import areas, flipped, intersections
from sgdf.bench.tasks.detection.matching import (
    IGNORED,
    RIGHT,
    WRONG,
    coco_marks,
    coco_overlaps,
    voc_marks,
    voc_overlaps,
)

BOTH = (coco_marks, voc_marks)


def boxes(*rows):
    return torch.tensor(rows, dtype=torch.float64).view(-1, 4)


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_boxes_that_only_touch_have_nothing_in_common():
    left, right, apart = (0, 0, 4, 4), (4, 0, 8, 4), (6, 6, 7, 7)
    assert intersections(boxes(left), boxes(left, right, apart)).tolist() == [[16, 0, 0]]
    assert areas(boxes(left, (1, 1, 3, 4))).tolist() == [16, 6]


def test_boxes_of_a_mirror_image_mirrored_again_are_the_first_ones():
    both = boxes((1, 2, 4, 8), (0, 0, 10, 3))
    assert flipped(both, 10).tolist() == [[6, 2, 9, 8], [0, 0, 10, 3]]
    assert torch.equal(flipped(flipped(both, 10), 10), both)


def test_a_box_of_whole_pixels_has_its_last_pixel_too():
    """By VOC the boxes 1…10 and 1…5 of one row are 10 and 5 pixels, of which they share 5."""
    assert voc_overlaps(boxes((1, 1, 10, 1)), boxes((1, 1, 5, 1))).tolist() == [[0.5]]
    assert coco_overlaps(boxes((1, 1, 10, 2)), boxes((1, 1, 5, 2)), flags(0)).tolist() == [[4 / 9]]


def test_in_a_crowd_only_the_area_of_the_detection_counts():
    inside, crowd = boxes((2, 2, 4, 4)), boxes((0, 0, 10, 10))
    assert coco_overlaps(inside, crowd, flags(0)).tolist() == [[0.04]]
    assert coco_overlaps(inside, crowd, flags(1)).tolist() == [[1.0]]


def test_a_detection_without_area_overlaps_nothing():
    point, crowd = boxes((2, 2, 2, 4)), boxes((0, 0, 10, 10))
    assert coco_overlaps(point, crowd, flags(1)).tolist() == [[0.0]]
    assert coco_overlaps(point, point, flags(0)).tolist() == [[0.0]]


def test_a_second_detection_of_a_box_is_wrong():
    for marks in BOTH:
        assert marks([[0.9], [0.95]], [False]) == [RIGHT, WRONG]


def test_half_is_enough():
    for marks in BOTH:
        assert marks([[0.5]], [False]) == [RIGHT]
        assert marks([[0.4999]], [False]) == [WRONG]
        assert marks([[0.5]], [True]) == [IGNORED]


def test_without_boxes_every_detection_is_wrong():
    for marks in BOTH:
        assert marks([[], []], []) == [WRONG, WRONG]
        assert marks([], [False]) == []


def test_where_the_nearest_box_is_taken_coco_looks_further_and_voc_does_not():
    overlaps = [[0.9, 0.6], [0.8, 0.7]]
    assert coco_marks(overlaps, [False, False]) == [RIGHT, RIGHT]
    assert voc_marks(overlaps, [False, False]) == [RIGHT, WRONG]


def test_coco_prefers_any_free_box_to_a_difficult_one_and_voc_the_nearest():
    overlaps = [[0.9, 0.6]]
    assert coco_marks(overlaps, [True, False]) == [RIGHT]
    assert voc_marks(overlaps, [True, False]) == [IGNORED]


def test_a_difficult_box_takes_any_number_of_detections():
    for marks in BOTH:
        assert marks([[0.9], [0.8], [0.6], [0.4]], [True]) == [IGNORED] * 3 + [WRONG]


def test_a_difficult_box_saves_the_second_detection_of_another_one_for_coco_alone():
    overlaps = [[0.9, 0.6], [0.8, 0.6]]
    assert coco_marks(overlaps, [False, True]) == [RIGHT, IGNORED]
    assert voc_marks(overlaps, [False, True]) == [RIGHT, WRONG]


def test_of_equal_overlaps_coco_takes_the_last_box_and_voc_the_first():
    """It shows in what is left for the next detection."""
    overlaps = [[0.6, 0.6], [0.0, 0.7]]
    assert coco_marks(overlaps, [False, False]) == [RIGHT, WRONG]
    assert voc_marks(overlaps, [False, False]) == [RIGHT, RIGHT]
