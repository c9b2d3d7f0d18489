"""Training a run again, exactly as the bench does, with somebody watching every step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..bench.errors import SpecError
from ..bench.spec.run import Run
from ..bench.training.probe import Moment
from ..bench.training.randomness import isolated
from ..bench.training.ranks import Ranks
from ..bench.training.trainer import Stopped, Trainer
from ..present.words import plural


def replay(
    run: Run,
    before: Callable[[Moment], None] | None = None,
    after: Callable[[Trainer], None] | None = None,
    steps: int | None = None,
    every: int = 1,
) -> Trainer:
    """Train a run from its beginning, and return the trainer as it is at the end.

    Nothing is written. The evaluation after the last step is left out. The random numbers and the
    number of threads of the caller are left as they were.

    Args:
        run: the run, with device and threads filled in.
        before: called between the backward pass and the step. As a probe it must change nothing;
            it may use random numbers.
        after: called after each step.
        steps: how many are taken at most; by default all steps of the run.
        every: how many steps lie between two that are measured.

    Raises:
        SpecError: before the first step, if none would be measured.
    """
    with isolated(run.seed, run.train.threads):
        trainer = Trainer(run, Ranks(alone=True))
        last = min(steps or trainer.steps, trainer.steps)
        if last < every:
            raise SpecError(
                f"nothing can be measured every {plural(every, 'step')}: the run takes only "
                f"{plural(last, 'step')}; choose a smaller --every"
            )
        if before is not None:
            trainer.attach(before)

        def pause(trainer: Trainer) -> None:
            if after is not None:
                after(trainer)
            if trainer.step >= last:
                raise Stopped

        def around_evaluation(trainer: Trainer, costly: bool) -> AbstractContextManager[None]:
            if trainer.step >= last:
                pause(trainer)
            return contextlib.nullcontext()

        with contextlib.suppress(Stopped):
            trainer.fit(pause, around_evaluation)
    return trainer
