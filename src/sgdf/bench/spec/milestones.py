"""Milestones of a schedule that come after the end of the run, where they change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ...present.words import plural
from .run import Run


def unreached_milestones(runs: Iterable[Run]) -> list[str]:
    """Return a line for each schedule whose learning rate is not changed where its file says.

    Such a run is not refused: a short trial of a long experiment has one. Where the length in the
    schedule's unit is known only once the data are there, nothing is said.
    """
    lines: dict[str, None] = {}
    for run in runs:
        schedule, train = run.schedule, run.train
        length = train.steps if schedule.every == "step" else 0 if train.steps else train.epochs
        # The schedule counts from the end of the warm-up, and acts before the next epoch or step.
        late = [
            milestone
            for milestone in schedule.options.get("milestones", ())
            if isinstance(milestone, int) and length and schedule.warmup + milestone >= length
        ]
        if late:
            which = f"milestones = {', '.join(map(str, late))}"
            end = f"the run ends after {plural(length, schedule.every)}"
            lines[f"schedule {schedule.name!r}: {which}: never reached, {end}"] = None
    return list(lines)
