"""The monitor: right numbers, and not a bit of the training changed."""

import copy
import math

import numpy as np
import pytest
import torch

import sgdf
from cases import Quadratic, assert_equal, build, each_case, each_path, snapshot, train
from reference import ReferenceSGDF

QUANTILES = {
    "gain_q05": 0.05,
    "gain_q25": 0.25,
    "gain_q50": 0.5,
    "gain_q75": 0.75,
    "gain_q95": 0.95,
}
OTHERS = {"residual_rms", "residual_ratio", "cosine", "update_ratio"}


def fields(case):
    """Return the statistics there are for an optimizer."""
    return OTHERS | (
        {"gain_mean", "powered_gain_mean", *QUANTILES} if "gamma" in case.arguments else set()
    )


# The numbers.


def expected(grads, estimates, gains, powered_gains, residuals, befores, afters):
    """Work the statistics out of whole arrays, as their names say."""
    g, e, k, w, r, p, q = (
        np.concatenate([np.ravel(x) for x in xs])
        for xs in (grads, estimates, gains, powered_gains, residuals, befores, afters)
    )
    return {
        "gain_mean": k.mean(),
        "powered_gain_mean": w.mean(),
        **{name: np.quantile(k, q, method="inverted_cdf") for name, q in QUANTILES.items()},
        "residual_rms": np.sqrt((r**2).mean()),
        "residual_ratio": np.linalg.norm(r) / np.linalg.norm(g),
        "cosine": g @ e / np.linalg.norm(g) / np.linalg.norm(e),
        "update_ratio": np.linalg.norm(q - p) / np.linalg.norm(p),
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1, "maximize": True},
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"gamma": 0.7, "betas": (0.5, 0.9), "correction": "none", "gamma_decay": 0.2},
    ],
)
def test_statistics_of_sgdf_are_those_of_the_reference(options):
    problem = Quadratic(sign=-1.0 if options.get("maximize") else 1.0)
    optimizer = sgdf.SGDF(problem.params, lr=0.1, **options)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    references = [ReferenceSGDF(p.detach().numpy(), lr=0.1, **options) for p in problem.params]
    for step in range(1, 8):
        problem.set_gradients(problem.params, problem.noise())
        rows = []
        for param, reference in zip(problem.params, references, strict=True):
            before = reference.theta
            g = param.grad.numpy() * (-1 if options.get("maximize") else 1)
            if not options.get("decoupled_weight_decay"):
                g = g + options.get("weight_decay", 0.0) * before
            gain = reference.step(param.grad.numpy())
            beta = reference.betas[0]
            residual = g - reference.m / (1 - beta**step)
            power = reference.gamma / step**reference.gamma_decay
            weight = gain**power
            estimate = g - residual + weight * residual
            rows.append((g, estimate, gain, weight, residual, before, reference.theta))
        optimizer.step()
        assert monitor.latest["step"] == step
        for found, arrays in [
            (monitor.latest["total"], zip(*rows, strict=True)),
            *zip(monitor.latest["params"].values(), ([[x] for x in r] for r in rows), strict=True),
        ]:
            wanted = expected(*arrays)
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("inner", [torch.optim.SGD, torch.optim.Adam])
def test_filtered_optimizers_show_the_same_filter(inner):
    problems = Quadratic(), Quadratic()
    plain = sgdf.SGDF(problems[0].params, lr=0.0)
    filtered = sgdf.filtered(inner)(problems[1].params, lr=0.0, weight_decay=0.1)
    monitors = [sgdf.monitor.attach(optimizer, every=2) for optimizer in (plain, filtered)]
    for optimizer, problem in zip((plain, filtered), problems, strict=True):
        train(optimizer, problem, 5)
    for name in ("gain_mean", "gain_q75", "residual_rms", "cosine"):
        a, b = (monitor.latest["total"][name] for monitor in monitors)
        assert a == pytest.approx(b, rel=1e-9)
    assert monitors[1].latest["step"] == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_selection_of_elements_represents_all(dtype, layout):
    """2,048 of 262,144 elements whose size depends on where they lie: some 2 % off on average."""
    torch.manual_seed(0)
    scales = torch.linspace(0.1, 4.0, 512) * torch.linspace(0.1, 4.0, 512)[:, None]
    scales[:, ::2] /= 10.0  # to look at every nth column only would show
    wide = torch.randn(1, 1, 512, 512, dtype=dtype).contiguous(memory_format=layout)
    params = [torch.nn.Parameter(wide), torch.nn.Parameter(torch.randn(10))]
    optimizer = sgdf.SGDF(params, lr=0.1)
    some = sgdf.monitor.attach(optimizer, every=1)
    every = sgdf.monitor.attach(optimizer, every=1, max_elements=None)
    for _ in range(5):
        for param in params:
            param.grad = torch.randn_like(param)
        params[0].grad *= scales
        params[1].grad *= 1000.0  # as ten of 262,154
        if dtype.is_complex:
            params[0].grad.imag *= 3.0
        optimizer.step()
    for name, value in every.latest["total"].items():
        assert some.latest["total"][name] == pytest.approx(value, rel=0.1, abs=0.02), name
    assert some.latest["total"] != every.latest["total"]
    small = "group0.param1"  # looked at whole either way
    assert some.latest["params"][small] == every.latest["params"][small]


@each_case
@each_path
def test_every_optimizer_can_be_monitored(case, path):
    problem = Quadratic(torch.float32)
    optimizer = build(case, problem.params, path, weight_decay=0.01)
    monitor = sgdf.monitor.attach(optimizer, every=3)
    train(optimizer, problem, 4)
    assert monitor.latest["step"] == 3
    assert monitor.latest["total"].keys() == fields(case)
    assert list(monitor.latest["params"]) == [f"group0.param{i}" for i in range(4)]
    for statistics in (monitor.latest["total"], *monitor.latest["params"].values()):
        assert all(math.isfinite(value) for value in statistics.values())
        assert -1.0 <= statistics["cosine"] <= 1.0 + 1e-6
        if "gain_mean" in statistics:
            quantiles = [statistics[name] for name in QUANTILES]
            assert quantiles[0] >= 0.0
            assert quantiles == sorted(quantiles)
            assert quantiles[-1] <= 1.0


def test_without_a_filter_the_momentum_is_the_estimate():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = sgdf.UnifiedMomentum([param], lr=1.0, beta=0.0)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    param.grad = torch.tensor([0.5, -0.5])
    optimizer.step()
    wanted = {"residual_rms": 0.0, "residual_ratio": 0.0, "cosine": 1.0, "update_ratio": 0.5}
    assert monitor.latest["total"] == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_other_dtypes(dtype):
    param = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer = sgdf.SGDF([param], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    param.grad = torch.full((3,), 0.5, dtype=dtype)
    optimizer.step()
    assert monitor.latest["total"]["update_ratio"] == pytest.approx(0.05, rel=0.05)


def test_complex_is_two_reals():
    whole = torch.nn.Parameter(torch.randn(30, dtype=torch.complex64))
    parts = torch.nn.Parameter(torch.view_as_real(whole.detach()).clone())
    optimizers = [sgdf.SGDF([param], lr=0.1) for param in (whole, parts)]
    monitors = [sgdf.monitor.attach(optimizer, every=1) for optimizer in optimizers]
    for _ in range(5):
        whole.grad = torch.randn(30, dtype=torch.complex64)
        parts.grad = torch.view_as_real(whole.grad).clone()
        for optimizer in optimizers:
            optimizer.step()
    assert monitors[0].latest["total"] == pytest.approx(monitors[1].latest["total"], rel=1e-5)


def test_steady_momentum_has_no_residual():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = sgdf.UnifiedMomentum([param], lr=0.01, beta=0.5, u=1.0)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    for _ in range(40):
        param.grad = torch.ones(2)
        optimizer.step()
    assert monitor.latest["total"]["residual_ratio"] == pytest.approx(0.0, abs=1e-6)


def test_other_things_in_an_inner_optimizers_state():
    class Hoarder(torch.optim.SGD):
        """An optimizer that keeps something sparse."""

        def step(self, closure=None):
            """Keep it."""
            for group in self.param_groups:
                for param in group["params"]:
                    self.state[param]["mask"] = torch.eye(2).to_sparse()

    param = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = sgdf.filtered(Hoarder)([param], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    param.grad = torch.ones(2, 2)
    optimizer.step()
    assert monitor.latest["total"]["update_ratio"] == 0.0


def test_undefined_statistics_are_nan():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = sgdf.SGDF([param], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    param.grad = torch.zeros(3)
    optimizer.step()
    statistics = monitor.latest["total"]
    assert statistics["gain_mean"] == 0.0
    assert all(math.isnan(statistics[name]) for name in ("cosine", "update_ratio"))


# When it looks.


def test_every_nth_step_is_measured_and_parameters_keep_their_names():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    model[1].bias.requires_grad_(False)
    optimizer = sgdf.SGDF(model.named_parameters(), lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=3)
    assert monitor.latest == {}
    seen = []
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        seen.append(monitor.latest.get("step"))
    assert seen == [None, None, 3, 3, 3, 6, 6, 6]
    assert list(monitor.latest["params"]) == ["0.weight", "0.bias", "1.weight"]


def test_a_detached_monitor_measures_nothing():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    with sgdf.monitor.attach(optimizer, every=1) as monitor:
        train(optimizer, problem, 2)
    train(optimizer, problem, 2)
    assert monitor.latest["step"] == 2
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_gradients_made_inside_the_step_are_seen():
    param = torch.nn.Parameter(torch.full((2,), 3.0))
    optimizer = sgdf.SGDF([param], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)

    def closure():
        optimizer.zero_grad()
        loss = param.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert monitor.latest["total"]["update_ratio"] == pytest.approx(0.2)  # 0.1 * 6 / 3


def test_scaled_gradients_of_a_fused_inner_optimizer():
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = sgdf.filtered(torch.optim.Adam)([param], lr=0.1, fused=True)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    sizes = []
    for factor in (1.0, -1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((factor * param).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        sizes.append(monitor.latest["total"]["residual_rms"])
    assert sizes[1] == pytest.approx(1.0 - 0.1 / 1.9)  # |−1 − m̂| with m̂ = −0.1·0.1/0.19
    assert sizes[2] == sizes[1]  # that step was left out


# What it leaves alone.


@each_case
@each_path
def test_not_a_bit_of_the_training_changes(case, path):
    assert_unchanged(lambda params: build(case, params, path, weight_decay=0.01))


@pytest.mark.parametrize("inner", [torch.optim.SGD, torch.optim.Adam, torch.optim.Rprop])
def test_not_a_bit_of_a_filtered_training_changes(inner):
    assert_unchanged(lambda params: sgdf.filtered(inner)(params, lr=0.01))


def assert_unchanged(construct):
    watched, alone = Quadratic(torch.float32), Quadratic(torch.float32)
    optimizers = [construct(problem.params) for problem in (watched, alone)]
    sgdf.monitor.attach(optimizers[0], every=2)
    generator = torch.get_rng_state()
    train(optimizers[0], watched, 7)
    train(optimizers[1], alone, 7)
    assert torch.equal(torch.get_rng_state(), generator)
    assert_equal(watched.params, alone.params)
    assert_equal([p.grad for p in watched.params], [p.grad for p in alone.params])
    assert_equal(snapshot(optimizers[0]), snapshot(optimizers[1]))
    assert not any(p.grad.requires_grad for p in watched.params)


def test_copies_are_not_monitored():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    twin, twin_problem = copy.deepcopy((optimizer, problem))
    train(twin, twin_problem, 1)
    assert monitor.latest == {}
