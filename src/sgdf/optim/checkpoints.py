"""Loads a checkpoint: checked before anything changes, and in the dtype of our state.

torch alone would round a float32 state to the dtype of a bf16 parameter, and would keep using
the tensors of the checkpoint instead of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .state import Layout

Entry = dict[str, Any]


def load(
    optimizer: Optimizer,
    load_state_dict: Callable[[dict[str, Any]], None],
    state_dict: dict[str, Any],
    *,
    complete: Callable[[list[Entry]], list[Entry]],
    layout_of: Callable[[Entry, Tensor, Entry], Layout | None],
    check: Callable[[Entry, Entry, Tensor, Any, Entry], None] | None = None,
) -> None:
    """Load a checkpoint, or raise and leave the optimizer as it was.

    Args:
        optimizer: the optimizer to load it into.
        load_state_dict: the method that the optimizer inherits.
        state_dict: the checkpoint.
        complete: adds missing options to the checkpoint's groups and returns them, or raises.
        layout_of: returns what we load, for a group, a parameter and its entry, which is a dict
            that is not empty; None if that is nothing.
        check: raises if anything else is wrong with an entry, for the present group, the
            checkpoint's, a parameter, its number or name in the checkpoint, and its entry.
    """
    loaded: dict[str, Any] = {}

    def entries() -> Iterator[tuple[Entry, Entry, Any, Tensor, Entry]]:
        for own, group in zip(optimizer.param_groups, loaded["param_groups"], strict=True):
            for param, index in zip(own["params"], group["params"], strict=False):
                if index in loaded["state"]:
                    yield own, group, index, param, loaded["state"][index]

    def prepare(_: Optimizer, incoming: dict[str, Any]) -> dict[str, Any]:
        _check_structure(incoming)
        loaded.update(incoming)
        if len(incoming["param_groups"]) == len(optimizer.param_groups):  # else torch says so
            loaded["param_groups"] = complete(incoming["param_groups"])
            for own, group, index, param, entry in entries():
                if not isinstance(entry, dict):
                    raise ValueError(f"Invalid state of parameter {index}: not a dict: {entry!r}")
                layout = layout_of(group, param, entry) if entry else None
                if layout and (fault := layout.fault(entry, param)):
                    key, reason = fault
                    raise ValueError(f"Invalid state of parameter {index}: {key!r} {reason}")
                if check:
                    check(own, group, param, index, entry)
        return loaded

    def restore(_: Optimizer) -> None:
        for _own, group, _index, param, entry in entries():
            # An entry without anything is of a parameter that has not moved yet.
            if entry and (layout := layout_of(group, param, entry)):
                state, loaded_state = optimizer.state[param], layout.loaded(entry, param, group)
                for key in layout.all_keys - loaded_state.keys():
                    state.pop(key, None)  # of another format
                state.update(loaded_state)

    if not isinstance(state_dict, dict):
        raise TypeError(f"Invalid checkpoint, expected a dict: {state_dict!r}")
    # Registered for this call only: they run last before torch changes anything, and first
    # after it.
    hooks = [
        optimizer.register_load_state_dict_pre_hook(prepare),
        optimizer.register_load_state_dict_post_hook(restore, prepend=True),
    ]
    before = optimizer.state, optimizer.param_groups  # which torch replaces, and does not change
    try:
        load_state_dict(state_dict)
    except BaseException:
        optimizer.state, optimizer.param_groups = before
        raise
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def named_group(index: int) -> Iterator[None]:
    """Add to an error which of the checkpoint's groups it is about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This is about param_groups[{index}] of the checkpoint.")
        raise


def _check_structure(incoming: dict[str, Any]) -> None:
    """Raise unless this has the parts of a checkpoint: states by parameter, and groups."""
    for part, kind in (("state", dict), ("param_groups", list)):
        if part not in incoming:
            raise ValueError(f"Invalid checkpoint: {part!r} is missing")
        if not isinstance(incoming[part], kind):
            raise TypeError(
                f"Invalid checkpoint: {part!r} is not a {kind.__name__}: {incoming[part]!r}"
            )
    for index, group in enumerate(incoming["param_groups"]):
        if not isinstance(group, dict):
            raise TypeError(f"Invalid checkpoint: param_groups[{index}] is not a dict: {group!r}")
        ids = group.get("params")
        if not isinstance(ids, (list, tuple)) or not all(map(_is_hashable, ids)):
            raise TypeError(
                f"Invalid checkpoint: 'params' of param_groups[{index}] is not a list of "
                f"parameters' numbers or names: {ids!r}"
            )


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
