"""The optimizers that a spec can name; any other is named by where it is imported from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ...optim.missing_options import advice
from ..errors import SpecError
from .lookup import find, options_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


@runtime_checkable
class MeasuresLoss(Protocol):
    """An optimizer that measures the loss itself, and not only its gradient."""

    def predict(self) -> None:
        """Go to where the loss of the next step is to be measured, if it is not there yet."""

    def observe(self, loss: float) -> None:
        """Take the loss of the step that comes next."""


@runtime_checkable
class MeasuresCurvature(Protocol):
    """An optimizer that measures curvature now and then, by a backward pass of its own.

    Attributes:
        hessian_every: how many steps lie between two measurements.
    """

    hessian_every: int

    def update_hessian(self, count: int) -> None:
        """Take the gradients of a sampled loss over ``count`` examples."""


@dataclass(frozen=True)
class Entry:
    """A bundled name: the class or function behind it, and the options that go with the name.

    Attributes:
        path: where the class or function is imported from.
        about: what it is, in a few words.
        options: the options that go with the name.
        is_variant: whether it is another optimizer with one thing changed, for an ablation.
    """

    path: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_variant: bool = False


_COUPLED = {"weight_decouple": False}  # as published; the library's default is the other

OPTIMIZERS = {
    "sgdf": Entry("sgdf:SGDF", "SGD on the filtered gradient"),
    "filter-adam": Entry("sgdf:FilterAdam", "Adam on the filtered gradient"),
    "sign-sgdf": Entry("sgdf:SignSGDF", "the sign of the filtered gradient"),
    "filter-muon": Entry("sgdf:FilterMuon", "Muon on the filtered gradient"),
    "sgd": Entry("torch.optim:SGD", "SGD with classical momentum", {"momentum": 0.9}),
    "sgd-vanilla": Entry("torch.optim:SGD", "SGD without momentum", {"momentum": 0.0}),
    "sgd-ema": Entry("sgdf:UnifiedMomentum", "SGD on a running mean", {"lr": 0.1, "beta": 0.9}),
    "sgd-cm": Entry(
        "sgdf:UnifiedMomentum", "SGD on a running sum", {"lr": 0.1, "beta": 0.9, "u": 1.0}
    ),
    "adam": Entry("torch.optim:Adam", "Adam, decay coupled"),
    "adamw": Entry("torch.optim:AdamW", "Adam, decay decoupled"),
    "radam": Entry("torch.optim:RAdam", "Adam with a rectified variance"),
    "rmsprop": Entry("torch.optim:RMSprop", "RMSprop"),
    "adabelief": Entry(
        "pytorch_optimizer:AdaBelief", "Adam on the variance", {"eps": 1e-8, **_COUPLED}
    ),
    "adabound": Entry("pytorch_optimizer:AdaBound", "from Adam to SGD by bounds", _COUPLED),
    "eadam": Entry("sgdf.bench.baselines.eadam:EAdam", "Adam whose ε adds up"),
    "padam": Entry("sgdf.bench.baselines.padam:Padam", "Adam to a partial power"),
    "yogi": Entry("pytorch_optimizer:Yogi", "Adam with an additive variance", _COUPLED),
    "msvag": Entry("sgdf.bench.baselines.decayed:MSVAG", "momentum damped by variance"),
    "fromage": Entry("sgdf.bench.baselines.decayed:Fromage", "steps relative to the weights"),
    "lion": Entry("pytorch_optimizer:Lion", "the sign of an interpolated momentum"),
    "signsgd": Entry(
        "pytorch_optimizer:SignSGD", "the sign of the gradient", {"momentum": 0.0, **_COUPLED}
    ),
    "muon": Entry("sgdf.bench.baselines.muon:Muon", "orthogonal for matrices, AdamW for the rest"),
    "sophia": Entry("sgdf.bench.baselines.sophia:SophiaG", "momentum over sampled curvature"),
    "qhm": Entry(
        "pytorch_optimizer:QHM",
        "a fixed gain between gradient and mean",
        {"momentum": 0.999, "nu": 0.7},
    ),
    "koala-m": Entry("sgdf.bench.baselines.koala:KoalaM", "a Kalman filter of weights by loss"),
    "adabelief-1e-16": Entry(
        "pytorch_optimizer:AdaBelief",
        "AdaBelief with its authors' smaller ε, to compare",
        {"eps": 1e-16, **_COUPLED},
        is_variant=True,
    ),
    "signum": Entry(
        "pytorch_optimizer:SignSGD",
        "the sign of the gradient's running mean, to compare",
        {"momentum": 0.9, **_COUPLED},
        is_variant=True,
    ),
    "sgdf-k": Entry("sgdf:SGDF", "SGDF with the gain K, to compare", {"gamma": 1.0}, True),
    "sgdf-2k": Entry(
        "sgdf.bench.baselines.double_gain:DoubleGainSGDF",
        "SGDF with the gain 2K, to compare",
        is_variant=True,
    ),
}

ALL = tuple(name for name, entry in OPTIMIZERS.items() if not entry.is_variant)
"""The optimizers that a comparison of all has."""


def find_optimizer(name: str) -> Callable[..., Any]:
    """Return the class or function that a spec names."""
    return find(name, {name: entry.path for name, entry in OPTIMIZERS.items()}, "optimizer")


def optimizer_preset(name: str) -> Mapping[str, Any]:
    """Return the options that go with the name of a bundled optimizer."""
    return OPTIMIZERS[name].options if name in OPTIMIZERS else {}


def optimizer_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option of the optimizer, its defaults included.

    Raises:
        SpecError: if an option is unknown, missing or of a wrong type.
    """
    target, options = find_optimizer(name), {**optimizer_preset(name), **given}
    if text := advice(target, options):
        raise SpecError(text)
    return options_of(target, options, skip=1)


def optimizer_maker(name: str, options: Mapping[str, Any]) -> Callable[..., Optimizer]:
    """Return a function that makes the optimizer for given parameters.

    Keyword arguments of the function take the place of the options.
    """
    from torch.optim import Optimizer  # torch takes a second: names can be checked without it

    target = find_optimizer(name)

    def make(params: Iterable[Tensor], **changes: Any) -> Optimizer:
        optimizer = target(params, **{**options, **changes})
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{name} made a {type(optimizer).__name__}, not an Optimizer")
        return optimizer

    return make
