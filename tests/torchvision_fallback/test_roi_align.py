"""Features of regions, against the definition in a loop and values that are known."""

import math

import pytest
import torch

from sgdf.torchvision_fallback import roi_align as module
from sgdf.torchvision_fallback.roi_align import roi_align


def interpolated(plane, y, x):
    """Return a map at a point: bilinearly, as its edge up to one cell beyond it, then 0."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = plane[top, left] * (left + 1 - x) + plane[top, right] * (x - left)
    lower = plane[bottom, left] * (left + 1 - x) + plane[bottom, right] * (x - left)
    return float(upper * (top + 1 - y) + lower * (y - top))


def by_definition(inputs, rois, scale, rows, columns, ratio, aligned):
    found = torch.zeros(len(rois), inputs.shape[1], rows, columns, dtype=inputs.dtype)
    for region, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (scale * corner - 0.5 * aligned for corner in corners)
        width, height = right - left, bottom - top
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        down = ratio if ratio > 0 else math.ceil(height / rows)
        across = ratio if ratio > 0 else math.ceil(width / columns)
        for channel, plane in enumerate(inputs[int(image)]):
            for row in range(rows):
                for column in range(columns):
                    points = [
                        interpolated(
                            plane,
                            top + (row + (i + 0.5) / down) * height / rows,
                            left + (column + (j + 0.5) / across) * width / columns,
                        )
                        for i in range(down)
                        for j in range(across)
                    ]
                    found[region, channel, row, column] = sum(points) / max(len(points), 1)
    return found


def problem():
    """Return two maps, and regions of both: within, across every edge, empty and outside."""
    rois = [
        [0, 2, 2, 14, 9],
        [1, 3.3, 1.7, 9.1, 13.9],
        [1, -6, -7, 8, 8],
        [0, 10, 5, 33, 31],
        [1, 4, 4, 4, 4],
        [0, 5, 3, 5, 9],
        [1, 80, 80, 90, 90],
        [0, 2, 2, 3, 3],
    ]
    inputs = torch.randn(2, 3, 10, 13, dtype=torch.float64)
    return inputs, torch.tensor(rois, dtype=torch.float64)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 2, 3])
def test_features_are_those_of_the_definition(ratio, aligned):
    arguments = (*problem(), 0.5, 3, 2, ratio, aligned)
    torch.testing.assert_close(roi_align(*arguments), by_definition(*arguments))


def test_the_bins_of_a_slope_have_the_values_of_their_centres():
    slope = torch.arange(20.0).expand(1, 1, 20, 20)
    region = torch.tensor([[0, 2.0, 2.0, 10.0, 14.0]])
    for ratio in (-1, 1, 2):
        for aligned in (False, True):
            found = roi_align(slope, region, 1.0, 2, 4, ratio, aligned)
            centres = torch.tensor([[[[3.0, 5.0, 7.0, 9.0]] * 2]]) - 0.5 * aligned
            torch.testing.assert_close(found, centres)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_gradients_are_those_of_finite_differences(ratio, aligned):
    inputs, rois = problem()
    inputs = inputs[:, :1].requires_grad_()
    assert torch.autograd.gradcheck(
        lambda maps: roi_align(maps, rois, 0.5, 2, 3, ratio, aligned), inputs
    )


def test_regions_get_no_gradient():
    inputs, rois = problem()
    assert not roi_align(inputs, rois.requires_grad_(), 1.0, 2, 2, 2, True).requires_grad


def test_without_regions_the_gradient_is_zero():
    inputs, rois = problem()
    found = roi_align(inputs.requires_grad_(), rois[:0], 1.0, 7, 5, -1, False)
    assert found.shape == (0, 3, 7, 5)
    found.sum().backward()
    assert not inputs.grad.any()


@pytest.mark.parametrize("ratio", [-1, 2])
def test_the_bound_on_memory_changes_nothing(ratio, monkeypatch):
    arguments = (*problem(), 1.0, 3, 3, ratio, True)
    at_once = roi_align(*arguments)
    monkeypatch.setattr(module, "ENTRIES", 1)
    assert roi_align(*arguments).equal(at_once)


def test_channels_last_and_a_region_that_is_not_a_number():
    inputs, rois = problem()
    expected = roi_align(inputs, rois, 1.0, 2, 2, 2, True)
    last = inputs.contiguous(memory_format=torch.channels_last)
    assert roi_align(last, rois, 1.0, 2, 2, 2, True).equal(expected)
    rois[1, 1:] = torch.nan
    found = roi_align(inputs, rois, 1.0, 2, 2, 2, True)
    assert not found[1].any()
    assert found[2:].equal(expected[2:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_output_has_the_type_of_the_input_and_is_computed_in_single(dtype):
    inputs, rois = (values.to(dtype) for values in problem())
    found = roi_align(inputs, rois, 0.5, 2, 2, 2, False)
    assert found.dtype == dtype
    single = roi_align(inputs.float(), rois.float(), 0.5, 2, 2, 2, False)
    assert found.equal(single.to(dtype))


def test_types_may_differ_under_autocast_only():
    inputs, rois = problem()
    inputs, rois = inputs.bfloat16(), rois.float()
    with pytest.raises(RuntimeError, match=r"input is torch.bfloat16, but .* torch.float32"):
        roi_align(inputs, rois, 0.5, 2, 2, 2, False)
    with torch.autocast("cpu", torch.bfloat16):
        found = roi_align(inputs, rois, 0.5, 2, 2, 2, False)
    assert found.equal(roi_align(inputs.float(), rois, 0.5, 2, 2, 2, False).bfloat16())


def test_what_does_not_fit_is_refused():
    inputs, rois = problem()
    with pytest.raises(RuntimeError, match="4 dimensions, not 3"):
        roi_align(inputs[0], rois, 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match=r"shape \(n, 5\), not \(8, 4\)"):
        roi_align(inputs, rois[:, 1:], 1.0, 2, 2, 2, False)
