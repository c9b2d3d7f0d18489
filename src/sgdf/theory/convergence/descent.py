"""Descent on the filter's estimate: many independent copies at once, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...filter import (
    FilterOutput,
    check_filter_options,
    filter_gradient,
    filter_scalars,
    power,
)
from .problems import OnlineLosses, SmoothFunction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Steps = NDArray[np.int64]

SCHEDULES = ("step", "horizon")
DRAWN_AT_ONCE = 1000


@dataclass(frozen=True)
class Descent:
    r"""How the parameters move: :math:`\theta_{t+1} = P(\theta_t - \alpha_t \hat g_t)`.

    :math:`\hat g_t` is the estimate of ``sgdf.filter_gradient``, and P the projection on the box.
    The power of the gain covers three methods: 0 is SGD, infinity the running mean
    :math:`\hat m_t` (EMA), and what is between them SGDF.

    Attributes:
        lr: :math:`\alpha`.
        schedule: ``"step"`` for :math:`\alpha_t = \alpha/\sqrt t`, ``"horizon"`` for
            :math:`\alpha/\sqrt T` at all steps of a run that ends at step T.
        gamma: the power of the gain at step 1.
        gamma_decay: makes it :math:`\gamma_t = \gamma / t^{\texttt{gamma\_decay}}`.
        betas: decay rates of the filter.
        eps: its ε.

    Raises:
        ValueError: if a value is outside its range.

    Example:
        >>> from sgdf.theory import Descent
        >>> Descent(lr=0.5).rates(4).round(3)
        array([0.5  , 0.354, 0.289, 0.25 ])
    """

    lr: float
    schedule: str = "step"
    gamma: float = 0.5
    gamma_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_filter_options(self.betas, self.eps, self.gamma, self.gamma_decay, "paper")
        if not 0.0 < self.lr < math.inf:
            raise ValueError(f"Invalid learning rate, not a positive number: {self.lr}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"Invalid schedule: {self.schedule!r}, expected one of {SCHEDULES}")

    @property
    def filter_options(self) -> dict[str, Any]:
        """The options of the filter, as its functions take them."""
        return {
            "betas": self.betas,
            "eps": self.eps,
            "gamma": self.gamma,
            "gamma_decay": self.gamma_decay,
        }

    def rates(self, horizon: int) -> Array:
        r"""Return :math:`\alpha_1, \ldots, \alpha_T` for a horizon T."""
        if self.schedule == "horizon":
            return np.full(horizon, self.lr / math.sqrt(horizon))
        return np.asarray(self.lr / np.sqrt(np.arange(1.0, horizon + 1)))

    def exponent(self, step: float | Tensor) -> float | Tensor:
        r"""Return :math:`\gamma_t`, the power of the gain at a step."""
        return filter_scalars(
            step,
            betas=self.betas,
            gamma=self.gamma,
            gamma_decay=self.gamma_decay,
            correction="paper",
        ).exponent

    def exponents(self, horizon: int) -> Array:
        r"""Return :math:`\gamma_1, \ldots, \gamma_T`."""
        exponent = self.exponent(torch.arange(1, horizon + 1, dtype=torch.float64))
        return np.broadcast_to(np.asarray(exponent, dtype=np.float64), (horizon,))

    def filtered(self, gradient: Tensor, mean: Tensor, var: Tensor, step: int) -> FilterOutput:
        r"""Return what ``sgdf.filter_gradient`` returns, with the *powered* gain as its gain."""
        out = filter_gradient(gradient, mean, var, step, **self.filter_options)
        return out._replace(gain=power(out.gain, self.exponent(step)))


class Visit(NamedTuple):
    """A step of all copies. The axes of the tensors: horizons, copies, parameters."""

    step: int
    point: Tensor
    drawn: Tensor
    gain: Tensor
    """K to the power of this step."""


def visits(
    problem: OnlineLosses | SmoothFunction,
    descent: Descent,
    horizons: Steps,
    copies: int,
    seed: int,
) -> Iterator[Visit]:
    """Yield every step up to the last horizon; ``point`` is where its gradient was taken.

    With the rates of a horizon each horizon has copies of its own. With the rates of a step all
    horizons are stages of one run, and the first axis has one entry.
    """
    own = len(horizons) if descent.schedule == "horizon" else 1
    shape = (own, copies, problem.dimension)
    rates = [torch.from_numpy(descent.rates(int(t))[:1]) for t in horizons[-own:]]
    constant_rate = torch.stack(rates)[:, :, None]
    last = int(horizons[-1])
    rate_of_step = descent.rates(last).tolist()
    generator = torch.Generator().manual_seed(seed)
    draws = problem.draws if isinstance(problem, OnlineLosses) else problem.noise
    point = torch.full(shape, problem.start, dtype=torch.float64)
    mean = var = torch.zeros(shape, dtype=torch.float64)
    drawn = torch.empty(0)
    with torch.no_grad():
        for step in range(1, last + 1):
            place = (step - 1) % DRAWN_AT_ONCE
            if place == 0:
                count = min(DRAWN_AT_ONCE, last - step + 1)
                drawn = draws.draw(generator, step, count, shape)
            if isinstance(problem, OnlineLosses):
                gradient = problem.gradient(point, drawn[place])
            else:
                gradient = problem.gradient(point) + drawn[place]
            out = descent.filtered(gradient, mean, var, step)
            mean, var = out.mean, out.var
            yield Visit(step, point, drawn[place], out.gain)
            rate = constant_rate if descent.schedule == "horizon" else rate_of_step[step - 1]
            point = (point - rate * out.estimate).clamp(*problem.box)


def check_horizons(horizons: int | Sequence[int] | Steps) -> Steps:
    """Return the horizons T as an array.

    Raises:
        ValueError: if they are not whole numbers from 1 on, in order.
    """
    given = np.atleast_1d(np.asarray(horizons))
    whole = np.issubdtype(given.dtype, np.integer) and given.ndim == 1 and given.size > 0
    if not whole or given[0] < 1 or not (np.diff(given) > 0).all():
        raise ValueError(f"Invalid steps, expected whole numbers from 1 on, in order: {horizons}")
    return given.astype(np.int64)


def spread_horizons(steps: int | Sequence[int]) -> Steps:
    """Return the horizons of a list, or about six in each decade up to a number.

    >>> spread_horizons(100)[-4:]
    array([ 32,  46,  68, 100])
    """
    given = check_horizons(steps)
    if np.ndim(steps):
        return given
    count = 1 + math.ceil(6 * math.log10(given[0]))
    return np.unique(np.geomspace(1, given[0], count).round().astype(np.int64))


def check_copies(copies: int) -> None:
    """Raise a ``ValueError`` if there is not a single copy."""
    if copies < 1:
        raise ValueError(f"Invalid number of copies, less than 1: {copies}")
