"""SGDF with twice its gain, for the ablation of the gain."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ...filter import filter_gradient, one_minus_power
from .base import Baseline, Group, State


class DoubleGainSGDF(Baseline):
    r"""SGDF with the gain :math:`2K` in the place of :math:`K^{1/2}`.

    .. math:: \hat g_t = \hat m_t + 2 K_t (g_t - \hat m_t)

    So the authors' public program had it from February 2025 to January 2026. Where K is above 1/2,
    the estimate lies beyond the gradient. ``sgdf.filter_gradient`` has the equations of the moments
    and of K.

    Args:
        params: parameters or groups of them.
        lr: the learning rate.
        betas: decay rates of the gradient's running mean and residual variance.
        eps: added to the squared residual.
        weight_decay: coupled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        return "exp_avg", "exp_var"

    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        once = filter_gradient(
            grad,
            state["exp_avg"],
            state["exp_var"],
            step,
            betas=group["betas"],
            eps=group["eps"],
            gamma=1.0,
        )
        state["exp_avg"], state["exp_var"] = once.mean, once.var
        corrected_mean = once.mean / one_minus_power(group["betas"][0], step)
        return 2.0 * once.estimate - corrected_mean
