"""One way to draw images, for diffusion and flows and all their samplers."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import SpecError, suggestion
from ..long_evaluation import Progress, silent
from .ddpm import Diffusion
from .flow import Flow
from .prediction import Network, split_output
from .samplers import ancestral, dopri5, euler_maruyama, heun, normal_like

Process = Diffusion | Flow
"""What a network was trained on."""

SAMPLERS: dict[type[Process], tuple[str, ...]] = {
    Diffusion: ("ddpm",),
    Flow: ("heun", "dopri5", "sde"),
}
"""The samplers of each process."""


def check_sampler(process: Process, sampler: str, steps: int) -> None:
    """Refuse a sampler that does not fit the process, and an impossible number of steps.

    Raises:
        SpecError: names the value and what is allowed.
    """
    allowed = SAMPLERS[type(process)]
    if sampler not in allowed:
        hint = suggestion(sampler, allowed)
        raise SpecError(f'sampler = "{sampler}": allowed are {", ".join(allowed)}{hint}')
    if isinstance(process, Diffusion):
        if not 1 <= steps <= len(process):
            raise SpecError(f"sampling_steps = {steps}: allowed are 1 to {len(process)}")
        return
    least = 2 if sampler == "sde" else 1  # its last step is of another kind than the others
    if steps < least:
        raise SpecError(f"sampling_steps = {steps}: the sampler {sampler} needs at least {least}")


def draw(
    network: Network,
    process: Process,
    shape: tuple[int, ...],
    classes: Tensor,
    generator: torch.Generator,
    sampler: str,
    steps: int = 250,
    clip: float | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Return new images, one of each class, on the device of the classes.

    Gradients are off. The mode of a network is the caller's: in training mode it would leave out
    classes at random.

    Args:
        network: the network, or ``Guided`` around it.
        process: what it was trained on.
        shape: of an image (C, H, W).
        classes: the class of each image (n,).
        generator: of all random numbers, on the CPU.
        sampler: one of ``SAMPLERS[type(process)]``.
        steps: how many steps it takes; ``"dopri5"`` decides itself.
        clip: bounds of pixels, as in ``ancestral``; other samplers have no use for it.
        progress: is told after each step.

    Raises:
        SpecError: if sampler or steps do not fit the process.
    """
    check_sampler(process, sampler, steps)
    blank = torch.zeros((len(classes), *shape), dtype=torch.float32, device=classes.device)
    start = normal_like(blank, generator)

    def output(points: Tensor, times: Tensor) -> Tensor:
        return network(points, times, classes)

    def velocity(points: Tensor, times: Tensor) -> Tensor:
        return split_output(output(points, times), shape[0])[0]

    if isinstance(process, Diffusion):
        return ancestral(output, process.respaced(steps), start, generator, clip, progress)
    if sampler == "heun":
        return heun(velocity, start, steps, progress)
    if sampler == "dopri5":
        return dopri5(velocity, start, progress=progress)
    return euler_maruyama(velocity, start, generator, steps, progress=progress)
