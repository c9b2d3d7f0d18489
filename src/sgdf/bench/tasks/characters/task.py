"""A language model of characters on text that ships with Python."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..base import Task, draw_classes
from ..data_record import digest_rows
from ..metric import Metric
from ..sequence import Hidden, Windows, detach

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
EVALUATION_STREAMS = 16


def python_manual(characters: int) -> Tensor:
    """Return the beginning of Python's built-in manual as ASCII codes ("?" for what is not).

    The text is that of the running Python; its version is in each run's environment.
    """
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))[:characters]
    codes = torch.frombuffer(bytearray(text, "ascii", "replace"), dtype=torch.uint8)
    return codes.to(torch.int64)


class CharacterLSTM(nn.Module):
    """Predict each next character from those before it."""

    def __init__(self, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout if layers > 1 else 0.0)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, 128)

    def forward(self, codes: Tensor, hidden: Hidden | None) -> tuple[Tensor, Hidden]:
        """Return scores (time, stream, code) and the hidden state after the last one."""
        outputs, hidden = self.lstm(self.dropout(self.embedding(codes)), hidden)
        return self.head(self.dropout(outputs)), hidden


class Characters(Task):
    """An LSTM over the characters of Python's manual.

    The batch is that many streams of text side by side, and the hidden state is carried from
    one batch to the next. The loss is in nats for each character.

    Args:
        hidden: the width of embedding and LSTM.
        layers: layers of the LSTM.
        dropout: the share of units left out, around and between the layers.
        length: how many characters gradients flow back.
        characters: how much of the text is used, all splits together.
    """

    hidden: Hidden | None
    before: Hidden | None  # what the last batch began with
    sequential = True
    metric = Metric("loss")

    def __init__(
        self,
        hidden: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
        length: int = 64,
        characters: int = 200_000,
    ) -> None:
        self.model = CharacterLSTM(hidden, layers, dropout)
        self.length, self.hidden = length, None
        codes = python_manual(characters)
        sizes = [int(share * len(codes)) for share in SHARES.values()]
        self.data = dict(zip(SHARES, torch.split(codes[: sum(sizes)], sizes), strict=True))

    def to(self, device: torch.device) -> None:
        """Move model and text to the device."""
        super().to(device)
        self.data = {split: codes.to(device) for split, codes in self.data.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the splits: the manual is that of the Python which runs this."""
        return {f"data of {split}": digest_rows(codes) for split, codes in self.data.items()}

    def batches(self, batch_size: int, order: torch.Generator) -> Windows:
        """Return the text from its beginning: what follows on what cannot be shuffled."""
        self.hidden = None
        return Windows(self.data["train"], batch_size, self.length)

    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss over the stretch, and carry the hidden state on."""
        codes, targets = batch
        self.before = self.hidden
        scores, hidden = self.model(codes, self.hidden)
        self.hidden = detach(hidden)
        return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the loss on characters drawn from the predictions."""
        scores = self.model(batch[0], self.before)[0].flatten(0, 1)
        return nn.functional.cross_entropy(scores, draw_classes(scores)), len(scores)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the loss, and the same as perplexity and in bits."""
        total, count, hidden = 0.0, 0, None
        for codes, targets in Windows(self.data[split], EVALUATION_STREAMS, 4 * self.length):
            scores, hidden = self.model(codes, hidden)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
            total, count = total + loss.item() * targets.numel(), count + targets.numel()
        loss_mean = total / count
        perplexity = math.exp(loss_mean) if loss_mean < 700 else math.inf
        return {"loss": loss_mean, "perplexity": perplexity, "bits": loss_mean / math.log(2)}

    def count_examples(self) -> dict[str, int]:
        """Return the number of characters of each split."""
        return {split: len(codes) for split, codes in self.data.items()}

    def train_on_validation(self) -> None:
        """Train on the validation text too."""
        self.data["train"] = torch.cat([self.data["train"], self.data.pop("validation")])

    def state(self) -> dict[str, Any]:
        """Return the hidden state that the next batch begins with."""
        return {"hidden": self.hidden}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with a hidden state."""
        hidden = state["hidden"]
        self.hidden = hidden and (hidden[0].to(self.device), hidden[1].to(self.device))
