"""A language model of characters on text that ships with Python."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..metric import Metric
from ..sequence import Hidden, SequenceTask

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


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

    def forward(self, codes: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Return scores (time, stream, code) and the hidden state after the last one."""
        outputs, hidden = self.lstm(self.dropout(self.embedding(codes)), hidden)
        return self.head(self.dropout(outputs)), hidden


class Characters(SequenceTask):
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

    metric = Metric("loss")
    evaluation_streams = 16

    def __init__(
        self,
        hidden: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
        length: int = 64,
        characters: int = 200_000,
    ) -> None:
        self.model = CharacterLSTM(hidden, layers, dropout)
        self.length, self.evaluation_length = length, 4 * length
        codes = python_manual(characters)
        sizes = [int(share * len(codes)) for share in SHARES.values()]
        self.data = dict(zip(SHARES, torch.split(codes[: sum(sizes)], sizes), strict=True))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the loss, and the same as perplexity and in bits."""
        metrics = super().evaluate(split)
        return {**metrics, "bits": metrics["loss"] / math.log(2)}
