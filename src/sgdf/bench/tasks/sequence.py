"""What tasks on long sequences share: windows over parallel streams, and a carried state."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .base import Task, draw_classes
from .data_record import digest_rows

Hidden = Any
"""What a network carries from one window to the next: a tensor, or a tuple of such."""

HALF, DEVIATION, SHORTEST = 0.05, 5.0, 5
"""The share of windows of half the length, the deviation of lengths, and the least length."""


class Windows:
    """Successive stretches of parallel streams of codes, each with the codes that come next.

    Args:
        codes: the sequence. It is cut into streams of equal length; what is left over is dropped.
        streams: how many streams there are.
        length: the length of a stretch.
        order: draws lengths around ``length`` (see ``vary_lengths``); without it all are equal.
    """

    def __init__(
        self, codes: Tensor, streams: int, length: int, order: torch.Generator | None = None
    ) -> None:
        self.columns = codes[: len(codes) // streams * streams].view(streams, -1).t().contiguous()
        last = max(0, len(self.columns) - 1)
        self.ends = (
            vary_lengths(last, length, order)
            if order and last
            else [*range(length, last, length), *([last] if last else [])]
        )
        self.first = 0

    def __len__(self) -> int:
        return len(self.ends) - self.first

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        start = self.ends[self.first - 1] if self.first else 0
        for end in self.ends[self.first :]:
            yield self.columns[start:end], self.columns[start + 1 : end + 1]
            start = end

    def skip(self, count: int) -> Windows:
        """Return them without the first ``count``."""
        rest = copy.copy(self)
        rest.first = self.first + count
        return rest


def vary_lengths(total: int, length: int, order: torch.Generator) -> list[int]:
    """Return where windows of random lengths end, the last one at ``total``.

    As Merity et al. (2018) draw them: around the length, or around half of it for every
    twentieth, normal with a deviation of 5, and at least 5. Unlike theirs the number of windows
    does not vary: the drawn lengths are stretched a little, all alike, to fill the total. So every
    epoch has as many steps, and every optimizer too.
    """
    count = max(1, round(total / (length * (1 - HALF / 2))))
    about = torch.full((count,), float(length), dtype=torch.float64)
    about[torch.rand(count, generator=order) < HALF] /= 2
    noise = torch.randn(count, generator=order, dtype=torch.float64)
    drawn = (about + DEVIATION * noise).clamp(min=SHORTEST)
    ends = (drawn.cumsum(0) * (total / drawn.sum())).round().long()
    return sorted(set(ends.tolist()))


def detached(hidden: Hidden) -> Hidden:
    """Return a hidden state through which no gradient flows back."""
    return hidden.detach() if isinstance(hidden, Tensor) else tuple(map(detached, hidden))


def moved(hidden: Hidden, device: torch.device) -> Hidden:
    """Return a hidden state, or none, on the device."""
    if hidden is None:
        return None
    if isinstance(hidden, Tensor):
        return hidden.to(device)
    return tuple(moved(part, device) for part in hidden)


class SequenceTask(Task):
    """A network that predicts each next code of a text, with a hidden state that is carried on.

    A batch is that many streams of the text side by side. The next batch continues where it ended,
    with the hidden state that it left. The network takes codes (time, stream) and a hidden state or
    None; it returns scores (time, stream, code), the hidden state after the last code, and
    possibly more.

    Attributes:
        data: the codes of each split.
        length: how many codes gradients flow back.
        evaluation_streams: how many streams an evaluation reads the text in.
        evaluation_length: the length of its windows, which has no influence on the result.
    """

    sequential = True
    data: dict[str, Tensor]
    length: int
    evaluation_streams: int = 1
    evaluation_length: int = 1_000
    hidden: Hidden = None
    before: Hidden = None  # what the last batch began with

    def to(self, device: torch.device) -> None:
        """Move model and text to the device."""
        super().to(device)
        self.data = {split: codes.to(device) for split, codes in self.data.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the splits."""
        return {f"data of {split}": digest_rows(codes) for split, codes in self.data.items()}

    def count_examples(self) -> dict[str, int]:
        """Return the number of codes of each split."""
        return {split: len(codes) for split, codes in self.data.items()}

    def batches(self, batch_size: int, order: torch.Generator) -> Windows:
        """Return the text from its beginning: what follows on what cannot be shuffled."""
        self.hidden = None
        return Windows(self.data["train"], batch_size, self.length)

    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss over the stretch, and carry the hidden state on."""
        return self.carry(batch)[0]

    def carry(self, batch: Any) -> list[Tensor]:
        """Return the mean loss of a batch and whatever else the network returned.

        The hidden state is carried to the next batch.
        """
        codes, targets = batch
        self.before = self.hidden
        scores, hidden, *more = self.model(codes, self.hidden)
        self.hidden = detached(hidden)
        return [nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()), *more]

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the loss on codes drawn from the predictions."""
        scores = self.model(batch[0], self.before)[0].flatten(0, 1)
        return nn.functional.cross_entropy(scores, draw_classes(scores)), len(scores)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the loss in nats for each code, and the same as perplexity."""
        total, count, hidden = 0.0, 0, None
        for codes, targets in Windows(
            self.data[split], self.evaluation_streams, self.evaluation_length
        ):
            scores, hidden, *_ = self.model(codes, hidden)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
            total, count = total + loss.item() * targets.numel(), count + targets.numel()
        mean = total / count
        return {"loss": mean, "perplexity": math.exp(mean) if mean < 700 else math.inf}

    def train_on_validation(self) -> None:
        """Train on the validation text too."""
        self.data["train"] = torch.cat([self.data["train"], self.data.pop("validation")])

    def state(self) -> dict[str, Any]:
        """Return the hidden state that the next batch begins with."""
        return {"hidden": self.hidden}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue with a hidden state."""
        self.hidden = moved(state["hidden"], self.device)
