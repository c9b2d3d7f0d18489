"""torchvision made importable where its compiled operators do not load.

torchvision from PyPI is compiled for CUDA's torch. Beside a torch for the CPU its operators do not
load, and then ``import torchvision`` fails with "operator torchvision::nms does not exist", and
with it the import of everything that uses it. A process that begins with

>>> from sgdf import torchvision_fallback
>>> torchvision_fallback.install()  # doctest: +SKIP

can import them all: ``nms`` and ``roi_align`` are then written in PyTorch. They are what
torchvision's transforms, models and detectors need on a CPU. The operators that are not replaced
say so when they are called. Where the compiled operators load, nothing is changed.
"""

from .installation import install

__all__ = ["install"]
