"""The results of runs as JSON: the numbers of a report, for programs and for the record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ...present.json_numbers import replace_nonfinite
from ..store.records import figures_on
from .findings import Findings, Problem, Setting
from .verdict import Verdict


def results_json(findings: Findings) -> str:
    """Return the figures of every setting as JSON, over its seeds and for each of them.

    One setting is encoded after the other: before they are text, the figures of thousands would
    need hundreds of megabytes.
    """
    return _list_of(map(_problem, findings.problems), depth=0) + "\n"


def _problem(problem: Problem) -> str:
    best = {setting.key for setting in problem.headline}
    head = {
        "problem": problem.name,
        "protocol": problem.protocol.name,
        "metric": problem.metric,
        "largest is best": problem.larger_is_better,
        "verdict": Verdict(problem).as_record(),
    }
    settings = (
        _encode({"shown first": setting.key in best, **_setting(problem, setting)}, depth=3)
        for setting in problem.settings
    )
    end = "\n }"
    begin = _encode(head, depth=1).removesuffix(end)
    return f'{begin},\n  "settings": {_list_of(settings, depth=2)}{end}'


def _encode(content: dict[str, Any], depth: int) -> str:
    """Return a table as JSON that is part of a text, this deep within lists and tables."""
    text = json.dumps(replace_nonfinite(content, str), indent=1, allow_nan=False)
    return text.replace("\n", "\n" + " " * depth)


def _list_of(texts: Iterable[str], depth: int) -> str:
    """Return a list of encoded items, this deep within lists and tables."""
    line = "\n" + " " * depth
    items = f",{line} ".join(texts)
    return f"[{line} {items}{line}]" if items else "[]"


def _setting(problem: Problem, setting: Setting) -> dict[str, Any]:
    """Return the spec of a setting, and its results."""
    table = setting.table
    return {
        "task": table["task"],
        "optimizer": table["optimizer"],
        "schedule": setting.runs[0].schedule,
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
