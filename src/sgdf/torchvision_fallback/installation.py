"""Giving torchvision the operators that it does not find."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from .roi_align import roi_align
from .suppression import nms

_BOXES = "Tensor dets, Tensor scores, float iou_threshold"
_POOLED = "Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_QUANTIZED = (
    "Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    "int rois_zero_point, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned"
)
_DEFORMED = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, "
    "int groups, int offset_groups, bool use_mask"
)
SCHEMAS = {
    "nms": f"({_BOXES}) -> Tensor",
    "roi_align": f"({_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    "qnms": f"({_BOXES}) -> Tensor",
    "qroi_align": f"({_QUANTIZED}) -> Tensor",
    "roi_pool": f"({_POOLED}) -> (Tensor, Tensor)",
    "ps_roi_align": f"({_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool": f"({_POOLED}) -> (Tensor, Tensor)",
    "deform_conv2d": f"({_DEFORMED}) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
}
"""The operators that torchvision's Python code calls. To be imported, it needs some of them."""

# Without gradients, and for all devices; the other one is differentiated through its parts.
_REPLACED: dict[str, tuple[Callable[..., Any], str]] = {
    "nms": (nms, "CompositeExplicitAutograd"),
    "roi_align": (roi_align, "CompositeImplicitAutograd"),
}

_kept: list[torch.library.Library] = []
"""The operators go when the library that defined them does."""
_in_use = False


def install() -> bool:
    """Make ``import torchvision`` work in this process, whether its operators load or not.

    Call it before anything that imports torchvision. Where the compiled operators load, it only
    imports torchvision. A second call does nothing. A child process that is started anew, not
    forked, has to call it, too.

    Returns:
        Whether the fallback is in use.

    Raises:
        ModuleNotFoundError: if torchvision is not installed.
    """
    global _in_use
    if _in_use or _operators_load():
        return _in_use
    _define_operators()
    _tell_torchvision(importlib.import_module("torchvision"))
    _in_use = True
    warnings.warn(
        "torchvision's compiled operators do not load beside torch "
        f"{torch.__version__}: nms and roi_align are replaced by ones written in PyTorch, which "
        "can be several times slower",
        stacklevel=2,
    )
    return True


def _operators_load() -> bool:
    """Import torchvision, and return whether its operators loaded."""
    if importlib.util.find_spec("torchvision") is None:
        raise ModuleNotFoundError(
            "torchvision is not installed: pip install 'sgdf[vision]'", name="torchvision"
        )
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        _forget_torchvision()
        return False
    # It can be imported without them, if somebody has declared the operators that it looks for.
    return bool(importlib.import_module("torchvision.extension")._has_ops())


def _forget_torchvision() -> None:
    """Remove what a failed import has left, so that the next one begins anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


def _define_operators() -> None:
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    _kept.append(library)
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + schema)
        kernel, key = _REPLACED.get(name, (_refusal(name), "CompositeExplicitAutograd"))
        library.impl(name, kernel, key)


def _tell_torchvision(torchvision: ModuleType) -> None:
    """Let its functions call the operators, which they do not if it found none to load."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == torchvision.__name__:
            for check in (_has_ops, _assert_has_ops):
                if hasattr(module, check.__name__):
                    setattr(module, check.__name__, check)
    images = sys.modules.get("torchvision.io.image")
    if images is not None and not getattr(images, "_has_image_ops", lambda: True)():
        images._assert_has_image_ops = _refuse_images  # type: ignore[attr-defined]


# Functions and not lambdas, because torch.jit compiles what torchvision's functions call.
def _has_ops() -> bool:
    return True


def _assert_has_ops() -> None:
    pass


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object) -> NoReturn:
        raise NotImplementedError(
            f"torchvision's operator {name} does not load beside torch {torch.__version__}, and "
            f"sgdf.torchvision_fallback replaces only {' and '.join(_REPLACED)}: it needs the "
            "torchvision that was built for this torch"
        )

    return refuse


def _refuse_images() -> NoReturn:
    raise NotImplementedError(
        "torchvision's readers and writers of images do not load beside torch "
        f"{torch.__version__}: read images with Pillow (PIL.Image.open), or install the "
        "torchvision that was built for this torch"
    )
