"""Looking at a run while it trains: between the backward pass and the step, and after the step.

A probe is not part of a run: the run's key does not contain it, and it must not change the run.
The state of all random generators is restored after it, and a probe that changes a tensor of the
run in place is an error.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..catalog.lookup import find
from ..catalog.probes import PROBES
from ..errors import first_line
from ..spec.run import ProbeSpec
from ..tasks import Task
from .randomness import capture, restore


@dataclass(frozen=True)
class Moment:
    """A step about to be taken, as a probe sees it.

    Attributes:
        step: the number of the step, from 1.
        epoch: how many epochs are complete.
        optimizer: the name of the optimizer whose step it is.
        task: with its model and data.
        optimizers: all of them, by name.
        batch: the batch that the gradients are of; the last one, if they are of several.
        scale: what the gradients are multiplied by, in float16; else 1.
        epoch_step: how many steps of the current epoch are complete.
    """

    step: int
    epoch: int
    optimizer: str
    task: Task
    optimizers: Mapping[str, Optimizer]
    batch: Any = None
    scale: float = 1.0
    epoch_step: int = 0

    def gradients(self) -> dict[str, Tensor]:
        """Return copies of the gradients that the step will use, by the parameter's name."""
        groups = self.optimizers[self.optimizer].param_groups
        own = {param for group in groups for param in group["params"]}
        return {
            name: param.grad.detach() / self.scale
            for name, param in self.task.model.named_parameters()
            if param in own and param.grad is not None
        }


Numbers = Mapping[str, float]


class Probe(Protocol):
    """The object that a ``[[probe]]`` of an experiment names: made once for each run."""

    def __call__(self, moment: Moment, /) -> Numbers | Callable[[], Numbers | None] | None:
        """Return the numbers to keep, if any.

        Or return a function that returns them. It is called right after the step, while the
        gradients are still there, and can compare the parameters with those before the step.
        """


@runtime_checkable
class WatchesSteps(Protocol):
    """A probe that has to see every step, also those between two of its looks."""

    def watch(self, moment: Moment, /) -> None:
        """See a step; a look at the same step comes after it."""


@runtime_checkable
class KeepsState(Protocol):
    """A probe whose numbers depend on what it saw before: a resumed run gives it its state."""

    def state(self) -> dict[str, Any]:
        """Return the state: tensors, numbers, texts, lists and tables."""

    def load_state(self, state: dict[str, Any], /) -> None:
        """Continue from what ``state`` returned; tensors are on the CPU."""


class GradientNorm:
    """The norm of the whole gradient."""

    def __call__(self, moment: Moment) -> dict[str, float]:
        """Return the norm."""
        norms = [torch.linalg.vector_norm(grad) for grad in moment.gradients().values()]
        return {"norm": float(torch.linalg.vector_norm(torch.stack(norms)))} if norms else {}


@dataclass
class _Entry:
    """A probe of a run."""

    name: str
    """What its rows and errors call it."""
    probe: Probe
    spec: ProbeSpec | None = None
    """What the experiment says of it; None for one that code has added, for every step."""

    def is_due(self, moment: Moment) -> bool:
        """Return whether the probe looks at a step."""
        if self.spec is None:
            return True
        if self.spec.every_epochs:
            return moment.epoch_step == 0 and moment.epoch % self.spec.every_epochs == 0
        return moment.step % self.spec.every == 0

    @property
    def key(self) -> str:
        """The key of its state: another option makes it another probe."""
        # As text, since a worker process gets the options as JSON, with lists for tuples.
        return f"{self.name} {json.dumps(self.spec.options if self.spec else {}, sort_keys=True)}"


class Probes:
    """The probes of one run, and the rows that they have made.

    If an experiment names a probe twice, the second one is called ``NAME 2``.

    Args:
        specs: which, how often, and their options.
    """

    def __init__(self, specs: Sequence[ProbeSpec]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.notices: list[str] = []
        """Lines about states that did not fit."""
        self._entries: list[_Entry] = []
        self._after_step: list[tuple[_Entry, Moment, Callable[[], Numbers | None]]] = []
        times: Counter[str] = Counter()
        for spec in specs:
            times[spec.name] += 1
            name = spec.name if times[spec.name] == 1 else f"{spec.name} {times[spec.name]}"
            self._entries.append(_Entry(name, _make(spec), spec))

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, probe: Probe, name: str) -> None:
        """Add a probe that looks at every step.

        Args:
            probe: the probe.
            name: what its rows and errors call it.
        """
        self._entries.append(_Entry(name, probe))

    def look(self, moment: Moment) -> None:
        """Let the probes look at a step that is about to be taken."""
        for entry in self._entries:
            probe, is_due = entry.probe, entry.is_due(moment)
            watches = isinstance(probe, WatchesSteps)
            if not is_due and not watches:
                continue
            with _looking(entry, moment):
                if watches:
                    cast("WatchesSteps", probe).watch(moment)
                found = probe(moment) if is_due else None
                if callable(found):
                    self._after_step.append((entry, moment, found))
                else:
                    self._keep(entry, moment, found)

    def look_after_step(self) -> None:
        """Call the functions that probes have returned when they looked at the step."""
        waiting, self._after_step = self._after_step, []
        for entry, moment, measure in waiting:
            with _looking(entry, moment):
                self._keep(entry, moment, measure())

    def _keep(self, entry: _Entry, moment: Moment, numbers: Numbers | None) -> None:
        if numbers:
            row = {"probe": entry.name, "step": moment.step, "optimizer": moment.optimizer}
            self.rows.append({**row, **{key: float(v) for key, v in numbers.items()}, **row})

    def state(self) -> dict[str, Any]:
        """Return the states of the probes that have one."""
        states = {}
        for entry in self._entries:
            if isinstance(entry.probe, KeepsState):
                with _naming(entry):
                    states[entry.key] = state = entry.probe.state()
                    _check_loadable(state)
        return states

    def load(self, states: Mapping[str, Any]) -> None:
        """Resume from what ``state`` returned.

        A probe is no part of the run, so no state of one stops it: a probe that has none there,
        or one that does not fit, begins as at the first step.
        """
        for entry in self._entries:
            if entry.key not in states or not isinstance(entry.probe, KeepsState):
                continue
            try:
                entry.probe.load_state(states[entry.key])
            except Exception as error:
                if entry.spec is not None:
                    entry.probe = _make(entry.spec)  # the other may be changed in part
                self.notices.append(
                    f"the state of its probe {entry.name!r} does not fit ({first_line(error)}); "
                    "the probe begins anew"
                )


def _make(spec: ProbeSpec) -> Probe:
    return cast("Probe", find(spec.name, PROBES, "probe")(**spec.options))


def _check_loadable(state: Any) -> None:
    """Raise if a checkpoint with this state could not be loaded: the run would start again.

    Raises:
        TypeError: names the type that is not allowed.
    """
    if isinstance(state, Tensor) or state is None or type(state) in (bool, int, float, str):
        return
    if type(state) not in (dict, OrderedDict, list, tuple):
        raise TypeError(
            f"its state has a {type(state).__name__}; allowed are tensors, numbers, texts, lists "
            "and tables"
        )
    for part in (*state, *state.values()) if isinstance(state, dict) else state:
        _check_loadable(part)


@contextmanager
def _looking(entry: _Entry, moment: Moment) -> Iterator[None]:
    """Let a probe look without a change to the run; name the probe in what it raises."""
    with _unchanged(moment, entry.name), torch.no_grad(), _naming(entry):
        yield


@contextmanager
def _naming(entry: _Entry) -> Iterator[None]:
    """Name the probe in what it raises."""
    try:
        yield
    except Exception as error:
        if entry.spec is None:  # the code that added it knows its errors
            raise
        # With its traceback, so that the failure names the line of the probe.
        raise RuntimeError(f"the probe {entry.name!r}: {first_line(error)}").with_traceback(
            error.__traceback__
        ) from error


@contextmanager
def _unchanged(moment: Moment, name: str) -> Iterator[None]:
    """Restore random numbers, modes and the task; raise if tensors of the run were changed."""
    task, randomness = moment.task, capture()
    modes = [(module, module.training) for module in task.model.modules()]
    versions = _versions(moment)
    # A probe may call ``task.loss``, which may carry a hidden state on, or log a number.
    attributes, state = dict(vars(task)), copy.deepcopy(task.state())
    try:
        yield
    finally:
        restore(randomness)
        for module, training in modes:
            module.training = training
        vars(task).clear()
        vars(task).update(attributes)
        if state:
            task.load_state(state)
    if _versions(moment) != versions:
        raise RuntimeError(
            f"the probe {name!r} changed parameters, buffers, gradients or optimizer state in "
            "place; a probe must work on copies"
        )


def _versions(moment: Moment) -> list[tuple[int, int]]:
    """Return the identity and the number of changes of every tensor that the run depends on."""
    model = moment.task.model
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [param.grad for param in model.parameters() if param.grad is not None]
    for optimizer in moment.optimizers.values():
        for state in optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return [(id(tensor), tensor._version) for tensor in tensors]
