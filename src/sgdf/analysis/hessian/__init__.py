"""The Hessian of a loss over a fixed list of batches: products, eigenvalues, trace, density."""

from .density import Density, estimate_density
from .eigenvalues import ConvergenceError, Eigenvalues, find_eigenvalues
from .operator import Hessian
from .power_iteration import power_iteration
from .recorded_products import ForeignProductsError, RecordedProducts
from .symmetric import SymmetricOperator
from .trace import Trace, estimate_trace

__all__ = [
    "ConvergenceError",
    "Density",
    "Eigenvalues",
    "ForeignProductsError",
    "Hessian",
    "RecordedProducts",
    "SymmetricOperator",
    "Trace",
    "estimate_density",
    "estimate_trace",
    "find_eigenvalues",
    "power_iteration",
]
