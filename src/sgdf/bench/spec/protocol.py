"""How a run's best epoch is chosen, and which data that leaves for training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import SpecError

if TYPE_CHECKING:
    from ..tasks.base import Task

RESERVED = ("train", "kind", "step", "epoch", "lr", "seconds")
"""Keys that a row of metrics has besides the splits that are evaluated."""


@dataclass(frozen=True)
class Protocol:
    """One way to choose the epoch that counts.

    Attributes:
        name: as an experiment has it.
        chooses_on: the split whose metric decides, or orders the settings where nothing is chosen.
        chosen: the name of the chosen epoch in a result.
        trains_on_validation: whether the validation data are trained on too.
        watched: what a schedule that waits for a plateau looks at.
    """

    name: str
    chooses_on: str
    chosen: str
    trains_on_validation: bool
    watched: str

    @property
    def is_fair(self) -> bool:
        """Whether there are data other than the test data, on which settings may be chosen."""
        return self.chooses_on != "test"

    def splits(self, offered: tuple[str, ...]) -> tuple[str, ...]:
        """Return the splits to evaluate, of those that a task offers.

        Raises:
            SpecError: if the task has not the data that this protocol needs.
        """
        reserved = [split for split in offered if split in RESERVED]
        if reserved:
            raise SpecError(f"the task's splits: {reserved[0]} is not allowed as a name")
        if "test" not in offered:
            raise SpecError(
                f"the task's splits are {', '.join(offered) or 'none'}; it needs test, which a "
                "report shows"
            )
        if self.chooses_on not in offered:
            raise SpecError(
                f'protocol = "{self.name}": chooses on {self.chooses_on} data, but the task has '
                f'only {", ".join(offered)}; protocol = "last" chooses nothing, and the last epoch '
                "counts"
            )
        return tuple(s for s in offered if not (self.trains_on_validation and s == "validation"))

    def check(self, task: type[Task], options: Mapping[str, Any]) -> None:
        """Refuse a class of tasks that this is impossible for, without loading data.

        Raises:
            SpecError: if a task with these options has not the data, or cannot train on them.
        """
        from ..tasks.base import Task  # which needs torch, as the task does

        offered = task.splits_with(**options)
        self.splits(offered)
        cannot = task.train_on_validation is Task.train_on_validation
        if self.trains_on_validation and "validation" in offered and cannot:
            raise SpecError(
                f'protocol = "{self.name}": trains on validation data, too, which this task '
                'cannot; "validation" and "last" are possible'
            )


PROTOCOLS = {
    "validation": Protocol("validation", "validation", "selected", False, "validation"),
    "paper": Protocol("paper", "test", "best_on_test", True, "train"),
    "last": Protocol("last", "test", "last", False, "train"),
}
"""The first chooses on validation data. The second is the paper's: it trains on all data but the
test data and reports the best epoch on these, which flatters. The third chooses nothing: the last
epoch counts, and all settings are shown."""
