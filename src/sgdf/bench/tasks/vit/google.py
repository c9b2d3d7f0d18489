"""Weights of vision transformers in the layout of Google's ``.npz`` files.

The files have an array for each kernel, with inputs before outputs, and heads as an axis of their
own. A head, and a layer before it (``pre_logits``), may be there too and are ignored.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError, StoreError, first_line
from ...store import files
from .transformer import COLOURS, Size, VisionTransformer

POSITIONS = "Transformer/posembed_input/pos_embedding"

HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
NOT_NUMBERS = "has values that are not finite numbers with a point"

Array = NDArray[Any]


@dataclass(frozen=True)
class Stored:
    """How one of our tensors is stored.

    Attributes:
        ours: its name in the state of a ``VisionTransformer``.
        arrays: the names of its arrays; what several have in common lies in rows one after another.
        shape: the shape of each array.
        read: makes our rows of an array.
        write: makes an array of our rows.
    """

    ours: str
    arrays: tuple[str, ...]
    shape: tuple[int, ...]
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor], Tensor]


def layout(size: Size, places: int) -> Iterator[Stored]:
    """Yield how each tensor of a transformer is stored.

    Args:
        size: that of the transformer.
        places: of the grid of patches.
    """
    h, heads = size.hidden, size.heads
    split = (heads, h // heads)

    def same(ours: str, array: str, *shape: int) -> Stored:
        return Stored(ours, (array,), shape, lambda a: a, lambda t: t)

    def linear(ours: str, array: str, inputs: int, outputs: int) -> Iterator[Stored]:
        yield Stored(
            f"{ours}.weight", (f"{array}/kernel",), (inputs, outputs), lambda a: a.T, lambda t: t.T
        )
        yield same(f"{ours}.bias", f"{array}/bias", outputs)

    def norm(ours: str, array: str) -> Iterator[Stored]:
        yield same(f"{ours}.weight", f"{array}/scale", h)
        yield same(f"{ours}.bias", f"{array}/bias", h)

    yield Stored(
        "patches.weight",
        ("embedding/kernel",),
        (size.patch, size.patch, COLOURS, h),
        lambda a: a.permute(3, 2, 0, 1),
        lambda t: t.permute(2, 3, 1, 0),
    )
    yield same("patches.bias", "embedding/bias", h)
    yield same("whole", "cls", 1, 1, h)
    yield same("positions", POSITIONS, 1, 1 + places, h)
    for number in range(size.blocks):
        block, theirs = f"blocks.{number}", f"Transformer/encoderblock_{number}"
        attention = f"{theirs}/MultiHeadDotProductAttention_1"
        yield from norm(f"{block}.before_attention", f"{theirs}/LayerNorm_0")
        yield Stored(
            f"{block}.attention.queries_keys_values.weight",
            tuple(f"{attention}/{part}/kernel" for part in ("query", "key", "value")),
            (h, *split),
            lambda a: a.flatten(1).T,
            lambda t: t.T.reshape(h, *split),
        )
        yield Stored(
            f"{block}.attention.queries_keys_values.bias",
            tuple(f"{attention}/{part}/bias" for part in ("query", "key", "value")),
            split,
            lambda a: a.flatten(),
            lambda t: t.reshape(split),
        )
        yield Stored(
            f"{block}.attention.mixed.weight",
            (f"{attention}/out/kernel",),
            (*split, h),
            lambda a: a.flatten(0, 1).T,
            lambda t: t.T.reshape(*split, h),
        )
        yield same(f"{block}.attention.mixed.bias", f"{attention}/out/bias", h)
        yield from norm(f"{block}.before_mlp", f"{theirs}/LayerNorm_2")
        yield from linear(f"{block}.mlp.0", f"{theirs}/MlpBlock_3/Dense_0", h, size.inner)
        yield from linear(f"{block}.mlp.3", f"{theirs}/MlpBlock_3/Dense_1", size.inner, h)
    yield from norm("norm", "Transformer/encoder_norm")


def read_weights(path: Path, name: str, size: Size, dropout: float = 0.0) -> VisionTransformer:
    """Return the transformer of a file, for images of the side that it was trained on.

    Args:
        path: the file. Nothing in it is executed.
        name: of the network, for messages.
        size: what the file must have the weights of.
        dropout: that of the transformer.

    Raises:
        DataError: if the file cannot be read, or its arrays do not fit.
    """
    with _errors(path, name), os.fdopen(files.open_plain(path, os.O_RDONLY), "rb") as opened:
        return _transformer(np.load(opened, allow_pickle=False), size, dropout)


def write_weights(transformer: VisionTransformer) -> bytes:
    """Return the weights of a transformer as the content of a file."""
    state = transformer.state_dict()
    places = state["positions"].shape[1] - 1
    arrays: dict[str, Any] = {}
    for stored in layout(transformer.size, places):
        parts = state[stored.ours].detach().cpu().chunk(len(stored.arrays))
        for array, part in zip(stored.arrays, parts, strict=True):
            arrays[array] = stored.write(part).contiguous().numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _transformer(file: Any, size: Size, dropout: float) -> VisionTransformer:
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise ValueError("it does not hold arrays by name")
    names = set(file.files)
    shape = _shape(file, names, POSITIONS)
    grid = math.isqrt(max(0, shape[1] - 1)) if len(shape) == 3 else 0
    if not grid or shape[1] != 1 + grid**2:
        raise ValueError(
            f"{POSITIONS} has the shape {shape}, which is no square grid and one place"
        )
    if (more := f"Transformer/encoderblock_{size.blocks}/LayerNorm_0/scale") in names:
        raise ValueError(f"it has {more}, one block too many")
    state = {}
    for stored in layout(size, grid**2):
        parts = []
        for name in stored.arrays:
            array = _array(file, names, name, stored.shape)
            parts.append(stored.read(torch.from_numpy(array.astype(np.float32))))
        state[stored.ours] = torch.cat(parts)
    with torch.device("meta"):  # else weights would be drawn, and kept beside those of the file
        transformer = VisionTransformer(size, grid * size.patch, dropout)
    transformer.load_state_dict(state, assign=True)
    return transformer


def _array(file: Any, names: set[str], name: str, shape: tuple[int, ...]) -> Array:
    """Return an array, which has to have a shape; one that has another is not read."""
    if (found := _shape(file, names, name)) != shape:
        raise ValueError(f"{name} has the shape {found} in place of {shape}")
    array: Array = file[name]
    if not np.isfinite(array).all():
        raise ValueError(f"{name} {NOT_NUMBERS}")
    return array


def _shape(file: Any, names: set[str], name: str) -> tuple[int, ...]:
    """Return the shape of an array by its header, which says too that it has numbers."""
    if name not in names:
        raise ValueError(f"it has no {name}")
    with file.zip.open(f"{name}.npy") as opened:
        version = np.lib.format.read_magic(opened)
        if version not in HEADERS:
            raise ValueError(f"{name} is stored in the version {version}")
        shape, _, dtype = HEADERS[version](opened)
    if not np.issubdtype(dtype, np.floating):
        raise ValueError(f"{name} {NOT_NUMBERS}")
    return shape


@contextlib.contextmanager
def _errors(path: Path, name: str) -> Iterator[None]:
    """Raise one error, in one sentence, for whatever is wrong with a file."""
    known = (ValueError, KeyError, EOFError, OSError, NotImplementedError, StoreError)
    try:
        yield
    except (*known, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} has no weights of {name}: {first_line(str(error))}") from error
