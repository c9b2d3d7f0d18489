"""The errors of shadow filters along the training of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...bench.errors import SpecError
from ...bench.spec.run import Run
from ...bench.training.probe import Moment
from ...bench.training.randomness import derived_seed, seeded
from ...present.words import plural
from ..conduct import Contents, Measured, Progress
from ..probes.filter_beside import all_gradients
from ..record import Record
from ..replay import replay
from ..runs import AnalysedRun
from .compared_filters import filters_of
from .errors import Observations, Watch, measure_errors
from .filters import SGDFEstimate
from .gain import GainSums
from .mini_batches import Gradients, MiniBatches
from .shadow_filter import ShadowFilter


@dataclass(frozen=True)
class EstimatesOfRuns:
    """Bias, variance and mean squared error of each filter's estimate while a run trains.

    Each run is trained again from its beginning. All filters watch the gradients that its
    optimizer steps with, so that they are compared on the same path.

    Attributes:
        every: how many steps lie between two measurements.
        draws: how many mini-batches are drawn anew for a measurement, at least 2.
        examples: how many training examples the full-batch gradient is over; 0 for all.
        beta1: the decay rates of the filters.
        steps: how many steps of each run are watched; 0 for all.
    """

    every: int = 25
    draws: int = 16
    examples: int = 0
    beta1: tuple[float, ...] = (0.9, 0.95)
    steps: int = 0

    name = "estimator"
    title = "How close the filters' estimates are to the full-batch gradient"

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise SpecError(f"draws = {self.draws}: a variance takes at least 2 mini-batches")
        if self.every < 1:
            raise SpecError(f"every = {self.every}: must be at least 1")
        if not self.beta1 or not all(0.0 < beta < 1.0 for beta in self.beta1):
            raise SpecError(f"beta1 = {list(self.beta1)}: must be one or more between 0 and 1")

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that the measured values depend on, beside the run."""
        return asdict(self)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the command."""
        return self.settings

    def filters(self) -> list[ShadowFilter]:
        """Return all filters that watch."""
        found = [one for beta in self.beta1 for one in filters_of(beta)]
        return list({one.name: one for one in found}.values())

    def measure(self, run: AnalysedRun, record: Record, progress: Progress) -> None:
        """Train the run, and keep the errors of each measured step."""
        check_gradients(run.run)
        path = _Path(self, run.run, record)
        last = self.steps or math.inf
        replay(
            run.run,
            before=path.look,
            # Below 1, which means that the record is finished.
            after=lambda trainer: progress(trainer.step / (min(trainer.steps, last) + 1)),
            steps=self.steps or None,
            every=self.every,
        )

    def contents(self, measured: Sequence[Measured]) -> Contents:
        """Return tables and plots."""
        from .page import contents  # which needs matplotlib

        return contents(measured, self.beta1, self._method())

    def _method(self) -> list[str]:
        """Return in sentences what was measured."""
        examples = f"{self.examples:,} training examples" if self.examples else "all training data"
        return [
            "Each run was trained again, and all filters watched the gradients that its optimizer "
            f"stepped with. Every {plural(self.every, 'step')}, {self.draws} mini-batches were "
            "drawn anew at the same parameters, and each was shown to every filter in the state "
            f"that it had. The error is against the gradient over {examples}, without "
            "augmentation if the task holds its data in memory, and without dropout.",
            "Variance is that of the next estimate, given the past; squared bias is everything "
            "else: lag, and noise of earlier steps that is still in the filter's state. It is "
            "corrected for the finite number of mini-batches, and can be a little below 0. The "
            "two add up to the mean squared error.",
            "Classical momentum (CM) is a sum, not a mean: nearly all of its error is the factor "
            "1/(1 − β) that its learning rate undoes. Scaled by 1 − β it can be compared. The "
            "half-batch Kalman filter needs two more backward passes for each step; it is a "
            "yardstick. With BatchNorm the mean of the halves' gradients is not the gradient of "
            "the batch.",
        ]


def check_gradients(run: Run) -> None:
    """Refuse a run whose steps are not on the gradient of the mean loss of one mini-batch.

    Raises:
        SpecError: names the setting.
    """
    train = run.train
    if train.clip_norm < math.inf:
        raise SpecError(f"clip_norm = {train.clip_norm:g}: a clipped gradient has another mean")
    if train.accumulate > 1:
        raise SpecError(f"accumulate = {train.accumulate}: only one batch of a step can be seen")
    if train.precision != "float32":
        raise SpecError(f"precision = {train.precision!r}: gradients are measured in float32")


class _Path:
    """The shadow filters along one training, and the measurements on the way."""

    def __init__(self, analysis: EstimatesOfRuns, run: Run, record: Record) -> None:
        self.analysis, self.run, self.record = analysis, run, record
        self.watch = Watch(analysis.filters())
        self.batches: MiniBatches | None = None

    def look(self, moment: Moment) -> None:
        """Show the filters the gradient of a step; measure their errors first if it is due."""
        if len(moment.optimizers) > 1:
            raise SpecError("it has several optimizers, whose gradients are of different losses")
        named = dict(moment.task.model.named_parameters())
        grads = {
            name: grad for name, grad in all_gradients(moment).items() if named[name].requires_grad
        }
        if not all(bool(grad.isfinite().all()) for grad in grads.values()):
            return  # the run is about to diverge
        if self.batches is None:
            self.batches = MiniBatches(
                moment.task, list(grads), self.run.train.batch_size, self.analysis.examples
            )
        if moment.step % self.analysis.every == 0 and str(moment.step) not in self.record:
            self.record.keep(str(moment.step), self._measure(moment.step), sync=False)
        self.watch.advance(self.batches.observe(moment.batch, grads))

    def _measure(self, step: int) -> dict[str, Any]:
        assert self.batches is not None
        target, gains = self.batches.full_gradient(), GainSums()
        errors = measure_errors(self.watch, target, self._draws(step, target, gains))
        return {
            "step": step,
            "squared gradient": {
                tensor: float(grad.square().sum()) for tensor, grad in target.items()
            },
            "errors": {
                name: {tensor: list(one) for tensor, one in by_tensor.items()}
                for name, by_tensor in errors.items()
            },
            "gain": gains.rows(),
        }

    def _draws(self, step: int, target: Gradients, gains: GainSums) -> Iterator[Observations]:
        """Yield the mini-batches of a measurement, and add up the gains that would be best."""
        assert self.batches is not None
        sgdf = next(one for one in self.watch.filters.values() if isinstance(one, SGDFEstimate))
        states = self.watch.states[sgdf.name]
        for index in range(self.analysis.draws):
            seed = derived_seed(self.run.seed, step, index)
            with seeded(seed):  # a loader may draw from the random numbers of all
                seen = self.batches.observe(self.batches.draw(torch.Generator().manual_seed(seed)))
            for tensor, observation in seen.items():
                filtered = sgdf.filter(states.get(tensor), observation.grad)
                gains.add(filtered, target[tensor])
            yield seen
