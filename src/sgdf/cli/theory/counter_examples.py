"""``sgdf theory counter-examples``: cases in which statements of the paper do not hold."""

from __future__ import annotations

from ..options import JsonFile, PlotFile
from .frame import present


def counter_examples(json_file: JsonFile = None, plot: PlotFile = None) -> None:
    """Run a counter-example to each statement of the paper that does not hold as printed.

    The table names the statement by its label or line in the paper's source, what was found, and
    what holds instead. --json has the cases in full. Several are about a constant power of the
    gain: with gamma_decay=0.5 the guarantees hold (sgdf theory regret, sgdf theory stationarity).
    """
    from ...analysis.theory.counter_examples import study_counter_examples

    present(study_counter_examples(), json_file, plot)
