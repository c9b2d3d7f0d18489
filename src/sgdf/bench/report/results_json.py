"""The results of runs as JSON: the numbers of a report, for programs and for the record."""

from __future__ import annotations

import json
from typing import Any

from ...present.json_numbers import replace_nonfinite
from ..store.records import figures_on
from .findings import Findings, Problem, Setting
from .verdict import Verdict


def results_json(findings: Findings) -> str:
    """Return the figures of every setting as JSON, over its seeds and for each of them."""
    content = replace_nonfinite([_problem(problem) for problem in findings.problems], str)
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _problem(problem: Problem) -> dict[str, Any]:
    best = {setting.key for setting in problem.headline}
    return {
        "problem": problem.name,
        "protocol": problem.protocol.name,
        "metric": problem.metric,
        "largest is best": problem.larger_is_better,
        "verdict": Verdict(problem).as_record(),
        "settings": [
            {"shown first": setting.key in best, **_setting(problem, setting)}
            for setting in problem.settings
        ],
    }


def _setting(problem: Problem, setting: Setting) -> dict[str, Any]:
    """Return the spec of a setting, and its results."""
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
                for rows in epochs
            }
            for split in problem.splits
            for metric in problem.metrics
            if (epochs := setting.rows_by_epoch(split, metric))
        },
        "milliseconds a step": setting.milliseconds,
        "state bytes a parameter": setting.state_bytes,
    }


def _figures(problem: Problem, setting: Setting, epoch: str = "") -> dict[str, Any]:
    """Return the figures of the chosen epoch, or of the ``"last"`` one."""
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
        "seeds": len(values),  # not every run has a costly metric at its chosen epoch
        "mean": sample.mean,
        "standard deviation": sample.sd,
        "by seed": {str(seed): value for seed, value in values.items()},
    }
