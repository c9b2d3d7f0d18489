"""Each optimizer that the bench compares with, against its published equations in NumPy."""

import math

import numpy as np
import pytest
import torch

from sgdf.bench.catalog.optimizers import OPTIMIZERS, optimizer_maker, optimizer_options
from sgdf.bench.errors import SpecError

STEPS, SHAPES = 500, ((3, 4), (5,), ())
LR, DECAY = 0.01, 0.03


class Moments:
    """Running means of the gradient and its square, and the number of the step."""

    def __init__(self, beta1, beta2, start=0.0):
        self.beta1, self.beta2, self.m, self.v, self.t = beta1, beta2, start, start, 0

    def mean(self, g):
        """Return the running mean with another gradient in it."""
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        return self.m

    def square(self, g):
        """Return that of the squares."""
        self.v = self.beta2 * self.v + (1 - self.beta2) * g**2
        return self.v


def adabelief(beta1=0.9, beta2=0.999, eps=1e-8):
    """Zhuang et al. (2020), Algorithm 2."""
    state = Moments(beta1, beta2)

    def step(p, g):
        state.t += 1
        m = state.mean(g)
        state.v = beta2 * state.v + (1 - beta2) * (g - m) ** 2 + eps
        return p - LR * (m / (1 - beta1**state.t)) / (np.sqrt(state.v / (1 - beta2**state.t)) + eps)

    return step


def adabound(beta1=0.9, beta2=0.999, eps=1e-8, final_lr=0.1, gamma=1e-3):
    """Luo et al. (2019), with Adam's bias correction and a final rate, as their program has."""
    state = Moments(beta1, beta2)

    def step(p, g):
        state.t += 1
        m, v, t = state.mean(g), state.square(g), state.t
        rate = LR * math.sqrt(1 - beta2**t) / (1 - beta1**t) / (np.sqrt(v) + eps)
        low, high = final_lr * (1 - 1 / (gamma * t + 1)), final_lr * (1 + 1 / (gamma * t))
        return p - np.clip(rate, low, high) * m

    return step


def eadam(beta1=0.9, beta2=0.999, eps=1e-8):
    """Yuan and Gao (2020)."""
    state = Moments(beta1, beta2)

    def step(p, g):
        state.t += 1
        m, v = state.mean(g), state.square(g) + eps
        state.v = v
        return p - LR * (m / (1 - beta1**state.t)) / np.sqrt(v / (1 - beta2**state.t))

    return step


def padam(beta1=0.9, beta2=0.999, eps=1e-8, partial=0.125):
    """Chen et al. (2018), Algorithm 1, with their program's ε."""
    state, largest = Moments(beta1, beta2), [0.0]

    def step(p, g):
        m = state.mean(g)
        largest[0] = np.maximum(largest[0], state.square(g))
        return p - LR * m / (np.sqrt(largest[0]) + eps) ** (2 * partial)

    return step


def yogi(beta1=0.9, beta2=0.999, eps=1e-3, start=1e-6):
    """Zaheer et al. (2018), Algorithm 2, with Adam's bias correction and both moments begun."""
    state = Moments(beta1, beta2, start)

    def step(p, g):
        state.t += 1
        m = state.mean(g)
        state.v = state.v - (1 - beta2) * np.sign(state.v - g**2) * g**2
        return p - LR * (m / (1 - beta1**state.t)) / (np.sqrt(state.v / (1 - beta2**state.t)) + eps)

    return step


def msvag(beta=0.9):
    """Balles and Hennig (2018), Algorithm 3."""
    state = Moments(beta, beta)

    def step(p, g):
        state.t += 1
        m, v = state.mean(g) / (1 - beta**state.t), state.square(g) / (1 - beta**state.t)
        if state.t == 1:  # no variance is known yet
            return p - LR * m
        rho = (1 - beta) * (1 + beta**state.t) / ((1 + beta) * (1 - beta**state.t))
        s = (v - m**2) / (1 - rho)
        return p - LR * m**2 / (m**2 + rho * s) * m

    return step


def fromage():
    """Bernstein et al. (2020), Algorithm 1."""

    def step(p, g):
        ratio = np.linalg.norm(p) / np.linalg.norm(g)
        return (p - LR * ratio * g) / math.sqrt(1 + LR**2)

    return step


def signsgd():
    """Bernstein et al. (2018)."""
    return lambda p, g: p - LR * np.sign(g)


def signum(beta=0.9):
    """Bernstein et al. (2018), with the momentum that its Algorithm 1 has."""
    state = Moments(beta, 0.0)
    return lambda p, g: p - LR * np.sign(state.mean(g))


def qhm(beta=0.999, nu=0.7):
    """Ma and Yarats (2019)."""
    state = Moments(beta, 0.0)

    def step(p, g):
        return p - LR * ((1 - nu) * g + nu * state.mean(g))

    return step


def lion(beta1=0.9, beta2=0.99):
    """Chen et al. (2023), Algorithm 2; its decay is decoupled."""
    mean = [0.0]

    def step(p, g):
        direction = np.sign(beta1 * mean[0] + (1 - beta1) * g)
        mean[0] = beta2 * mean[0] + (1 - beta2) * g
        return p - LR * (direction + DECAY * p)

    return step


def sophia(beta1=0.965, beta2=0.99, rho=0.04, eps=1e-12):
    """Liu et al. (2023), Algorithm 3, before any look at the curvature."""
    state = Moments(beta1, beta2)

    def step(p, g):
        m = state.mean(g)
        return p - LR * DECAY * p - LR * np.clip(m / max(rho * state.v, eps), -1, 1)

    return step


def rmsprop(alpha=0.99, eps=1e-8):
    """Hinton (2012)."""
    state = Moments(0.0, alpha)
    return lambda p, g: p - LR * g / (np.sqrt(state.square(g)) + eps)


def adam(beta1=0.9, beta2=0.999, eps=1e-8):
    """Kingma and Ba (2014), Algorithm 1."""
    state = Moments(beta1, beta2)

    def step(p, g):
        state.t += 1
        m, v = state.mean(g) / (1 - beta1**state.t), state.square(g) / (1 - beta2**state.t)
        return p - LR * m / (np.sqrt(v) + eps)

    return step


def adamw():
    """Loshchilov and Hutter (2019): decay decoupled."""
    step = adam()
    return lambda p, g: step(p, g) - LR * DECAY * p


def radam(beta1=0.9, beta2=0.999, eps=1e-8):
    """Liu et al. (2020), Algorithm 2; torch's ε stands beside the root."""
    state, end = Moments(beta1, beta2), 2 / (1 - beta2) - 1

    def step(p, g):
        state.t += 1
        t, m, v = state.t, state.mean(g) / (1 - beta1**state.t), state.square(g)
        length = end - 2 * t * beta2**t / (1 - beta2**t)
        if length <= 5:  # the paper's program; its text has 4
            return p - LR * m
        rectified = math.sqrt((length - 4) * (length - 2) * end / ((end - 4) * (end - 2) * length))
        return p - LR * rectified * m * math.sqrt(1 - beta2**t) / (np.sqrt(v) + eps)

    return step


def sgd(momentum=0.9):
    """SGD with classical momentum, as torch has it: the first buffer is the first gradient."""
    buffer = [0.0]

    def step(p, g):
        buffer[0] = momentum * buffer[0] + g
        return p - LR * buffer[0]

    return step


def gained(gain, beta1=0.9, beta2=0.999, eps=1e-8):
    """Algorithm 1 of the paper with another function of its gain K in the place of its root."""
    state = Moments(beta1, beta2)

    def step(p, g):
        state.t += 1
        m = state.mean(g)
        state.v = beta2 * state.v + (1 - beta2) * (g - m) ** 2
        mean = m / (1 - beta1**state.t)
        shrink = (1 - beta1) * (1 - beta1 ** (2 * state.t)) / (1 + beta1)
        s = shrink * state.v / (1 - beta2**state.t)
        k = s / (s + (g - mean) ** 2 + eps)
        return p - LR * (mean + gain(k) * (g - mean))

    return step


REFERENCES = {
    "sgdf-k": lambda: gained(lambda k: k), "sgdf-2k": lambda: gained(lambda k: 2 * k),
    "adabelief": adabelief, "adabelief-1e-16": lambda: adabelief(eps=1e-16), "adabound": adabound,
    "eadam": eadam, "padam": padam, "yogi": yogi,
    "msvag": msvag, "fromage": fromage, "signsgd": signsgd, "signum": signum, "qhm": qhm,
    "lion": lion, "rmsprop": rmsprop, "adam": adam, "adamw": adamw, "radam": radam,
    "sophia": sophia, "sgd": sgd, "sgd-vanilla": lambda: sgd(0.0),
}  # fmt: skip
DECOUPLED = ("lion", "adamw", "sophia")
LOOSER = {"adabound": 1e-9}  # the library adds 1e-15 to the second moment
TESTED_ELSEWHERE = {
    "muon", "sgdf", "filter-adam", "sign-sgdf", "filter-muon", "sgd-ema", "sgd-cm", "koala-m",
}  # fmt: skip


def build(name, params, **options):
    options = optimizer_options(name, {"lr": LR, **options})
    return optimizer_maker(name, options)(params)


def test_every_bundled_optimizer_has_a_reference():
    assert set(REFERENCES) | TESTED_ELSEWHERE == set(OPTIMIZERS)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("name", REFERENCES)
def test_published_equations(name, decay, foreach, monkeypatch):
    """500 steps on a noisy bowl, float64, with coupled decay unless it is decoupled."""
    monkeypatch.setitem(globals(), "DECAY", decay)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in SHAPES]
    params = [torch.nn.Parameter(torch.tensor(value)) for value in values]
    optimizer = build(name, params, weight_decay=decay)
    for group in optimizer.param_groups:
        if "foreach" in group:
            group["foreach"] = foreach
    steps = [REFERENCES[name]() for _ in SHAPES]
    for _ in range(STEPS):
        noise = [rng.normal(size=shape) for shape in SHAPES]
        for index, param in enumerate(params):
            grad = values[index] + noise[index]
            param.grad = torch.tensor(grad)
            if name not in DECOUPLED:
                grad = grad + decay * values[index]
            values[index] = steps[index](values[index], grad)
        optimizer.step()
    for param, value in zip(params, values, strict=True):
        np.testing.assert_allclose(
            param.detach().numpy(), value, rtol=0, atol=LOOSER.get(name, 1e-12) * 10
        )


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_2000_steps_stay_finite(name):
    """Float32, with gradients that are now and then zero, tiny or large."""
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES[:2]]
    optimizer = build(name, params)
    for step in range(2000):
        scale = {0: 0.0, 1: 1e-20, 2: 1e6}.get(step % 10, 1.0)
        for param in params:
            param.grad = scale * torch.randn(param.shape, generator=generator)
        if name == "koala-m":
            optimizer.step(lambda scale=scale: scale)
        else:
            optimizer.step()
    assert all(torch.isfinite(param).all() for param in params)


@pytest.mark.parametrize("scaling", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_is_torchs_on_matrices_and_adamw_elsewhere(nesterov, scaling):
    generator = torch.Generator().manual_seed(0)
    shapes = ((6, 4), (3, 5), (4, 2, 3, 3), (7,), ())
    own, theirs = (
        [torch.nn.Parameter(torch.randn(s, generator=generator.manual_seed(1))) for s in shapes]
        for _ in range(2)
    )
    flat = torch.nn.Parameter(theirs[2].detach().flatten(1))
    options = {"lr": 0.02, "weight_decay": 0.1}
    muon = {"nesterov": nesterov, "adjust_lr_fn": scaling}
    optimizer = build("muon", own, **options, **muon)
    others = [
        torch.optim.Muon([*theirs[:2], flat], momentum=0.95, **options, **muon),
        torch.optim.AdamW(theirs[3:], **options),
    ]
    for _ in range(50):
        grads = [torch.randn(shape, generator=generator) for shape in shapes]
        for param, grad in zip(own, grads, strict=True):
            param.grad = grad.clone()
        for param, grad in zip([*theirs[:2], flat, *theirs[3:]], grads, strict=True):
            param.grad = grad.reshape(param.shape)
        for one in (optimizer, *others):
            one.step()
    for param, other in zip(own, [*theirs[:2], flat, *theirs[3:]], strict=True):
        torch.testing.assert_close(param.reshape(other.shape), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["msvag", "fromage"])
def test_added_decay_leaves_the_gradient_and_checkpoints_alone(name):
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = build(name, [param], weight_decay=0.5)
    param.grad = given = torch.ones(3)
    optimizer.step()
    assert param.grad is given
    assert torch.equal(given, torch.ones(3))
    other = build(name, [torch.nn.Parameter(torch.ones(3))], weight_decay=0.1)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["weight_decay"] == 0.5
    with pytest.raises(ValueError, match="Invalid weight_decay"):
        build(name, [param], weight_decay=-1.0)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("eadam", {"eps": -1.0}),
        ("eadam", {"betas": (1.0, 0.9)}),
        ("padam", {"partial": 0.6}),
        ("muon", {"momentum": 1.0}),
        ("sophia", {"rho": 0.0}),
        ("sophia", {"hessian_every": 0}),
        ("koala-m", {"lr": -1.0}),
        ("koala-m", {"momentum": 1.0}),
        ("koala-m", {"variances": (0.1, 0.0)}),
        ("koala-m", {"noise": (0.0, 0.1)}),
    ],
)
def test_wrong_options_are_refused(name, option):
    with pytest.raises(ValueError, match="Invalid"):
        build(name, [torch.nn.Parameter(torch.ones(1))], **option)


def test_unknown_options_are_refused():
    for name, option in (("yogi", "nonsense"), ("pytorch_optimizer:MSVAG", "weight_decay")):
        with pytest.raises(SpecError, match=f"{option}.*no such option") as refused:
            optimizer_options(name, {option: 0.1})
        assert "defaults" not in str(refused.value)  # which is torch.optim.Optimizer's own
