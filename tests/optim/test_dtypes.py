"""Half precision, complex numbers, memory layouts."""

import pytest
import torch

from cases import build, describe, each_case, each_path, skip_without


@each_case
@each_path
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_parameters_keep_a_float32_state(case, path, dtype):
    if not case.low_precision:
        pytest.skip(f"{case.name} does not take {dtype}")
    start = torch.randn(50).to(dtype)
    narrow = torch.nn.Parameter(start.clone())
    wide = torch.nn.Parameter(start.float())
    options = {"weight_decay": 1e-3, "decoupled_weight_decay": True}
    optimizers = build(case, [narrow], path, **options), build(case, [wide], path, **options)
    for scale in (1.0, 0.0, 1e-7, 1e-3):  # 1e-7 squared is nothing in float16
        grad = (scale * torch.randn(50)).to(dtype)
        narrow.grad, wide.grad = grad, grad.float()
        wide.data.copy_(narrow.data)  # from the same point: one step, one rounding
        for optimizer in optimizers:
            optimizer.step()
        assert torch.equal(narrow, wide.to(dtype))
        for key in case.buffers_of(narrow):
            state = optimizers[0].state[narrow][key]
            assert state.dtype == torch.float32
            assert torch.equal(state, optimizers[1].state[wide][key])


@each_case
@each_path
def test_small_decay_and_update_are_rounded_together(case, path):
    """Each alone is lost on a bf16 parameter of 1; their sum is not."""
    skip_without(case, case.plain is not None, "direction of the gradient's size")
    small = 0.2 * torch.finfo(torch.bfloat16).eps  # a quarter is where rounding turns

    def after_one_step(grad, weight_decay):
        param = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        options = {"weight_decay": weight_decay, "decoupled_weight_decay": True, **case.plain}
        optimizer = build(case, [param], path, lr=1.0, **options)
        param.grad = torch.full((1,), grad, dtype=torch.bfloat16)
        optimizer.step()
        return param.item()

    assert after_one_step(small, 0.0) == after_one_step(0.0, small) == 1.0
    assert after_one_step(small, small) < 1.0


@each_case
@each_path
@pytest.mark.parametrize("options", [{}, {"maximize": True, "weight_decay": 0.1}], ids=describe)
def test_complex_is_two_reals(case, path, options):
    if not case.complex:
        pytest.skip(f"{case.name} does not take complex parameters")
    together = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.complex128))
    apart = torch.nn.Parameter(torch.view_as_real(together.detach()).clone())
    optimizers = build(case, [together], path, **options), build(case, [apart], path, **options)
    for _ in range(20):
        grad = torch.randn(4, 3, dtype=torch.complex128)
        together.grad, apart.grad = grad, torch.view_as_real(grad).clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.view_as_real(together), apart, rtol=1e-13, atol=1e-13)
    for key in case.buffers:
        state = optimizers[0].state[together][key]
        assert state.dtype == torch.complex128
        torch.testing.assert_close(
            torch.view_as_real(state), optimizers[1].state[apart][key], rtol=1e-13, atol=1e-13
        )


@each_case
@each_path
def test_memory_layouts_do_not_matter(case, path):
    base = torch.randn(2, 3, 4, 5)
    plain = torch.nn.Parameter(base.clone())
    strided = torch.nn.Parameter(base.clone(memory_format=torch.channels_last))
    view = torch.nn.Parameter(base.transpose(0, 3).contiguous().transpose(0, 3))
    optimizer = build(case, [plain, strided, view], path)
    for _ in range(5):
        grad = torch.randn_like(base)
        for param in (plain, strided, view):
            param.grad = grad.clone()
        optimizer.step()
    assert torch.equal(plain, strided)
    assert torch.equal(plain, view)
    assert optimizer.state[strided]["exp_avg"].is_contiguous(memory_format=torch.channels_last)
