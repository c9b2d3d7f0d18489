"""The Hessian at the end of runs, measured so that a kill loses little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...bench.errors import SpecError
from ...bench.store import files
from ..conduct import Contents, Measured, Progress
from ..examples import describe_examples, mean_loss, training_batches
from ..record import Record
from ..runs import AnalysedRun
from .eigenvalues import ConvergenceError, Eigenvalues, Which
from .operator import Hessian
from .power_iteration import power_iteration
from .recorded_products import ForeignProductsError, RecordedProducts
from .trace import Trace

EXPECTED = {"largest": 3.0, "smallest": 60.0, "power": 20.0}
"""How many products each may take, to show progress; the second for all, the others for each."""


@dataclass(frozen=True)
class HessianOfRuns:
    """The largest eigenvalues, the smallest one and the trace, for each run.

    Attributes:
        examples: the number of training examples that the loss is taken over.
        top: how many of the largest eigenvalues are computed.
        tolerance: their relative accuracy; that of the smallest one is relative to the largest in
            modulus.
        probes: how many random vectors the trace is estimated with.
        power: how many eigenvalues are also computed in the paper's way.
        batch_statistics: whether the model is in training mode: BatchNorm uses the statistics of
            each batch instead of the stored ones, and dropout is on.
        weight_decay: a decay whose term is part of the loss.
    """

    examples: int = 200
    top: int = 50
    tolerance: float = 1e-3
    probes: int = 100
    power: int = 0
    batch_statistics: bool = False
    weight_decay: float = 0.0

    name = "hessian"
    title = "The Hessian of the training loss at the end of runs"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that the measured values depend on, beside the run."""
        return asdict(self)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the command."""
        return self.settings

    def measure(self, run: AnalysedRun, record: Record, progress: Progress) -> None:
        """Measure eigenvalues and trace; every product is kept until all are measured."""
        task, model = run.open()
        batches = training_batches(task, self.examples)
        expected = EXPECTED["largest"] * self.top + EXPECTED["smallest"] + self.probes
        expected += EXPECTED["power"] * self.power
        losses = 0

        def loss(model: nn.Module, batch: Any) -> Tensor:
            nonlocal losses
            losses += 1
            progress(min(0.99, losses / len(batches) / expected))
            return task.loss(batch)

        hessian = Hessian(
            model,
            loss,
            batches,
            training=self.batch_statistics,
            weight_decay=self.weight_decay,
        )
        record.keep("examples", describe_examples(task, batches))
        record.keep("parameters", hessian.shape[0])
        record.keep("weight norm", weight_norm(model))
        record.keep("loss", mean_loss(task, batches))
        with _naming(run, record), RecordedProducts(hessian, record.make_scratch()) as products:
            if "largest" not in record:
                record.keep("largest", self._eigenvalues(products, self.top, "largest"))
            if "smallest" not in record:
                record.keep("smallest", self._eigenvalues(products, 1, "smallest"))
            if "trace" not in record:
                record.keep("trace", _as_json(products.trace(self.probes)))
            if self.power and "power" not in record:
                record.keep("power", _as_json(power_iteration(products, self.power)))

    def _eigenvalues(self, products: RecordedProducts, count: int, which: Which) -> dict[str, Any]:
        """Return eigenvalues for the record; none of them if not all converge.

        Those that did are kept by another name: one that is larger may be missing among them.
        """
        try:
            return _as_json(products.top(count, self.tolerance, which))
        except ConvergenceError as error:
            found = error.found
            none = np.empty(0)
            return {
                **_as_json(Eigenvalues(none, none, found.products)),
                "converged": found.values.tolist(),
            }

    def contents(self, measured: Sequence[Measured]) -> Contents:
        """Return tables and plots."""
        from .page import contents  # which needs matplotlib

        return contents(self.settings, measured)


@contextmanager
def _naming(run: AnalysedRun, record: Record) -> Iterator[None]:
    """Let the errors that a user can mend name the run, or the file."""
    try:
        with files.store_errors(record.scratch / "products.bin"):
            yield
    except (FloatingPointError, ForeignProductsError) as error:
        raise SpecError(f"{run.name}: {error}") from error


def weight_norm(model: nn.Module) -> float:
    """Return the norm of all parameters that are trained, as one vector."""
    norms = [
        torch.linalg.vector_norm(param.detach().double())
        for param in model.parameters()
        if param.requires_grad
    ]
    return float(torch.linalg.vector_norm(torch.stack(norms)))


def _as_json(found: Eigenvalues | Trace) -> dict[str, Any]:
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in vars(found).items()
        if value is not None
    }
