"""The base class of all optimizers here: options, groups, closure, loading, choice of a path.

A subclass names its directions; ``direction_table.py`` says what state they have, and how they are
computed. torch.optim's contract is implemented here in one class, because torch.optim and
torch.compile expect that: this is the reason for the length.
"""

from __future__ import annotations

import functools
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from ..filter import is_number
from . import checkpoints, compiled, fork
from .direction_table import DIRECTIONS, FILTER_STATE, Group
from .missing_options import advice, without_switched_off
from .native.memory import is_supported
from .native.step import NativeSteps, native_fault
from .options import is_flag, is_rate
from .part import Backend, Part, check_dense, read_only
from .paths import (
    filter_input,
    rounds,
    step_foreach,
    step_single,
    uses_foreach,
)
from .state import (
    FORMATS,
    FULL_FORMAT,
    Layout,
    check_format,
    check_sharding,
    stored_format,
)

# `torch.cuda.is_available()` takes 20 µs even in a torch that was built without CUDA.
_BUILT_WITH_CUDA = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]  # torch's


_FLAGS = (
    *("decoupled_weight_decay", "maximize", "foreach", "fused"),
    *("capturable", "differentiable", "stochastic_rounding"),
)


class BaseOptimizer(Optimizer):
    """An optimizer that moves each parameter by ``-lr`` times a direction."""

    _directions: ClassVar[tuple[str, ...]]
    """The directions that its parameters can take, by their names in ``DIRECTIONS``."""

    _native: NativeSteps
    """The tensors of the last native step."""
    _compiled: compiled.CompiledSteps
    """The functions that the steps on an accelerator have compiled."""

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        self._check_options(defaults)
        super().__init__(params, defaults)
        self._native = NativeSteps()
        self._compiled = compiled.CompiledSteps()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore groups and state, for unpickling, copying and loading."""
        super().__setstate__(state)
        self._native = NativeSteps()
        if "_compiled" not in vars(self):  # a checkpoint that is loaded changes no list
            self._compiled = compiled.CompiledSteps()

    # Methods that a subclass provides.

    def _check_options(self, group: Group) -> None:
        """Raise if an option of ``group`` is invalid; subclasses add their own."""
        lr = group["lr"]
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, got {tuple(lr.shape)}")
        if not is_rate(lr) or not (lr.detach() if isinstance(lr, Tensor) else lr) >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr!r}")
        decay = group["weight_decay"]
        if not is_number(decay) or not 0.0 <= decay <= torch.finfo(torch.float32).max:
            raise ValueError(f"Invalid weight_decay value: {decay!r}")
        for name in _FLAGS:
            if not is_flag(group[name]):
                raise ValueError(f"Invalid {name}, expected True or False: {group[name]!r}")
        if group["foreach"] and group["fused"]:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        for path in ("foreach", "fused"):
            if group[path] and group["differentiable"]:
                raise RuntimeError(f"`{path}` does not support `differentiable`")
        check_format(group["state_format"])
        if FORMATS[group["state_format"]].shares_variance and not self._has_variance():
            raise ValueError(
                f"Invalid state_format: {group['state_format']!r}, {type(self).__name__} has no "
                "variance"
            )
        is_small = group["state_format"] != FULL_FORMAT.name
        for name, is_given in (
            ("state_format", is_small),
            ("stochastic_rounding", group["stochastic_rounding"]),
        ):
            if group["differentiable"] and is_given:
                raise RuntimeError(f"`{name}` does not support `differentiable`")

    @classmethod
    def _has_variance(cls) -> bool:
        return any("exp_var" in DIRECTIONS[name].buffers for name in cls._directions)

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        """Return what to write instead of those options that only torch's optimizers have."""
        return "leave it out"

    def _directions_in(self, group: Group) -> tuple[str, ...]:
        """Return the directions that parameters of ``group`` can take."""
        return self._directions

    def _direction_of(self, group: Group, param: Tensor) -> str:
        """Return the direction that ``param`` takes."""
        (direction,) = self._directions
        return direction

    def _layout_of(self, group: Group, param: Tensor) -> Layout:
        """Return what the state of ``param`` consists of."""
        buffers = DIRECTIONS[self._direction_of(group, param)].buffers
        return Layout("step", buffers, stored_format(group["state_format"], param))

    # What `sgdf.monitor` needs.

    def _recalled_state(self, group: Group, param: Tensor) -> tuple[float, list[Tensor]]:
        """Return the step count of a parameter and the buffers that ``_recalled`` takes.

        The buffers have the parameter's shape, whatever their format.
        """
        layout = self._layout_of(group, param)
        return layout.numbers(self.state.get(param, {}), FILTER_STATE, param)

    @abstractmethod
    def _recalled(
        self, group: Group, grad: Tensor, step: float, *buffers: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Recompute estimate, gain (None without a filter) and residual of the last step.

        Args:
            group: the options.
            grad: gradients as ``_seen`` returns them, real; any selection of elements, perhaps
                of several parameters.
            step: the number of the step.
            buffers: the same elements of the state that the step has left.
        """

    def _filter_in(self, group: Group) -> Group | None:
        """Return the filter's options in ``group``, as a new dict; None without a filter."""
        return None

    def _seen(self, group: Group, grad: Tensor, param: Tensor) -> Tensor:
        """Return the gradient that the direction is computed from: with sign and coupled decay."""
        return filter_input(group, grad, param)

    # The step.

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``step`` wrapped for hooks and profiles; torch calls this when wrapping it.

        Without hooks and profiler, torch's wrapper is skipped: it opens and closes a record that
        no profile receives, which takes a twentieth of ResNet-18's step.
        """
        watched = Optimizer.profile_hook_step(func)

        @functools.wraps(func)
        def step(self: BaseOptimizer, *args: Any, **kwargs: Any) -> Any:
            if (
                torch.compiler.is_compiling()
                or torch.autograd._profiler_enabled()  # type: ignore[attr-defined]  # not in its stubs
                or self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
            ):
                return watched(self, *args, **kwargs)
            return func(self, *args, **kwargs)

        return step

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters once.

        Args:
            closure: reevaluates the model and returns the loss, which ``step``
                returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        if torch.compiler.is_compiling():
            self._step_groups()
        else:
            with fork.usable_threads:
                is_other = os.environ.get(compiled.VARIABLE) or is_capturing()
                if is_other or not self._native.repeat(self.param_groups, self.state):
                    fork.note_step()
                    self._check_step()
                    self._step_groups()
        return loss

    def _step_groups(self) -> None:
        """Update all parameters, group by group."""
        for group in self.param_groups:
            for direction in self._directions_in(group):
                for stored in _formats_in(group):
                    self._step_part(group, direction, stored)

    def _step_part(self, group: Group, direction: str, stored: str) -> None:
        """Update the parameters of one group, direction and format on the path chosen for them."""
        params: list[Tensor] = []
        grads: list[Tensor] = []
        steps: list[Tensor] = []
        indices: list[int] = []
        row, format = DIRECTIONS[direction], FORMATS[stored]
        columns: list[list[Tensor]] = [[] for _ in format.keys(row.buffers)]
        self._init_group(group, direction, stored, params, grads, steps, indices, *columns)
        if not params:
            return
        grads = read_only(grads, params, steps, *columns)
        part = Part(group, row, format, params, grads, steps, indices, columns)
        if not torch.compiler.is_compiling():
            backends: tuple[Backend, ...] = self._compiled, self._native
            backend = next((backend for backend in backends if backend.wants(part)), None)
            if backend is not None:
                with torch.no_grad():
                    idle = functools.partial(self._idle, group, direction, stored)
                    remaining = backend.step(part, idle, self.state)
                if remaining is None:
                    return
                part = remaining
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            if uses_foreach(group, part.params):
                step_foreach(part)
            else:
                step_single(part)

    def _check_step(self) -> None:
        """Raise every error that would interrupt a step, before anything has changed."""
        compiled.is_forced()  # raises if the variable has another value
        capturing = is_capturing()
        for group in self.param_groups:
            if capturing and not group["capturable"]:
                raise RuntimeError(
                    f"Attempting CUDA graph capture of step() for an instance of "
                    f"{type(self).__name__} but param_groups' capturable is False."
                )
            moving = [param for param in group["params"] if param.grad is not None]
            grads = [grad for param in moving if (grad := param.grad) is not None]
            check_dense(self, grads)
            for param in moving:
                if state := self.state.get(param):
                    self._layout_of(group, param).check(state, param)
            if group["capturable"] and any(grad.is_cpu for grad in grads):
                raise AssertionError(
                    "If capturable=True, params and state_steps must be on supported "
                    "devices: an accelerator, not cpu."
                )

    # torch.compile runs a method of this name outside the graph, so that creating the state is
    # not traced; its arguments have to be groups, constants and lists.
    def _init_group(
        self,
        group: Group,
        direction: str,
        stored: str,
        params: list[Tensor],
        grads: list[Tensor],
        steps: list[Tensor],
        indices: list[int],
        *columns: list[Tensor],
    ) -> None:
        """Fill the lists with the parameters that have a gradient, and with their state.

        Only those of this direction and format count.
        """
        is_mixed = len(self._directions_in(group)) > 1 or len(_formats_in(group)) > 1
        for param in group["params"]:
            if (grad := param.grad) is None:
                continue
            if is_mixed:
                self.state.setdefault(param, {})  # in the order of the parameters
                if self._direction_of(group, param) != direction:
                    continue
                if stored_format(group["state_format"], param).name != stored:
                    continue
            params.append(param)
            grads.append(grad)
        layout = Layout("step", DIRECTIONS[direction].buffers, FORMATS[stored])
        states = [self.state[param] for param in params]
        for param, state in zip(params, states, strict=True) if not all(states) else ():
            if not state:
                state.update(layout.new(param, group))
        try:
            steps += [state["step"] for state in states]
            for name, column in zip(layout.format.keys(layout.buffers), columns, strict=True):
                column += [state[name] for state in states]
        except KeyError as missing:
            raise RuntimeError(
                f"a parameter's state has no {missing}: was its group's direction or state_format "
                "changed?"
            ) from None
        if stored != FULL_FORMAT.name or any(rounds(group, param) for param in params):
            of_all = (param for group in self.param_groups for param in group["params"])
            index_of = {param: index for index, param in enumerate(of_all)}
            indices += [index_of[param] for param in params]

    def _idle(self, group: Group, direction: str, stored: str) -> list[Tensor]:
        """Return the parameters without gradient that have a state of this direction and format."""
        return [
            param
            for param in group["params"]
            if param.grad is None
            and self.state.get(param)
            and self._direction_of(group, param) == direction
            and stored_format(group["state_format"], param).name == stored
        ]

    # Groups and checkpoints.

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, as in ``torch.optim``; the dict passed in is not changed."""
        if isinstance(param_group, dict):
            options = {**self.defaults, **param_group}
            if text := advice(type(self), without_switched_off(options)):
                raise TypeError(text)
            self._check_options(options)
            param_group = dict(param_group)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_params(group, group["params"])
        except BaseException:  # an error, a warning turned into one, Ctrl-C during the build
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint, or raise and leave the optimizer as it was.

        Options that are not in the checkpoint keep their present value, and so does
        ``state_format``: the state is converted to it. The tensors are copied in the dtype of
        this optimizer's state: torch alone would round a float32 state to the dtype of a bf16
        parameter.
        """
        checkpoints.load(
            self,
            super().load_state_dict,
            state_dict,
            complete=self._completed_groups,
            layout_of=lambda group, param, _: self._layout_of(group, param),
        )

    def _completed_groups(self, incoming: list[Group]) -> list[Group]:
        completed = []
        for index, (own, group) in enumerate(zip(self.param_groups, incoming, strict=True)):
            options = {name: own[name] for name in self.defaults}
            group = {**options, **group, "state_format": options["state_format"]}
            with checkpoints.named_group(index):
                self._check_options(group)
            self._check_params(group, own["params"])
            completed.append(group)
        return completed

    def _check_params(self, group: Group, params: list[Tensor]) -> None:
        """Raise if the group's options do not fit these parameters; subclasses add their own.

        With ``fused=True`` the native step is built here, if it is for one of them; if that fails,
        this warns.
        """
        for param in params:
            check_sharding(param, group["state_format"], rounds(group, param))
        if not group["fused"]:
            return
        for param in params:
            if not is_supported(param) and not compiled.is_accelerated(param):
                raise RuntimeError(
                    "`fused=True` is for floating-point parameters on the CPU or an accelerator, "
                    f"got {param.dtype} on {param.device}; leave it out"
                )
        if any(param.is_cpu for param in params) and (fault := native_fault()):
            instead = "the loop" if group["foreach"] is False else "foreach"
            warnings.warn(f"no fused step ({fault}); using {instead}", stacklevel=3)


def is_capturing() -> bool:
    """Return whether a CUDA graph is being recorded."""
    return (
        _BUILT_WITH_CUDA and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    )


def _formats_in(group: Group) -> tuple[str, ...]:
    """Return the formats that parameters of ``group`` can have."""
    name = group["state_format"]
    return (name,) if name == FULL_FORMAT.name else (name, FULL_FORMAT.name)
