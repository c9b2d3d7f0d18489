"""``sgdf theory counter-examples``: cases in which statements of the paper do not hold."""

from __future__ import annotations

from ...present.plots import Sheet, drawing
from ...present.styles import HUES
from ...present.table import OVERALL, Cell, Table
from ...theory import CounterExample, Outcome, counter_examples
from .study import Study
