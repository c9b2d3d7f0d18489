"""Features from the inside of any classifier of images."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import SpecError
from .features import Features
from .function_text import function_text

VERSION = 2
"""Part of every digest: raise it when the bench computes other features with the same weights."""


class NetworkExtractor:
    """The outputs of two parts of a network, and the probabilities of its classes.

    It has a copy of the network, in evaluation mode: the network itself stays as it is, and
    training it further does not change the features.

    Args:
        name: how pages call it.
        network: returns scores (n, classes), whose softmax are the probabilities.
        pooled: the part whose output is the pooled features, as in ``network.get_submodule``. If
            they have places, the mean over these is taken.
        spatial: the part (n, channels, height, width) whose output is the spatial features.
        channels: how many of its channels they have, the first ones: sFID takes 7. They are in
            the order of ADM's evaluator: channels last.
        side: images of other sizes are resized to it first, smaller ones by averages; None to take
            every size.
        prepare: what the network is given for images as numbers from 0 to 255; by default
            these numbers.

    Raises:
        SpecError: if the network has no such part.
    """

    is_inception: bool = False

    def __init__(
        self,
        name: str,
        network: nn.Module,
        pooled: str,
        spatial: str | None = None,
        channels: int = 7,
        side: int | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.name = name
        self._parts = {"pooled": pooled} | ({"spatial": spatial} if spatial is not None else {})
        self._channels, self._side, self._prepare = channels, side, prepare
        known = dict(network.named_modules())
        for use, part in self._parts.items():
            if part not in known:
                raise SpecError(f"{use} = {part!r}: {name} has no such part")
        self._network = copy.deepcopy(network).eval().requires_grad_(False)
        self._device = torch.device("cpu")

    @cached_property
    def digest(self) -> str:
        """A digest of the name, the network, the preparation, and of which features are taken.

        Of the code of a network it has what its layers say of themselves: give it another name if
        you change the rest.
        """
        taken = f"{VERSION} {self.name} {self._parts} {self._channels} {self._side}"
        digest = hashlib.sha256(f"{taken} {function_text(self._prepare)} {self._network}".encode())
        for key, value in self._network.state_dict().items():
            digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def to(self, device: torch.device) -> NetworkExtractor:
        """Move the network to a device, and return the extractor."""
        self._network.to(device)
        self._device = device
        return self

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Features:
        """Return the features of images as bytes (n, 3, height, width), from any device.

        Raises:
            ValueError: if they are not bytes.
        """
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(
                f"images of the type {images.dtype} and the shape {tuple(images.shape)}: must be "
                "bytes (n, 3, height, width)"
            )
        with torch.autocast(self._device.type, enabled=False):  # scores must not depend on it
            outputs, scores = self._run(self._prepared(images))
        pooled = outputs["pooled"]
        spatial = outputs.get("spatial")
        if spatial is not None:
            spatial = spatial[:, : self._channels].movedim(1, -1).flatten(1).float()
        places = tuple(range(2, pooled.dim()))
        return Features(
            pooled=(pooled.mean(places) if places else pooled).float(),
            spatial=spatial,
            probabilities=scores.float().softmax(1),
        )

    def _prepared(self, images: Tensor) -> Tensor:
        numbers = images.to(self._device).float()
        if self._side is not None and numbers.shape[2:] != (self._side, self._side):
            numbers = functional.interpolate(
                numbers, (self._side, self._side), mode="bilinear", antialias=True
            )
        return self._prepare(numbers) if self._prepare is not None else numbers

    def _run(self, inputs: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the outputs of the parts, and the network's own."""
        outputs: dict[str, Tensor] = {}
        handles = [
            self._network.get_submodule(part).register_forward_hook(_keep(outputs, use))
            for use, part in self._parts.items()
        ]
        try:
            scores = self._network(inputs)
        finally:
            for handle in handles:
                handle.remove()
        return outputs, scores


def _keep(outputs: dict[str, Tensor], use: str) -> Callable[[nn.Module, object, Tensor], None]:
    def keep(module: nn.Module, given: object, output: Tensor) -> None:
        # A copy: the layer behind it may change it in place.
        outputs[use] = output.clone()

    return keep
