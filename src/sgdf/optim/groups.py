"""``muon_groups``: a model's parameters in groups, each with a suitable direction."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import nn

from .direction_table import Group

ADAM_NAMES = (
    *("*embed*", "*wte*", "*wpe*"),
    *("head.*", "*.head.*", "lm_head.*", "*.lm_head.*"),  # not "*head*": multihead_attn
)
"""Names of matrices for which Adam is better: embeddings, and the output layer."""


def muon_groups(
    model: nn.Module,
    *,
    adam_lr: float | None = 1e-3,
    adam_weight_decay: float | None = None,
    adam_names: Iterable[str] = ADAM_NAMES,
    no_decay_names: Iterable[str] = (),
) -> list[Group]:
    """Sort a model's parameters into groups for :class:`sgdf.FilterMuon`.

    The groups, in this order; an empty one is left out:

    1. matrices and convolutions, which take the orthogonal direction, except those of group 2;
    2. weights of ``nn.Embedding``, matrices that match ``adam_names``, and matrices of a single
       row or column: these take Adam's direction;
    3. parameters of fewer than two dimensions, and those that match ``no_decay_names``: these
       take Adam's direction without decay.

    Parameters that need no gradient are left out. Check the names in the groups: an output layer
    whose name does not match ``adam_names`` is treated as any other matrix.

    Args:
        model: the module whose parameters are sorted.
        adam_lr: learning rate of the groups with Adam's direction; None for the optimizer's.
        adam_weight_decay: weight decay of the second group; None for the optimizer's.
        adam_names: shell-style patterns (``"*embed*"``) for the names in
            ``model.named_parameters()``. They replace the default patterns.
        no_decay_names: patterns for the names of parameters without decay.

    Example:
        >>> import torch, sgdf
        >>> model = torch.nn.ModuleDict({
        ...     "embed": torch.nn.Embedding(100, 8), "hidden": torch.nn.Linear(8, 8)})
        >>> for group in sgdf.muon_groups(model):
        ...     print(group["direction"], [name for name, _ in group["params"]])
        orthogonal ['hidden.weight']
        adam ['embed.weight']
        adam ['hidden.bias']
        >>> optimizer = sgdf.FilterMuon(sgdf.muon_groups(model), lr=0.02, weight_decay=0.1)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"muon_groups takes a module, got {type(model).__name__}")
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    adam_names = _checked("adam_names", adam_names, named)
    no_decay_names = _checked("no_decay_names", no_decay_names, named)
    tables = {m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    adam: Group = {"direction": "adam"} | ({} if adam_lr is None else {"lr": adam_lr})
    decay: Group = {} if adam_weight_decay is None else {"weight_decay": adam_weight_decay}
    groups: list[Group] = [
        {"params": [], "direction": "orthogonal"},
        {"params": [], **adam, **decay},
        {"params": [], **adam, "weight_decay": 0.0},
    ]
    for name, param in named:
        if param.dim() < 2 or _is_like(name, no_decay_names):
            index = 2
        elif param in tables or 1 in param.flatten(1).shape or _is_like(name, adam_names):
            index = 1
        else:
            index = 0
        groups[index]["params"].append((name, param))
    return [group for group in groups if group["params"]]


def _checked(
    argument: str, patterns: Iterable[str], named: list[tuple[str, nn.Parameter]]
) -> tuple[str, ...]:
    """Return the patterns, or raise if one that is not a default pattern matches nothing."""
    if isinstance(patterns, str):
        raise TypeError(f"Invalid {argument}, expected a list of patterns: {patterns!r}")
    patterns = tuple(patterns)
    for pattern in set(patterns) - set(ADAM_NAMES):
        if not any(_is_like(name, (pattern,)) for name, _ in named):
            names = ", ".join(name for name, _ in named[:5])
            raise ValueError(
                f"Invalid {argument}: no parameter has a name like {pattern!r}; there are {names}…"
            )
    return patterns


def _is_like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
