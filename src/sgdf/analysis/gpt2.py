"""A transformer as far as an optimizer sees it: the shapes of its parameters."""

from __future__ import annotations

from collections.abc import Iterator

Shapes = list[tuple[int, ...]]


def gpt2_shapes(layers: int = 12, width: int = 768) -> Shapes:
    """Return the shapes of GPT-2's parameters, small by default."""

    def linear(inputs: int, outputs: int) -> Shapes:
        return [(inputs, outputs), (outputs,)]

    def block() -> Iterator[tuple[int, ...]]:
        norm: Shapes = [(width,), (width,)]
        yield from [*norm, *linear(width, 3 * width), *linear(width, width)]
        yield from [*norm, *linear(width, 4 * width), *linear(4 * width, width)]

    blocks = [shape for _ in range(layers) for shape in block()]
    return [(50257, width), (1024, width), *blocks, (width,), (width,)]
