"""Ways from noise to images, given what a network predicts.

Random numbers are drawn on the CPU in float32, so that they are the same on every device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..long_evaluation import Progress, silent
from .ddpm import Chain
from .flow import Flow
from .prediction import Field, split_output


def normal_like(points: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal numbers of the shape of points, on their device."""
    return torch.randn(points.shape, generator=generator, dtype=torch.float32).to(points)


@torch.no_grad()
def ancestral(
    field: Field,
    chain: Chain,
    start: Tensor,
    generator: torch.Generator,
    clip: float | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Go back through a chain, step by step, with new noise in each but the last one.

    Args:
        field: predicts the noise, and perhaps the variance.
        chain: the steps, often fewer than the network was trained on.
        start: normal numbers.
        generator: of the new noise, on the CPU.
        clip: bounds of the image that each step aims at, such as 1 for pixels from -1 to 1;
            None for none, since latents have no bounds.
        progress: is told after each step.
    """
    points = start
    for step in reversed(range(len(chain))):
        at = torch.tensor([step])
        times = torch.full((len(points),), int(chain.times[step]), device=points.device)
        noise, learned = split_output(field(points, times), points.shape[1])
        image = chain.image_of(points, at, noise)
        if clip is not None:
            image = image.clamp(-clip, clip)
        deviation = torch.exp(chain.log_variance(at, points, learned) / 2)
        points = chain.posterior_mean(image, points, at)
        if step > 0:
            points = points + deviation * normal_like(points, generator)
        progress(len(chain) - step, len(chain))
    return points


@torch.no_grad()
def heun(velocity: Field, start: Tensor, steps: int, progress: Progress = silent) -> Tensor:
    """Follow a velocity from time 0 to 1 in even steps of second order, two evaluations each.

    Args:
        velocity: of points at times (n,).
        start: where it begins.
        steps: how many steps there are.
        progress: is told after each step.
    """
    points, length = start, 1 / steps
    for step in range(steps):
        slope = velocity(points, _times(points, step / steps))
        ahead = velocity(points + length * slope, _times(points, (step + 1) / steps))
        points = points + length / 2 * (slope + ahead)
        progress(step + 1, steps)
    return points


@torch.no_grad()
def dopri5(
    velocity: Field,
    start: Tensor,
    rtol: float = 1e-3,
    atol: float = 1e-6,
    most_steps: int = 1000,
    progress: Progress = silent,
) -> Tensor:
    """Follow a velocity from time 0 to 1 by the pair of Dormand and Prince, in adaptive steps.

    The stepper is scipy's, which the bench needs anyway. It computes in float64 on the CPU; the
    velocity is computed where the points are, in their precision. The error is measured over the
    whole batch, so an image depends on those beside it, within the tolerance.

    An image whose velocity is once not finite is NaN, as with every other sampler. All of the batch
    are NaN where the steps get too small or too many, so that the images of a network that has
    diverged take a bounded time.

    Args:
        velocity: of points at times (n,).
        start: where it begins.
        rtol: how large the error of a step may be, relative to the points.
        atol: what is added to that.
        most_steps: how many steps are taken before it is given up.
        progress: is told the time after each step.
    """
    from scipy.integrate import RK45

    is_lost = torch.zeros(len(start), dtype=torch.bool)

    def beside(images: Tensor) -> Tensor:
        return images.view(-1, *[1] * (start.dim() - 1))

    def slope(time: float, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        points = torch.from_numpy(flat).view(start.shape).to(start.dtype).to(start.device)
        values = velocity(points, _times(points, time)).cpu().double()
        is_lost.logical_or_(~values.isfinite().flatten(1).all(1))
        # Without them, or no step would be small enough.
        found: np.ndarray[Any, Any] = values.masked_fill(beside(is_lost), 0.0).flatten().numpy()
        return found

    flat_start = start.cpu().double().flatten().numpy()
    with np.errstate(all="ignore"):  # of velocities near the largest number
        stepper = RK45(slope, 0.0, flat_start, 1.0, rtol=rtol, atol=atol)
        for _ in range(most_steps):
            if stepper.status != "running" or is_lost.all():
                break
            stepper.step()
            if stepper.status != "failed":
                progress(stepper.t, 1.0)
    if stepper.status != "finished":
        is_lost.fill_(True)
    points = torch.from_numpy(stepper.y).view(start.shape).masked_fill(beside(is_lost), torch.nan)
    return points.to(start.dtype).to(start.device)


@torch.no_grad()
def euler_maruyama(
    velocity: Field,
    start: Tensor,
    generator: torch.Generator,
    steps: int = 250,
    last_step: float = 0.04,
    progress: Progress = silent,
) -> Tensor:
    r"""Follow a velocity from time 0 to 1 with new noise in each step but the last one.

    The equation :math:`dX = (v + \tfrac12 w s)\,dt + \sqrt w\,dW` has the same distributions at
    all times as the velocity v alone, for any w, with the score s of the distribution. Here w is
    1 - t, the share of the noise (Ma et al., 2024); public samplers also take twice that, which
    draws the same images in distribution, but for the error of the steps. The last step takes the
    mean only, because the score grows beyond bounds at time 1.

    Args:
        velocity: of points at times (n,), on the straight path of ``Flow``.
        start: normal numbers.
        generator: of the new noise, on the CPU.
        steps: how many steps there are, the last one included; at least two.
        last_step: its length; the others share the rest evenly.
        progress: is told after each step.
    """
    points, flow = start, Flow()
    length = (1 - last_step) / (steps - 1)
    for step in range(steps):
        is_last = step == steps - 1
        time = step * length
        times, spread = _times(points, time), 1 - time
        slope = velocity(points, times)
        drift = slope + spread / 2 * flow.score(slope, points, times)
        points = points + (last_step if is_last else length) * drift
        if not is_last:
            points = points + (spread * length) ** 0.5 * normal_like(points, generator)
        progress(step + 1, steps)
    return points


def _times(points: Tensor, time: float) -> Tensor:
    """Return the same time for each point."""
    return torch.full((len(points),), time, dtype=points.dtype, device=points.device)
