"""The learning rate over a run: any of torch's schedulers, after a linear warm-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .lookup import find, options_of, signature

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

LENGTHS = ("T_max", "total_steps")
"""Arguments of torch's schedulers that mean the run's length, and that torch has no value for."""

# All of torch's but those made of functions or of other schedulers, which a spec cannot give.
_NAMES = (
    *("ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR"),
    *("ExponentialLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR"),
    *("ReduceLROnPlateau", "StepLR"),
)
SCHEDULERS = {name: f"torch.optim.lr_scheduler:{name}" for name in _NAMES}


def find_schedule(name: str) -> Callable[..., Any]:
    """Return the scheduler class that a spec names."""
    return find(name, SCHEDULERS, "schedule")


def waits_for_plateau(name: str) -> bool:
    """Return whether the schedule looks at the loss, once in an epoch."""
    return name in ("ReduceLROnPlateau", SCHEDULERS["ReduceLROnPlateau"])


def schedule_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option of the scheduler but for a length that is not given."""
    target = find_schedule(name)
    options = options_of(target, {**_lengths(target, 1), **given}, skip=1)
    return {key: value for key, value in options.items() if key in given or key not in LENGTHS}


def make_scheduler(
    optimizer: Optimizer, name: str, options: Mapping[str, Any], warmup: int, length: int
) -> LRScheduler:
    """Return the scheduler of a run that is ``length`` calls long.

    During the first ``warmup`` of them the rate rises linearly to its full size; the
    scheduler has the rest, which is its length unless an option says otherwise.
    """
    from torch.optim.lr_scheduler import LinearLR, SequentialLR

    target = find_schedule(name)
    if warmup >= length:
        raise ValueError(f"warmup = {warmup}: must be less than the whole run, {length}")
    if not warmup:
        return _made(target, optimizer, {**_lengths(target, length), **options})
    if waits_for_plateau(name):
        raise ValueError(f"warmup = {warmup}: must be 0, torch has no such sequence")
    rising = LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    then = _made(target, optimizer, {**_lengths(target, length - warmup), **options})
    return SequentialLR(optimizer, [rising, then], [warmup])


def advance(scheduler: LRScheduler, metrics: Mapping[str, float] | None) -> None:
    """Go on by an epoch; a schedule that waits for a plateau watches the loss, if there is one."""
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    if not isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step()
    elif metrics is not None:
        if "loss" not in metrics:
            raise ValueError("ReduceLROnPlateau needs a metric called loss")
        scheduler.step(metrics["loss"])


def _lengths(target: Callable[..., Any], length: int) -> dict[str, int]:
    return {key: length for key in LENGTHS if key in signature(target).parameters}


def _made(
    target: Callable[..., Any], optimizer: Optimizer, options: Mapping[str, Any]
) -> LRScheduler:
    scheduler: LRScheduler = target(optimizer, **options)
    return scheduler
