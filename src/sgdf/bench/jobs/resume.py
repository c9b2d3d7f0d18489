"""A trainer as of the last checkpoint that fits it."""

from __future__ import annotations

from collections.abc import Sequence

from ..spec.run import ProbeSpec, Run
from ..store.run_folder import RunFolder
from ..training import checkpoint
from ..training.ranks import Ranks
from ..training.trainer import Trainer
from .provenance import differences, provenance


class MisfitError(Exception):
    """No checkpoint of a run fits its task and optimizer as they are now."""


def resumed_trainer(
    run: Run, folder: RunFolder, ranks: Ranks, probes: Sequence[ProbeSpec]
) -> tuple[Trainer, bool]:
    """Return a trainer as of the last checkpoint that fits, and whether there is one.

    A checkpoint that cannot be read, or does not fit while an older one does, is put aside. If
    none can be read, the run starts again.

    Raises:
        MisfitError: if there are checkpoints, but none fits: the code has changed, and the user
            decides what to do.
    """
    first = ranks.rank == 0
    states, misfits = checkpoint.states(folder) if first else iter(()), []
    trainer = Trainer(run, ranks, probes)
    while True:
        path, state = ranks.broadcast(next(states, (None, None)))
        if state is None:
            break
        reason = next(filter(None, ranks.gather(_load(trainer, state))), None)
        if reason is None:
            break
        misfits.append((path, reason))
        trainer = Trainer(run, ranks, probes)  # load() may have changed a part of the other
    if misfits and state is None:
        changed = differences(folder.environments(), provenance(run, trainer.task))
        what = f"the {' and the '.join(changed)}" if changed else "something that they use"
        raise MisfitError(
            f"its checkpoints do not fit the task and the optimizer as they are now, since {what} "
            f"changed: {misfits[0][1]}. Change it back and give the same command again, or start "
            "afresh with --out another folder"
        )
    if first:
        for path, reason in misfits:
            folder.put_checkpoint_aside(path, f"does not fit ({reason})")
        if state is None and folder.notices:
            folder.notices.append("it starts again: no checkpoint is left")
        folder.notices += trainer.probes.notices
    return trainer, state is not None


def _load(trainer: Trainer, state: dict[str, object]) -> str | None:
    """Resume from a state; return None, or in one line why it does not fit."""
    try:
        trainer.load(state)
    except Exception as error:  # of a model, an optimizer or a schedule of the user's
        if checkpoint.is_lack_of_memory(error):
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None
