"""One run from where it was left to its end, with everything kept on the way."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from ..environment import environment
from . import files
from .files import StoreError
from .objects import source_digest
from .optimizers import find_optimizer
from .outcome import outcome
from .processes import Processes
from .randomness import seeded
from .spec import Run
from .store import RunFolder, State, brief
from .tasks import find_task
from .train import Position, Row, Stopped, Trainer

Tell = Callable[[dict[str, Any]], None]


class Stop(Protocol):
    """Whether an end was asked for; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether it was."""


class Keeper:
    """Saves a trainer's state when it is time to, or when an end was asked for.

    Args:
        folder: where to; only the first process keeps anything.
        every: seconds between checkpoints.
        stop: asks for an end.
        tell: is told of each checkpoint.
    """

    def __init__(self, folder: RunFolder, every: float, stop: Stop, tell: Tell) -> None:
        self.folder, self.every, self.stop, self.tell = folder, every, stop, tell
        self.due = time.monotonic() + every
        self.saved: Position | None = None

    def __call__(self, trainer: Trainer) -> None:
        """Save if it is time; raise ``Stopped`` if an end was asked for."""
        stop, due = self.stop.is_set(), time.monotonic() >= self.due
        if trainer.processes.count > 1:  # who must agree, and do so when they talk anyway
            if trainer.step % trainer.settings.log_every:
                return
            stop, due = trainer.processes.share((stop, due))
        if stop or due:
            self.save(trainer)
        if stop:
            raise Stopped

    def save(self, trainer: Trainer) -> None:
        """Save a checkpoint, unless this very state is saved already."""
        if trainer.position != self.saved:
            state = trainer.state()
            if trainer.processes.rank == 0:
                self.folder.save(state, trainer.step)
                self.tell({"event": "saved", "step": trainer.step})
            self.saved = trainer.position
        self.due = time.monotonic() + self.every


class Events:
    """A run's metrics as TensorBoard events; without TensorBoard, nothing."""

    def __init__(self, path: Path, first_step: int) -> None:
        self.path, self.writer = path, None
        with contextlib.suppress(ModuleNotFoundError), files.kept(path):
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(path), purge_step=first_step)

    def add(self, row: Row) -> None:
        """Write a row of metrics."""
        if self.writer is None:
            return
        with files.kept(self.path):
            kind = "step" if row["kind"] == "train" else "epoch"
            for split in ("train", "validation", "test"):
                for name, value in row.get(split, {}).items():
                    tag = f"{split}/{name}" if split != "train" else f"{split}/{name} by {kind}"
                    self.writer.add_scalar(tag, value, row["step"])
            self.writer.add_scalar("lr", row["lr"], row["step"])

    def close(self) -> None:
        """Write what is left; it is only a copy, so that a failure here harms nothing."""
        if self.writer is not None:
            with contextlib.suppress(OSError):
                self.writer.close()


def attempt(
    run: Run,
    folder: RunFolder,
    processes: Processes,
    *,
    checkpoint_every: float,
    stop: Stop,
    tell: Tell,
) -> tuple[State, str]:
    """Do a run, or what is left of it, in a folder that is claimed.

    Whatever the task or the optimizer raises is written down as the run's failure. If
    the store cannot be written to, the run is left as it was saved last.

    Returns:
        How far the run is now, and a line about it.
    """
    try:
        with apart(run):
            return _attempt(
                run, folder, processes, Keeper(folder, checkpoint_every, stop, tell), tell
            )
    except Stopped:
        return State.PAUSED, "stopped; the same command goes on from here"
    except StoreError as error:
        return folder.progress(), str(error)
    except (Exception, SystemExit) as error:
        if processes.rank == 0:
            with contextlib.suppress(StoreError):  # then the run is tried again
                folder.fail(error)
        if processes.count > 1:
            raise  # the others would wait for this process
        return State.FAILED, brief(error)


def _attempt(
    run: Run, folder: RunFolder, processes: Processes, keeper: Keeper, tell: Tell
) -> tuple[State, str]:
    first = processes.rank == 0
    trainer = Trainer(run, processes)
    saved = processes.share(folder.load() if first else None)
    if saved is not None:
        trainer.load(saved)
        keeper.saved = trainer.position
    if first:
        folder.add_environment({**environment(), "commit": _commit(), **_sources(run)})
        folder.write_rows(trainer.rows)
    events = Events(folder.path / "tensorboard", trainer.step + 1) if first else None

    def log(row: Row) -> None:
        if events:
            folder.append(row)
            events.add(row)
            tell({"event": "progress", "step": trainer.step, "steps": trainer.steps, "row": row})

    tell({"event": "progress", "step": trainer.step, "steps": trainer.steps, "row": {}})
    try:
        trainer.fit(keeper, log)
    finally:
        if events:
            events.close()
    keeper.save(trainer)
    state = State.FINISHED if trainer.diverged is None else State.DIVERGED
    result = _result(trainer)
    if first:
        folder.finish(state, result, trainer.rows)
    return state, _line(result)


@contextlib.contextmanager
def apart(run: Run) -> Iterator[None]:
    """Leave the caller's random numbers and thread count as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(run.train.threads or threads)
    try:
        with seeded(run.seed):
            yield
    finally:
        torch.set_num_threads(threads)


def outdated(run: Run, folder: RunFolder) -> bool:
    """Return whether the source of task or optimizer has changed since the run was done."""
    sources = _sources(run)
    return any(
        entry.get(key, digest) != digest
        for entry in folder.environments()[-1:]
        for key, digest in sources.items()
    )


def _sources(run: Run) -> dict[str, str]:
    return {
        "task source": source_digest(find_task(run.task.name)),
        "optimizer source": source_digest(find_optimizer(run.optimizer.name)),
    }


def _commit() -> str:
    """Return the commit of the working directory, with a + if files differ from it."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _result(trainer: Trainer) -> dict[str, Any]:
    run, task = trainer.run, trainer.task
    return {
        "metric": task.selects,
        "largest": task.largest,
        **outcome(trainer.rows, run.protocol, task.selects, task.largest),
        "step": trainer.step,
        "epoch": trainer.epoch,
        "diverged_at_step": trainer.diverged,
        "seconds": trainer.seconds,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "state_bytes": sum(map(_state_bytes, trainer.optimizers.values())),
        "weights": _weights_digest(trainer.model),
    }


def _state_bytes(optimizer: Optimizer) -> int:
    entries: list[Mapping[str, Any]] = [s for s in optimizer.state.values() if isinstance(s, dict)]
    tensors = [v for entry in entries for v in entry.values() if isinstance(v, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights, by which two runs can be seen to be the same."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def _line(result: dict[str, Any]) -> str:
    """Return the result in a line."""
    if result["diverged_at_step"] is not None:
        return f"diverged at step {result['diverged_at_step']:,}"
    metric = result["metric"]
    chosen = result.get("selected") or result["best_on_test"]
    epoch = f"epoch {chosen['epoch']}"
    how = f"{epoch}, chosen on validation" if "selected" in result else f"{epoch}, the best on test"
    return f"test {metric} {chosen['test'][metric]:.4g} ({how})"
