"""Measure one optimizer step as a ratio to torch's fused Adam, in the same run."""

import platform
import statistics
import time

import torch

import sgdf


def resnet18_shapes():
    """Return the shapes of ResNet-18's 62 parameters."""

    def convolution(inputs, outputs, kernel):
        return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]

    shapes, width = convolution(3, 64, 7), 64
    for outputs in (64, 64, 128, 128, 256, 256, 512, 512):
        shapes += convolution(width, outputs, 3) + convolution(outputs, outputs, 3)
        if outputs != width:
            shapes += convolution(width, outputs, 1)
        width = outputs
    return [*shapes, (1000, 512), (1000,)]


PROBLEMS = {"ResNet-18, 62 tensors": resnet18_shapes(), "one tensor of 10M": [(10_000_000,)]}
OPTIMIZERS = {
    "Adam fused": lambda params: torch.optim.Adam(params, lr=1e-9, fused=True),
    "Adam loop": lambda params: torch.optim.Adam(params, lr=1e-9, foreach=False),
    "SGDF foreach": lambda params: sgdf.SGDF(params, lr=1e-9, foreach=True),
    "SGDF loop": lambda params: sgdf.SGDF(params, lr=1e-9, foreach=False),
}


def step_times(params, rounds=15):
    """Return each optimizer's median step in seconds, taking turns to share the noise."""
    optimizers = {name: build(params) for name, build in OPTIMIZERS.items()}
    times = {name: [] for name in optimizers}
    for _ in range(rounds):
        for name, optimizer in optimizers.items():
            start = time.perf_counter()
            optimizer.step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def main():
    """Print a table of ratios for each problem."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    for title, shapes in PROBLEMS.items():
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        for param in params:
            param.grad = torch.randn_like(param)
        times = step_times(params)
        print(title)
        for name, seconds in times.items():
            print(f"  {name:13}{1e3 * seconds:8.2f} ms{seconds / times['Adam fused']:8.2f}")


if __name__ == "__main__":
    main()
