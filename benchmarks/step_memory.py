"""Measure what one step allocates on top of the state, in sizes of the model."""

import torch
from torch.profiler import ProfilerActivity, profile

import sgdf

TENSORS, ELEMENTS = 20, 100_000
OPTIMIZERS = {
    "Adam foreach": lambda params: torch.optim.Adam(params, foreach=True),
    "SGDF foreach": lambda params: sgdf.SGDF(params, foreach=True),
    "SGDF foreach, coupled decay": lambda params: sgdf.SGDF(params, foreach=True, weight_decay=0.1),
    "SGDF loop": lambda params: sgdf.SGDF(params, foreach=False),
}


def peak(build, dtype):
    """Return the most that is allocated at once during a step, over the parameters' size."""
    params = [torch.nn.Parameter(torch.randn(ELEMENTS).to(dtype)) for _ in range(TENSORS)]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer = build(params)
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        optimizer.step()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / sum(param.nbytes for param in params)


def main():
    """Print a table."""
    print(f"torch {torch.__version__}, {TENSORS} tensors of {ELEMENTS} elements")
    print(f"{'peak temporaries / model size':30}float32  bfloat16")
    for name, build in OPTIMIZERS.items():
        print(f"{name:30}{peak(build, torch.float32):7.1f}{peak(build, torch.bfloat16):10.1f}")


if __name__ == "__main__":
    main()
