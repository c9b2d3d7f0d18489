"""Where statistics are written to: TensorBoard, or a run of W&B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from .measurement import Measurement


class TensorBoard(Protocol):
    """The part of TensorBoard's ``SummaryWriter`` that the monitor needs."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Record one number."""

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> Any:
        """Record the distribution of many numbers."""


class Run(Protocol):
    """The part of a W&B run that the monitor needs."""

    def log(self, data: dict[str, Any]) -> Any:
        """Record numbers by name."""


Writer = TensorBoard | Run


def writing(writer: Any) -> Callable[[Measurement], None]:
    """Return the function that writes a measurement to ``writer``.

    Args:
        writer: a ``SummaryWriter``, a run of W&B, or anything that has their methods.
    """
    if callable(getattr(writer, "add_scalar", None)):
        if callable(getattr(writer, "add_histogram", None)):
            return lambda measurement: _write_to_tensorboard(writer, measurement)
    elif callable(getattr(writer, "log", None)):
        return _writing_to_run(writer)
    raise TypeError(
        f"writer is no SummaryWriter (add_scalar, add_histogram), and no run of W&B (log): "
        f"{writer!r}"
    )


def _write_to_tensorboard(writer: TensorBoard, measurement: Measurement) -> None:
    for tag, value in _scalars(measurement).items():
        writer.add_scalar(tag, value, measurement.step)
    for name, gains in measurement.gains.items():
        if len(finite := gains[gains.isfinite()]):
            writer.add_histogram(f"sgdf/gain/{name}", finite, measurement.step)


def _writing_to_run(run: Run) -> Callable[[Measurement], None]:
    """Return the function that writes a measurement to a run of W&B.

    W&B counts its own steps, and ignores numbers for one that lies behind. So the step is a number
    among the others, and W&B is asked once to draw them over it. Each ``log`` still advances W&B's
    count: a training that passes a ``step`` of its own can fall behind it, and has to log that
    step as a number too.
    """
    define_metric: Callable[..., Any] | None = getattr(run, "define_metric", None)

    def write(measurement: Measurement) -> None:
        nonlocal define_metric
        define, define_metric = define_metric, None  # asked once, even if it fails
        try:
            if define is not None:
                define("sgdf/*", step_metric="sgdf/step")
        finally:
            run.log({"sgdf/step": measurement.step, **_scalars(measurement)})

    return write


def _scalars(measurement: Measurement) -> dict[str, float]:
    """Return all statistics by the names that they are written under."""
    scalars = {f"sgdf/total/{name}": value for name, value in measurement.total.items()}
    for param, statistics in measurement.params.items():
        for name, value in statistics.items():
            scalars[f"sgdf/{name}/{param}"] = value
    return scalars
