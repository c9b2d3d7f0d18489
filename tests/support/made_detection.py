"""Detectors of the shapes of ``made_photographs``, with random weights in the published formats."""

import numpy as np
import torch

from made_photographs import SHAPES, write_photographs
from sgdf.bench.tasks.cifar.networks import NETWORKS
from sgdf.bench.tasks.detection.task import BloodCells, PascalVOC

SMALL = {"name": "made_detection:Shapes", "longest": 64, "pretraining_epochs": 1}
"""A task that takes a step in a tenth of a second."""


class Shapes(BloodCells):
    """The small detector on shapes."""

    photograph_set = SHAPES


class LargeShapes(PascalVOC):
    """The large detector on shapes."""

    photograph_set = SHAPES
    pixels_in_digest = True


def write_data(folder, seed=0):
    """Write photographs, and a ResNet-20 as it is initialised; return the folder."""
    write_photographs(folder, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tensors = NETWORKS["resnet20"](10, 1.0).state_dict().values()
    arrays = [tensor.numpy() for tensor in tensors if tensor.is_floating_point()]
    (folder / "weights").mkdir()
    np.savez(folder / "weights/cifar10_resnet20.npz", *arrays)
    return folder
