"""What runs came to as JSON: the numbers behind a report, for programs and for keeping."""

from __future__ import annotations

import json
import math
from typing import Any

from ..store.records import figures_on
from .findings import Findings, Problem, Setting


def results(findings: Findings) -> str:
    """Return every setting's figures, over its seeds and for each of them."""
    content = [_problem(problem) for problem in findings.problems]
    return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _problem(problem: Problem) -> dict[str, Any]:
    best = {setting.key for setting in problem.headline}
    return {
        "problem": problem.name,
        "protocol": problem.protocol.name,
        "metric": problem.metric,
        "largest is best": problem.larger_is_better,
        "settings": [
            {"shown first": setting.key in best, **_setting(problem, setting)}
            for setting in problem.settings
        ],
    }


def _setting(problem: Problem, setting: Setting) -> dict[str, Any]:
    """Return a setting as its spec has it, and what it came to."""
    table = setting.table
    return {
        "task": table["task"],
        "optimizer": table["optimizer"],
        "schedule": table["schedule"],
        "train": table["train"],
        "lost runs": sum(run.lost for run in setting.runs),
        "figures": _figures(problem, setting),
        "figures of the last epoch": _figures(problem, setting, "last"),
        "means by epoch": {
            f"{split} {metric}": {
                str(rows[0]["epoch"]): sum(figures_on(row, split)[metric] for row in rows)
                / len(rows)
                for rows in course
            }
            for split in problem.splits
            for metric in problem.metrics
            if (course := setting.course(split, metric))
        },
        "milliseconds a step": setting.milliseconds,
        "state bytes a parameter": setting.state_bytes,
    }


def _figures(problem: Problem, setting: Setting, epoch: str = "") -> dict[str, Any]:
    """Return the figures of the epoch that counts, or of the one that is named."""
    return {
        f"{split} {metric}": figure
        for split in problem.splits
        for metric in problem.metrics
        if (figure := _figure(setting, split, metric, epoch)) is not None
    }


def _figure(setting: Setting, split: str, metric: str, epoch: str) -> dict[str, Any] | None:
    values = setting.values(split, metric, epoch)
    if not values:
        return None
    sample = setting.sample(split, metric, epoch)
    return {
        "mean": sample.mean,
        "standard deviation": sample.sd,
        "by seed": {str(seed): value for seed, value in values.items()},
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, which knows neither NaN nor infinity: these as strings."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
