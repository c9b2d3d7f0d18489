"""The line of code that an error is blamed on."""

import functools
import json

import torch

from sgdf.bench.errors import place_of
from sgdf.bench.spec.read import read


def raised_by(function):
    try:
        function()
    except Exception as error:
        return place_of(error)
    raise AssertionError("nothing was raised")


def multiply():
    torch.nn.Linear(2, 3)(torch.zeros(5, 7))


def call_back():
    functools.reduce(lambda a, b: json.loads("{"), [1, 2])


def test_it_is_the_innermost_line_of_the_users_own_code():
    first = multiply.__code__.co_firstlineno
    assert raised_by(multiply) == f"test_place_of_errors.py:{first + 1} in multiply"
    first = call_back.__code__.co_firstlineno
    assert raised_by(call_back) == f"test_place_of_errors.py:{first + 1} in <lambda>"


def test_without_any_it_is_ours():
    """As where a task does nothing wrong but to return the wrong thing."""
    error = None
    try:
        read({"task": 3})
    except ValueError as raised:
        error = raised
    # Without the frame of this test.
    error.__traceback__ = error.__traceback__.tb_next
    place = place_of(error)
    assert place.startswith("read.py:")


def test_an_error_that_was_never_raised_has_none():
    assert place_of(ValueError("no")) == ""
