"""What a run trains: one file for each task, and the few things that every task provides."""

import inspect

from ..objects import SpecError, find
from .base import Task, Update
from .supervised import Supervised

__all__ = ["TASKS", "Supervised", "Task", "Update", "find_task"]

TASKS = {
    "digits-mlp": "sgdf.bench.tasks.digits:DigitsMLP",
    "digits-cnn": "sgdf.bench.tasks.digits:DigitsCNN",
    "logistic": "sgdf.bench.tasks.logistic:Logistic",
    "characters": "sgdf.bench.tasks.characters:Characters",
    "cifar10": "sgdf.bench.tasks.cifar:Cifar10",
    "cifar100": "sgdf.bench.tasks.cifar:Cifar100",
}


def find_task(name: str) -> type[Task]:
    """Return the class of tasks that a spec names.

    Raises:
        SpecError: if there is no such class.
    """
    found = find(name, TASKS, "task")
    if not isinstance(found, type) or not issubclass(found, Task):
        raise SpecError("this is no subclass of sgdf.bench.tasks.Task")
    if inspect.isabstract(found):
        raise SpecError(f"this has no {', '.join(sorted(found.__abstractmethods__))}")
    return found
