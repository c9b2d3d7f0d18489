"""The network of Merity et al. (2018): LSTMs, regularised, between tied embeddings (AWD-LSTM)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # torch's own convention

EMBEDDING_RANGE = 0.1

LayerState = tuple[Tensor, Tensor]
"""Output and cell of an LSTM, each (1, stream, unit)."""


def locked_dropout(values: Tensor, share: float) -> Tensor:
    """Return values (time, stream, unit) with units left out, the same ones at all times."""
    return values * F.dropout(torch.ones_like(values[:1]), share)


class WeightDropLSTM(nn.LSTM):
    """One layer that leaves out recurrent weights at random, the same ones at all times.

    The weights that are kept enter torch's own kernel, which runs over all times at once.

    Args:
        inputs: the width of the inputs.
        outputs: the width of the outputs.
        weight_drop: the share of recurrent weights left out in training.
    """

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(self, inputs: int, outputs: int, weight_drop: float) -> None:
        super().__init__(inputs, outputs)
        self.weight_drop = weight_drop

    def forward(  # type: ignore[override]  # one layer, in one direction, time first
        self, values: Tensor, state: LayerState | None = None
    ) -> tuple[Tensor, LayerState]:
        """Return the outputs (time, stream, unit), and the state after the last of them."""
        if state is None:
            zeros = values.new_zeros(1, values.shape[1], self.hidden_size)
            state = zeros, zeros
        recurrent = F.dropout(self.weight_hh_l0, self.weight_drop, self.training)
        weights = [self.weight_ih_l0, recurrent, self.bias_ih_l0, self.bias_hh_l0]
        outputs, last, cell = torch.lstm(
            values,
            state,
            weights,
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=False,
        )
        return outputs, (last, cell)


class WordLSTM(nn.Module):
    """Predict each next word from those before it.

    The scores of words are products with the same vectors that stand for them in the input.

    Args:
        words: the number of words.
        embedding: the width of their vectors, and of the last LSTM.
        hidden: the width of the other LSTMs.
        layers: the number of LSTMs.
        input_dropout: the share of units left out before the first LSTM.
        between_dropout: the share left out between two LSTMs.
        output_dropout: the share left out after the last one.
        word_dropout: the share of words whose vectors are left out, wherever they stand.
        weight_drop: the share of recurrent weights left out.
    """

    def __init__(
        self,
        words: int,
        embedding: int,
        hidden: int,
        layers: int,
        input_dropout: float,
        between_dropout: float,
        output_dropout: float,
        word_dropout: float,
        weight_drop: float,
    ) -> None:
        super().__init__()
        self.vectors = nn.Parameter(
            torch.empty(words, embedding).uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE)
        )
        self.bias = nn.Parameter(torch.zeros(words))
        widths = [embedding, *[hidden] * (layers - 1), embedding]
        self.layers = nn.ModuleList(
            WeightDropLSTM(inputs, outputs, weight_drop)
            for inputs, outputs in itertools.pairwise(widths)
        )
        self.dropouts = [input_dropout, *[between_dropout] * (layers - 1), output_dropout]
        self.word_dropout = word_dropout

    def forward(
        self, codes: Tensor, states: tuple[LayerState, ...] | None
    ) -> tuple[Tensor, tuple[LayerState, ...], Tensor, Tensor]:
        """Return scores, states, and the last outputs without and with dropout.

        Args:
            codes: the words (time, stream).
            states: the state of each LSTM before the first time; None for zeros.
        """
        dropped = outputs = F.embedding(codes, self.vectors)
        if self.training:
            # The same as without the vectors of these words, but cheaper than a new matrix.
            kept = F.dropout(torch.ones_like(self.bias), self.word_dropout)
            dropped = locked_dropout(outputs * kept[codes].unsqueeze(-1), self.dropouts[0])
        after = []
        for number, layer in enumerate(self.layers):
            outputs, state = layer(dropped, states and states[number])
            after.append(state)
            share = self.dropouts[number + 1]
            dropped = locked_dropout(outputs, share) if self.training else outputs
        return F.linear(dropped, self.vectors, self.bias), tuple(after), outputs, dropped
