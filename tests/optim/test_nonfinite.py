"""What docs/guide/not_helping.md says of gradients that are not finite."""

import math

import pytest
import torch

import sgdf

BAD = [math.nan, math.inf, -math.inf]
PATHS = [{"foreach": False}, {"foreach": True}, {}]
each_path = pytest.mark.parametrize("path", PATHS)
each_bad = pytest.mark.parametrize("bad", BAD)


def poisoned(optimizer_class, bad, path, shape=(4,)):
    """Return a parameter after a good step, a bad element, and three more good steps."""
    param = torch.nn.Parameter(torch.ones(shape))
    optimizer = optimizer_class([param], lr=0.01, **path)
    for step in range(5):
        param.grad = torch.full(shape, 0.5)
        if step == 1:
            param.grad.view(-1)[0] = bad
        optimizer.step()
    return param.detach(), optimizer


@each_path
@each_bad
@pytest.mark.parametrize(
    "optimizer_class", [sgdf.SGDF, sgdf.FilterAdam, sgdf.filtered(torch.optim.SGD)]
)
def test_a_non_finite_element_does_not_affect_the_others(optimizer_class, bad, path):
    param, _ = poisoned(optimizer_class, bad, path)
    assert param[0].isnan()
    assert (param[1:] < 1).all()


@each_path
@each_bad
def test_sign_does_not_move_a_non_finite_element(bad, path):
    param, optimizer = poisoned(sgdf.SignSGDF, bad, path)
    (state,) = optimizer.state.values()
    assert not state["exp_avg"][0].isfinite()
    assert param[0].item() == pytest.approx(0.99)  # moved by the first step only
    assert (param[1:] < 0.96).all()


@each_path
@each_bad
def test_a_non_finite_element_affects_its_whole_matrix(bad, path):
    param, _ = poisoned(sgdf.FilterMuon, bad, path, shape=(3, 4))
    assert param.isnan().all()


@each_path
@each_bad
def test_momentum_stays_non_finite(bad, path):
    param, _ = poisoned(sgdf.UnifiedMomentum, bad, path)
    assert not param[0].isfinite()
    assert (param[1:] < 1).all()


@pytest.mark.parametrize("optimizer_class", [sgdf.SGDF, sgdf.FilterAdam, sgdf.FilterMuon])
def test_grad_scaler_skips_the_step(optimizer_class):
    param = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = optimizer_class([param], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale((param * math.inf).sum()).backward()
    scaler.step(optimizer)
    assert torch.equal(param, torch.ones(2, 2))
    assert not optimizer.state


def test_the_state_of_non_finite_elements_can_be_cleared():
    """The example of the page."""
    param, optimizer = poisoned(sgdf.SGDF, math.nan, {})
    (param,) = optimizer.param_groups[0]["params"]
    with torch.no_grad():
        for state in (param, *(optimizer.state[param][key] for key in ("exp_avg", "exp_var"))):
            state.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    param.grad = torch.full((4,), 0.5)
    optimizer.step()
    assert param.isfinite().all()


@each_path
@pytest.mark.parametrize(
    "optimizer_class", [sgdf.SGDF, sgdf.FilterAdam, sgdf.SignSGDF, sgdf.UnifiedMomentum]
)
def test_large_finite_gradients_make_no_nan(optimizer_class, path):
    param = torch.nn.Parameter(torch.ones(4))
    optimizer = optimizer_class([param], lr=1e-20, **path)
    for grad in (9e14, -9e14, 1e-30, 0.0, 9e14):
        param.grad = torch.full((4,), grad)
        optimizer.step()
    assert param.isfinite().all()
    assert all(value.isfinite().all() for value in optimizer.state[param].values())
