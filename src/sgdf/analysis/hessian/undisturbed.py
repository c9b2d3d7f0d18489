"""A model that is used, and left as it was found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def undisturbed(model: nn.Module, training: bool) -> Iterator[Callable[[int], None]]:
    """Let a model be differentiated twice within the block, and put everything back after it.

    These are put back, also after an error: the modes of all modules, their buffers, and the
    state of the random number generators of torch, NumPy and Python. Yield a function that seeds
    these generators.

    Args:
        model: the model.
        training: its mode within the block.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    devices = {parameter.device.index for parameter in model.parameters() if parameter.is_cuda}
    generators = random.getstate(), np.random.get_state()

    def seed_generators(seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)

    try:
        with (
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
            sdpa_kernel(SDPBackend.MATH),  # the only one with a second derivative
        ):
            _lend_copies(model)
            model.train(training)
            yield seed_generators
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])
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
