"""A model in the mode that a measurement needs, and afterwards as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put a model into a mode; the modes of all modules and their buffers are put back after it.

    Args:
        model: the model.
        training: its mode within the block.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    try:
        _lend_copies(model)
        model.train(training)
        yield
    finally:
        for module, mode, own in zip(modules, modes, buffers, strict=True):
            module.training = mode
            module._buffers.clear()
            module._buffers.update(own)


def _lend_copies(model: nn.Module) -> None:
    """Replace the buffers of a model by copies.

    To write the old values back instead would not do: autograd counts what is written to a
    tensor, and refuses to go backward through a loss that was computed before.
    """
    copies = {buffer: buffer.clone() for buffer in model.buffers()}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = copies[buffer]
