"""The Inception of the published FIDs.

It is Inception v3 (Szegedy et al., 2016) as TensorFlow's graph of 2015-12-05 has it, with weights
that pytorch-fid published in the names of torchvision. The graph differs from other versions: it
has 1,008 classes, its average pooling does not count the padding, and its last block
takes the maximum where the others take the average.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import DataError, SpecError, suggestion
from ..store import files
from .network_extractor import NetworkExtractor

FILE = "pt_inception-2015-12-05-6726825d.pth"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
ORIGIN = "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/" + FILE
SIDE = 299
CLASSES = 1008
AVERAGE = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
MAXIMUM = nn.MaxPool2d(3, stride=1, padding=1)
SHRINK = nn.MaxPool2d(3, stride=2)


@dataclass(frozen=True)
class Conv:
    """A convolution of a block, in the name that it has in the file of weights."""

    name: str
    channels: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1


Step = Conv | tuple[Conv, ...] | nn.Module
"""What a branch does next: a convolution, several side by side, or pooling."""


class Block(nn.Module):
    """Branches side by side, whose outputs are the channels of the block.

    Args:
        inputs: channels.
        branches: the steps of each branch.
    """

    def __init__(self, inputs: int, branches: list[list[Step]]) -> None:
        super().__init__()
        self.branches = branches
        self.outputs = 0
        for branch in branches:
            channels = inputs
            for step in branch:
                channels = self._make(step, channels)
            self.outputs += channels

    def _make(self, step: Step, inputs: int) -> int:
        """Make the layers of a step, and return how many channels it has."""
        if isinstance(step, nn.Module):
            return inputs
        parts = step if isinstance(step, tuple) else (step,)
        for part in parts:
            padding = tuple(side // 2 for side in part.kernel) if part.stride == 1 else (0, 0)
            self.add_module(
                part.name, convolution(inputs, part.channels, part.kernel, part.stride, padding)
            )
        return sum(part.channels for part in parts)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the branches one after the other."""
        return torch.cat([self._of_branch(branch, inputs) for branch in self.branches], 1)

    def _of_branch(self, branch: list[Step], values: Tensor) -> Tensor:
        for step in branch:
            if isinstance(step, nn.Module):
                values = step(values)
            elif isinstance(step, tuple):
                values = torch.cat([self.get_submodule(part.name)(values) for part in step], 1)
            else:
                values = self.get_submodule(step.name)(values)
        return values


def convolution(
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: int = 1,
    padding: tuple[int, ...] = (0, 0),
) -> nn.Sequential:
    """Return a convolution with batch normalisation and ReLU."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),  # type: ignore[arg-type]
        bn=nn.BatchNorm2d(outputs, eps=1e-3),
        relu=nn.ReLU(inplace=True),
    )
    return nn.Sequential(layers)


def mixed_35(inputs: int, pooled: int) -> Block:
    """Return a block of the part whose maps have a side of 35."""
    return Block(
        inputs,
        [
            [Conv("branch1x1", 64)],
            [Conv("branch5x5_1", 48), Conv("branch5x5_2", 64, (5, 5))],
            [
                Conv("branch3x3dbl_1", 64),
                Conv("branch3x3dbl_2", 96, (3, 3)),
                Conv("branch3x3dbl_3", 96, (3, 3)),
            ],
            [AVERAGE, Conv("branch_pool", pooled)],
        ],
    )


def to_17(inputs: int) -> Block:
    """Return the block that shrinks maps from 35 to 17."""
    return Block(
        inputs,
        [
            [Conv("branch3x3", 384, (3, 3), stride=2)],
            [
                Conv("branch3x3dbl_1", 64),
                Conv("branch3x3dbl_2", 96, (3, 3)),
                Conv("branch3x3dbl_3", 96, (3, 3), stride=2),
            ],
            [SHRINK],
        ],
    )


def mixed_17(inputs: int, width: int) -> Block:
    """Return a block of the part whose maps have a side of 17."""
    row, column = (1, 7), (7, 1)
    return Block(
        inputs,
        [
            [Conv("branch1x1", 192)],
            [
                Conv("branch7x7_1", width),
                Conv("branch7x7_2", width, row),
                Conv("branch7x7_3", 192, column),
            ],
            [
                Conv("branch7x7dbl_1", width),
                Conv("branch7x7dbl_2", width, column),
                Conv("branch7x7dbl_3", width, row),
                Conv("branch7x7dbl_4", width, column),
                Conv("branch7x7dbl_5", 192, row),
            ],
            [AVERAGE, Conv("branch_pool", 192)],
        ],
    )


def to_8(inputs: int) -> Block:
    """Return the block that shrinks maps from 17 to 8."""
    return Block(
        inputs,
        [
            [Conv("branch3x3_1", 192), Conv("branch3x3_2", 320, (3, 3), stride=2)],
            [
                Conv("branch7x7x3_1", 192),
                Conv("branch7x7x3_2", 192, (1, 7)),
                Conv("branch7x7x3_3", 192, (7, 1)),
                Conv("branch7x7x3_4", 192, (3, 3), stride=2),
            ],
            [SHRINK],
        ],
    )


def mixed_8(inputs: int, pool: nn.Module) -> Block:
    """Return a block of the part whose maps have a side of 8."""
    row, column = (1, 3), (3, 1)
    return Block(
        inputs,
        [
            [Conv("branch1x1", 320)],
            [
                Conv("branch3x3_1", 384),
                (Conv("branch3x3_2a", 384, row), Conv("branch3x3_2b", 384, column)),
            ],
            [
                Conv("branch3x3dbl_1", 448),
                Conv("branch3x3dbl_2", 384, (3, 3)),
                (Conv("branch3x3dbl_3a", 384, row), Conv("branch3x3dbl_3b", 384, column)),
            ],
            [pool, Conv("branch_pool", 192)],
        ],
    )


class WithoutBias(nn.Linear):
    """A last layer whose bias is in the file, but not in the published inception scores."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores for the classes."""
        return functional.linear(inputs, self.weight)


def network() -> nn.Sequential:
    """Return the network, for images of 299 × 299 pixels with values from -1 to 1."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        Conv2d_1a_3x3=convolution(3, 32, (3, 3), stride=2),
        Conv2d_2a_3x3=convolution(32, 32, (3, 3)),
        Conv2d_2b_3x3=convolution(32, 64, (3, 3), padding=(1, 1)),
        shrink_1=nn.MaxPool2d(3, stride=2),
        Conv2d_3b_1x1=convolution(64, 80, (1, 1)),
        Conv2d_4a_3x3=convolution(80, 192, (3, 3)),
        shrink_2=nn.MaxPool2d(3, stride=2),
        Mixed_5b=mixed_35(192, 32),
        Mixed_5c=mixed_35(256, 64),
        Mixed_5d=mixed_35(288, 64),
        Mixed_6a=to_17(288),
        Mixed_6b=mixed_17(768, 128),
        Mixed_6c=mixed_17(768, 160),
        Mixed_6d=mixed_17(768, 160),
        Mixed_6e=mixed_17(768, 192),
        Mixed_7a=to_8(768),
        Mixed_7b=mixed_8(1280, AVERAGE),
        Mixed_7c=mixed_8(2048, MAXIMUM),
        average=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=WithoutBias(2048, CLASSES),
    )
    return nn.Sequential(layers)


def as_in_tensorflow(images: Tensor) -> Tensor:
    """Return images of 0 to 255 as the graph itself makes them, for ADM's scores.

    It resizes by linear interpolation, first along rows, where pixel i of the new image is at
    i · (old side / new side) of the old one: the corners at the top left meet, and half a pixel is
    not counted. Smaller ones are not averaged. Then 128 is taken off, and the rest divided by 128.
    """
    return (_stretched(_stretched(images, 3), 2) - 128) / 128


def _stretched(images: Tensor, axis: int) -> Tensor:
    size = images.shape[axis]
    if size == SIDE:
        return images
    places = torch.arange(SIDE, dtype=torch.float32, device=images.device) * (size / SIDE)
    before = places.long().clamp(max=size - 1)
    first = images.index_select(axis, before)
    second = images.index_select(axis, (before + 1).clamp(max=size - 1))
    share = (places - before).view((-1, 1) if axis == 2 else (-1,))
    return first + (second - first) * share


def as_in_pytorch_fid(images: Tensor) -> Tensor:
    """Return images of 0 to 255 as the program pytorch-fid makes them.

    It resizes by linear interpolation between the centres of pixels, without averaging, and maps
    0 to -1 and 255 to 1.
    """
    size = (SIDE, SIDE)
    return 2 * functional.interpolate(images / 255, size, mode="bilinear") - 1


RESIZING: dict[str, Callable[[Tensor], Tensor]] = {
    "tensorflow": as_in_tensorflow,
    "pytorch-fid": as_in_pytorch_fid,
}


class Inception(NetworkExtractor):
    """The Inception of the published FIDs, with weights from a file.

    Pooled are the 2,048 features before the last layer (``pool_3``). Spatial are the first 7
    channels, at 17 × 17 places, of the tensor that ADM's evaluator takes, ``mixed_6/conv``. That is
    the convolution of 1 × 1 in ``Mixed_6d``, after its ReLU: TensorFlow counts the blocks from
    ``mixed`` (``Mixed_5b``) on. The probabilities are those without the last bias, as in that
    evaluator.

    Args:
        path: the file of weights, ``FILE`` from ``ORIGIN``.
        resizing: how images get the side of 299: ``"tensorflow"`` as in the graph itself, and so
            in ADM's evaluator, or ``"pytorch-fid"`` as in the program of that name. The two give
            slightly different scores.
        official: insist on the published file. Scores with another one are not called FID.

    Raises:
        DataError: if there is no such file, or it is not the published one, or does not fit.
        SpecError: if the way of resizing is unknown.
    """

    def __init__(self, path: Path, resizing: str = "tensorflow", official: bool = True) -> None:
        if resizing not in RESIZING:
            raise SpecError(
                f"resizing = {resizing!r}: must be one of {', '.join(RESIZING)}"
                f"{suggestion(resizing, RESIZING)}"
            )
        content = files.read(path)
        if not content:
            raise DataError(f"{path}: there is no such file. Get it from {ORIGIN}")
        found = hashlib.sha256(content).hexdigest()
        if official and found != SHA256:
            raise _refused(path, content, "it is damaged, or not the published file")
        with torch.device("meta"):  # so that no random numbers are drawn for weights
            empty = network()
        empty.load_state_dict(_weights(path, content, empty), assign=True)
        super().__init__(
            "inception" if resizing == "tensorflow" else f"inception-{resizing}",
            empty,
            pooled="Mixed_7c",
            spatial="Mixed_6d.branch1x1",
            prepare=RESIZING[resizing],
        )
        self.is_inception = found == SHA256


def _weights(path: Path, content: bytes, network: nn.Module) -> dict[str, Tensor]:
    """Return the state of the network that is in a file."""
    expected = {key: (value.shape, value.dtype) for key, value in network.state_dict().items()}
    counters = {key for key in expected if key.endswith("num_batches_tracked")}
    try:
        state: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise any
        reason = str(error).partition("\n")[0]
        raise _refused(path, content, f"torch cannot load it ({reason})") from error
    if not isinstance(state, dict):
        raise _refused(path, content, f"it has a {type(state).__name__}, not tensors by name")
    for key in expected.keys() | state.keys():
        if key in counters:
            continue
        value = state.get(key)
        if key not in expected or not isinstance(value, Tensor):
            raise _refused(path, content, f"{key} is in only one of the file and the network")
        if (value.shape, value.dtype) != expected[key]:
            raise _refused(
                path,
                content,
                f"{key} has the shape {tuple(value.shape)} and the type {value.dtype}",
            )
    return {key: torch.tensor(0) if key in counters else state[key] for key in expected}


def _refused(path: Path, content: bytes, trouble: str) -> DataError:
    return DataError(
        f"{path} has no weights of the published Inception: {trouble}. Its SHA-256 is "
        f"{hashlib.sha256(content).hexdigest()}; that of {FILE} is {SHA256}. Get it from {ORIGIN}"
    )
