"""The base class of all optimizers here: groups, closure, decay, loading, choice of a path.

A subclass names its state and computes update directions from gradients. The rest of
``torch.optim``'s contract is implemented here, in one class, because torch.compile and
torch.optim expect it in one class: hence the length.
"""

from __future__ import annotations

import functools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from . import checkpoints, fork
from .missing_options import advice, without_switched_off
from .native.step import (
    KINDS,
    PLAIN_TYPES,
    TensorTable,
    aligned,
    is_supported,
    native_fault,
)
from .options import is_flag, is_rate
from .state import buffer_dtype, check_format, new_state

Group = dict[str, Any]

# `torch.cuda.is_available()` takes 20 µs even in a torch that was built without CUDA.
_BUILT_WITH_CUDA = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]  # torch's


_FLAGS = (
    *("decoupled_weight_decay", "maximize", "foreach", "fused"),
    *("capturable", "differentiable", "stochastic_rounding"),
)


class BaseOptimizer(Optimizer):
    """An optimizer that moves each parameter by ``-lr`` times a direction."""

    _kinds: ClassVar[dict[str, tuple[str, ...]]]
    """The state keys of each kind of direction: besides ``step``, those of the buffers, which
    have the parameter's shape."""

    _tables: dict[tuple[int, str], TensorTable]
    """The tensors of the last native step, by group index and kind."""

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        self._check_options(defaults)
        super().__init__(params, defaults)
        self._tables = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore groups and state, for unpickling, copying and loading."""
        super().__setstate__(state)
        self._tables = {}

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
        check_format(group["state_format"], group["stochastic_rounding"])

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        """Return what to write instead of those options that only torch's optimizers have."""
        return "leave it out"

    def _kinds_in(self, group: Group) -> tuple[str, ...]:
        """Return the kinds of direction that parameters of ``group`` can take."""
        return tuple(self._kinds)

    def _kind_of(self, group: Group, param: Tensor) -> str:
        """Return the kind of direction that ``param`` takes."""
        (kind,) = self._kinds
        return kind

    @abstractmethod
    def _direction(
        self,
        kind: str,
        group: Group,
        grad: Tensor,
        buffers: Sequence[Tensor],
        step: float | Tensor,
    ) -> Tensor:
        """Return the direction for one parameter and update its buffers."""

    @abstractmethod
    def _directions(
        self,
        kind: str,
        group: Group,
        grads: list[Tensor],
        buffers: Sequence[list[Tensor]],
        steps: Sequence[float | Tensor],
    ) -> list[Tensor]:
        """Return the directions for parameters of one device and dtype; update their buffers."""

    @abstractmethod
    def _step_fused(self, kind: str, group: Group, table: TensorTable) -> None:
        """Update the parameters of ``table`` and their state in one native call.

        Called only for the kinds in ``native.step.KINDS``.
        """

    # What `sgdf.monitor` needs.

    _recalled_keys: ClassVar[tuple[str, ...]] = ("step", "exp_avg", "exp_var")
    """The state keys that ``_recalled`` needs: of the step count, then of its buffers."""

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
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        return grad

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
                if not self._repeat():
                    fork.note_step()
                    self._check_step()
                    self._step_groups()
        return loss

    def _step_groups(self) -> None:
        """Update all parameters, group by group."""
        for index, group in enumerate(self.param_groups):
            for kind in self._kinds_in(group):
                self._step_group(index, group, kind)

    def _repeat(self) -> bool:
        """Take a native step on the tensors of the last one, or change nothing and return False.

        The result is that of ``_step_groups``, but each of the hundreds of tensors is read
        only once: after a backward pass none of them is in the caches, so every read is slow.
        """
        if not self._tables or is_capturing():
            return False
        for table in self._tables.values():
            table.prefetch()
        due = []
        for index, group in enumerate(self.param_groups):
            params = group["params"]
            for kind in self._kinds_in(group):
                known = self._tables.get((index, kind))
                if known is not None and self._may_fuse(group, kind, params):
                    due.append((kind, group, known))
                elif any(param.grad is not None for param in params):
                    return False
        if not all(table.refill(group["params"], self.state) for _, group, table in due):
            return False
        for kind, group, table in due:
            self._step_fused(kind, group, table)
        return True

    def _step_group(self, index: int, group: Group, kind: str) -> None:
        """Update the parameters of one group and kind on the path chosen for them."""
        params: list[Tensor] = []
        grads: list[Tensor] = []
        steps: list[Tensor] = []
        buffers: list[list[Tensor]] = [[] for _ in self._kinds[kind]]
        self._init_group(group, kind, params, grads, steps, *buffers)
        if not params:
            return
        grads = read_only(grads, params, steps, *buffers)
        if self._may_fuse(group, kind, params) and self._fuse(index, group, kind, params, grads):
            return
        columns = params, grads, steps, buffers
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            if _uses_foreach(group, params):
                self._step_foreach(kind, group, *columns)
            else:
                self._step_single(kind, group, *columns)

    def _check_step(self) -> None:
        """Raise every error that would interrupt a step, before anything has changed."""
        capturing = is_capturing()
        for group in self.param_groups:
            if capturing and not group["capturable"]:
                raise RuntimeError(
                    f"Attempting CUDA graph capture of step() for an instance of "
                    f"{type(self).__name__} but param_groups' capturable is False."
                )
            grads = [grad for param in group["params"] if (grad := param.grad) is not None]
            check_dense(self, grads)
            if group["capturable"] and any(grad.is_cpu for grad in grads):
                raise AssertionError(
                    "If capturable=True, params and state_steps must be on supported "
                    "devices: an accelerator, not cpu."
                )

    # torch.compile runs a method of this name and signature outside the graph, so that
    # creating the state is not traced.
    def _init_group(
        self,
        group: Group,
        kind: str,
        params: list[Tensor],
        grads: list[Tensor],
        steps: list[Tensor],
        *buffers: list[Tensor],
    ) -> None:
        """Fill the lists with the parameters of a kind that have a gradient, and their state."""
        is_mixed = len(self._kinds_in(group)) > 1
        for param in group["params"]:
            if (grad := param.grad) is None:
                continue
            if is_mixed:
                self.state.setdefault(
                    param, {}
                )  # entries in the order of the parameters, not of the kinds
                if self._kind_of(group, param) != kind:
                    continue
            params.append(param)
            grads.append(grad)
        states = [self.state[param] for param in params]
        for param, state in zip(params, states, strict=True) if not all(states) else ():
            if not state:
                state.update(new_state(("step", *self._kinds[kind]), param, group))
        try:
            steps += [state["step"] for state in states]
            for name, buffer in zip(self._kinds[kind], buffers, strict=True):
                buffer += [state[name] for state in states]
        except KeyError as missing:
            raise RuntimeError(
                f"a parameter's state has no {missing}: was its group's direction changed?"
            ) from None

    def _may_fuse(self, group: Group, kind: str, params: list[Tensor]) -> bool:
        """Return whether the native step is requested, or allowed because no path is."""
        asked = group["fused"] or (group["fused"] is None and group["foreach"] is None)
        return (
            asked
            and kind in KINDS
            and not torch.compiler.is_compiling()
            # Dispatch modes (fake tensors, copies of saved tensors) only see torch's own kernels.
            and not torch._C._len_torch_dispatch_stack()
            and not group["differentiable"]
            and not group["capturable"]
            and are_plain(params)
        )

    def _fuse(
        self, index: int, group: Group, kind: str, params: list[Tensor], grads: list[Tensor]
    ) -> bool:
        """Update these parameters natively, or change nothing and return False."""
        if native_fault():
            return False
        table = self._tables.get((index, kind))
        copies: list[Tensor] = []  # kept until the native call has returned
        if table is None or not table.refill(params, self.state):
            self._tables.pop((index, kind), None)
            with torch.no_grad():
                copies = aligned(params, grads)
            table = TensorTable.of(params, copies, self.state, ("step", *self._kinds[kind]))
            if table is None:
                return False
            self._tables[index, kind] = table
        self._step_fused(kind, group, table)
        return True

    def _step_single(
        self,
        kind: str,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        steps: list[Tensor],
        buffers: list[list[Tensor]],
    ) -> None:
        """Update one parameter after the other."""
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        for param, grad, step, *own in zip(params, grads, steps, *buffers, strict=True):
            step += 1
            param, grad, *own = as_real(param, grad, *own)
            grad = self._seen(group, grad.to(buffer_dtype(param)), param)
            direction = self._direction(kind, group, grad, own, _count(group, step))
            lr = _lr(group, direction)

            # Rounded only when written: a bf16 parameter must not lose a small decay.
            value = param.to(direction.dtype)
            if decay and decoupled:
                value.mul_(1 - lr * decay)
            value.sub_(lr * direction)
            if value is not param:
                param.copy_(value)

    def _step_foreach(
        self,
        kind: str,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        steps: list[Tensor],
        buffers: list[list[Tensor]],
    ) -> None:
        """Update lists of parameters of one device and dtype, with few kernels for each list."""
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        torch._foreach_add_(steps, 1)
        for bucket in buckets(params):
            rows = (
                as_real(params[i], grads[i], *(buffer[i] for buffer in buffers)) for i in bucket
            )
            own_params, own_grads, *own = map(list, zip(*rows, strict=True))
            dtype = buffer_dtype(own_params[0])
            own_grads = [grad.to(dtype) for grad in own_grads]
            if group["maximize"]:
                own_grads = list(torch._foreach_neg(own_grads))
            if decay and not decoupled:
                own_grads = list(torch._foreach_add(own_grads, own_params, alpha=decay))
            directions = self._directions(
                kind, group, own_grads, own, [_count(group, steps[i]) for i in bucket]
            )
            lr = _lr(group, directions[0])

            values = [param.to(dtype) for param in own_params]
            if decay and decoupled:
                torch._foreach_mul_(values, 1 - lr * decay)
            torch._foreach_mul_(directions, lr)
            torch._foreach_sub_(values, directions)
            if values[0] is not own_params[0]:
                torch._foreach_copy_(own_params, values)

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
        ``state_format``. The tensors are copied in the dtype of this optimizer's state:
        torch alone would round a float32 state to the dtype of a bf16 parameter.
        """
        checkpoints.load(
            self,
            super().load_state_dict,
            state_dict,
            complete=self._completed_groups,
            keys_of=lambda group, param, _: ("step", *self._kinds[self._kind_of(group, param)]),
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

        With ``fused=True`` the native step is built here; if that fails, this warns.
        """
        if not group["fused"]:
            return
        for param in params:
            if not is_supported(param):
                raise RuntimeError(
                    "`fused=True` is for floating-point parameters on the CPU, got "
                    f"{param.dtype} on {param.device}; leave it out, and on an accelerator "
                    "take torch.compile(optimizer.step)"
                )
        if fault := native_fault():
            instead = "the loop" if group["foreach"] is False else "foreach"
            warnings.warn(f"no fused step ({fault}); using {instead}", stacklevel=3)


def is_capturing() -> bool:
    """Return whether a CUDA graph is being recorded."""
    return (
        _BUILT_WITH_CUDA and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    )


def check_dense(optimizer: Optimizer, grads: list[Tensor]) -> None:
    """Raise if a gradient is sparse."""
    if any([grad.layout is not torch.strided for grad in grads]):  # noqa: C419 (a list is twice as fast)
        (grad, *_) = (grad for grad in grads if grad.layout is not torch.strided)
        raise RuntimeError(
            f"{type(optimizer).__name__} does not support sparse gradients, got one of "
            f"layout {grad.layout} and shape {tuple(grad.shape)}; an Embedding makes dense ones "
            "with sparse=False"
        )


def are_plain(params: list[Tensor]) -> bool:
    """Return whether all parameters are of types that torch's foreach kernels support."""
    return PLAIN_TYPES.issuperset(map(type, params))


def read_only(grads: list[Tensor], *written: list[Tensor]) -> list[Tensor]:
    """Return the gradients, copied where one begins in memory where a written tensor does.

    Otherwise a step would change a gradient before it has read it, on each path at another time.
    """
    columns = grads, *written
    if torch.compiler.is_compiling() or not all(map(are_plain, columns)):
        return grads
    addresses = {
        address for column in written for tensor in column if (address := tensor.data_ptr())
    }
    return [grad.clone() if grad.data_ptr() in addresses else grad for grad in grads]


def _uses_foreach(group: Group, params: list[Tensor]) -> bool:
    """Return the requested path; by default foreach if all types of parameters allow it.

    As in ``torch.optim``, False for either of ``foreach`` and ``fused`` requests the loop.
    """
    if group["differentiable"]:
        return False
    if group["foreach"] is None:
        return group["fused"] is not False and are_plain(params)
    return bool(group["foreach"])


def _lr(group: Group, direction: Tensor) -> float | Tensor:
    """Return lr as a number, or as a 0-dimensional tensor on the device of ``direction``.

    In a compiled graph, adding a number to a tensor makes it an input of the graph.
    Otherwise it would be a constant, and each value of a schedule would need a new graph.
    """
    lr: float | Tensor = group["lr"]
    if isinstance(lr, Tensor):
        return lr.reshape(()).to(direction.device, direction.dtype)
    if torch.compiler.is_compiling():
        return torch.zeros((), dtype=direction.dtype, device=direction.device) + lr
    return lr


def _count(group: Group, step: Tensor) -> float | Tensor:
    """Return the step as a number, or as the tensor if the device must not be waited for.

    torch.compile traces every optimizer as if it were capturable.
    """
    return step if group["capturable"] else step.item()


def as_real(param: Tensor, grad: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
    """Return complex tensors as pairs of reals; parameter and buffers as views, to write to."""
    if not param.is_complex():
        return param, grad, *buffers
    return tuple(map(torch.view_as_real, (param, grad.resolve_conj(), *buffers)))


def buckets(params: list[Tensor]) -> list[list[int]]:
    """Return the indices grouped by device and dtype, as foreach kernels need them."""
    buckets: dict[Any, list[int]] = {}
    for index, param in enumerate(params):
        buckets.setdefault((param.device, param.dtype), []).append(index)
    return list(buckets.values())
