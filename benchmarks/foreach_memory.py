"""Measure the temporaries of the step on lists (foreach) for a model of 1 GB, as on an accelerator.

On the CPU, with the size of chunks that an accelerator has: what is allocated is the same there.
Takes 6 GB of memory and some minutes.
"""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler announces each of its runs

import torch

import sgdf
from sgdf.analysis.cost.measure import temporary_bytes
from sgdf.optim import chunks

GIGABYTE = 2**30
MOST = 256 * 2**20
MODELS = {
    "one vector": lambda size: [(size,)],
    "one matrix": lambda size: [(16384, size // 16384)],
    "two long rows": lambda size: [(2, size // 2)],
    "many matrices": lambda size: [(1024, 1024)] * (size // 2**20),
}
OPTIONS = [
    {},
    {"weight_decay": 0.1, "maximize": True},
    {"stochastic_rounding": True},
    {"state_format": "bfloat16"},
    {"state_format": "int8"},
    {"state_format": "int8-block"},
]


def peak(shapes, dtype, options):
    """Return the bytes of temporaries of a step; the state is there before."""
    params = [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes]
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer = sgdf.SGDF(params, lr=1e-3, foreach=True, **options)
    optimizer.step()
    return temporary_bytes(optimizer.step)


def main():
    """Measure and print."""
    chunks.CPU_CHUNK_BYTES = chunks.CHUNK_BYTES
    for dtype in (torch.float32, torch.bfloat16):
        for name, shapes_of in MODELS.items():
            for options in OPTIONS if name == "one matrix" else OPTIONS[:1]:
                found = peak(shapes_of(GIGABYTE // dtype.itemsize), dtype, options)
                verdict = "holds" if found <= MOST else "FAILS"
                shown = ", ".join(f"{key}={value}" for key, value in options.items()) or "defaults"
                megabytes = f"{found / 2**20:6.0f} MB"
                print(f"{name:14} {str(dtype)[6:]:9} {shown:35} {megabytes} <= 256: {verdict}")


if __name__ == "__main__":
    main()
