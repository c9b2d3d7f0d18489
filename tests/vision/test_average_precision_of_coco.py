"""Average precision against the kits of COCO, on the photographs of blood with noisy detections."""

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sgdf.bench.tasks.detection.average_precision import AveragePrecision
from sgdf.bench.tasks.detection.boxes import Found
from sgdf.bench.tasks.detection.photographs import BCCD

pytestmark = pytest.mark.skipif(
    not (Path(os.environ.get("SGDF_DATA", "")) / "voc_bccd").is_dir(),
    reason="needs voc_bccd in the folder SGDF_DATA",
)
NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def truths():
    """Return what the 364 photographs have; every seventh box is made difficult."""
    found = [one.annotation.truth for part in BCCD.read().values() for one in part]
    assert len(found) == 364
    first, changed = 0, []
    for truth in found:
        count = len(truth.boxes)
        changed.append(truth._replace(difficult=torch.arange(first, first + count) % 7 == 0))
        first += count
    return changed


def noisy(truth, numbers):
    """Return detections near most boxes, some twice or of another class, and others anywhere."""
    near = truth.boxes.repeat(3, 1)[torch.from_numpy(numbers.random(3 * len(truth.boxes)) < 0.4)]
    rows = torch.from_numpy(numbers.integers(0, max(1, len(truth.boxes)), 20))
    near = torch.cat([near, truth.boxes[rows]]) if len(truth.boxes) else near
    noise = torch.from_numpy(numbers.standard_normal(near.shape)).float()
    near = near + 0.12 * noise * (near[:, 2:] - near[:, :2]).repeat(1, 2)
    corner, size = numbers.random((30, 2)) * 400, 20 + numbers.random((30, 2)) * 150
    boxes = torch.cat([near, torch.from_numpy(np.concatenate([corner, corner + size], 1))])
    boxes[:, 2:] = torch.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    classes = torch.from_numpy(numbers.choice(NUMBERS, len(boxes), p=[0.8, 0.1, 0.1]))
    # Few different scores, so that there are ties within photographs and between them.
    scores = torch.from_numpy(numbers.integers(0, 200, len(boxes)) / 200)
    return Found(boxes.float(), scores.float(), classes)


def of_a_kit(kit, truths, founds):
    """Return average precision at an overlap of 0.5 of each class, by one of the kits."""
    if kit == "faster_coco_eval":
        from faster_coco_eval import COCO
        from faster_coco_eval import COCOeval_faster as Evaluation
    else:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval as Evaluation
    true, results = [], []
    for image, (truth, found) in enumerate(zip(truths, founds, strict=True), start=1):
        for box, number, difficult in zip(*(part.tolist() for part in truth), strict=True):
            wide, tall = box[2] - box[0], box[3] - box[1]
            true.append(
                {
                    "id": len(true) + 1, "image_id": image, "category_id": number,
                    "bbox": [box[0], box[1], wide, tall], "area": wide * tall,
                    "iscrowd": int(difficult),
                }
            )  # fmt: skip
        for box, score, number in zip(*(part.tolist() for part in found), strict=True):
            sides = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            results.append(
                {"image_id": image, "category_id": number, "bbox": sides, "score": score}
            )
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {
            "info": {},
            "images": [{"id": image} for image in range(1, len(truths) + 1)],
            "categories": [{"id": number, "name": str(number)} for number in NUMBERS],
            "annotations": true,
        }
        known.createIndex()
        evaluation = Evaluation(known, known.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
    assert evaluation.params.iouThrs[0] == 0.5
    precision = evaluation.eval["precision"][0, :, :, 0, -1]
    return dict(zip(NUMBERS, precision.mean(0).tolist(), strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kit", ["faster_coco_eval", "pycocotools"])
def test_ap50_is_that_of_the_kits(truths, kit, seed):
    pytest.importorskip(kit, reason=f"needs {kit}")
    numbers = np.random.default_rng(seed)
    founds = [noisy(truth, numbers) for truth in truths]
    averages = AveragePrecision(len(NUMBERS))
    for found, truth in zip(founds, truths, strict=True):
        averages.add(found, truth)
    ours, theirs = averages.by_class()["ap50"], of_a_kit(kit, truths, founds)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert all(0.005 < value < 0.9 for value in ours.values())


def test_difficult_boxes_matter_in_these_cases(truths):
    """Else nothing would be said about them."""
    numbers = np.random.default_rng(0)
    with_flags, without = AveragePrecision(3), AveragePrecision(3)
    for truth in truths:
        found = noisy(truth, numbers)
        with_flags.add(found, truth)
        without.add(found, truth._replace(difficult=torch.zeros(len(truth.boxes), dtype=bool)))
    assert abs(with_flags.means()["ap50"] - without.means()["ap50"]) > 1e-3
