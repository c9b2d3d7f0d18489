"""torchvision's own functions and detectors with the operators in PyTorch."""

import io
import warnings

import pytest
import torch
import torchvision
from PIL import Image
from torchvision import ops
from torchvision.models import detection
from torchvision.models.detection.roi_heads import project_masks_on_boxes
from torchvision.transforms import v2

from sgdf.torchvision_fallback import install
from sgdf.torchvision_fallback.roi_align import roi_align
from sgdf.torchvision_fallback.suppression import nms

needs_fallback = pytest.mark.skipif(
    not install(), reason="torchvision's compiled operators load beside this torch"
)
BOXES = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30]])
SCORES = torch.tensor([0.5, 0.9, 0.7])
MAPS = torch.randn(2, 3, 20, 20, generator=torch.Generator().manual_seed(0))


def test_its_functions_compute_with_them():
    assert ops.nms(BOXES, SCORES, 0.5).equal(nms(BOXES, SCORES, 0.5))
    assert ops.batched_nms(BOXES, SCORES, torch.tensor([0, 1, 0]), 0.5).tolist() == [1, 2, 0]
    for ratio in (-1, 2):
        found = ops.roi_align(MAPS, [BOXES[:1], BOXES[1:]], 4, 0.5, ratio)
        rois = torch.cat([torch.tensor([[0.0], [1], [1]]), BOXES], 1)
        torch.testing.assert_close(found, roi_align(MAPS, rois, 0.5, 4, 4, ratio, False))


def test_many_boxes_of_several_classes():
    """With more than 1,000 boxes, torchvision goes through them class by class."""
    corners = 20 * torch.rand(1200, 2, 2)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
    scores, classes = torch.rand(1200), torch.randint(3, (1200,))
    found = ops.batched_nms(boxes, scores, classes, 0.4)
    each = [
        (classes == number)
        .nonzero()
        .flatten()[nms(boxes[classes == number], scores[classes == number], 0.4)]
        for number in range(3)
    ]
    assert sorted(found.tolist()) == sorted(torch.cat(each).tolist())
    assert scores[found].equal(scores[found].sort(descending=True).values)


def test_functions_that_were_scripted_call_them():
    def both(boxes: torch.Tensor, scores: torch.Tensor, maps: torch.Tensor):
        return ops.nms(boxes, scores, 0.5), ops.roi_align(maps, [boxes, boxes], [2, 2])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its scripts deprecated
        scripted = torch.jit.script(both)
    for found, expected in zip(
        scripted(BOXES, SCORES, MAPS), both(BOXES, SCORES, MAPS), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_detector_trains_and_detects():
    torch.manual_seed(0)
    model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3, box_score_thresh=0.0
    )
    images = [torch.rand(3, 64, 80), torch.rand(3, 70, 60)]
    targets = [
        {"boxes": torch.tensor([[5.0, 5, 40, 50]]), "labels": torch.tensor([1])},
        {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)},
    ]
    losses = model(images, targets)
    sum(losses.values()).backward()
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert model.backbone.fpn.layer_blocks[0][0].weight.grad.any()
    with torch.no_grad():
        found = model.eval()(images)
    assert [set(one) for one in found] == [{"boxes", "labels", "scores"}] * 2
    assert all(len(one["boxes"]) for one in found)


def test_masks_are_cropped_to_boxes():
    """Mask R-CNN's targets: the number of points in a bin is that of its pixels."""
    masks = torch.zeros(1, 40, 40)
    masks[:, :, 20:] = 1
    box = torch.tensor([[10.0, 10, 30, 30]])
    found = project_masks_on_boxes(masks, box, torch.tensor([0]), 4)
    torch.testing.assert_close(found[0, :, 0], torch.zeros(4))
    torch.testing.assert_close(found[0, :, 3], torch.ones(4))


@needs_fallback
@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.roi_pool(MAPS, [BOXES, BOXES], 2),
        lambda: ops.ps_roi_align(MAPS[:, :1].expand(-1, 4, -1, -1), [BOXES, BOXES], 2),
        lambda: ops.ps_roi_pool(MAPS[:, :1].expand(-1, 4, -1, -1), [BOXES, BOXES], 2),
        lambda: ops.deform_conv2d(MAPS, torch.zeros(2, 18, 18, 18), torch.zeros(1, 3, 3, 3)),
        lambda: torch.ops.torchvision.box_iou_rotated(torch.zeros(1, 5), torch.zeros(1, 5)),
        lambda: torch.ops.torchvision.qnms(BOXES, SCORES, 0.5),
    ],
    ids=["roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d", "box_iou_rotated", "qnms"],
)
def test_an_operator_that_is_not_replaced_says_so_when_called(call, request):
    name = request.node.callspec.id
    with pytest.raises(NotImplementedError, match=rf"operator {name} does not load beside torch"):
        call()


@needs_fallback
def test_readers_and_writers_of_images_say_what_to_use(tmp_path):
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    for call in (
        lambda: torchvision.io.read_image(str(tmp_path / "absent.png")),
        lambda: torchvision.io.encode_jpeg(image),
        lambda: v2.JPEG(50)(image),
    ):
        with pytest.raises(NotImplementedError, match="read images with Pillow"):
            call()


def test_images_of_pillow_are_transformed():
    stored = io.BytesIO()
    Image.new("RGB", (30, 20), (255, 0, 0)).save(stored, "PNG")
    pipeline = v2.Compose(
        [
            v2.RandomResizedCrop(8),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    found = pipeline(Image.open(stored))
    assert found.shape == (3, 8, 8)
    assert found.amax((1, 2)).tolist() == [1, 0, 0]
