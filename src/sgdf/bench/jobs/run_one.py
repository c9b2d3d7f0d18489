"""One run from where it was left to its end, with everything kept on the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import SpecError, StoreError, first_line
from ..spec.run import ProbeSpec, Run
from ..store.run_folder import RunFolder, State, Store
from ..training.randomness import isolated
from ..training.ranks import Ranks
from ..training.result import line_of, result_of
from ..training.trainer import Stopped
from .events import Display, Event, Tell
from .job import TO_DO
from .provenance import differences, provenance, sources
from .recorder import Recorder, Watch, never_stop
from .resume import resumed_trainer
from .run_function import run_function
from .signals import Stop


def run_one(
    run: Run,
    store: Path,
    checkpoint_every: float,
    display: Display,
    stop: Stop,
    ranks: Ranks,
    watch: Watch = never_stop,
    probes: Sequence[ProbeSpec] = (),
) -> bool:
    """Do one run if it is left to do and free; return whether it was attempted.

    Args:
        run: the run.
        store: the folder that keeps the runs.
        checkpoint_every: seconds between checkpoints.
        display: receives the events of the run.
        stop: is set when the process should save and stop.
        ranks: the processes that train the run together.
        watch: may stop the run early; with one process only.
        probes: probes that look at its gradients.
    """
    folder, first = Store(store).folder(run.key), ranks.rank == 0

    def tell(event: Event) -> None:
        if first:
            display(run.key, event)

    try:
        wanted = first and not stop.is_set() and folder.progress() in TO_DO
        if wanted:
            folder.prepare(run.as_table())
        with folder.claim() if wanted else contextlib.nullcontext(False) as ours:
            # Another process may have finished it before the claim.
            if not ranks.broadcast(ours and folder.progress() in TO_DO):
                return False
            if first:
                folder.sync_table()
            tell({"event": "begin", "process": os.getpid()})
            state, line = train_run(
                run,
                folder,
                ranks,
                checkpoint_every=checkpoint_every,
                stop=stop,
                tell=tell,
                watch=watch,
                probes=probes,
            )
            for notice in folder.notices:
                tell({"event": "notice", "line": notice})
    except StoreError as error:
        if ranks.count > 1:
            raise  # the others would wait for this process
        state, line = State.PAUSED, str(error)
    tell({"event": "end", "state": state.value, "line": line})
    return True


def mark_failed(store: Path, key: str, line: str, display: Display) -> None:
    """Record the failure of a run whose process could not record it."""
    folder = Store(store).folder(key)
    with folder.claim() as ours:
        if ours:  # else another process trains it and may succeed
            folder.fail(line)
            display(key, {"event": "end", "state": State.FAILED.value, "line": line})


def train_run(
    run: Run,
    folder: RunFolder,
    ranks: Ranks,
    *,
    checkpoint_every: float,
    stop: Stop,
    tell: Tell,
    watch: Watch = never_stop,
    probes: Sequence[ProbeSpec] = (),
) -> tuple[State, str]:
    """Train a run, or the rest of it, in a folder whose lock is held.

    An exception of the task or the optimizer is recorded as the run's failure. If the store
    cannot be written, the run stays as of its last checkpoint.

    Returns:
        The state of the run now, and one line about it.
    """
    try:
        with isolated(run.seed, run.train.threads):
            if run.train.by_function:
                return run_function(run, folder, stop, tell)
            recorder = Recorder(folder, checkpoint_every, stop, tell, watch)
            return _train(run, folder, ranks, recorder, probes)
    except Stopped:
        return State.PAUSED, "stopped; run the same command again to resume"
    except StoreError as error:
        if ranks.count > 1:
            raise  # the others would wait for this process
        return State.PAUSED, str(error)
    except (Exception, SystemExit) as error:
        # That another process was killed is no failure of the run, which can be resumed.
        if ranks.rank == 0 and not ranks.has_lost_one(error):
            with contextlib.suppress(StoreError):  # then the run is tried again
                folder.fail(error, _known_sources(run))
        if ranks.count > 1:
            raise
        return State.FAILED, folder.failure() or first_line(error)


def _known_sources(run: Run) -> dict[str, str]:
    """Return the digests of the source that failed; none if that is why it failed."""
    try:
        return sources(run)
    except SpecError:
        return {}


def _train(
    run: Run,
    folder: RunFolder,
    ranks: Ranks,
    recorder: Recorder,
    probes: Sequence[ProbeSpec],
) -> tuple[State, str]:
    first = ranks.rank == 0
    trainer, resumes = resumed_trainer(run, folder, ranks, probes)
    if first:
        here = provenance(run, trainer.task)
        if resumes:
            changed = differences(folder.environments(), here)
            if "data" in changed:
                # Images that it has trained on could now be among those held back.
                raise StoreError(
                    "it was begun on other data: give those again (--data FOLDER), or start "
                    "afresh with --out another folder"
                )
            folder.notices += [
                f"it resumes with {'other' if what.startswith('data') else 'another'} {what} than "
                "before"
                for what in changed
            ]
            here["resumed at step"] = str(trainer.step)
        folder.add_environment(here)
    recorder.begin(trainer)
    try:
        trainer.fit(recorder, recorder.evaluation)
        recorder.save(trainer)
    finally:
        recorder.end(trainer)
    state = State.FINISHED if trainer.diverged is None else State.DIVERGED
    result = result_of(trainer)
    if first:
        folder.finish(state, result, trainer.rows)
    return state, line_of(result)
