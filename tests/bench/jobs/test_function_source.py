"""The digest of a training function: what changes it, and what does not."""

import sys
import types

import pytest

from sgdf.bench.jobs.function_source import function_digest

SOURCE = """
import math

RATE = 0.5


class Model:
    size = 3

    def forward(self, x):
        return RATE * x


def half(x):
    return Model().forward(x) / 2


def train(make_optimizer, seed, epochs=3):
    if seed in {1, 2, 3}:
        return half(math.pi)
    return [half(step) for step in range(epochs)]


def unused():
    return 1
"""


def digest_of(source):
    """Return the digest of ``train`` in a module with this source."""
    module = types.ModuleType("user_module")
    exec(source, vars(module))
    return function_digest(module.train)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.5", "RATE = 0.25"),
        ("size = 3", "size = 4"),
        ("RATE * x", "RATE + x"),
        ("/ 2", "/ 3"),
        ("epochs=3", "epochs=4"),
        ("{1, 2, 3}", "{1, 2, 4}"),
        ("range(epochs)", "range(seed)"),
    ],
)
def test_what_training_depends_on_changes_it(old, new):
    assert SOURCE.count(old) == 1
    assert digest_of(SOURCE.replace(old, new)) != digest_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 1", "return 2"),
        ("import math", "import math\n\n\n# a comment"),
        ("def unused", "OPTIMIZERS = ['sgd', 'adam']\n\n\ndef unused"),
    ],
)
def test_anything_else_in_the_file_does_not(old, new):
    assert SOURCE.count(old) == 1
    assert digest_of(SOURCE.replace(old, new)) == digest_of(SOURCE)


def test_it_is_the_same_under_another_name_of_the_module():
    """A worker imports the script that is ``__main__`` in the process that compares."""
    assert digest_of(SOURCE) == digest_of(f'__name__ = "m"\n{SOURCE}')


def test_other_callables_have_none():
    assert function_digest(sys.stdout.write) == ""
