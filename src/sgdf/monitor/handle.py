"""``attach`` and the monitor that it returns: when it measures, and what it does with faults."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import nn

from ..optim.base import is_capturing
from .measurement import Measurement, Start, choose_elements, measure
from .names import named_parameters
from .unwrapping import unwrap
from .wording import describe, summarize
from .writers import Writer, writing

HISTORY_LENGTH = 10_000
"""The most measurements that ``history`` has: some four megabytes."""
RECENT = 5
"""The number of measurements that ``print(monitor)`` describes: one alone is half chance."""


def attach(
    optimizer: Any,
    every: int = 50,
    *,
    log: Callable[[str], object] | None = None,
    writer: Writer | None = None,
    model: nn.Module | None = None,
    max_elements: int | None = 2048,
) -> Monitor:
    """Monitor an optimizer from its next step on.

    Every ``every``-th step is measured. ``print(monitor)`` says in words what the last five
    measurements show. The numbers of the last one are in ``monitor.latest``: that is empty before
    the first, then a dict with the number of the ``step`` since ``attach``, the statistics of all
    parameters together under ``total``, those of each parameter under ``params``, by its name,
    and under ``steady_noise`` the ``gain_mean`` and ``powered_gain_mean`` that noise of a
    constant size would give with the options of this optimizer. The statistics:

    - ``gain_mean``, ``gain_q05``, ``gain_q25``, ``gain_q50``, ``gain_q75``, ``gain_q95``: the
      gain K before its power is taken, from 0 (the running mean counts) to 1 (the gradient
      counts);
    - ``powered_gain_mean``: the gain after its power is taken, the weight of the gradient in the
      estimate;
    - ``residual_rms``: root mean square of the gradient's distance from its running mean, and
      ``residual_ratio``: this divided by the root mean square of the gradient;
    - ``cosine``: of the angle between the estimate and the gradient;
    - ``update_ratio``: norm of the parameter's change divided by the norm of the parameter.

    The gradient is the filter's input, including coupled decay. ``UnifiedMomentum`` has no
    gain; there the momentum is the estimate, and the running mean is the average that it holds.

    ``monitor.history`` has the totals of all measurements in columns: ``step`` and every
    statistic, each a list. When there are 10,000, every other one is dropped.

    Nothing stops the training: what cannot be measured, logged or written is left out, with one
    warning.

    Args:
        optimizer: one of this package, or of a class from ``sgdf.filtered``; or anything that
            has it as its ``optimizer`` or ``optim``.
        every: number of steps from one measurement to the next.
        log: is called with one line of text at each measurement, for example ``print``.
        writer: a TensorBoard ``SummaryWriter``; gets ``sgdf/total/...`` and, for each
            parameter, ``sgdf/<statistic>/<name>`` as scalars and ``sgdf/gain/<name>`` as a
            histogram. Or a run of W&B, which gets the same scalars, and ``sgdf/step``. Each
            measurement advances W&B's own step, and W&B ignores a ``step`` of yours that lies
            behind it: log yours as a number, ``run.log({"loss": loss, "epoch": epoch})``.
        model: the model whose parameters the optimizer has: they get their names from it.
            Without it they have the names that the optimizer was given, if it was given any;
            else they are called ``group0.param0`` and so on.
        max_elements: number of elements of a parameter to measure, spread over all of it; None
            for all.

    Example:
        >>> import torch, sgdf
        >>> weight = torch.nn.Parameter(torch.ones(3))
        >>> optimizer = sgdf.SGDF([("weight", weight)], lr=0.1)
        >>> monitor = sgdf.monitor.attach(optimizer, every=1)
        >>> weight.grad = torch.ones(3)
        >>> optimizer.step()
        >>> round(monitor.latest["params"]["weight"]["update_ratio"], 4)
        0.1
        >>> monitor.detach()
    """
    return Monitor(optimizer, every, log=log, writer=writer, model=model, max_elements=max_elements)


class Monitor:
    """The handle that ``attach`` returns; as a context manager it detaches at the end."""

    def __init__(
        self,
        optimizer: Any,
        every: int = 50,
        *,
        log: Callable[[str], object] | None = None,
        writer: Writer | None = None,
        model: nn.Module | None = None,
        max_elements: int | None = 2048,
    ) -> None:
        inner = unwrap(optimizer)
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"Invalid every, expected a whole number from 1: {every}")
        if max_elements is not None and (not isinstance(max_elements, int) or max_elements < 1):
            raise ValueError(
                f"Invalid max_elements, expected a whole number from 1: {max_elements}"
            )
        if log is not None and not callable(log):
            raise TypeError(f"log is no function: {log!r}")
        if model is not None and not callable(getattr(model, "named_parameters", None)):
            raise TypeError(f"model has no named_parameters: {model!r}")
        self.latest: dict[str, Any] = {}
        """The latest statistics; empty before the first."""
        self.history: dict[str, list[float]] = {}
        """The totals of all measurements, in columns."""
        self._recent: deque[Measurement] = deque(maxlen=RECENT)
        self._title = type(inner).__name__
        self._every, self._model, self._max_elements = every, model, max_elements
        self._log, self._write = log, None if writer is None else writing(writer)
        self._steps, self._is_compiled = 0, False
        self._before: dict[str, Start] = {}
        self._faults: dict[str, str] = {}
        self._hooks = [
            inner.register_step_pre_hook(self._before_step),
            inner.register_step_post_hook(self._after_step),
        ]

    def detach(self) -> None:
        """Stop monitoring; ``latest`` and ``history`` are kept."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __str__(self) -> str:
        """Return a few lines that say what the last measurements show."""
        if self._recent:
            text = describe(self._title, self._recent)
        elif self._is_compiled:
            text = f"{self._title}: nothing is measured, since its step runs under torch.compile."
        else:
            due = (self._steps // self._every + 1) * self._every
            text = f"{self._title}: nothing is measured yet; step {due} will be the first."
        return "\n".join([text, *self._faults.values()])

    # The hooks. They run at every step, and nothing that happens in them may stop it.

    def _before_step(self, optimizer: Any, *_: object) -> None:
        if torch.compiler.is_compiling():
            self._is_compiled = True
        elif (self._steps + 1) % self._every == 0 and not is_capturing():
            self._attempt("measure", self._remember, optimizer)

    def _after_step(self, optimizer: Any, *_: object) -> None:
        if torch.compiler.is_compiling():  # a number that changes would be compiled again
            return
        before, self._before = self._before, {}
        self._steps += 1
        if before:
            self._attempt("measure", self._measure, optimizer, before)

    def _attempt(self, action: str, function: Callable[..., object], *arguments: object) -> None:
        try:
            function(*arguments)
        except Exception as fault:
            self._note(action, action, fault)

    def _note(self, kind: str, action: str, fault: Exception) -> None:
        """Warn of an action that failed, once for each kind."""
        if kind in self._faults:
            return
        self._faults[kind] = f"The monitor could not {action}: {type(fault).__name__}"
        with contextlib.suppress(Exception):  # a fault may fail to say what it is
            self._faults[kind] += f": {fault}"
        message = f"{self._faults[kind]} (the training is not affected)"
        try:
            warnings.warn(message, stacklevel=2)
        except Exception:  # warnings are errors here, or the hook that shows them fails
            with contextlib.suppress(Exception):
                print(message, file=sys.stderr)

    # The actions.

    @torch.no_grad()
    def _remember(self, optimizer: Any) -> None:
        """Before a step that will be measured: copy the values of the parameters."""
        self._before = {}
        for name, (group, param) in named_parameters(optimizer, self._model).items():
            try:
                chosen = choose_elements(param, self._max_elements).clone()
            except Exception as fault:
                self._leave_out(name, fault)
            else:
                self._before[name] = Start(group, param, chosen)

    @torch.no_grad()
    def _measure(self, optimizer: Any, before: dict[str, Start]) -> None:
        """After the step: compute the statistics, and pass them on."""
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            return
        measurement = measure(optimizer, self._steps, before, self._max_elements, self._leave_out)
        if measurement is None:
            return
        self._recent.append(replace(measurement, gains={}))  # the only large part
        self.latest = {
            "step": measurement.step,
            "total": measurement.total,
            "params": measurement.params,
            "steady_noise": measurement.steady_noise,
        }
        self._record(measurement)
        if self._log is not None:
            self._attempt("log", lambda log: log(summarize(measurement)), self._log)
        if self._write is not None:
            self._attempt("write", self._write, measurement)

    def _leave_out(self, name: str, fault: Exception) -> None:
        self._note("parameter", f"measure {name}", fault)

    def _record(self, measurement: Measurement) -> None:
        """Append the totals to the history."""
        if len(self.history.get("step", ())) >= HISTORY_LENGTH:
            for column in self.history.values():
                del column[::2]
        for name, value in {"step": measurement.step, **measurement.total}.items():
            self.history.setdefault(name, []).append(value)
