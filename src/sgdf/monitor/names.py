"""The names of an optimizer's parameters."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor, nn

from ..optim.direction_table import Group

_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""What torch.compile, FSDP and checkpointing add to the names of the modules that they wrap."""


def named_parameters(optimizer: Any, model: nn.Module | None) -> dict[str, tuple[Group, Tensor]]:
    """Return groups and parameters by name; a name that occurs twice gets its group as a prefix.

    The name is that in the model; else the one that the optimizer was given; else
    ``group0.param0``.
    """
    in_model = {} if model is None else _names_in(model)
    rows: list[tuple[str, str, Group, Tensor]] = []
    for index, group in enumerate(optimizer.param_groups):
        given = dict(enumerate(group.get("param_names") or ()))
        for position, param in enumerate(group["params"]):
            name = in_model.get(param) or given.get(position) or f"group{index}.param{position}"
            rows.append((name, f"group{index}.", group, param))
    times = Counter(name for name, *_ in rows)
    return {
        name if times[name] == 1 else prefix + name: (group, param)
        for name, prefix, group, param in rows
    }


def _names_in(model: nn.Module) -> dict[Tensor, str]:
    """Return the names of a model's parameters, without the prefixes of what wraps the model."""
    names: dict[Tensor, str] = {
        param: ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        for name, param in model.named_parameters()
    }
    # DistributedDataParallel and its like hold the model as `module`, and nothing besides.
    while names and all(name.startswith("module.") for name in names.values()):
        names = {param: name.removeprefix("module.") for param, name in names.items()}
    return names
