"""What a run trains: a folder for each family of tasks, and what every task provides."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..catalog.lookup import find
from ..errors import SpecError

if TYPE_CHECKING:
    from .base import Batches, Task, Update
    from .function import TrainingFunction
    from .metric import Metric
    from .supervised import Supervised

__all__ = ["TASKS", "Batches", "Metric", "Supervised", "Task", "Update", "find_task"]

TASKS = {
    "digits-mlp": "sgdf.bench.tasks.digits.task:DigitsMLP",
    "digits-cnn": "sgdf.bench.tasks.digits.task:DigitsCNN",
    "logistic": "sgdf.bench.tasks.digits.logistic:Logistic",
    "characters": "sgdf.bench.tasks.characters.task:Characters",
    "cifar10": "sgdf.bench.tasks.cifar.task:Cifar10",
    "cifar100": "sgdf.bench.tasks.cifar.task:Cifar100",
    "imagenet": "sgdf.bench.tasks.imagenet.task:ImageNet",
    "ptb": "sgdf.bench.tasks.ptb.task:PennTreebank",
    "wgan-gp": "sgdf.bench.tasks.wgan.task:WGANGP",
    "dit": "sgdf.bench.tasks.diffusion.task:DiT",
    "sit": "sgdf.bench.tasks.diffusion.task:SiT",
    "voc": "sgdf.bench.tasks.detection.task:PascalVOC",
    "bccd": "sgdf.bench.tasks.detection.task:BloodCells",
    "vit": "sgdf.bench.tasks.vit.task:ViT",
}

# Fetched when first asked for: the names of tasks can be checked without torch.
_HOMES = {
    "Batches": "base",
    "Metric": "metric",
    "Supervised": "supervised",
    "Task": "base",
    "Update": "base",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def find_trained(name: str) -> type[Task] | TrainingFunction:
    """Return what an experiment names as its task: a class, or a function that trains.

    Raises:
        SpecError: if there is neither.
    """
    from .function import TrainingFunction

    found = find(name, TASKS, "task")
    if isinstance(found, type):
        return find_task(name)
    function = TrainingFunction(found)
    function.check()
    return function


def find_task(name: str) -> type[Task]:
    """Return the class of tasks that an experiment names.

    Raises:
        SpecError: if there is no such class.
    """
    from .base import Task

    found = find(name, TASKS, "task")
    if not isinstance(found, type):
        raise SpecError(
            "this is a function that trains by itself, which sgdf run and sgdf.bench.compare take; "
            "for anything else write a class, as docs/guide/compare.md shows"
        )
    if not issubclass(found, Task):
        raise SpecError("this is no subclass of sgdf.bench.tasks.Task")
    missing = set(found.__abstractmethods__)
    if found.loss is Task.loss and found.step is Task.step:
        missing.add("loss (or step)")
    if missing:
        raise SpecError(f"this has no {', '.join(sorted(missing))}")
    return found
