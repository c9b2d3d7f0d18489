"""Checks a checkpoint's state for an optimizer whose code is not ours.

What an inner optimizer of ``filtered`` needs in its state, only its step knows. So the step is
tried before anything is loaded, on a copy of one parameter at a time with a gradient of zeros.
Of parameters whose entries differ in their numbers alone, only the first is tried.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from .part import PLAIN_TYPES

Entry = dict[str, Any]


class Rehearsal:
    """Tries steps of the optimizer class ``inner``, with the attributes of ``optimizer``.

    One rehearsal is for one checkpoint.
    """

    def __init__(self, optimizer: Optimizer, inner: type[Optimizer]) -> None:
        self._optimizer, self._inner = optimizer, inner
        self._attributes = {
            name: OrderedDict() if name.endswith("_hooks") else value
            for name, value in vars(optimizer).items()
            if name not in ("state", "param_groups")
        }
        self._tried: set[Hashable] = set()

    def check(
        self,
        own: Entry,
        group: Entry,
        param: Tensor,
        index: Any,
        entry: Entry,
        present: Entry | None,
    ) -> None:
        """Raise if a parameter cannot step with a checkpoint, though it can without it.

        Args:
            own: the present options.
            group: the checkpoint's options.
            param: the parameter.
            index: its number or name in the checkpoint.
            entry: its state in the checkpoint.
            present: its state in the optimizer, None before the first step.
        """
        # A CPU refuses every step with `capturable`, which another machine may have saved; a
        # tensor subclass may be distributed over several processes.
        if group.get("capturable") or type(param) not in PLAIN_TYPES:
            return
        pattern = (id(group), _pattern_of(param, param), _pattern_of(entry, param))
        if pattern in self._tried:
            return
        self._tried.add(pattern)
        fault = self._try(group, param, entry)
        if not isinstance(fault, Exception):
            return
        cause = f"{type(fault).__name__}: {fault}".splitlines()[0]
        for known in (None, present):
            good = self._try(group, param, known)
            for key, value in good.items() if isinstance(good, dict) else ():
                if isinstance(self._try(group, param, {**entry, key: value}), dict):
                    raise ValueError(f"Invalid state of parameter {index}: {key!r}: {cause}")
        if isinstance(self._try(own, param, present), dict):  # else the step needs a closure
            raise ValueError(
                f"Invalid state of parameter {index}, {[*entry]}, or options of its group, "
                f"{[*group]}: {cause}"
            )

    def _try(self, group: Entry, param: Tensor, entry: Entry | None) -> Entry | Exception:
        """Return the state that a step leaves, or what it raises."""
        try:
            return self._stepped(group, param, entry)
        except Exception as error:  # anything that the step of another project may raise
            return error

    def _stepped(self, group: Entry, param: Tensor, entry: Entry | None) -> Entry:
        """Return the state after a step on a copy of ``param``, which has this state before."""
        twin = torch.nn.Parameter(param.detach().clone())
        twin.grad = torch.zeros_like(twin)
        optimizer = self._inner.__new__(self._inner)
        # The attributes are copied, since the step may change them. One that refers to the
        # optimizer, as a step that a scheduler has wrapped, refers to the new one in the copy.
        optimizer.__setstate__(
            {
                **copy.deepcopy(self._attributes, {id(self._optimizer): optimizer}),
                "state": defaultdict(dict),
                "param_groups": [{**group, "params": [twin]}],
            }
        )
        saved = {"params": [0], **({"param_names": ["0"]} if "param_names" in group else {})}
        self._inner.load_state_dict(
            optimizer,
            {
                "state": {} if entry is None else {0: copy.deepcopy(entry)},
                "param_groups": [{**group, **saved}],
            },
        )
        devices = [param.device] if param.is_cuda else []
        with torch.random.fork_rng(devices), _global_hooks_aside():
            self._inner.step(optimizer)
        return dict(optimizer.state[twin])


@contextmanager
def _global_hooks_aside() -> Iterator[None]:
    """Remove the hooks of all optimizers for a while: what is tried is no step of the training."""
    hooks: tuple[dict[int, Any], ...] = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    kept = [dict(registered) for registered in hooks]
    for registered in hooks:
        registered.clear()
    try:
        yield
    finally:
        for registered, before in zip(hooks, kept, strict=True):
            registered.update(before)


def _pattern_of(value: Any, param: Tensor) -> Hashable:
    """Return all of a value that decides whether a step raises: not the numbers in a large tensor.

    A shape counts by how it is related to the parameter's.
    """
    if isinstance(value, dict):
        return tuple((key, _pattern_of(item, param)) for key, item in value.items())
    if not isinstance(value, Tensor):
        is_plain = value is None or isinstance(value, (int, float, str))
        return type(value), value if is_plain else id(value)
    if type(value) not in PLAIN_TYPES or value.layout is not torch.strided:
        return id(value)
    sizes = tuple(
        ("own", min(size, 2)) if position < param.dim() and size == param.shape[position] else size
        for position, size in enumerate(value.shape)
    )
    storage = value.dtype, value.device, value.is_contiguous(), 0 in value.stride()
    has_one_number = value.numel() == 1 and not value.is_meta and not value.is_quantized
    number = value.item() if has_one_number and value is not param else None
    return sizes, storage, value.requires_grad, value.is_leaf, number
