"""The operators in PyTorch against torchvision's compiled ones, where those load."""

import pytest
import torch

from sgdf.torchvision_fallback import install
from sgdf.torchvision_fallback.roi_align import roi_align
from sgdf.torchvision_fallback.suppression import nms

pytestmark = pytest.mark.skipif(
    install(), reason="torchvision's compiled operators do not load beside this torch"
)
NATIVE = torch.ops.torchvision


def random_boxes(count, side, dtype, whole=False):
    """Return boxes in a square; with whole numbers, many have the same or no area."""
    corners = side * torch.rand(count, 2, 2, dtype=dtype)
    corners = corners.round() if whole else corners
    return torch.cat([corners.amin(1), corners.amax(1)], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("whole", [False, True])
def test_the_same_boxes_stay(dtype, threshold, whole):
    boxes = random_boxes(1500, 20, dtype, whole)
    scores = torch.rand(1500, dtype=dtype)
    scores = (8 * scores).round() if whole else scores  # many are equal
    assert nms(boxes, scores, threshold).equal(NATIVE.nms(boxes, scores, threshold))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sampling_ratio", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("aligned", [False, True])
def test_features_and_gradients_are_the_same(dtype, sampling_ratio, aligned):
    inputs = torch.randn(3, 5, 17, 23, dtype=dtype)
    boxes = random_boxes(60, 60, dtype) - 10  # some begin left of the map, some end right of it
    boxes[:4, 2:] = boxes[:4, :2]  # and some are empty
    if sampling_ratio > 0 or not aligned:  # where the compiled operator allows it
        boxes[4:8, 2:] -= 40
    rois = torch.cat([torch.randint(3, (60, 1)).to(dtype), boxes], 1)
    arguments = (rois, 0.5, 3, 4, sampling_ratio, aligned)
    outputs, gradients = [], []
    weights = torch.randn(60, 5, 3, 4, dtype=dtype)
    for operator in (roi_align, NATIVE.roi_align):
        leaf = inputs.clone().requires_grad_()
        outputs.append(operator(leaf, *arguments))
        (outputs[-1] * weights).sum().backward()
        gradients.append(leaf.grad)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for ours, theirs in (outputs, gradients):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def test_autocast_gives_the_same_types():
    inputs, rois = torch.randn(1, 2, 9, 9, dtype=torch.bfloat16), torch.tensor([[0, 1, 1, 7, 6.0]])
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (
            operator(inputs, rois, 1.0, 2, 2, 2, True) for operator in (roi_align, NATIVE.roi_align)
        )
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert ours.equal(theirs)
