"""SGDF: SGD with an online optimal linear filter on its gradients."""

from .filter import FilterOutput, filter_gradient
from .optim.sgdf import SGDF

__version__ = "0.1.0"

__all__ = ["SGDF", "FilterOutput", "__version__", "filter_gradient"]
