"""SGDF: stochastic gradient descent on a filtered gradient, and the filter for everyone."""

from . import monitor
from .filter import FilterOutput, filter_gradient
from .optim.filter_adam import FilterAdam
from .optim.filter_muon import FilterMuon, muon_groups
from .optim.momentum import UnifiedMomentum
from .optim.plugin import filtered
from .optim.sgdf import SGDF
from .optim.sign_sgdf import SignSGDF
from .optim.takeover import take_over

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
]
__version__ = "0.1.0"
