"""``filtered``: the gradient filter in front of any optimizer.

The filtered class is a subclass of the inner one. During the inner step the parameters have the
filtered gradients instead of their own. The filter's state is stored in the entries of
``self.state``, beside the inner optimizer's, but is removed during the inner step: many
optimizers assume that they have initialised an entry that is not empty.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from ..filter import check_filter_options
from . import checkpoints, fork
from .base import BaseOptimizer
from .chunks import chunk_bytes
from .codings import buffer_dtype
from .direction_table import Group, filter_numbers, filter_one, recalled_filter
from .filter_optimizer import FilterOptimizer
from .foreach import filter_gradients
from .noise import Noise
from .options import check_like, is_flag
from .part import are_plain, as_real, buckets, check_dense, read_only
from .rehearsal import Rehearsal
from .state import (
    FORMATS,
    FULL_FORMAT,
    Layout,
    check_format,
    check_sharding,
    stored_format,
)

_REFUSED: dict[type[Optimizer], str] = {
    LBFGS: "its line search evaluates the gradient several times in a step",
    SparseAdam: "its gradients are sparse, and the filter needs every element of each",
}
_OPTIONS: Group = {
    "filter_betas": (0.9, 0.999),
    "filter_eps": 1e-8,
    "filter_gamma": 0.5,
    "filter_gamma_decay": 0.0,
    "filter_correction": "paper",
    "filter_state_format": "full",
}
_ELEMENT_BYTES = 64
"""About the most temporaries of the filter for one element: with a state that is decoded."""
_SUBCLASSES: dict[type[Optimizer], type[Optimizer]] = {}
"""The filtered class of each inner class, so that there is only one."""
_COUNT, _STATE = "filter_step", ("filter_exp_avg", "filter_exp_var")
_ALL_KEYS = Layout(_COUNT, _STATE, FULL_FORMAT).all_keys


def _filter_options(group: Group) -> Group:
    """Return the group's filter options under the names that ``filter_gradient`` uses."""
    names = (name for name in _OPTIONS if name != "filter_state_format")
    return {name.removeprefix("filter_"): group[name] for name in names}


def filtered(optimizer_class: type[Optimizer]) -> type[Optimizer]:
    """Return a subclass of ``optimizer_class`` whose step uses the filtered gradient.

    It takes the arguments of ``optimizer_class`` and the keyword arguments ``filter_betas``,
    ``filter_eps``, ``filter_gamma``, ``filter_gamma_decay`` and ``filter_correction``, which
    are those of :func:`sgdf.filter_gradient` and may differ between groups, and
    ``filter_state_format``, the ``state_format`` of the filter's own state, except the formats
    with one variance for a tensor. After the step
    ``p.grad`` is the original gradient again. Weight decay, momentum and ``maximize`` are
    applied by the inner optimizer, to the filtered gradient, so its learning rate stays the same.

    Each entry of the state, and of ``state_dict()``, also has ``filter_step``,
    ``filter_exp_avg`` and ``filter_exp_var``. A checkpoint of the inner optimizer can be loaded
    as well: the filter then starts from zero.

    Args:
        optimizer_class: any subclass of ``torch.optim.Optimizer`` except ``LBFGS``,
            ``SparseAdam`` and those that wrap another optimizer: filter that one instead.

    Example:
        >>> import torch, sgdf
        >>> FilteredRMSprop = sgdf.filtered(torch.optim.RMSprop)
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = FilteredRMSprop([weight], lr=1e-3, filter_gamma=1.0)
        >>> weight.grad = torch.ones(2)
        >>> optimizer.step()
        >>> sorted(optimizer.state[weight])
        ['filter_exp_avg', 'filter_exp_var', 'filter_step', 'square_avg', 'step']
    """
    if not isinstance(optimizer_class, type) or not issubclass(optimizer_class, Optimizer):
        kind = type(optimizer_class).__name__
        raise TypeError(f"filtered takes a class of optimizers, got {kind}: filtered(Adam)(params)")
    if issubclass(optimizer_class, (Filtered, FilterOptimizer)):
        raise TypeError(f"{optimizer_class.__name__} filters its gradients already")
    reasons = [reason for base, reason in _REFUSED.items() if issubclass(optimizer_class, base)]
    if {"optimizer", "base_optimizer"} & inspect.signature(optimizer_class).parameters.keys():
        reasons.append("it wraps another optimizer; filter that one")
    if reasons:
        raise TypeError(f"filtered does not support {optimizer_class.__name__}: {reasons[0]}")
    if optimizer_class not in _SUBCLASSES:
        _SUBCLASSES[optimizer_class] = _subclass(optimizer_class)
    return _SUBCLASSES[optimizer_class]


def _subclass(inner: type[Optimizer]) -> type[Optimizer]:
    return type(
        f"Filtered{inner.__name__}",
        (Filtered, inner),
        {
            "__module__": __name__,
            "__doc__": f"{inner.__name__} on the filtered gradient; see sgdf.filtered.",
            "__signature__": _signature(inner),
            "_inner": inner,
        },
    )


def _signature(optimizer_class: type[Optimizer]) -> inspect.Signature:
    """Return the signature of the inner class with the filter's arguments added."""
    inner = inspect.signature(optimizer_class)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(name, keyword, default=value) for name, value in _OPTIONS.items()]
    parameters = list(inner.parameters.values())
    rest = [p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    parameters = [p for p in parameters if p not in rest]
    return inner.replace(parameters=[*parameters, *own, *rest])


class Filtered(Optimizer):
    """The methods that ``filtered`` adds to an optimizer."""

    _inner: ClassVar[type[Optimizer]]

    def __init__(self, *args: Any, **options: Any) -> None:
        own = {name: options.pop(name, default) for name, default in _OPTIONS.items()}
        _check_options(own)
        super().__init__(*args, **options)
        self.defaults.update(own)
        for group in self.param_groups:
            group.update({**own, **group})
            _check_options(group)

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        if type(self) is not _SUBCLASSES.get(self._inner):
            return super().__reduce_ex__(protocol)
        # The class is made at run time, so a pickle names the inner class instead.
        return _new, (self._inner,), self.__getstate__()

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, as in ``torch.optim``; it may have filter options of its own."""
        is_complete = _OPTIONS.keys() <= self.defaults.keys()
        if is_complete and isinstance(
            param_group, dict
        ):  # else called by torch's constructor; ours checks the groups afterwards
            param_group = {**self.defaults, **param_group}
            _check_options(param_group)
        super().add_param_group(param_group)

    # The step.

    def step(  # type: ignore[override]  # some inner steps have arguments of their own
        self, closure: Callable[[], float] | None = None, *args: Any, **options: Any
    ) -> float | None:
        """Take the inner optimizer's step with the filtered gradients.

        Args:
            closure: reevaluates the model and returns the loss, which ``step`` returns.
                It is called once, before the gradients are filtered.
            args: further positional arguments of the inner optimizer's step.
            options: further keyword arguments of the inner optimizer's step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        fork.note_step()
        with fork.usable_threads, self._unscaled_by_hand() as (scale, overflow):
            if overflow:
                return loss
            with torch.no_grad():
                estimates = self._estimates(scale)
            if closure is not None:
                args = (_only_once(loss), *args)
            with _lent(estimates), self._filter_state_aside(), self._hooks_aside():
                _unhooked(self._inner.step)(self, *args, **options)
        return loss

    @contextmanager
    def _hooks_aside(self) -> Iterator[None]:
        """Remove the hooks for a while, so that the inner step does not call them again.

        torch wraps the step of a class to call the hooks when the first instance of the class is
        made; the inner step may be such a step, or call one.
        """
        names = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
        hooks = {name: getattr(self, name) for name in names}
        for name in names:
            setattr(self, name, OrderedDict())
        try:
            yield
        finally:
            for name, own in hooks.items():
                setattr(self, name, own)

    @contextmanager
    def _unscaled_by_hand(self) -> Iterator[tuple[Tensor | None, bool]]:
        """Yield GradScaler's scale and whether it found an overflow; hide both from the inner step.

        GradScaler leaves the gradients of an optimizer with a fused kernel scaled.
        """
        names = ("grad_scale", "found_inf")
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        found = given.get("found_inf")
        for name in given:
            setattr(self, name, None)
        try:
            yield given.get("grad_scale"), found is not None and bool(found)
        finally:
            for name, value in given.items():
                setattr(self, name, value)

    def _estimates(self, scale: Tensor | None) -> dict[Tensor, Tensor]:
        """Filter every gradient; return the estimate of each parameter."""
        lists = [
            [param for param in group["params"] if param.grad is not None]
            for group in self.param_groups
        ]
        moving = list(chain.from_iterable(lists))
        all_grads = [grad for param in moving if (grad := param.grad) is not None]
        check_dense(self, all_grads)
        for group, params in zip(self.param_groups, lists, strict=True):
            if group["filter_state_format"] != FULL_FORMAT.name:
                for param in params:
                    check_sharding(param, group["filter_state_format"])
        entries = [self.state.get(param, {}) for param in moving]
        buffers = [entry[key] for entry in entries for key in entry.keys() & _ALL_KEYS]
        remaining = iter(read_only(all_grads, buffers))
        estimates: dict[Tensor, Tensor] = {}
        index_of = self._indices()
        for group, params in zip(self.param_groups, lists, strict=True):
            pairs = [(param, next(remaining)) for param in params]
            if group.get("foreach") is not False and are_plain(params):
                parts = [
                    [pairs[i] for i in chunk]
                    for bucket in buckets(params)
                    for chunk in _chunks(params, bucket)
                ]
            else:
                parts = [[pair] for pair in pairs]
            for part in parts:
                estimates.update(self._filter(group, part, scale, index_of))
        return estimates

    def _indices(self) -> dict[Tensor, int]:
        """Return the index of each parameter, if a state is rounded with noise."""
        if all(group["filter_state_format"] == FULL_FORMAT.name for group in self.param_groups):
            return {}
        params = (param for group in self.param_groups for param in group["params"])
        return {param: index for index, param in enumerate(params)}

    def _filter(
        self,
        group: Group,
        pairs: list[tuple[Tensor, Tensor]],
        scale: Tensor | None,
        index_of: dict[Tensor, int],
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parameters of one device and dtype with their estimates; update the state."""
        counts: list[float | Tensor] = []
        grads, stored, layouts = [], [], []
        for param, grad in pairs:
            layout = _layout(group, param)
            state = self.state.setdefault(param, {})
            if _COUNT not in state:
                state.update(layout.new(param, group))
            layout.check(state, param)
            state[_COUNT] += 1
            counts.append(state[_COUNT] if group.get("capturable") else state[_COUNT].item())
            keys = layout.format.keys(_STATE)
            _, real_grad, *tensors = as_real(param, grad, *(state[key] for key in keys))
            real_grad = real_grad.to(buffer_dtype(real_grad))
            if scale is not None:
                real_grad = real_grad / scale.to(real_grad.device, real_grad.dtype)
            grads.append(real_grad)
            stored.append(tensors)
            layouts.append(layout)
        moments = [
            layout.format.read(_STATE, tensors)
            for layout, tensors in zip(layouts, stored, strict=True)
        ]
        options = _filter_options(group)
        if len(pairs) > 1:
            numbers = filter_numbers(options, counts, grads[0].dtype)
            estimates = filter_gradients(
                numbers, grads, list(map(list, zip(*moments, strict=True)))
            )
        else:  # perhaps of a type that foreach kernels do not support
            estimates = [filter_one(options, grads[0], moments[0], counts[0])]
        for (param, grad), *row in zip(
            pairs, layouts, stored, moments, counts, estimates, strict=True
        ):
            layout, tensors, buffers, count, estimate = row
            noise = Noise(index_of.get(param, -1), count, param.shape, param.device)
            layout.format.write(_STATE, tensors, buffers, noise)
            whole = torch.view_as_complex(estimate) if param.is_complex() else estimate
            yield param, whole.to(grad.dtype)

    @contextmanager
    def _filter_state_aside(self) -> Iterator[None]:
        """Remove the filter's state for a while: the inner optimizer sees only its own."""
        aside = {}
        for param in (param for group in self.param_groups for param in group["params"]):
            if param in self.state:
                state = self.state[param]
                aside[param] = {key: state.pop(key) for key in list(state) if key in _ALL_KEYS}
                if not state:
                    del self.state[param]
        try:
            yield
        finally:
            for param, state in aside.items():
                self.state.setdefault(param, {}).update(state)

    # What `sgdf.monitor` needs, as in BaseOptimizer.

    def _recalled_state(self, group: Group, param: Tensor) -> tuple[float, list[Tensor]]:
        return _layout(group, param).numbers(self.state.get(param, {}), _STATE, param)

    def _recalled(
        self, group: Group, grad: Tensor, step: float, *buffers: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        return recalled_filter(_filter_options(group), grad, step, *buffers)

    def _filter_in(self, group: Group) -> Group | None:
        return _filter_options(group)

    def _seen(self, group: Group, grad: Tensor, param: Tensor) -> Tensor:
        """Return the filter's input: the unscaled gradient, without the inner optimizer's decay."""
        scale: Tensor | None = getattr(self, "grad_scale", None)
        return grad if scale is None else grad / scale.to(grad.device, grad.dtype)

    # Checkpoints.

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint of this class or of the inner one.

        The filter's state is copied in the dtype of this optimizer's state: torch alone would
        round it to the dtype of a half-precision parameter.
        """
        checkpoints.load(
            self,
            super().load_state_dict,
            state_dict,
            complete=self._groups_with_filter,
            layout_of=lambda group, param, entry: (
                _layout(group, param) if entry.keys() & _ALL_KEYS else None
            ),
            check=functools.partial(self._check_inner_state, Rehearsal(self, self._inner)),
        )

    # Not `_completed_groups`, which is a method of some inner optimizers.
    def _groups_with_filter(self, incoming: list[Group]) -> list[Group]:
        completed = []
        for index, (own, group) in enumerate(zip(self.param_groups, incoming, strict=True)):
            group = {**{name: own[name] for name in self.defaults if name in own}, **group}
            group["filter_state_format"] = own["filter_state_format"]
            with checkpoints.named_group(index):
                if not isinstance(self, BaseOptimizer):  # which checks its options itself
                    check_like(own, group)
                _check_options(group)
            completed.append(group)
        return completed

    def _check_inner_state(
        self,
        rehearsal: Rehearsal,
        own: Group,
        group: Group,
        param: Tensor,
        index: Any,
        entry: Group,
    ) -> None:
        """Raise if the inner optimizer could not step with this entry of a checkpoint."""
        if isinstance(self, BaseOptimizer):  # which checks its entries itself
            return
        given, present = (
            {key: value for key, value in state.items() if key not in _ALL_KEYS}
            for state in (entry, self.state.get(param, {}))
        )
        rehearsal.check(own, group, param, index, given, present or None)


def _check_options(group: Group) -> None:
    if not is_flag(group.get("differentiable")):
        raise ValueError(f"Invalid differentiable: {group['differentiable']!r}")
    if group.get("differentiable"):
        raise RuntimeError("filtered optimizers do not support `differentiable`")
    check_filter_options(**_filter_options(group))
    check_format(group["filter_state_format"])
    if FORMATS[group["filter_state_format"]].shares_variance:
        raise ValueError(
            f"Invalid filter_state_format: {group['filter_state_format']!r}; one variance for a "
            "tensor is another filter, which has to be tuned: sgdf.SGDF, FilterAdam, SignSGDF and "
            "FilterMuon have it"
        )


def _layout(group: Group, param: Tensor) -> Layout:
    """Return what the filter's state of ``param`` consists of."""
    return Layout(_COUNT, _STATE, stored_format(group["filter_state_format"], param))


def _chunks(params: list[Tensor], bucket: list[int]) -> Iterator[list[int]]:
    """Yield the bucket in parts whose temporaries are bounded, except those of one tensor."""
    chunk: list[int] = []
    size = 0
    for i in bucket:
        most = chunk_bytes(params[i]) // _ELEMENT_BYTES
        if chunk and size + params[i].numel() > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(i)
        size += params[i].numel()
    yield chunk


def _unhooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step of a class without the wrapper by which torch calls hooks."""
    return getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step


def _new(inner: type[Optimizer]) -> Optimizer:
    """Return an instance of the filtered class without attributes, for unpickling."""
    cls = filtered(inner)
    return cls.__new__(cls)


def _only_once(loss: float | None) -> Callable[[], float | None]:
    """Return a closure for the inner optimizer that returns the known loss once, then raises."""
    losses = [loss]

    def closure() -> float | None:
        if not losses:
            raise RuntimeError(
                "a filtered optimizer evaluates the closure once in a step, but the inner one "
                "calls it again: filter the optimizer that it wraps, or do not filter this one"
            )
        return losses.pop()

    return closure


@contextmanager
def _lent(estimates: dict[Tensor, Tensor]) -> Iterator[None]:
    """Give the parameters these gradients for a while, then their own again."""
    own = {param: param.grad for param in estimates}
    try:
        for param, estimate in estimates.items():
            param.grad = estimate
        yield
    finally:
        for param, grad in own.items():
            param.grad = grad
