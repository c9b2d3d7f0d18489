"""The filter's limits, its safety at the edges, and the statistics behind its correction."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdf import filter_gradient
from sgdf.filter import filter_scalars, one_minus_power

OPTIONS = {"betas": (0.9, 0.999), "eps": 1e-8, "gamma": 0.5}
DTYPES = st.sampled_from([torch.float32, torch.float64])
BETA = st.floats(0.0, 0.9999)
GRADIENT = st.one_of(
    st.just(0.0), st.floats(1e-12, 1e15).flatmap(lambda x: st.sampled_from([x, -x]))
)
SEQUENCE = st.lists(st.lists(GRADIENT, min_size=3, max_size=3), min_size=1, max_size=8)


def run(gradients, dtype, **options):
    """Filter a sequence; yield each step's gradient, corrected mean and output."""
    options = OPTIONS | options
    mean = var = torch.zeros(len(gradients[0]), dtype=dtype)
    for step, gradient in enumerate(gradients, start=1):
        grad = torch.tensor(gradient, dtype=dtype)
        out = filter_gradient(grad, mean, var, step, **options)
        mean, var = out.mean, out.var
        yield grad, mean / (1 - options["betas"][0] ** step), out


def within_ulps(actual, expected, scale, ulps):
    return bool(((actual - expected).abs() <= ulps * torch.finfo(actual.dtype).eps * scale).all())


def larger(a, b):
    return torch.maximum(a.abs(), b.abs())


@given(SEQUENCE, DTYPES, BETA, BETA, st.floats(0.0, 1.0))
def test_gamma_zero_is_sgd(gradients, dtype, beta1, beta2, gamma_decay):
    options = {"gamma": 0.0, "gamma_decay": gamma_decay, "betas": (beta1, beta2)}
    for grad, corrected, out in run(gradients, dtype, **options):
        assert within_ulps(out.estimate, grad, larger(grad, corrected), 2)


@given(SEQUENCE, DTYPES, BETA, st.floats(0.0, 2.0))
def test_beta1_zero_is_sgd(gradients, dtype, beta2, gamma):
    for grad, _, out in run(gradients, dtype, betas=(0.0, beta2), gamma=gamma):
        assert torch.equal(out.estimate, grad)


@given(SEQUENCE, DTYPES, BETA, BETA, st.floats(0.01, 2.0))
def test_infinite_eps_is_the_corrected_running_mean(gradients, dtype, beta1, beta2, gamma):
    options = {"eps": math.inf, "gamma": gamma, "betas": (beta1, beta2)}
    for grad, corrected, out in run(gradients, dtype, **options):
        assert not out.gain.any()
        assert within_ulps(out.estimate, corrected, larger(grad, corrected), 2)


@given(SEQUENCE, DTYPES, BETA, BETA, st.floats(0.0, 2.0), st.sampled_from(["paper", "none"]))
def test_first_step_is_sgd(gradients, dtype, beta1, beta2, gamma, correction):
    options = {"betas": (beta1, beta2), "gamma": gamma, "correction": correction}
    grad, _, out = next(run(gradients, dtype, **options))
    assert within_ulps(out.estimate, grad, grad.abs(), 4)


@given(
    SEQUENCE,
    DTYPES,
    BETA,
    BETA,
    st.sampled_from([0.0, 1e-8, 1.0]),
    st.floats(0.0, 2.0),
    st.sampled_from(["paper", "none"]),
)
def test_estimate_lies_between_mean_and_gradient(
    gradients, dtype, beta1, beta2, eps, gamma, correction
):
    options = {"betas": (beta1, beta2), "eps": eps, "gamma": gamma, "correction": correction}
    for grad, corrected, out in run(gradients, dtype, **options):
        assert ((out.gain >= 0) & (out.gain <= 1)).all()
        slack = 4 * torch.finfo(dtype).eps * larger(grad, corrected)
        assert (out.estimate >= torch.minimum(grad, corrected) - slack).all()
        assert (out.estimate <= torch.maximum(grad, corrected) + slack).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-30, 1e-4, 1e15])
@pytest.mark.parametrize("beta1", [0.0, 0.9, 1 - 1e-8])
def test_no_nan(dtype, gamma, eps, size, beta1):
    signs = [[1.0, 0.0], [-1.0, 0.0], [1.0, -1.0], [0.0, 1.0], [-1.0, 1.0]]
    gradients = [[size * sign for sign in row] for row in signs]
    options = {"eps": eps, "gamma": gamma, "betas": (beta1, 0.999)}
    for _, _, out in run(gradients, dtype, **options):
        assert all(torch.isfinite(tensor).all() for tensor in out)


def test_zero_over_zero_is_zero():
    grad, zeros = torch.zeros(3), torch.zeros(3)
    out = filter_gradient(grad, zeros, zeros, 1, betas=(0.9, 0.999), eps=0.0, gamma=1.0)
    assert torch.equal(out.gain, zeros)
    assert torch.equal(out.estimate, zeros)


def test_arguments_are_not_changed():
    arguments = [torch.randn(4), torch.randn(4), torch.rand(4)]
    copies = [tensor.clone() for tensor in arguments]
    filter_gradient(*arguments, 3, **OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(dtype):
    grad, mean, var = (torch.rand(100).to(dtype) for _ in range(3))
    out = filter_gradient(grad, mean, var, 2, **OPTIONS)
    wide = filter_gradient(grad.float(), mean.float(), var.float(), 2, **OPTIONS)
    assert all(
        a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(out, wide, strict=True)
    )


@pytest.mark.parametrize("correction", ["paper", "none"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.9999999])
def test_scalars_on_a_device_are_as_exact_as_on_the_host(beta, correction):
    options = {"betas": (beta, beta), "gamma": 0.5, "gamma_decay": 0.3, "correction": correction}
    for step in (1, 2, 10, 1000, 10**6):
        host = filter_scalars(step, **options)
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-8)):
            device = filter_scalars(torch.tensor(float(step), dtype=dtype), **options)
            np.testing.assert_allclose([float(x) for x in device], host, rtol=tolerance)


def test_float32_steps_need_expm1():
    step = torch.tensor(1.0)
    assert one_minus_power(0.999, step).item() == pytest.approx(0.001, rel=1e-7)
    assert (1 - 0.999**step).item() != pytest.approx(0.001, rel=1e-6)


@pytest.mark.parametrize("step", [0, -1])
def test_steps_start_at_one(step):
    with pytest.raises(ValueError, match=str(step)):
        filter_gradient(torch.ones(1), torch.zeros(1), torch.zeros(1), step, **OPTIONS)


def test_complex_gradients_are_refused():
    zeros = torch.zeros(1, dtype=torch.complex64)
    with pytest.raises(ValueError, match="view_as_real"):
        filter_gradient(zeros, zeros, zeros, 1, **OPTIONS)


def test_forward_mode_survives_a_zero_gain():
    zeros = torch.zeros(3, dtype=torch.float64)

    def estimate(grad):
        return filter_gradient(grad, zeros, zeros, 1, **OPTIONS).estimate

    torch.testing.assert_close(torch.func.jacfwd(estimate)(zeros), torch.eye(3).double())
    torch.testing.assert_close(torch.func.jacrev(estimate)(zeros), torch.eye(3).double())


def test_vmap_over_gradients():
    grads, mean, var = torch.randn(4, 3), torch.randn(3), torch.rand(3)
    together = torch.vmap(lambda grad: filter_gradient(grad, mean, var, 2, **OPTIONS))(grads)
    for index, grad in enumerate(grads):
        alone = filter_gradient(grad, mean, var, 2, **OPTIONS)
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[index], b)


def test_huge_gamma_decay_ends_as_sgd():
    *_, (grad, corrected, out) = run([[1.0], [-2.0], [4.0]], torch.float64, gamma_decay=2000.0)
    assert within_ulps(out.estimate, grad, larger(grad, corrected), 2)


# The correction factor by its statistics. A sample variance over N independent normal
# chains has a relative standard deviation of sqrt(2/N) = 0.32 %; the tolerances below
# are 5 of those, so one check of a right factor fails for 6 seeds in ten million, and
# any of the 11 for 6 in a million. The seed is fixed.
CHAINS = 200_000
TOLERANCE = 5 * math.sqrt(2 / CHAINS)
SIGMA = 3.0


def filtered_noise(steps, betas, correction):
    """Filter stationary noise in independent chains; yield step, gradients and output."""
    rng = np.random.default_rng(20260)
    mean = var = torch.zeros(CHAINS, dtype=torch.float64)
    options = {"betas": betas, "eps": 0.0, "gamma": 1.0, "correction": correction}
    for step in range(1, steps + 1):
        grad = torch.from_numpy(rng.normal(0.7, SIGMA, CHAINS))
        out = filter_gradient(grad, mean, var, step, **options)
        mean, var = out.mean, out.var
        yield step, grad, out


def estimated_variance(step, grad, out, beta1):
    """Return the filter's own idea of the mean's variance, solved from its gain.

    K = ŝ / (ŝ + r²), so ŝ = r² K / (1-K).
    """
    residual = grad - out.mean / (1 - beta1**step)
    return residual.square() * out.gain / (1 - out.gain)


@pytest.mark.parametrize("beta1", [0.5, 0.9])
def test_correction_is_the_variance_of_the_running_mean(beta1):
    for step, _grad, out in filtered_noise(60, (beta1, 0.999), "paper"):
        if step in (1, 2, 5, 20, 60):
            options = {"betas": (beta1, 0.999), "gamma": 1.0, "gamma_decay": 0.0}
            paper = filter_scalars(step, correction="paper", **options).residual_weight
            plain = filter_scalars(step, correction="none", **options).residual_weight
            measured = out.mean.var().item() / SIGMA**2
            assert measured == pytest.approx(plain / paper, rel=TOLERANCE)
            assert abs(measured - 1) > 10 * TOLERANCE  # what "none" would claim


def test_variance_estimate_is_short_by_a_known_share():
    """The corrected estimate settles at 2β1²/(1+β1) of the mean's variance, not at all of it.

    The residuals of one chain are correlated over about 1/(1-β1) steps and averaged over
    1/(1-β2), the 200,000 chains are independent: 0.5 % is more than 10 standard deviations.
    After 80 steps the start weighs less than 0.03 %.
    """
    beta1, beta2 = 0.9, 0.9
    for correction in ("paper", "none"):
        *_, (step, grad, out) = filtered_noise(80, (beta1, beta2), correction)
        estimate = estimated_variance(step, grad, out, beta1).mean().item()
        actual = out.mean.var().item() if correction == "paper" else SIGMA**2
        assert estimate / actual == pytest.approx(2 * beta1**2 / (1 + beta1), rel=0.005 + TOLERANCE)
