"""Loads a checkpoint: checked before anything changes, and in the dtype of our state.

torch alone would round a float32 state to the dtype of a bf16 parameter, and would keep using
the tensors of the checkpoint instead of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .state import buffer_fault, count_fault, loaded_state

Entry = dict[str, Any]
Keys = tuple[str, ...]
"""The keys of the step count and of the buffers in a parameter's state."""


def load(
    optimizer: Optimizer,
    load_state_dict: Callable[[dict[str, Any]], None],
    state_dict: dict[str, Any],
    *,
    complete: Callable[[list[Entry]], list[Entry]],
    keys_of: Callable[[Entry, Tensor, Any], Keys],
) -> None:
    """Load a checkpoint, or raise and leave the optimizer as it was.

    Args:
        optimizer: the optimizer to load it into.
        load_state_dict: the method that the optimizer inherits.
        state_dict: the checkpoint.
        complete: adds missing options to the checkpoint's groups and returns them, or raises.
        keys_of: returns, for a group, a parameter and its entry, the keys that we load.
    """
    loaded: dict[str, Any] = {}

    def entries() -> Iterator[tuple[Entry, Any, Tensor, Any, Keys]]:
        for own, group in zip(optimizer.param_groups, loaded["param_groups"], strict=True):
            for param, index in zip(own["params"], group["params"], strict=False):
                if entry := loaded["state"].get(index):
                    yield group, index, param, entry, keys_of(group, param, entry)

    def prepare(_: Optimizer, incoming: dict[str, Any]) -> dict[str, Any]:
        loaded.update(incoming)
        if len(incoming["param_groups"]) == len(optimizer.param_groups):  # else torch says so
            loaded["param_groups"] = complete(incoming["param_groups"])
            for _group, index, param, entry, keys in entries():
                _check(entry, keys, index, param)
        return loaded

    def restore(_: Optimizer) -> None:
        for group, _index, param, entry, keys in entries():
            optimizer.state[param].update(loaded_state(entry, keys, param, group))

    # Registered for this call only: they run last before torch changes anything, and first
    # after it.
    hooks = [
        optimizer.register_load_state_dict_pre_hook(prepare),
        optimizer.register_load_state_dict_post_hook(restore, prepend=True),
    ]
    try:
        load_state_dict(state_dict)
    finally:
        for hook in hooks:
            hook.remove()


def _check(entry: Any, keys: Keys, index: Any, param: Tensor) -> None:
    for position, key in enumerate(keys):
        if not isinstance(entry, dict) or key not in entry:
            fault: str | None = (
                "is missing; is it another optimizer's? sgdf.take_over continues from SGD, Adam "
                "and AdamW; a class from sgdf.filtered loads the checkpoints of its inner class"
            )
        elif position == 0:
            fault = count_fault(entry[key])
        else:
            fault = buffer_fault(entry[key], param)
        if fault:
            raise ValueError(f"Invalid state of parameter {index}: {key!r} {fault}")
