"""The cost of a step: time, state, memory, and its share of the training time.

All implementations take turns on the same parameters and gradients: other load on the machine
then changes the ratios of one round only a little.
"""

from __future__ import annotations

import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.optim import Optimizer

from ... import SGDF
from ...bench.paper.published import column
from ...bench.tasks.imagenet.networks import CLASSES, NETWORKS
from ...bench.training.result import state_bytes
from ...optim.native.step import NativeSteps, TensorTable, native_fault
from ...optim.state import FORMATS, FULL_FORMAT

Step = Callable[[], Any]
Shapes = list[tuple[int, ...]]

BASELINE = ("Adam", "fused")
"""Every time is also reported as a ratio to this one."""
LIMIT = ("limit", "same step")
"""A step of SGDF with the same checks and the same memory traffic, but almost no arithmetic."""
MEMORY_ALONE = ("limit", "native call")
"""The native call of that step alone, without the Python code before it."""

_NATIVE = ("fused", LIMIT[1], MEMORY_ALONE[1])

# So small a learning rate that hundreds of steps hardly change the parameters.
_LR = 1e-9

_IMPLEMENTATIONS: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
_TORCH_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
}
_LIBRARY_OPTIMIZERS = ("AdaBelief", "Lion", "Yogi")

_RUNTIMES = {"vgg13": "VGG13", "resnet101": "ResNet101", "densenet161": "DenseNet161"}
"""The networks of the paper's runtime table, and their names there."""

PROBLEMS = ("resnet18", "densenet121", "vgg11", "flat", "gpt2", *_RUNTIMES)
"""Parameter lists to measure on; ``flat`` is one tensor of 40 million elements."""
DEFAULT_PROBLEMS = PROBLEMS[:5]


@dataclass(frozen=True)
class Problem:
    """A list of parameters with gradients, and the function that makes new gradients."""

    name: str
    params: list[Tensor]
    renew: Step
    """Makes new gradients: forward and backward of a network; copies for a list without one."""
    is_network: bool

    @property
    def size(self) -> int:
        """The number of parameter elements."""
        return sum(param.numel() for param in self.params)


@dataclass(frozen=True)
class Spread:
    """The median of repeated measurements and the quartiles around it."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Summarise at least two values."""
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)


@dataclass(frozen=True)
class Cost:
    """The cost of one implementation of one optimizer on one problem."""

    optimizer: str
    implementation: str
    seconds: Spread
    to_adam: Spread
    """Ratio to the fused Adam of the same round."""
    to_limit: Spread | None
    """Ratio to the read-and-write limit of the same round, if that was measured."""
    state_bytes: float
    """Bytes of state per parameter element."""
    peak_bytes: float
    """Bytes per element at the step's peak: parameters, gradients, state, temporaries."""
    moved_bytes: float | None
    """Bytes per element that a step in one pass reads and writes; None if it takes many passes."""
    share: float | None
    """The step's share of the time of a whole training step."""


@dataclass(frozen=True)
class Result:
    """The costs on one problem."""

    problem: str
    tensors: int
    parameters: int
    training: str
    """Batch and resolution of the forward and backward pass; empty without a network."""
    forward_backward: Spread | None
    """Seconds."""
    costs: list[Cost]

    def cost(self, optimizer: str, implementation: str) -> Cost | None:
        """Return the cost of an implementation, or None if it was not measured."""
        for cost in self.costs:
            if (cost.optimizer, cost.implementation) == (optimizer, implementation):
                return cost
        return None


def gpt2_shapes(layers: int = 12, width: int = 768) -> Shapes:
    """Return the shapes of GPT-2's parameters (by default GPT-2 small)."""

    def linear(inputs: int, outputs: int) -> Shapes:
        return [(inputs, outputs), (outputs,)]

    def block() -> Iterator[tuple[int, ...]]:
        norm: Shapes = [(width,), (width,)]
        yield from [*norm, *linear(width, 3 * width), *linear(width, width)]
        yield from [*norm, *linear(width, 4 * width), *linear(4 * width, width)]

    blocks = [shape for _ in range(layers) for shape in block()]
    return [(50257, width), (1024, width), *blocks, (width,), (width,)]


def make_problem(name: str, batch: int, resolution: int) -> Problem:
    """Return the problem of that name, with gradients.

    Args:
        name: one of ``PROBLEMS``.
        batch: images in a batch, for networks.
        resolution: their height and width.
    """
    if name in NETWORKS:
        network = NETWORKS[name]()
        images = torch.randn(batch, 3, resolution, resolution)
        labels = torch.randint(CLASSES, (batch,))

        def train() -> None:
            network.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(images), labels))

        train()
        return Problem(name, list(network.parameters()), train, is_network=True)
    shapes = gpt2_shapes() if name == "gpt2" else [(40_000_000,)]
    params: list[Tensor] = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for param in params:
        param.grad = torch.randn_like(param)

    def copy() -> None:
        for param in params:
            assert param.grad is not None
            param.grad = param.grad.clone()

    return Problem(name, params, copy, is_network=False)


class _ReadWrite(SGDF):
    """SGDF without its arithmetic: the same checks, and nearly the same memory traffic."""

    def __init__(self, params: list[Tensor], **options: Any) -> None:
        super().__init__(params, **options)
        self._native = NativeSteps(_touch)


def _touch(table: TensorTable, group: dict[str, Any]) -> None:
    table.counts()
    table.touch()


def make_steps(
    params: list[Tensor], compiled: bool = False
) -> dict[tuple[str, str], tuple[Step, Optimizer]]:
    """Return each implementation's step and optimizer, after a first step that makes the state.

    The implementations of one optimizer share its state: for a large network it fits into memory
    only once.
    """
    steps: dict[tuple[str, str], tuple[Step, Optimizer]] = {}
    states: dict[str, Any] = {}

    def add(name: str, implementation: str, optimizer: Optimizer, step: Step | None = None) -> None:
        optimizer.state = states.setdefault(name, optimizer.state)
        steps[name, implementation] = step or optimizer.step, optimizer
        steps[name, implementation][0]()

    native = not native_fault()
    for implementation, options in _IMPLEMENTATIONS.items():
        if native or implementation != "fused":
            add("SGDF", implementation, SGDF(params, lr=_LR, **options))
    for name in FORMATS if native else ():
        if name != FULL_FORMAT.name:
            add(f"SGDF {name}", "fused", SGDF(params, lr=_LR, state_format=name, fused=True))
    if compiled:
        optimizer = SGDF(params, lr=_LR, foreach=True)
        add("SGDF", "compiled", optimizer, torch.compile(optimizer.step))
    for name, build in _TORCH_OPTIMIZERS.items():
        for implementation, options in _IMPLEMENTATIONS.items():
            add(name, implementation, build(params, lr=_LR, **options))
    if importlib.util.find_spec("pytorch_optimizer"):
        import pytorch_optimizer

        for name in _LIBRARY_OPTIMIZERS:
            add(name, "library", getattr(pytorch_optimizer, name)(params, lr=_LR))
    if native:
        states[LIMIT[0]] = states["SGDF"]
        limit = _ReadWrite(params, lr=_LR, fused=True)
        add(*LIMIT, limit)
        # The table points to the gradients of the limit's last step, which must still exist.
        add(*MEMORY_ALONE, limit, lambda: limit._native.tables[0].touch())
    return steps


def measure(
    problem: Problem,
    rounds: int,
    compiled: bool = False,
    training: str = "",
    native_only: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Result:
    """Measure every implementation on ``problem``, in turns.

    Args:
        problem: what to step on.
        rounds: how many steps of each implementation are timed, after a first that is not.
        compiled: include ``torch.compile(optimizer.step)``, which takes minutes to build.
        training: describes the forward and backward pass.
        native_only: leave out the implementations that run kernel by kernel and take ten times
            as long: then, as in training, only a forward and backward pass lies between two
            native steps.
        progress: called with the number of finished rounds.
    """
    steps = make_steps(problem.params, compiled)
    if native_only:
        steps = {name: step for name, step in steps.items() if name[1] in _NATIVE}
    times: dict[tuple[str, str], list[float]] = {name: [] for name in steps}
    passes: list[float] = []
    order = random.Random(0)
    for done in range(rounds + 1):
        turns = list(steps.items())
        order.shuffle(turns)
        for name, (step, optimizer) in turns:
            # As in training, so that the caches are in the same state.
            passes.append(_seconds(problem.renew))
            if name == MEMORY_ALONE:
                optimizer.step()  # enters the new gradients
            times[name].append(_seconds(step))
        progress(done)
    forward_backward = Spread.of(passes[len(steps) :]) if problem.is_network else None
    size = problem.size
    held = sum(param.nbytes for param in problem.params) * 2 / size  # with the gradients
    costs = []
    for name, (
        step,
        optimizer,
    ) in steps.items():  # in this order the limit's step runs before its native call
        own = times[name][1:]
        seconds = Spread.of(own)
        state = state_bytes(optimizer) / size
        costs.append(
            Cost(
                *name,
                seconds=seconds,
                to_adam=ratios(own, times[BASELINE][1:]),
                to_limit=ratios(own, times[LIMIT][1:]) if LIMIT in times else None,
                state_bytes=state,
                peak_bytes=held + state + temporary_bytes(step) / size,
                # Parameters and state are read and written, gradients are read.
                moved_bytes=1.5 * held + 2 * state if name[1] == "fused" else None,
                share=seconds.median / (seconds.median + forward_backward.median)
                if forward_backward
                else None,
            )
        )
    return Result(
        problem=problem.name,
        tensors=len(problem.params),
        parameters=size,
        training=training if problem.is_network else "",
        forward_backward=forward_backward,
        costs=costs,
    )


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def ratios(times: list[float], others: list[float]) -> Spread:
    """Return the spread of the ratios of two measurements, round by round."""
    return Spread.of([own / other for own, other in zip(times, others, strict=True)])


def temporary_bytes(step: Step) -> int:
    """Return the peak of the memory that a step allocates."""
    with profile(profile_memory=True) as profiler:
        step()
    held = most = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def whole_steps(result: Result) -> list[dict[str, Any]]:
    """Return the runtime table's rows for one network: times of whole steps, relative to SGD.

    A whole training step is the forward and backward pass, the same for all optimizers, and the
    optimizer's step. Each implementation is compared with that of SGD (momentum 0.9).
    """
    if result.forward_backward is None or result.problem not in _RUNTIMES:
        return []
    printed = column("tab:runtime_100epoch", _RUNTIMES[result.problem]).values
    hours = {"SGD" if name == "SGDM" else name: time for name, (time,) in printed.items()}
    rows = []
    for implementation in _IMPLEMENTATIONS:
        base = result.cost("SGD", implementation)
        for name in hours:
            cost = result.cost(name, implementation)
            if base is None or cost is None:
                continue
            network = result.forward_backward.median
            rows.append(
                {
                    "network": result.problem,
                    "optimizer": name,
                    "implementation": implementation,
                    "ratio_to_sgd": (network + cost.seconds.median)
                    / (network + base.seconds.median),
                    "share": cost.share,
                    "published_hours": hours[name],
                    "published_ratio": hours[name] / hours["SGD"],
                }
            )
    return rows
