"""What tells functions apart: code, default values, and what they close over."""

import functools
import subprocess
import sys

import torch
from torch import nn

from sgdf.bench.fidelity.function_text import function_text


def scaled(by, names=("x",)):
    return lambda numbers, power=1: (by * numbers) ** power if "x" in {"x", *names} else numbers


def other(numbers):
    return numbers


def another(numbers):
    return numbers


class Scaled:
    """Multiplies."""

    def __init__(self, by):
        self.by = by

    def __call__(self, numbers):
        """Return the product."""
        return self.by * numbers

    def half(self, numbers):
        """Return half of the product."""
        return self.by * numbers / 2


def test_functions_that_differ_in_anything_have_different_texts():
    functions = [
        *(scaled(2), scaled(3), scaled(torch.ones(2)), scaled(torch.zeros(2)), scaled(other)),
        *(other, another, lambda numbers: numbers, lambda numbers, by=2: numbers, None),
        *(functools.partial(scaled(2), power=2), functools.partial(scaled(2), power=3)),
        *(Scaled(2), Scaled(3), Scaled(2).half, nn.ReLU(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
    ]
    assert len({function_text(function) for function in functions}) == len(functions)


def test_a_function_that_is_made_again_has_the_same_text():
    for value in (2, torch.ones(2), other):
        assert function_text(scaled(value)) == function_text(scaled(value))
    assert function_text(Scaled(2)) == function_text(Scaled(2))


def test_the_text_is_the_same_in_every_process():
    """Whose sets of texts have another order each."""
    program = (
        "from sgdf.bench.fidelity.function_text import function_text\n"
        "print(function_text(lambda word: word in {'a', 'b', 'c', 'd', 'e'}))"
    )
    texts = {subprocess.check_output([sys.executable, "-c", program]) for _ in range(3)}
    assert len(texts) == 1
    assert len(texts.pop()) > 50


def test_what_cannot_be_pickled_is_told_apart_by_its_type_alone():
    def made(value):
        return lambda: value

    assert function_text(made(sys)) == function_text(made(functools))
    assert function_text(made(sys)) != function_text(made(x for x in ()))
