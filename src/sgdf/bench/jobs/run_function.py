"""One run that a user's own function trains, from its beginning to its end."""

from __future__ import annotations

import contextlib
import time

from ..errors import StoreError
from ..spec.run import Run
from ..store.run_folder import RunFolder, State
from ..store.tensorboard import TensorBoard
from ..training.function_run import FunctionRun
from ..training.result import line_of
from ..training.trainer import Stopped
from .events import Tell
from .provenance import provenance
from .recorder import PUBLISH_SECONDS
from .signals import Stop


def run_function(run: Run, folder: RunFolder, stop: Stop, tell: Tell) -> tuple[State, str]:
    """Let a function train a run in a folder whose lock is held.

    Returns:
        The state of the run now, and one line about it.
    """
    spoke_at, interrupted = 0.0, False

    def after_step(training: FunctionRun) -> None:
        nonlocal spoke_at, interrupted
        if stop.is_set():
            interrupted = True
            raise Stopped
        if time.monotonic() - spoke_at > PUBLISH_SECONDS:
            tell({"event": "progress", "step": training.step, "steps": None, "row": None})
            spoke_at = time.monotonic()

    folder.add_environment(provenance(run))
    folder.write_rows([])
    tell({"event": "progress", "step": 0, "steps": None, "row": None})
    training = FunctionRun(run, after_step)
    try:
        for row in training.train():
            if interrupted:
                break
            folder.append([row])
            tell({"event": "progress", "step": training.step, "steps": None, "row": row})
    except Exception:
        if not interrupted:
            raise
    # The function may have caught the interruption, or made another error of it: in any case it
    # was not trained to its end.
    if interrupted:
        return State.WAITING, (
            "stopped; it will start again from its beginning, because a training function has no "
            "checkpoints"
        )
    result = training.result()
    state = State.FINISHED if result["diverged_at_step"] is None else State.DIVERGED
    with contextlib.suppress(StoreError):  # TensorBoard's events are only a copy
        events = TensorBoard(folder.path / "tensorboard", 1)
        events.add(training.rows)
        events.close()
    folder.finish(state, result, training.rows)
    return state, line_of(result)
