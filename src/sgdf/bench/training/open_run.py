"""From the folder of a run back to its task and its trained model, for studies of both."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from ..catalog.lookup import importable_from
from ..errors import StoreError, first_line
from ..spec.read import read
from ..store.run_folder import RunFolder
from ..tasks import Task
from . import checkpoint
from .randomness import isolated
from .ranks import Ranks
from .trainer import Trainer


def open_run(folder: str | Path, device: str = "cpu") -> tuple[Task, nn.Module]:
    """Return the task of a run and its model as of the last checkpoint, in evaluation mode.

    The model is also ``task.model``: ``task.loss(batch)`` and ``task.evaluate("test")`` use it.
    With averaged weights (``ema_decay``) it has them in place of its own, as in evaluations. The
    caller's random numbers stay as they are.

    Args:
        folder: the folder of the run, such as ``results/digits/runs/KEY``.
        device: where the model is put.

    Raises:
        StoreError: if the folder holds no run, or the run has no checkpoint yet, or one of
            another version of its task.
    """
    run_folder = RunFolder(Path(folder).absolute())
    table = run_folder.table()
    if table is None:
        raise StoreError(
            f"{folder}: holds no run, or its spec.toml is damaged or not that of its name"
        )
    importable_from(Path.cwd())
    run = read(dict(table), build=False).runs[0]
    # With the settings of this machine, which change how a model is trained, not what it is.
    train = dataclasses.replace(run.train, device=device, compile=False)
    run = dataclasses.replace(run, train=train)
    with isolated(run.seed, torch.get_num_threads()):
        trainer = Trainer(run, Ranks(alone=True))
        state = checkpoint.load(run_folder)
        if state is None:
            raise StoreError(f"{folder}: has no checkpoint yet; sgdf run makes one")
        try:
            trainer.load(state)
        except Exception as error:  # of a model or an optimizer of the user's
            if checkpoint.is_lack_of_memory(error):
                raise
            raise StoreError(
                f"{folder}: its checkpoint does not fit its task as it is now: {first_line(error)}"
            ) from error
    trainer.task.model = trainer.evaluated
    return trainer.task, trainer.evaluated.eval()
