"""The paper's algorithms, written down line by line in float64 NumPy, and how states are stored."""

from __future__ import annotations

import numpy as np


class ReferenceSGDF:
    """SGDF on one array; the options are those of ``sgdf.SGDF``."""

    shares_variance = False
    """Whether the array has one variance, which is used one step later."""

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
        square = (g - self.m) ** 2
        if self.shares_variance:
            s_hat = self.s / (1 - beta2 ** (t - 1)) if t > 1 else np.zeros_like(g)
            self.s = np.full_like(g, (beta2 * self.s + (1 - beta2) * square.mean()).flat[0])
        else:
            self.s = beta2 * self.s + (1 - beta2) * square
            s_hat = self.s / (1 - beta2**t)
        m_hat = self.m / (1 - beta1**t)
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


# How states and parameters are stored: each number at one of its two neighbours in the format.

BLOCK = 256


def noise(stream, parameter, step, size):
    """Return 32 random bits for each element, as the documentation of the noise defines them."""
    mask = 0xFFFFFFFF

    def scramble(x, key):
        x = x ^ x >> 15
        x = (x * 0x2C1B3C6D + key) & mask
        x = x ^ x >> 12
        x = x * 0x297A2D39 & mask
        return x ^ x >> 15

    key = 0
    for number in (0, stream, parameter, step):  # the seed is 0
        key = scramble(((key ^ number) + 0x9E3779B9) & mask, 0)
    second = scramble(((key ^ 1) + 0x9E3779B9) & mask, 0)
    # Products of 32 and 31 bits: uint64 holds them.
    indices = np.arange(size, dtype=np.uint64)  # fewer than 2^32
    return scramble(indices ^ np.uint64(key), np.uint64(second)).astype(np.int64)


def round_to_half(x, random, digits, smallest):
    """Return float64 numbers with so many binary digits, the least of them worth ``smallest``."""
    size = np.abs(np.asarray(x, dtype=np.float32).astype(np.float64))
    exponent = np.floor(np.log2(np.maximum(size, smallest)))
    spacing = np.maximum(2.0 ** (exponent - digits + 1), smallest)
    return np.sign(x) * np.floor(size / spacing + random / 65536) * spacing


def blocks_of(x):
    """Return the slices of the blocks in a flat array: they never cross a row."""
    rows = len(x) if x.ndim > 1 else 1
    length = x.size // rows
    return [
        slice(row * length + start, row * length + min(start + BLOCK, length))
        for row in range(rows)
        for start in range(0, length, BLOCK)
    ]


def round_to_int8(x, random):
    """Return numbers and codes."""
    flat, numbers, codes = x.ravel(), np.zeros(x.size), np.zeros(x.size, dtype=np.int64)
    for block in blocks_of(x):
        scale = np.abs(flat[block]).max() / 127
        if scale > 0:
            steps = np.floor(flat[block] / scale + random.ravel()[block] / 65536)
            codes[block] = np.clip(steps, -127, 127)
            numbers[block] = codes[block] * scale
    return numbers.reshape(x.shape), codes.reshape(x.shape)


def round_to_float8(x, random):
    """Return numbers and codes."""
    flat, numbers, codes = x.ravel(), np.zeros(x.size), np.zeros(x.size, dtype=np.int64)
    for block in blocks_of(x):
        scale = flat[block].max() / 0.875
        if scale > 0:
            raised = flat[block] / scale + 2.0**-32
            exponent = np.floor(np.log2(raised))
            eighths = np.floor(
                raised / 2.0 ** (exponent - 3) + (random.ravel()[block] + 0.5) / 65536
            )
            codes[block] = np.minimum((exponent + 32) * 8 + eighths - 8, 254)
            kept = (1 + codes[block] % 8 / 8) * 2.0 ** (codes[block] // 8 - 32)
            numbers[block] = (kept - 2.0**-32) * scale
    return numbers.reshape(x.shape), codes.reshape(x.shape)


class Stored:
    """A reference whose numbers are stored in a format after each step."""

    def __init__(self, reference, state_format, number, dtype, rounds):
        """Take a reference, the number of its parameter, and the name of the parameter's dtype."""
        self.reference, self.number, self.dtype, self.rounds = reference, number, dtype, rounds
        reference.shares_variance = "block" in state_format
        mean = state_format.removesuffix("-block").replace("block", "full")
        self.formats = {"m": mean, "s": "full" if "block" in state_format else mean, "v": mean}
        self.codes = {}
        self.t = 0

    def step(self, grad):
        """Take a step."""
        self.t += 1
        self.reference.step(grad)
        size = self.reference.theta.size
        shape = self.reference.theta.shape
        state, param = (noise(i, self.number, self.t, size).reshape(shape) for i in (0, 1))
        randoms = {"m": state & 0xFFFF, "s": state >> 16, "v": param >> 16}
        for name, random in randoms.items():
            if hasattr(self.reference, name) and np.ndim(getattr(self.reference, name)):
                self.store(name, random)
        if self.rounds and self.dtype == "bfloat16":
            self.reference.theta = round_to_half(self.reference.theta, param & 0xFFFF, 8, 2.0**-133)
        elif self.rounds and self.dtype == "float16":
            random = param & 0xFFFF
            normal = np.abs(self.reference.theta) >= 2.0**-14
            random = np.where(normal, random >> 3 << 3, random)  # 13 bits are dropped
            self.reference.theta = round_to_half(self.reference.theta, random, 11, 2.0**-24)

    def store(self, name, random):
        """Replace a buffer by what its format keeps of it."""
        numbers, format = getattr(self.reference, name), self.formats[name]
        if format == "bfloat16":
            numbers = round_to_half(numbers, random, 8, 2.0**-133)
            self.codes[name] = None
        elif format == "int8":
            to_codes = round_to_int8 if name == "m" else round_to_float8
            numbers, self.codes[name] = to_codes(numbers, random)
        setattr(self.reference, name, numbers)
