"""Faster R-CNN with a feature pyramid (Ren et al., 2015; Lin et al., 2017), of torchvision's parts.

The large one is torchvision's own. The small one has the same parts around a ResNet-20 for CIFAR.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from torch import nn

from ..cifar.networks import PUBLISHED, with_published_weights
from ..vision_extra import torchvision

BATCH_NORMS = ("trained", "frozen")
PYRAMID = 32
"""Channels of each level of the small one."""
ANCHORS = (12, 24, 48, 96)
"""Sides of its anchors, one for each level."""
HIDDEN = 256
STAGES = {"5": 16, "8": 32, "11": 64}
"""Where the stages of ResNet-20 end, and how many channels come out of them."""
FIRST_TUNED = 6
"""The first of its layers that is trained when a trained detector is tuned."""
CANONICAL_SIDE, CANONICAL_LEVEL = 84, 3
"""Boxes of this side are looked at on this level: 1.75 anchors of it, as in the large one."""


def large_detector(classes: int, batch_norm: str, **options: Any) -> nn.Module:
    """Return torchvision's Faster R-CNN on ResNet-50, untrained.

    Stem and first stage of the ResNet are not trained.

    Args:
        classes: how many there are, with the background.
        batch_norm: ``"trained"``, or ``"frozen"``: then its layers are constants, without an
            epsilon, as torchvision has them with the weights that it publishes.
        options: of torchvision's class, such as the size that photographs are scaled to.
    """
    library = torchvision()
    norm = functools.partial(library.ops.FrozenBatchNorm2d, eps=0.0)
    backbone = library.models.detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet50",
        weights=None,
        norm_layer=nn.BatchNorm2d if batch_norm == "trained" else norm,
        trainable_layers=3,
    )
    network: nn.Module = library.models.detection.FasterRCNN(backbone, classes, **options)
    return network


def small_detector(classes: int, weights: Path, longest: int) -> nn.Module:
    """Return a Faster R-CNN on ResNet-20, whose stem takes every second pixel.

    Args:
        classes: how many there are, with the background.
        weights: the file with those of the ResNet that were published.
        longest: the longer side of the photographs, which come in this size.
    """
    library = torchvision()
    detection = library.models.detection
    published: Any = with_published_weights("resnet20", weights)
    layers = published[1]
    layers[0].stride = (2, 2)
    backbone = detection.backbone_utils.BackboneWithFPN(
        layers,
        return_layers={name: str(level) for level, name in enumerate(STAGES)},
        in_channels_list=list(STAGES.values()),
        out_channels=PYRAMID,
    )
    pool = library.ops.MultiScaleRoIAlign(
        [str(level) for level in range(len(STAGES))],
        output_size=7,
        sampling_ratio=2,
        canonical_scale=CANONICAL_SIDE,
        canonical_level=CANONICAL_LEVEL,
    )
    network: nn.Module = detection.FasterRCNN(
        backbone,
        min_size=longest,  # which with the next line leaves them as they are
        max_size=longest,
        size_divisible=2 ** (len(STAGES) + 1),
        image_mean=PUBLISHED["mean"],
        image_std=PUBLISHED["deviation"],
        rpn_anchor_generator=detection.anchor_utils.AnchorGenerator(
            tuple((side,) for side in ANCHORS), ((0.5, 1.0, 2.0),) * len(ANCHORS)
        ),
        box_roi_pool=pool,
        box_head=detection.faster_rcnn.TwoMLPHead(PYRAMID * 7 * 7, HIDDEN),
        box_predictor=detection.faster_rcnn.FastRCNNPredictor(HIDDEN, classes),
    )
    return network


def freeze_beginning(network: Any) -> None:
    """Do not train stem and first stage of the small one's ResNet, as in the large one."""
    for name, layer in network.backbone.body.named_children():
        if int(name) < FIRST_TUNED:
            layer.requires_grad_(False)


def replace_predictor(network: Any, classes: int) -> None:
    """Give a detector new last layers, which say of a box what it is and where it ends.

    Args:
        network: the detector.
        classes: how many there are, with the background.
    """
    inputs = network.roi_heads.box_predictor.cls_score.in_features
    predictor = torchvision().models.detection.faster_rcnn.FastRCNNPredictor(inputs, classes)
    network.roi_heads.box_predictor = predictor
