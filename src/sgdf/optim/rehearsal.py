"""Checks a checkpoint's state for an optimizer whose code is not ours.

What an inner optimizer of ``filtered`` needs in its state, only its step knows. So the step is
tried before anything is loaded, on a copy of one parameter at a time with a gradient of zeros.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .native.step import PLAIN_TYPES

Entry = dict[str, Any]


class Rehearsal:
    """Tries steps of the optimizer class ``inner``, with the attributes of ``optimizer``."""

    def __init__(self, optimizer: Optimizer, inner: type[Optimizer]) -> None:
        self._inner = inner
        self._attributes = {
            name: OrderedDict() if name.endswith("_hooks") else value
            for name, value in vars(optimizer).items()
        }

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
        optimizer.__setstate__(
            {
                **self._attributes,
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
        with torch.random.fork_rng(devices):
            self._inner.step(optimizer)
        return dict(optimizer.state[twin])
