"""Show what the compiled step is on a GPU, by the code that torch generates, without a GPU.

For ResNet-18's 62 tensors, or those of them that are large enough for a smaller state, prints how
many kernels a step launches, how many bytes of temporaries it allocates and how many it reads and
writes, each for one element of the parameters, which operators of torch it calls besides, and what
the largest kernel needs when compiled for an A100. Nothing is run: this tells nothing about speed.

    pip install torch==2.13.0 -c constraints.txt && pip install triton==3.9.0
    PYTHONPATH=src python benchmarks/generated_code.py

It takes some 80 seconds. The mocks of a GPU are for these versions, and for torch's build for the
CPU: with others it stops.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from ctypes import CDLL, c_void_p
from importlib import metadata
from itertools import product
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode

import sgdf
from sgdf.optim import compiled
from sgdf.optim.base import BaseOptimizer
from sgdf.optim.direction_table import DIRECTIONS
from sgdf.optim.part import Part
from sgdf.optim.state import FORMATS

VERSIONS = {"torch": "2.13.0+cpu", "triton": "3.9.0"}
for name, version in VERSIONS.items():
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = "not installed"
    if found != version:
        sys.exit(f"{name} {version} is needed, it is {found}: see the first lines of this file")

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TARGET = GPUTarget("cuda", 80, 32)
BYTES = {"fp64": 8, "i64": 8, "fp32": 4, "i32": 4, "bf16": 2, "fp16": 2, "i16": 2, "i8": 1, "u8": 1}


# The steps that are shown.


class Row(NamedTuple):
    """A step to show: of an optimizer with these options, on parameters of this dtype."""

    name: str
    optimizer: type[BaseOptimizer]
    dtype: torch.dtype
    options: dict[str, Any]
    is_partial: bool = False
    """Whether every second gradient is missing."""


F32, BF16 = torch.float32, torch.bfloat16
SMALL = {"state_format": "bfloat16"}
ROUNDED = {"stochastic_rounding": True}
ROWS = [
    Row("SGDF", sgdf.SGDF, F32, {}),
    Row("SGDF, every second gradient missing", sgdf.SGDF, F32, {}, is_partial=True),
    Row("SGDF, `capturable`", sgdf.SGDF, F32, {"capturable": True}),
    Row("SGDF, bf16 parameters", sgdf.SGDF, BF16, {}),
    Row("SGDF, bf16 parameters, `stochastic_rounding`", sgdf.SGDF, BF16, ROUNDED),
    Row("SGDF, state bfloat16", sgdf.SGDF, F32, SMALL),
    Row("SGDF, both in bf16, `stochastic_rounding`", sgdf.SGDF, BF16, {**SMALL, **ROUNDED}),
    Row("SGDF, state block", sgdf.SGDF, F32, {"state_format": "block"}),
    Row("FilterAdam", sgdf.FilterAdam, F32, {}),
    Row("FilterAdam, state bfloat16", sgdf.FilterAdam, F32, SMALL),
]


def call_of(row: Row, shapes: Sequence[Sequence[int]]) -> tuple[Callable[..., None], Any]:
    """Return the function that the package compiles for a row, and its arguments.

    To call under ``pretended_gpu``.
    """
    params = [
        torch.nn.Parameter(torch.empty(tuple(shape), dtype=row.dtype, device="cuda"))
        for shape in shapes
    ]
    for param in params:
        param.grad = torch.empty_like(param)
    optimizer = row.optimizer(params, fused=True, **row.options)
    (group,) = optimizer.param_groups
    (name,) = optimizer._directions_in(group)
    direction, format = DIRECTIONS[name], FORMATS[group["state_format"]]
    lists: list[list[Any]] = [[] for _ in range(4 + len(format.keys(direction.buffers)))]
    optimizer._init_group(group, name, format.name, *lists)
    part = Part(group, direction, format, *lists[:4], lists[4:])
    moving = [i % 2 == 0 for i in range(len(part.params))] if row.is_partial else None
    with torch.no_grad():
        rule, arguments = compiled.arguments_of(part, moving)
    return compiled.list_function(rule), arguments


def resnet18_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of ResNet-18's 62 parameters, in their order."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width in (64, 128, 256, 512):
        for channels in (inputs, width):
            shapes += [(width, channels, 3, 3), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            if channels != width:
                shapes += [(width, channels, 1, 1), (width,), (width,)]
        inputs = width
    return [*shapes, (1000, 512), (1000,)]


# What is read off the generated code.


class Kernel(NamedTuple):
    """A generated Triton kernel, and how many bytes it reads and writes.

    The numbers that a tensor's elements share are not counted.
    """

    name: str
    source: str
    read: int
    written: int


def described(name: str, function: Callable[..., None], arguments: Sequence[Any]) -> str:
    """Return a line of the table, from the code of ``function(*arguments)``.

    Other calls are operators of torch, and ``item``, which waits for the device. Temporaries of
    one element are left out. To call under ``pretended_gpu``, where the arguments have been made.
    """
    code = generated_code(function, arguments)
    body = code[code.index("def call(self, args)") : code.index("runner = Runner")]
    sources = re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", code, re.S)
    known = {name: Kernel(name, source, *moved_bytes(source)) for name, source in sources}
    kernels = [known[name] for name in re.findall(r"(\w+)\.run\(", body)]
    allocated = re.findall(r"= empty_strided_cuda\(\((.*?)\), \(.*?\), torch\.(\w+)\)", body)
    sizes = [(prod(map(int, re.findall(r"\d+", shape))), dtype) for shape, dtype in allocated]
    temporaries = sum(size * getattr(torch, dtype).itemsize for size, dtype in sizes if size > 1)
    others = re.findall(r"\w+\.item\(\)|(?:extern_kernels|aten|torch\.ops)\.[\w.]+(?=\()", body)
    elements = sum(param.numel() for param in arguments[0])
    read = sum(kernel.read for kernel in kernels) / elements
    written = sum(kernel.written for kernel in kernels) / elements
    cells = (
        f"{name} ({len(arguments[0])})",
        str(len(kernels)),
        f"{temporaries / elements:.2f}",
        f"{read:.1f} + {written:.1f}",
        ", ".join(others) or "none",
        resources(max(kernels, key=lambda kernel: kernel.read + kernel.written)),
    )
    return f"| {' | '.join(cells)} |"


def moved_bytes(source: str) -> tuple[int, int]:
    """Return the bytes that a kernel loads and stores; for a list it has a branch for each tensor.

    Each access counts once, with as many elements as the axes in its index have. For accesses
    under a condition, and elements that an index skips or repeats, this is too much.
    """
    dtypes = dict(re.findall(r"'(\w+)': '\*(\w+)'", source))
    branches = re.split(r"\n    (?:el)?if pid < \w+:\n", source)
    moved = {"load": 0, "store": 0}
    for branch, operation in product(branches[1:] or branches, moved):
        numels = {axis: int(n) for axis, n in re.findall(r"\b([xyz]|r\d_)numel = (\d+)", branch)}
        for pointer, index in re.findall(rf"tl\.{operation}\((\w+) \+ \((.*?)\), ", branch):
            axes = set(re.findall(r"\b([xyz]|r\d_)\d+\b", index))
            if axes:
                moved[operation] += BYTES[dtypes[pointer]] * prod(numels[axis] for axis in axes)
    return moved["load"], moved["store"]


def resources(kernel: Kernel) -> str:
    """Return what a kernel needs when compiled for ``TARGET``; to call under ``pretended_gpu``.

    Of several block sizes between which torch would choose by trying, this takes the first.
    """
    tuner = getattr(PyCodeCache.load(kernel.source), kernel.name)
    choice = tuner.configs[0]
    meta = tuner._create_compile_meta(choice)
    source = ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0])
    options = tuner._create_compile_options(choice, meta)
    ptx = triton.compile(source, target=TARGET, options=options).asm["ptx"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.ptx")
        file.write_text(ptx)
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name=sm_{TARGET.arch}", str(file)]
        command += ["-o", f"{folder}/kernel.cubin"]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (registers,) = re.findall(r"Used (\d+) registers", log)
    (spilled,) = re.findall(r"(\d+) bytes spill stores", log)
    stores = re.findall(r"\bst\.global\S*?(?:\.v(\d))?\.b(\d+)", ptx)
    widths = sorted({int(length or 1) * int(bits) // 8 for length, bits in stores})
    stored = ", ".join(map(str, widths))
    return f"{registers} registers, {spilled} bytes spilled, stores of {stored} bytes"


# The pretended GPU.


class Generated(BaseException):
    """Ends a compilation with its code; no ``Exception``, which torch would wrap in one."""


def generated_code(function: Callable[..., None], arguments: Sequence[Any]) -> str:
    """Return the module that torch's compiler writes for this call."""

    def stop(code: str) -> None:
        raise Generated(code)

    torch._dynamo.reset()
    options = config.patch(compiled.INDUCTOR_OPTIONS)
    with torch.no_grad(), options, mock.patch.object(GraphLowering, "save_output_code", stop):
        try:
            torch.compile(function, fullgraph=True, dynamic=False)(*arguments)
        except Generated as generated:
            return str(generated.args[0])
    raise RuntimeError("nothing was compiled")


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let torch's compiler find an A100, and tensors of the device "cuda" need no memory.

    The mocks stand for what torch asks CUDA and Triton's driver while it generates code: whether
    there is a device, its properties, and the target that Triton compiles for. Operators called
    from Python select the device first, which torch's CPU build cannot: in its table of devices,
    CUDA gets the entry of "meta", which does nothing. Off are a cache that would look for a real
    device, and the computation of constants on it. All this was found by trial and is for the one
    version in ``VERSIONS``: with another, something else will be missing.
    """
    per_processor = {"regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048}
    limits = {"max_threads_per_block": 1024, "warp_size": 32, **per_processor}
    a100 = SimpleNamespace(major=8, minor=0, multi_processor_count=108, **limits)
    cuda, meta = 1, 14  # of c10::DeviceType
    libc10 = CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
    guards = (c_void_p * (meta + 1)).in_dll(libc10, "_ZN3c104impl26device_guard_impl_registryE")

    driver = SimpleNamespace(get_current_target=lambda: TARGET)
    mocks: list[AbstractContextManager[Any]] = [
        mock.patch.multiple(torch.cuda, device_count=lambda: 1, current_device=lambda: 0),
        mock.patch.object(torch.cuda, "get_device_properties", return_value=a100),
        mock.patch.multiple(
            CudaInterface,
            is_available=staticmethod(lambda: True),
            is_bf16_supported=staticmethod(lambda including_emulation=False: True),
            get_device_properties=staticmethod(lambda device=None: a100),
        ),
        mock.patch.object(triton.runtime.driver, "_active", driver),
        mock.patch("torch._inductor.runtime.triton_helpers.set_driver_to_gpu"),
        config.patch(fx_graph_cache=False, joint_graph_constant_folding=False),
        FakeTensorMode(),
    ]
    with ExitStack() as stack:
        stack.callback(guards.__setitem__, cuda, guards[cuda])
        guards[cuda] = guards[meta]
        for each in mocks:
            stack.enter_context(each)
        yield


def main() -> None:
    """Print a table with a row for each step, on ResNet-18's parameters."""
    print("| step (tensors) | kernels | temporaries | read + written | calls | largest kernel |")
    print("|---|---|---|---|---|---|")
    for row in ROWS:
        with pretended_gpu():
            function, arguments = call_of(row, resnet18_shapes())
            print(described(row.name, function, arguments), flush=True)


if __name__ == "__main__":
    main()
