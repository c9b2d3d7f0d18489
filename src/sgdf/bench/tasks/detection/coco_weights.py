"""The weights that torchvision has published for its Faster R-CNN, trained on COCO."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from ...errors import DataError, first_line
from ..assets import DATA_VARIABLE, data_folder

FILE = "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth"
CHECKSUM = "258fb6c6"
"""The beginning of the file's SHA-256, as torchvision has it in its name."""
CLASSES = 91
"""COCO's numbers of classes go up to 90, with gaps."""


def coco_weights_path() -> Path:
    """Return where the file is expected.

    Raises:
        DataError: if it is not there.
    """
    path = data_folder() / "weights" / FILE
    if not path.is_file():
        raise _refused(f"{path} is missing")
    return path


def read_coco_weights(official: bool = True) -> tuple[dict[str, Any], str]:
    """Return the tensors of the file by name, and the file's SHA-256.

    Args:
        official: insist on the published file.

    Raises:
        DataError: if it is missing, damaged or another one.
    """
    path = coco_weights_path()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refused(f"{path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if official and not digest.startswith(CHECKSUM):
        raise _refused(
            f"{path} is damaged, or not the published file: its SHA-256 is {digest} (official = "
            "false in [task] takes it knowingly for what it is)"
        )
    try:
        tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch does not document which
        raise _refused(f"{path} has no weights: {first_line(error)}") from error
    if not isinstance(tensors, dict):
        raise _refused(f"{path} has no weights, but {type(tensors).__name__}")
    return tensors, digest


def load_coco_weights(network: torch.nn.Module, official: bool = True) -> str:
    """Give the published weights to a network of ``CLASSES`` classes; return their SHA-256.

    Raises:
        DataError: if the file is missing, damaged or another one.
    """
    tensors, digest = read_coco_weights(official)
    try:
        network.load_state_dict(tensors)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise _refused(f"{data_folder() / 'weights' / FILE} does not fit: {reason}") from error
    return digest


def _refused(trouble: str) -> DataError:
    return DataError(
        f"Weights of a Faster R-CNN, trained on COCO: {trouble}.\n"
        f"They are not downloaded. Get https://download.pytorch.org/models/{FILE} (its SHA-256 "
        f"begins with {CHECKSUM}) and copy it to {data_folder() / 'weights'}; or name another "
        f"folder in the place of {data_folder()} with --data FOLDER or {DATA_VARIABLE}."
    )
