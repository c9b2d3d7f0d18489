"""Words of the Penn Treebank, predicted by an AWD-LSTM of one, two or three layers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ...errors import SpecError
from ..base import Update
from ..metric import Metric
from ..sequence import SHORTEST, SequenceTask, Windows
from .data import read_corpus
from .network import WordLSTM

SHARES = ("input_dropout", "between_dropout", "output_dropout", "word_dropout", "weight_drop")
SIZES = ("layers", "embedding", "hidden", "length")


class PennTreebank(SequenceTask):
    """An LSTM over the words of the Penn Treebank, after Merity et al. (2018).

    The loss is the cross-entropy, in nats for each word, and two penalties on the outputs of the
    last LSTM: ``activation`` times their mean square after dropout, ``slowness`` times the mean
    square of their change from one word to the next. The metric is the perplexity without them.

    With ``vary_length`` the lengths of windows are drawn for every epoch. The learning rate of a
    step is multiplied by its window's share of ``length``: a longer one has a less noisy gradient.

    The programs published with AdaBelief and with SGDF never train the recurrent matrices: they
    wrap the matrix with weights left out in a new parameter, which no optimizer knows.
    ``train_recurrent = false`` does the same. Under the paper's protocol the validation text is
    not used at all, as in these programs.

    Args:
        layers: how many LSTMs follow on each other.
        embedding: the width of the vectors of words, and of the last LSTM.
        hidden: the width of the other LSTMs.
        vocabulary: how many words are kept; all but the commonest become ``<unk>``.
        input_dropout: the share of units left out before the first LSTM.
        between_dropout: the share left out between two LSTMs.
        output_dropout: the share left out after the last one.
        word_dropout: the share of words whose vectors are left out.
        weight_drop: the share of recurrent weights left out.
        activation: the weight of the penalty on large outputs.
        slowness: the weight of the penalty on outputs that change from word to word.
        length: how many words gradients flow back, on average.
        vary_length: draw the length of each window.
        train_recurrent: train the recurrent matrices.
        official: insist on the published files; if false, any text will do.
    """

    metric = Metric("perplexity")

    def __init__(
        self,
        layers: int = 1,
        embedding: int = 400,
        hidden: int = 1_150,
        vocabulary: int = 10_000,
        input_dropout: float = 0.4,
        between_dropout: float = 0.25,
        output_dropout: float = 0.4,
        word_dropout: float = 0.1,
        weight_drop: float = 0.5,
        activation: float = 2.0,
        slowness: float = 1.0,
        length: int = 70,
        vary_length: bool = True,
        train_recurrent: bool = True,
        official: bool = True,
    ) -> None:
        options = {name: value for name, value in locals().items() if name != "self"}
        self.check(**options)
        corpus = read_corpus(vocabulary, official)
        self.data, self.words = corpus.codes, corpus.words
        used = hashlib.sha256("\n".join(self.words).encode())
        for codes in self.data.values():
            used.update(codes.numpy().data)
        self.digest = used.hexdigest()[:16]
        self.model = WordLSTM(
            len(self.words),
            embedding,
            hidden,
            layers,
            input_dropout,
            between_dropout,
            output_dropout,
            word_dropout,
            weight_drop,
        )
        for layer in self.model.layers:
            layer.weight_hh_l0.requires_grad_(train_recurrent)
        self.activation, self.slowness = activation, slowness
        self.length, self.vary_length = length, vary_length

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse sizes and shares that cannot be."""
        for name in SIZES:
            if options[name] < 1:
                raise SpecError(f"{name} = {options[name]}: must be at least 1")
        if options["vary_length"] and options["length"] < SHORTEST:
            raise SpecError(
                f"length = {options['length']}: must be at least {SHORTEST} where vary_length is "
                "true"
            )
        if options["vocabulary"] < 2:
            raise SpecError(f"vocabulary = {options['vocabulary']}: must be at least 2")
        for name in SHARES:
            if not 0 <= options[name] < 1:
                raise SpecError(f"{name} = {options[name]}: must be at least 0 and below 1")
        for name in ("activation", "slowness"):
            if not 0 <= options[name] < float("inf"):
                raise SpecError(f"{name} = {options[name]}: must be at least 0, and finite")

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that the files are there, and the published ones."""
        read_corpus(options["vocabulary"], options["official"])

    def optimizers(self, make: Callable[..., Optimizer]) -> Mapping[str, Optimizer]:
        """Return the optimizer of all parameters that are trained."""
        self.optimizer = make(p for p in self.model.parameters() if p.requires_grad)
        return {"model": self.optimizer}

    def batches(self, batch_size: int, order: torch.Generator) -> Windows:
        """Return the text from its beginning, in windows of drawn lengths."""
        self.hidden = None
        varying = order if self.vary_length else None
        return Windows(self.data["train"], batch_size, self.length, varying)

    def loss(self, batch: Any) -> Tensor:
        """Return cross-entropy and penalties, and carry the hidden state on."""
        entropy, outputs, dropped = self.carry(batch)
        self.log("cross_entropy", entropy)
        change = outputs[1:] - outputs[:-1]
        penalty = self.activation * dropped.square().mean()
        if len(change):
            penalty = penalty + self.slowness * change.square().mean()
        return entropy + penalty

    def step(self, batch: Any, update: Update) -> Mapping[str, Tensor | float]:
        """Train on one window, at a rate in proportion to its length."""
        with _scaled_rate(self.optimizer, len(batch[0]) / self.length):
            return super().step(batch, update)

    def train_on_validation(self) -> None:
        """Leave the validation text out, as the published programs do."""
        del self.data["validation"]


@contextmanager
def _scaled_rate(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Multiply the learning rates of an optimizer for one step."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
