"""The paper's algorithms, written down line by line in float64 NumPy."""

from __future__ import annotations

import numpy as np


class ReferenceSGDF:
    """SGDF on one array; the options are those of ``sgdf.SGDF``."""

    def __init__(
        self,
        theta,
        lr=0.5,
        betas=(0.9, 0.999),
        eps=1e-8,
        gamma=0.5,
        weight_decay=0.0,
        decoupled_weight_decay=False,
        correction="paper",
        gamma_decay=0.0,
        maximize=False,
    ):
        self.theta = np.array(theta, dtype=np.float64)
        self.lr, self.betas, self.eps, self.gamma = float(lr), betas, eps, gamma
        self.weight_decay, self.decoupled = weight_decay, decoupled_weight_decay
        self.correction, self.gamma_decay, self.maximize = correction, gamma_decay, maximize
        self.t = 0
        self.m = np.zeros_like(self.theta)
        self.s = np.zeros_like(self.theta)

    def step(self, grad):
        """Take one step and return the gain."""
        beta1, beta2 = self.betas
        self.t += 1
        t = self.t

        g = np.array(grad, dtype=np.float64)
        if self.maximize:
            g = -g
        if self.decoupled:
            self.theta = self.theta - self.lr * self.weight_decay * self.theta
        else:
            g = g + self.weight_decay * self.theta

        self.m = beta1 * self.m + (1 - beta1) * g
        self.s = beta2 * self.s + (1 - beta2) * (g - self.m) ** 2
        m_hat = self.m / (1 - beta1**t)
        s_hat = self.s / (1 - beta2**t)
        if self.correction == "paper":
            s_hat = s_hat * (1 - beta1) * (1 - beta1 ** (2 * t)) / (1 + beta1)

        denominator = s_hat + (g - m_hat) ** 2 + self.eps
        gain = np.divide(s_hat, denominator, out=np.zeros_like(s_hat), where=denominator > 0)
        g_hat = m_hat + gain ** (self.gamma / t**self.gamma_decay) * (g - m_hat)
        self.theta = self.theta - self.lr * self.direction(g_hat, g)
        return gain

    def direction(self, g_hat, g):
        """Return what the parameter moves along, given the estimate and the gradient."""
        return g_hat


class ReferenceFilterAdam(ReferenceSGDF):
    """Adam with the estimate in the place of its first moment."""

    v = 0.0

    def direction(self, g_hat, g):
        """Divide by the root of the gradients' mean square."""
        beta2 = self.betas[1]
        self.v = beta2 * self.v + (1 - beta2) * g**2
        v_hat = self.v / (1 - beta2**self.t)
        denominator = np.sqrt(v_hat) + self.eps
        return np.divide(g_hat, denominator, out=np.zeros_like(g_hat), where=denominator > 0)


class ReferenceSignSGDF(ReferenceSGDF):
    """The sign of the estimate."""

    def __init__(self, theta, gamma=1.0, **options):
        super().__init__(theta, gamma=gamma, **options)

    def direction(self, g_hat, g):
        """Leave the size out of account."""
        return np.sign(g_hat)


class ReferenceUnifiedMomentum:
    """Definition 2.1."""

    def __init__(
        self,
        theta,
        lr,
        beta=0.9,
        u=None,
        weight_decay=0.0,
        decoupled_weight_decay=False,
        maximize=False,
    ):
        self.theta = np.array(theta, dtype=np.float64)
        self.lr, self.beta, self.u = float(lr), beta, 1 - beta if u is None else u
        self.weight_decay, self.decoupled = weight_decay, decoupled_weight_decay
        self.maximize = maximize
        self.m = np.zeros_like(self.theta)

    def step(self, grad):
        """Take one step."""
        g = -np.asarray(grad) if self.maximize else np.asarray(grad)
        if self.decoupled:
            self.theta = self.theta - self.lr * self.weight_decay * self.theta
        else:
            g = g + self.weight_decay * self.theta
        self.m = self.beta * self.m + self.u * g
        self.theta = self.theta - self.lr * self.m
