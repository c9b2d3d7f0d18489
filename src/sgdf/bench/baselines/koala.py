"""KOALA-M, a Kalman filter that measures the loss; the training loop must pass it the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.optim.optimizer import Optimizer, ParamsT

from .base import Group, State, check


class KoalaM(Optimizer):
    r"""A Kalman filter over parameters and velocities that measures one number, the loss.

    The model predicts that parameters :math:`x` and velocities :math:`p` move by
    :math:`F = \begin{pmatrix} 1 & 1 \\ 0 & κ \end{pmatrix}`, and that the loss is its target up to
    noise of variance :math:`R`. All elements share one 2×2 covariance :math:`P`. A
    step is a prediction and then, with :math:`g_ℓ` the gradient there of each tensor, the update:

    .. math::
        \hat x = x + p, \qquad \hat p = κ p, \qquad \hat P = F P F^T + \mathrm{diag}(Q, q_p)

        x_ℓ = \hat x_ℓ - α \hat P_{xx} L_ℓ g_ℓ / S_ℓ, \qquad
        p_ℓ = \hat p_ℓ - α \hat P_{xp} L_ℓ g_ℓ / S_ℓ, \qquad
        S_ℓ = \hat P_{xx} |g_ℓ|^2 + R

        P = \hat P - \max_ℓ (|g_ℓ|^2 / S_ℓ) \, \hat P e_1 e_1^T \hat P

    :math:`R` is a running mean of :math:`L^2` and :math:`Q` one of :math:`|x - \bar x| / n` over
    all :math:`n` elements, with :math:`\bar x` the running mean of :math:`x`, starting at 0. A
    learning rate α means a target of :math:`(1-α) L`. Decay is part of the measurement:
    :math:`L_ℓ = L + λ|\hat x_ℓ|^2 / 2`.

    Davtyan et al., "KOALA: A Kalman Optimization Algorithm with Loss Adaptivity" (2022); noise
    and constants are from their code. Losses must not be negative.

    Call ``predict()`` before the loss is computed and ``observe(loss)`` before ``step()``; with a
    closure ``step`` calls both itself.

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        momentum: κ.
        betas: decay rates of the running means: of R, and of Q and x.
        variances: initial variances of parameters and velocities in P.
        noise: the initial Q, and the constant q_p.
        eps: a tensor whose gradient has a smaller norm keeps its prediction.
        weight_decay: λ, coupled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.9),
        variances: tuple[float, float] = (0.1, 0.1),
        noise: tuple[float, float] = (0.01, 0.01),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        options: dict[str, Any] = {"lr": lr, "betas": betas, "eps": eps}
        options |= {"weight_decay": weight_decay, "momentum": momentum, "noise": noise}
        check(options)
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        for name, pair in (("variances", variances), ("noise", noise)):
            if not all(value > 0.0 for value in pair):
                raise ValueError(f"Invalid {name} value: {pair}")
        super().__init__(params, options)
        self._loss: float | None = None
        # Numbers that all tensors share, stored with the first: so they are in state_dict().
        self._shared.update(
            covariance=[variances[0], 0.0, variances[1]],
            loss_variance=1.0,
            drift=noise[0],
            predicted=False,
        )

    @property
    def _shared(self) -> State:
        state: State = self.state[self.param_groups[0]["params"][0]]
        return state

    @torch.no_grad()
    def predict(self) -> None:
        """Move the parameters to their prediction; a second call before ``step`` does nothing."""
        shared, options = self._shared, self.param_groups[0]
        if shared["predicted"]:
            return
        momentum, beta = options["momentum"], options["betas"][1]
        away, count = [], 0
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if "velocity" not in state:
                    state["velocity"], state["mean"] = (torch.zeros_like(param) for _ in range(2))
                away.append(vector_norm(param - state["mean"]).item())
                count += param.numel()
                param.add_(state["velocity"])
                state["velocity"].mul_(momentum)
        away_from_mean = sum(norm * norm for norm in away) ** 0.5 / count
        drift = beta * shared["drift"] + (1.0 - beta) * away_from_mean
        xx, xp, pp = shared["covariance"]
        xx, xp = xx + 2.0 * xp + pp + drift, momentum * (xp + pp)
        pp = momentum * momentum * pp + options["noise"][1]
        shared.update(covariance=[xx, xp, pp], drift=drift, predicted=True)

    def observe(self, loss: Tensor | float) -> None:
        """Set the loss for the next step: of the whole batch, and not scaled."""
        self._loss = float(loss.detach() if isinstance(loss, Tensor) else loss)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor | float] | None = None) -> Tensor | float | None:  # type: ignore[override]  # as in torch's own optimizers
        """Update the parameters once."""
        returned = None
        if closure is not None:
            self.predict()
            with torch.enable_grad():
                returned = closure()
            self.observe(returned)
        shared, beta = self._shared, self.param_groups[0]["betas"][0]
        if self._loss is None or not shared["predicted"]:
            raise RuntimeError("call predict() and observe(loss) before step() without a closure")
        loss, self._loss = self._loss, None
        variance = beta * shared["loss_variance"] + (1.0 - beta) * loss * loss
        squares = [
            self._update(param, param.grad, group, loss, variance)
            for group in self.param_groups
            for param in group["params"]
            if param.grad is not None
        ]
        xx, xp, pp = shared["covariance"]
        if largest := max(squares, default=0.0):
            rest = variance / (xx * largest + variance)  # 1 - xx max(|g|²/S), without rounding
            xx, xp, pp = xx * rest, xp * rest, pp - xp * xp / xx * (1.0 - rest)
        shared.update(covariance=[xx, xp, pp], loss_variance=variance, predicted=False)
        return returned

    def _update(
        self, param: Tensor, grad: Tensor, group: Group, loss: float, variance: float
    ) -> float:
        """Update one tensor; return its gradient's squared norm, or 0 if that is too small."""
        decay, state = group["weight_decay"], self.state[param]
        grad = grad.add(param, alpha=decay)
        if (norm := vector_norm(grad).item()) < group["eps"]:
            return 0.0
        size = vector_norm(param).item()
        xx, xp, _ = self._shared["covariance"]
        measured = loss + 0.5 * decay * size * size
        scale = float(group["lr"]) * measured / (xx * norm * norm + variance)
        param.sub_(grad, alpha=scale * xx)
        state["velocity"].sub_(grad, alpha=scale * xp)
        state["mean"].lerp_(param, 1.0 - self.param_groups[0]["betas"][1])
        return float(norm * norm)
