"""FilterMuon: orthogonal steps along the filtered gradient; Adam's for all but matrices."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..directions import NS_COEFFICIENTS, SHAPE_SCALES
from ..filter import is_number
from .direction_table import Group
from .filter_optimizer import FilterOptimizer
from .missing_options import advises


class FilterMuon(FilterOptimizer):
    r"""Muon whose momentum is the output of an online optimal linear filter.

    .. math:: \theta_t = (1 - \mathrm{lr}\,\lambda)\,\theta_{t-1}
        - \mathrm{lr} \cdot \operatorname{orthogonal}(\hat g_t)

    where :math:`\hat g_t` is the output of :func:`sgdf.filter_gradient`, which has the
    equations, and ``orthogonal`` brings its singular values near 1 by Newton–Schulz
    iterations and scales it by its shape. A convolution is a matrix of its output channels by
    the rest. With ``gamma=0`` a matrix moves as under ``torch.optim.Muon`` with
    ``momentum=0, nesterov=False``.

    A group may have a ``direction`` of its own: ``"orthogonal"``, ``"adam"`` (the update of
    :class:`sgdf.FilterAdam`) or ``"sgdf"`` (that of :class:`sgdf.SGDF`). Without it,
    parameters of two or more dimensions move orthogonally and the others along Adam's
    direction, with the same ``lr``. :func:`sgdf.muon_groups` sorts a model's parameters.

    Args:
        params: parameters, named parameters or groups, as in ``torch.optim``. Complex ones
            are refused.
        lr: learning rate, a number or a Tensor; Muon's.
        betas: decay rates of the gradient's running mean, and of its residual variance (in
            Adam's direction also of its mean square).
        eps: added to the squared residual; in Adam's direction also to the root of the mean
            square.
        gamma: power of the gain.
        weight_decay: strength of the decay, which is decoupled.
        ns_steps: number of Newton–Schulz iterations, from 1 to 99.
        ns_coefficients: coefficients of the iteration's polynomial, as in ``torch.optim.Muon``.
        adjust_lr_fn: how the shape scales an orthogonal step, as in ``torch.optim.Muon``: None
            or ``"original"``, or ``"match_rms_adamw"`` to keep AdamW's learning rate.
        decoupled_weight_decay: must be True.
        fused: as in :class:`sgdf.SGDF`, for all directions but the orthogonal one.

    ``correction``, ``gamma_decay``, ``maximize``, ``foreach``, ``capturable``,
    ``differentiable``, ``state_format`` and ``stochastic_rounding`` are as in
    :class:`sgdf.SGDF`.

    Example:
        >>> import torch, sgdf
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> optimizer = sgdf.FilterMuon(model.parameters(), lr=0.02)
        >>> model(torch.randn(2, 3, 5, 5)).square().mean().backward()
        >>> optimizer.step()
        >>> ["exp_avg_sq" in optimizer.state[p] for p in model.parameters()]
        [False, True, True, True]
    """

    _directions: ClassVar = ("orthogonal", "adam", "sgdf")

    @advises
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        gamma: float = 0.5,
        weight_decay: float = 0.0,
        *,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = NS_COEFFICIENTS,
        adjust_lr_fn: str | None = None,
        decoupled_weight_decay: bool = True,
        correction: str = "paper",
        gamma_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        state_format: str = "full",
        stochastic_rounding: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            gamma=gamma,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            correction=correction,
            gamma_decay=gamma_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            differentiable=differentiable,
            state_format=state_format,
            stochastic_rounding=stochastic_rounding,
            ns_steps=ns_steps,
            ns_coefficients=ns_coefficients,
            adjust_lr_fn=adjust_lr_fn,
            direction=None,
        )

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        steps, coefficients = group["ns_steps"], group["ns_coefficients"]
        if not isinstance(steps, int) or not 1 <= steps < 100:
            raise ValueError(f"Invalid ns_steps value, expected 1 to 99: {steps}")
        is_triple = isinstance(coefficients, (tuple, list)) and len(coefficients) == 3
        if not is_triple or not all(map(is_number, coefficients)):
            raise ValueError(f"Invalid ns_coefficients, expected three numbers: {coefficients}")
        if group["adjust_lr_fn"] not in SHAPE_SCALES:
            raise ValueError(
                f"Invalid adjust_lr_fn: {group['adjust_lr_fn']!r}, expected one of {SHAPE_SCALES}"
            )
        if group["direction"] not in (None, *self._directions):
            raise ValueError(
                f"Invalid direction: {group['direction']!r}, expected one of {[*self._directions]}"
            )
        if not group["decoupled_weight_decay"]:
            raise ValueError(
                "Invalid decoupled_weight_decay: False, FilterMuon's is decoupled; leave it out"
            )

    def _check_params(self, group: Group, params: list[Tensor]) -> None:
        super()._check_params(group, params)
        for param in params:
            if param.is_complex():
                raise ValueError(f"FilterMuon does not support complex parameters: {param.dtype}")
            if param.dim() < 2 and group["direction"] == "orthogonal":
                raise ValueError(
                    f"Invalid direction: 'orthogonal' for a parameter of shape "
                    f"{tuple(param.shape)}; it takes two dimensions or more"
                )

    def _directions_in(self, group: Group) -> tuple[str, ...]:
        return (group["direction"],) if group["direction"] else ("orthogonal", "adam")

    def _direction_of(self, group: Group, param: Tensor) -> str:
        return group["direction"] or ("orthogonal" if param.dim() >= 2 else "adam")
