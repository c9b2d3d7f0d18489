"""The Hessian of a model's loss, as a symmetric operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..example_counts import count_examples
from .symmetric import SymmetricOperator
from .undisturbed import undisturbed

Loss = Callable[[Any, Any], Tensor]


class Hessian(SymmetricOperator):
    """The second derivative of a model's mean loss over a fixed list of batches.

    It is a symmetric operator over all parameters that require a gradient, one after the other
    in the order of ``model.parameters()``; a tied weight counts once. The batches are multiplied
    one by one in the dtype of the model, and added up in float64, so that memory does not grow
    with their number. The parameters are read anew in each product. The model is left as found:
    its modes, gradients and buffers, and the random number generators.

    Random numbers that the model, the loss or the batches draw from the generators of all are the
    same in each product, and others in each batch, so that all products are of one and the same
    matrix. What is not a list is iterated over twice at first, to see that it gives the same.

    Example:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> def loss(model, batch):
        ...     return model(batch).square().mean()
        >>> hessian = Hessian(model, loss, [inputs])
        >>> hessian @ torch.tensor([1.0, 1.0])
        tensor([9., 1.], dtype=torch.float64)
        >>> hessian.top(1).values
        array([9.])

    Args:
        model: any module.
        loss: returns the mean loss of a batch, given model and batch.
        batches: a list, or what gives the same batches each time it is iterated over.
        weights: the weight of each batch in the mean. By default it is the number of its
            examples: the length of the first tensor in it.
        training: use the model in training mode. BatchNorm then normalises with the statistics
            of each batch, which depend on the parameters too, and dropout drops the same
            elements in each product. By default the model is in evaluation mode: BatchNorm uses
            its running statistics, and nothing is dropped.
        weight_decay: λ of a term λ/2 ‖w‖² in the loss, which adds λ to each eigenvalue.

    Raises:
        TypeError: if ``batches`` can be iterated over only once, or a parameter is complex; in a
            product, if the loss is no tensor.
        ValueError: if no parameter requires a gradient, there are no batches, they are others
            each time, or the weights do not fit; in a product, if the loss is not a single number
            that depends on the parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Iterable[Any],
        *,
        weights: Sequence[float] | None = None,
        training: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if isinstance(batches, Iterator):
            raise TypeError(
                "batches can be iterated over only once, but each product needs them: give a list"
            )
        self._parameters = [param for param in model.parameters() if param.requires_grad]
        if not self._parameters:
            raise ValueError("no parameter of the model requires a gradient")
        if any(param.is_complex() for param in self._parameters):
            raise TypeError("the model has complex parameters, whose Hessian is not symmetric")
        super().__init__(sum(param.numel() for param in self._parameters))
        self._model, self._loss, self._batches = model, loss, batches
        self._training, self._weight_decay = training, weight_decay
        with undisturbed(model, training) as seed_generators:
            self._shares = _shares(self._batch_counts(seed_generators, weights is None), weights)

    def _pass(self, seed_generators: Callable[[int], None]) -> Iterator[Any]:
        """Yield the batches; each is drawn, and used, with random numbers of its own."""
        seed_generators(0)  # a loader may draw the order of its examples at once
        iterator = iter(self._batches)
        for index in itertools.count():
            seed_generators(index)
            try:
                batch = next(iterator)
            except StopIteration:
                return
            seed_generators(index)
            yield batch

    def _batch_counts(self, seed_generators: Callable[[int], None], by_examples: bool) -> list[int]:
        """Return the number of examples of each batch, or 1 for each.

        Raises:
            ValueError: if the batches are others each time: each product would be of another
                matrix.
        """
        is_fixed = isinstance(self._batches, list | tuple)
        counts, digests = [], []
        for batch in self._pass(seed_generators):
            counts.append(count_examples(batch) if by_examples else 1)
            digests += [] if is_fixed else [_digest(batch)]
        if not is_fixed and digests != list(map(_digest, self._pass(seed_generators))):
            raise ValueError(
                "batches gives other batches each time it is iterated over, as a loader does that "
                "shuffles or augments, but all products must be over the same: give a list, as "
                "with list(batches)"
            )
        return counts

    def _multiply(self, columns: Tensor) -> Tensor:
        with undisturbed(self._model, self._training) as seed_generators:
            products = self._weight_decay * columns
            for batch, share in zip(self._pass(seed_generators), self._shares, strict=True):
                self._add_batch(products, share, batch, columns)
        if not products.isfinite().all():
            raise FloatingPointError("the product is not finite; is the loss?")
        return products

    def _add_batch(self, products: Tensor, share: float, batch: Any, columns: Tensor) -> None:
        gradients = torch.autograd.grad(
            _checked(self._loss(self._model, batch)),
            self._parameters,
            create_graph=True,
            allow_unused=True,
        )
        used = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if not used:
            raise ValueError("the loss does not depend on the parameters of the model")
        # Where the loss is linear in a parameter, the gradient is a constant.
        varying = [index for index in used if gradients[index].requires_grad]
        if not varying:
            return
        count = columns.shape[1]
        for column in range(count):
            vectors = self._split(columns[:, column])
            parts = torch.autograd.grad(
                [gradients[index] for index in varying],
                self._parameters,
                [vectors[index] for index in varying],
                retain_graph=column + 1 < count,
                materialize_grads=True,
            )
            flat = torch.cat([part.reshape(-1).to("cpu", torch.float64) for part in parts])
            products[:, column].add_(flat, alpha=share)

    def _split(self, vector: Tensor) -> list[Tensor]:
        sizes = [param.numel() for param in self._parameters]
        return [
            part.reshape(param.shape).to(param)
            for part, param in zip(torch.split(vector, sizes), self._parameters, strict=True)
        ]


def _checked(loss: Any) -> Tensor:
    """Return a loss that can be differentiated; any other is refused."""
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"the loss of a batch is of type {type(loss).__name__}, but must be a tensor that "
            "depends on the parameters of the model"
        )
    if loss.numel() != 1:
        raise ValueError(
            f"the loss of a batch has the shape {tuple(loss.shape)}, but must be a single number: "
            "the mean over its examples"
        )
    if not loss.requires_grad:
        raise ValueError("the loss does not depend on the parameters of the model")
    return loss


def _shares(counts: Sequence[int], weights: Sequence[float] | None) -> list[float]:
    """Return the weights of the batches, which add up to 1: the counts, unless they are given."""
    if not counts:
        raise ValueError("there are no batches")
    if weights is None:
        weights = counts
    elif len(counts) != len(weights):
        raise ValueError(f"there are {len(counts)} batches, but {len(weights)} weights")
    if not all(weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
        raise ValueError("the weights of the batches must not be negative, nor all of them zero")
    return [weight / sum(weights) for weight in weights]


def _digest(batch: Any) -> bytes:
    """Return what differs if a number or a text in a batch does."""
    digest = blake2b(digest_size=16)
    for content in _contents(batch):
        digest.update(content)
    return digest.digest()


def _contents(batch: Any) -> Iterator[bytes]:
    """Yield the tensors, arrays, numbers and texts of a batch as bytes."""
    if isinstance(batch, Tensor):
        if batch.layout == torch.strided:
            content = batch.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
            yield content.numpy().tobytes()
    elif isinstance(batch, Mapping):
        yield from _contents([*batch.keys(), *batch.values()])
    elif isinstance(batch, np.ndarray) and not batch.dtype.hasobject:
        yield batch.tobytes()
    elif isinstance(batch, list | tuple | np.ndarray):
        for value in batch:
            yield from _contents(value)
    elif isinstance(batch, Number | np.generic | str | bytes):
        yield repr(batch).encode("utf-8", "surrogatepass")
