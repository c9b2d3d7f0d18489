"""The settings that an experiment may leave to the machine: device, threads, processes."""

from __future__ import annotations

import dataclasses

import torch

from ..errors import SpecError, naming
from ..tasks import find_task
from ..tasks.base import refuse_to_split
from .run import Experiment, Run, Training


def automatic_device() -> str:
    """Return the device for ``"auto"``: the machine's accelerator, or the CPU."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return accelerator.type if accelerator else "cpu"


def resolve_machine(
    experiment: Experiment, threads: int, processes: int = 1, anywhere: bool = False
) -> Experiment:
    """Return the experiment with device, threads and processes filled in.

    Args:
        experiment: as read.
        threads: the number for runs that do not set one.
        processes: the number of processes that train each run together.
        anywhere: allow devices that this machine lacks, because another one will do the runs.
    """
    there = automatic_device()
    # Most runs share one object that says how they train. It is checked once, and they share what
    # is made of it. By id: objects may be equal although 1 in one of them is 1.0 in the other.
    resolved: dict[int, Training] = {}
    for run in experiment.runs:
        if id(run.train) not in resolved:
            resolved[id(run.train)] = _resolve(run, there, threads, processes, anywhere)
        if max(processes, run.train.accumulate) > 1:
            with naming(f"task {run.task.name!r}"):
                refuse_to_split(find_task(run.task.name), processes, run.train.accumulate)
    runs = [dataclasses.replace(run, train=resolved[id(run.train)]) for run in experiment.runs]
    return dataclasses.replace(experiment, runs=tuple({run.key: run for run in runs}.values()))


def _resolve(run: Run, there: str, threads: int, processes: int, anywhere: bool) -> Training:
    """Return how a run trains on this machine, whose device for ``"auto"`` is ``there``."""
    train = run.train
    if train.processes not in (0, processes):
        raise SpecError(
            f"train.processes = {train.processes}: there are {processes}; start it with "
            f"torchrun --nproc-per-node {train.processes} -m sgdf run"
        )
    if train.by_function and processes > 1:
        raise SpecError(
            f"task {run.task.name!r}: a function that trains by itself cannot be started with "
            "torchrun"
        )
    parts = processes * train.accumulate
    if train.batch_size % parts:
        raise SpecError(
            f"train.batch_size = {train.batch_size}: must be a multiple of {parts}, the parts "
            "that accumulate and the processes make of it"
        )
    device = there if train.device == "auto" else train.device
    if not anywhere and torch.device(device).type not in ("cpu", there):
        allowed = ", ".join(sorted({"cpu", there}))
        raise SpecError(f"train.device = {device!r}: not available; allowed here: {allowed}")
    if processes > 1 and torch.device(device).index is not None:
        raise SpecError(f"train.device = {device!r}: each process needs its own; leave out :N")
    return dataclasses.replace(
        train, device=device, threads=train.threads or threads, processes=processes
    )
