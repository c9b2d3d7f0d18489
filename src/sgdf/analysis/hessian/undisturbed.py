"""A model that is used, and left as it was found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..borrowed_model import in_mode


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
            _twice_differentiable_recurrence(model),
            in_mode(model, training),
        ):
            yield seed_generators
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])


def _twice_differentiable_recurrence(model: nn.Module) -> AbstractContextManager[None]:
    """Keep recurrent layers from cuDNN, whose kernels for them have no second derivative."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    without_cudnn: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=False)
    return without_cudnn if recurrent else nullcontext()
