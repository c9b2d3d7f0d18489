"""SGDF: stochastic gradient descent on a filtered gradient, and the filter for any optimizer."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from . import monitor, theory
    from .filter import FilterOutput, filter_gradient
    from .optim.filter_adam import FilterAdam
    from .optim.filter_muon import FilterMuon
    from .optim.filtered import filtered
    from .optim.groups import muon_groups
    from .optim.sgdf import SGDF
    from .optim.sign_sgdf import SignSGDF
    from .optim.take_over import take_over
    from .optim.unified_momentum import UnifiedMomentum

__all__ = [
    "SGDF",
    "FilterAdam",
    "FilterMuon",
    "FilterOutput",
    "SignSGDF",
    "UnifiedMomentum",
    "__version__",
    "filter_gradient",
    "filtered",
    "monitor",
    "muon_groups",
    "take_over",
    "theory",
]
__version__ = "0.1.0"

# The module that defines each public name. It is imported when the name is first used:
# importing torch takes more than a second, and `sgdf --help` should not wait for it.
_HOMES = {
    "SGDF": "optim.sgdf",
    "FilterAdam": "optim.filter_adam",
    "FilterMuon": "optim.filter_muon",
    "FilterOutput": "filter",
    "SignSGDF": "optim.sign_sgdf",
    "UnifiedMomentum": "optim.unified_momentum",
    "filter_gradient": "filter",
    "filtered": "optim.filtered",
    "monitor": "monitor",
    "muon_groups": "optim.groups",
    "take_over": "optim.take_over",
    "theory": "theory",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f".{_HOMES[name]}", __name__)
    # `monitor` and `theory` name the module itself.
    value = home if _HOMES[name] == name else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
