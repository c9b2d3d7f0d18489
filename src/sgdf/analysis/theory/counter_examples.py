"""``sgdf theory counter-examples``: cases in which statements of the paper do not hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...present.plots import Drawing, Sheet, drawing, set_title, use_log_axis
from ...present.table import OVERALL, Cell, Table
from ...theory import counter_examples, fuse, linear_losses, regret, running_mean_moments
from ...theory.counter_example import CounterExample, Outcome
from ...theory.counter_examples import descent_margin
from .methods import methods
from .study import Study

BETAS = (0.9, 0.999)
DRAWN = ("gain-at-most-one", "beta1-condition", "fused-variance")
"""The counter-examples that the picture shows."""


def study_counter_examples() -> Study:
    """Run every counter-example."""
    found = [(case, case.run()) for case in counter_examples()]
    refuted = sum(outcome.refutes for _, outcome in found)
    return Study(
        name="counter-examples",
        findings=(
            *(
                f"{case.label}: {case.statement}. Case: {case.description}. Found: "
                f"{outcome.found}. Instead: {case.instead}."
                for case, outcome in found
            ),
            f"{_count(refuted, len(found))} counter-examples refute what they are about; what "
            "holds is in docs/paper/theory.md.",
            f"The picture that --plot writes has {len(DRAWN)} of them: {', '.join(DRAWN)}.",
        ),
        tables=(_table(found),),
        figure=_figure(len(found)),
        numbers={
            case.name: {
                "label": case.label,
                "statement": case.statement,
                "case": case.description,
                "instead": case.instead,
                "refutes": outcome.refutes,
                "found": outcome.found,
                "numbers": dict(outcome.numbers),
            }
            for case, outcome in found
        },
    )


def _count(some: int, all_of_them: int) -> str:
    """Return how many of all there are.

    >>> _count(3, 3), _count(2, 3)
    ('All 3', '2 of 3')
    """
    return f"All {all_of_them}" if some == all_of_them else f"{some} of {all_of_them}"


def _table(found: list[tuple[CounterExample, Outcome]]) -> Table:
    return Table(
        "counter-examples",
        OVERALL,
        "Statements of the paper, and cases in which they do not hold",
        "Each is one of sgdf.theory.counter_examples().",
        ("counter-example", "statement", "holds", "found"),
        tuple(
            (
                Cell(case.name),
                Cell(case.label),
                Cell("no" if outcome.refutes else "yes"),
                Cell(outcome.found),
            )
            for case, outcome in found
        ),
        caption="Source lines are those of the paper's TeX.",
    )


def _figure(count: int) -> Drawing:
    """Draw three of so many counter-examples."""
    tried = [one for one in methods(0.5) if one.name != "EMA"]
    lines: dict[str, dict[str, Any]] = {one.name: one.line for one in tried}
    exact: dict[str, dict[str, Any]] = {
        "as printed": {"color": "gray", "linestyle": "--"},
        "exact": {"color": "black", "linestyle": "-"},
    }
    with drawing("counter-examples"):
        sheet = Sheet(3, 3.6, 3.0, [*lines, *exact], columns=3)
        walk, margin, fusion = sheet.panels
        handles: dict[str, Any] = {}
        for one in tried:
            path = regret(linear_losses(), one.descent(0.2, BETAS), steps=2000, copies=256)
            (handles[one.name],) = walk.plot(path.steps, path.point, **lines[one.name])
        use_log_axis(walk, "x")
        walk.set(xlabel="T", ylabel="mean of θ_T, best at −1", ylim=(-1.05, 1.05))
        set_title(walk, f"{DRAWN[0]}, line 1245")
        betas = np.linspace(0.0, 0.95, 200)
        margin.plot(betas, [descent_margin(beta, 2) for beta in betas], **exact["exact"])
        margin.axhline(0.0, color="gray", linewidth=0.8)
        margin.set(xlabel="β₁", ylabel="1/(1 + β₁) − β₁(1 + √2)")
        set_title(margin, f"{DRAWN[1]}: ≥ 0 at t = 2")
        moments, gains = running_mean_moments(BETAS[0]), np.linspace(-0.15, 0.3, 200)
        sources = (0.0, moments.corrected_variance, 0.0, 1.0)
        for name, covariance in (("exact", moments.covariance), ("as printed", 0.0)):
            variance = fuse(*sources, covariance=covariance, gain=gains).variance
            (handles[name],) = fusion.plot(gains, variance, **exact[name])
        fusion.axhline(float(moments.corrected_variance), color="gray", linewidth=0.8)
        fusion.text(0.3, float(moments.corrected_variance), "Var m̂ ", ha="right", va="bottom")
        fusion.set(xlabel="K", ylabel="Var(m̂ + K(g − m̂)),   β₁ = 0.9", ylim=(0.0, 0.2))
        set_title(fusion, f"{DRAWN[2]}, proof_fusion")
        # Beside the legend, which is in the middle.
        sheet.figure.text(
            0.995, 0.01, f"{len(DRAWN)} of {count} counter-examples", ha="right", fontsize=8
        )
        return sheet.legend({name: handles[name] for name in (*lines, *exact)})
