"""The digits are scikit-learn's, whether or not its package is loaded for them."""

import importlib.util
import subprocess
import sys

import torch
from sklearn.datasets import load_digits

from sgdf.bench.tasks.digits.data import digits


def test_the_images_are_those_that_scikit_learn_loads(monkeypatch):
    splits = digits()
    images = torch.cat([splits[name][0] for name in ("train", "validation", "test")])
    pixels, classes = load_digits(return_X_y=True)
    assert sorted(map(tuple, images.flatten(1).mul(16).tolist())) == sorted(
        map(tuple, pixels.tolist())
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, (again, labels) in digits().items():
        assert torch.equal(again, splits[name][0])
        assert torch.equal(labels, splits[name][1])
        assert labels.dtype == torch.int64
    assert torch.bincount(torch.cat([splits[name][1] for name in splits])).tolist() == [
        int((classes == digit).sum()) for digit in range(10)
    ]


def test_scikit_learn_is_not_loaded_for_a_file():
    program = (
        "import sys; from sgdf.bench.tasks.digits.data import digits; digits(); "
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
