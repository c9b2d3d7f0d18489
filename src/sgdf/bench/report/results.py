"""What runs came to as JSON: the numbers behind a report, for programs and for keeping."""

from __future__ import annotations

import json
import math
from typing import Any

from .data import SPLITS, Findings, Problem, Setting


def results(findings: Findings) -> str:
    """Return every setting's figures, over its seeds and for each of them."""
    content = [_problem(problem) for problem in findings.problems]
    return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _problem(problem: Problem) -> dict[str, Any]:
    best = {setting.key for setting in problem.headline}
    return {
        "problem": problem.name,
        "protocol": problem.protocol,
        "metric": problem.metric,
        "largest is best": problem.largest,
        "settings": [
            {"shown first": setting.key in best, **_setting(problem, setting)}
            for setting in problem.settings
        ],
    }


def _setting(problem: Problem, setting: Setting) -> dict[str, Any]:
    """Return a setting as its spec has it, and what it came to."""
    parts = ("task", "optimizer", "schedule", "train")
    return {
        **{part: setting.table[part] for part in parts},
        "lost runs": sum(run.lost for run in setting.runs),
        "figures": {
            f"{split} {metric}": figure
            for split in SPLITS
            for metric in problem.metrics
            if (figure := _figure(setting, split, metric)) is not None
        },
        "milliseconds a step": setting.milliseconds,
        "state bytes a parameter": setting.state_bytes,
    }


def _figure(setting: Setting, split: str, metric: str) -> dict[str, Any] | None:
    values = setting.values(split, metric)
    if not values:
        return None
    sample = setting.sample(split, metric)
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
