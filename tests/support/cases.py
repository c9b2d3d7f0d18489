"""The contract table: one row per optimizer, its capabilities as columns.

Every test in ``test_contract.py`` and its neighbours runs over these rows. A new
optimizer adds a row, not a test.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import sgdf
from reference import (
    ReferenceFilterAdam,
    ReferenceSGDF,
    ReferenceSignSGDF,
    ReferenceUnifiedMomentum,
)
from sgdf.optim.native.step import native_fault

Options = dict[str, Any]

DECAYS: list[Options] = [
    {},
    {"weight_decay": 0.05},
    {"weight_decay": 0.05, "decoupled_weight_decay": True},
]
DIRECTIONS: list[Options] = [{}, {"maximize": True}]
FILTERS: list[Options] = [
    {"gamma": gamma, "gamma_decay": gamma_decay, "correction": correction, "betas": betas}
    for gamma, gamma_decay, correction, betas in product(
        (0.5, 1.0, 0.3), (0.0, 0.5), ("paper", "none"), ((0.9, 0.999), (0.5, 0.9))
    )
]
EDGES: list[Options] = [
    {"eps": 0.0},
    {"eps": 1e-3},
    {"eps": float("inf")},
    {"gamma": 0.0},
    {"betas": (0.0, 0.0)},
    {"betas": (0.0, 0.999)},
    {"betas": (0.99, 0.0)},
    {"lr": 0.0},
    {"lr": torch.tensor(0.05, dtype=torch.float64)},
    {"lr": torch.tensor([0.05], dtype=torch.float64), "weight_decay": 0.05},
    {
        "lr": torch.tensor(0.05, dtype=torch.float64),
        "weight_decay": 0.05,
        "decoupled_weight_decay": True,
    },
]
SOME_FILTERS: list[Options] = [
    decay | direction | filtering
    for decay, direction, filtering in product(
        DECAYS,
        DIRECTIONS,
        [
            {},
            {"gamma": 1.0, "correction": "none"},
            {"gamma": 0.5},
            {"gamma": 0.3, "gamma_decay": 0.5, "betas": (0.5, 0.9)},
        ],
    )
]


@dataclass(frozen=True)
class Case:
    """What the tests know of one optimizer."""

    optimizer: Callable[..., torch.optim.Optimizer]
    reference: Callable[..., Any] | None
    """Where ``options`` has any."""
    options: list[Options]
    """Combinations of constructor arguments to compare with the reference."""
    buffers: dict[str, str]
    """State key to attribute of the reference."""
    lr: float
    """A learning rate that suits the small problems of the tests."""
    another: Options = field(default_factory=lambda: {"betas": (0.5, 0.9)})
    """Options unlike the defaults."""
    plain: Options | None = None
    """Options with which the first step is along the gradient itself, if there are any."""
    scale_free: bool = False
    """The size of the gradient does not matter, only that of lr."""
    jumps: bool = False
    """The direction is not continuous in the gradient."""
    orthogonal: bool = False
    """Matrices move orthogonally, after roundings in bfloat16."""
    rounding: float | None = 1e-6
    """How far float32 may be off after 500 steps, in units of the largest parameter; None if
    rounding may flip a sign, and a parameter go elsewhere."""
    coupled_decay: bool = True
    foreach: bool = True
    fused: bool = True
    compiles: bool = True
    differentiable: bool = True
    complex: bool = True
    low_precision: bool = True
    formats: tuple[str, ...] = ("full", "bfloat16", "int8", "block", "bfloat16-block", "int8-block")
    """The values of ``state_format``."""
    invalid: list[tuple[Options, str]] = field(default_factory=list)
    """Constructor arguments of its own that are refused, and what the message names."""

    @property
    def name(self) -> str:
        """The name that the test ids show."""
        return self.optimizer.__name__

    @property
    def arguments(self) -> set[str]:
        """The names of the constructor's arguments."""
        return set(inspect.signature(self.optimizer).parameters)

    def known(self, **options: Any) -> Options:
        """Return those of the options that this optimizer has."""
        return {name: value for name, value in options.items() if name in self.arguments}

    def make(self, params: Any, **options: Any) -> torch.optim.Optimizer:
        """Construct the optimizer, if need be with the ``lr`` of this table."""
        return self.optimizer(params, **{"lr": self.lr, **options})

    def buffers_of(self, param: torch.Tensor) -> list[str]:
        """Return the state keys of a parameter besides ``step``."""
        scaled = param.dim() < 2 or not self.orthogonal
        return [key for key in self.buffers if scaled or key != "exp_avg_sq"]

    @property
    def paths(self) -> list[str]:
        """The implementations to compare with each other."""
        lists = ["foreach", "foreach-capturable"] * self.foreach
        return ["single", "capturable", *lists, *(["fused"] * self.fused)]


FILTER_ERRORS = [
    ({"eps": -1e-8}, "-1e-08"),
    ({"eps": float("nan")}, "nan"),
    ({"betas": (1.0, 0.999)}, "index 0: 1.0"),
    ({"betas": (0.9, -0.1)}, "index 1: -0.1"),
    ({"betas": (0.9,)}, r"\(0.9,\)"),
    ({"betas": (torch.tensor(0.9), torch.tensor(0.99))}, "index 0, a Tensor: 0.89"),
    ({"gamma": -0.5}, "-0.5"),
    ({"gamma_decay": -1.0}, "-1.0"),
    ({"correction": "adam"}, "adam"),
]

CASES = [
    Case(
        optimizer=sgdf.SGDF,
        reference=ReferenceSGDF,
        options=[
            decay | direction | filtering
            for decay, direction, filtering in product(DECAYS, DIRECTIONS, FILTERS)
        ]
        + EDGES,
        buffers={"exp_avg": "m", "exp_var": "s"},
        lr=0.1,
        plain={},
        invalid=FILTER_ERRORS,
    ),
    Case(
        optimizer=sgdf.FilterAdam,
        reference=ReferenceFilterAdam,
        options=SOME_FILTERS
        # With beta2 = 0 it divides by the last gradient alone, and rounding grows without bound
        # where that one is near 0.
        + [edge for edge in EDGES if edge.get("betas") != (0.99, 0.0)],
        buffers={"exp_avg": "m", "exp_var": "s", "exp_avg_sq": "v"},
        lr=0.1,
        scale_free=True,
        rounding=1e-5,
        invalid=FILTER_ERRORS,
    ),
    Case(
        optimizer=sgdf.SignSGDF,
        reference=ReferenceSignSGDF,
        options=SOME_FILTERS + EDGES,
        buffers={"exp_avg": "m", "exp_var": "s"},
        lr=0.1,
        scale_free=True,
        jumps=True,
        rounding=None,
        invalid=FILTER_ERRORS,
    ),
    Case(
        optimizer=sgdf.FilterMuon,
        reference=None,  # the iteration in bfloat16 has no counterpart in NumPy
        options=[],
        buffers={"exp_avg": "m", "exp_var": "s", "exp_avg_sq": "v"},
        lr=0.1,
        scale_free=True,
        orthogonal=True,
        coupled_decay=False,
        complex=False,
        invalid=[
            *FILTER_ERRORS,
            ({"ns_steps": 0}, "1 to 99: 0"),
            ({"ns_steps": 2.5}, "1 to 99: 2.5"),
            ({"ns_coefficients": (1.0, 2.0)}, r"three numbers: \(1.0, 2.0\)"),
            ({"adjust_lr_fn": "rms"}, "adjust_lr_fn: 'rms'"),
            ({"decoupled_weight_decay": False}, "False, FilterMuon's is decoupled"),
        ],
    ),
    Case(
        optimizer=sgdf.UnifiedMomentum,
        reference=ReferenceUnifiedMomentum,
        options=[
            decay | direction | {"beta": beta, "u": u}
            for decay, direction, beta, u in product(
                DECAYS, DIRECTIONS, (0.0, 0.9, 0.99), (None, 1.0, 1.5)
            )
        ]
        + [edge for edge in EDGES if edge.keys().isdisjoint({"eps", "gamma", "betas"})],
        buffers={"exp_avg": "m"},
        lr=0.1,
        another={"beta": 0.5},
        formats=("full", "bfloat16", "int8"),
        rounding=5e-6,
        plain={"u": 1.0},
        invalid=[
            ({"beta": 1.0}, "beta value: 1.0"),
            ({"beta": -0.1}, "beta value: -0.1"),
            ({"beta": float("nan")}, "beta value: nan"),
            ({"beta": 0.9, "u": 0.05}, "at least 1 - beta = 0.1: 0.05"),
            ({"u": float("nan")}, "1 - beta = 0.1: nan"),
            ({"u": float("inf")}, "1 - beta = 0.1: inf"),
        ],
    ),
]


def skip_without(case: Case, condition: bool, capability: str) -> None:
    """Skip a test of something that the optimizer of ``case`` does not have."""
    if not condition:
        pytest.skip(f"{case.name} has no {capability}")


def describe(value: Any) -> str | None:
    """Return the name of a test's parameter, as a user would write it."""
    if isinstance(value, Case):
        return value.name
    if isinstance(value, dict):
        return ",".join(f"{key}={option}" for key, option in value.items()) or "defaults"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return None


each_case = pytest.mark.parametrize("case", CASES, ids=describe)
needs_native = pytest.mark.skipif(bool(native_fault()), reason=f"no native step: {native_fault()}")
FUSED = pytest.param("fused", marks=needs_native)
each_path = pytest.mark.parametrize("path", ["single", "foreach", FUSED])
each_traced_path = pytest.mark.parametrize("path", ["single", "foreach"])
every_path = pytest.mark.parametrize(
    "path", ["single", "foreach", FUSED, "capturable", "foreach-capturable"]
)


def build(case: Case, params: Any, path: str = "single", **options: Any) -> torch.optim.Optimizer:
    """Construct the optimizer of ``case`` so that it takes ``path``.

    ``capturable`` paths keep the step count as a tensor, which an accelerator
    needs. The refusal of the CPU is lifted so that their arithmetic is tested here.
    """
    if isinstance(options.get("lr"), torch.Tensor):
        options["lr"] = options["lr"].clone()
    capturable = path.endswith("capturable")
    choices = {"default": {}, "fused": {"fused": True}}
    choice = choices.get(path, {"foreach": path.startswith("foreach")})
    optimizer = case.make(params, capturable=capturable, **choice, **options)
    if capturable:
        optimizer._check_step = lambda: None
    return optimizer


class Quadratic:
    """A noisy parabola per shape, the same sequence of gradients for every optimizer."""

    shapes = ((3, 4), (5,), (), (2, 1, 3))

    def __init__(self, dtype: torch.dtype = torch.float64, seed: int = 0, sign: float = 1.0):
        self.dtype, self.sign = dtype, sign
        self.rng = np.random.default_rng(seed)
        self.targets = [self.rng.normal(size=shape) for shape in self.shapes]
        self.params = [
            torch.nn.Parameter(torch.tensor(self.rng.normal(size=shape), dtype=dtype))
            for shape in self.shapes
        ]

    def drop_scalars(self) -> None:
        """Leave out the tensors without dimensions."""
        self.shapes = tuple(shape for shape in self.shapes if shape)
        self.targets = [target for target in self.targets if np.ndim(target)]
        self.params = [param for param in self.params if param.dim()]

    def gradients(self, points: list[np.ndarray], noise: list[np.ndarray]) -> list[np.ndarray]:
        """Return the gradients at ``points`` with this step's noise."""
        return [
            self.sign * ((p - target) + n)
            for p, target, n in zip(points, self.targets, noise, strict=True)
        ]

    def noise(self) -> list[np.ndarray]:
        """Draw the next step's noise."""
        return [self.rng.normal(size=shape) for shape in self.shapes]

    def set_gradients(self, params: list[torch.Tensor], noise: list[np.ndarray]) -> None:
        """Write this step's gradients into ``params``."""
        points = [p.detach().double().numpy() for p in params]
        for param, grad in zip(params, self.gradients(points, noise), strict=True):
            param.grad = torch.as_tensor(grad, dtype=param.dtype)


def train(optimizer, problem, steps):
    """Take ``steps`` steps on the problem's parameters."""
    for _ in range(steps):
        problem.set_gradients(problem.params, problem.noise())
        optimizer.step()


def snapshot(optimizer):
    """Return a copy of the state that later steps do not change."""
    return copy.deepcopy(optimizer.state_dict())


def assert_equal(a, b):
    """Compare nested state dicts bit by bit."""
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b
