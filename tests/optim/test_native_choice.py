"""When the native step is taken, and what serves in its place."""

import pytest
import torch

import sgdf
from cases import needs_native
from native_tensors import each_elementwise, filled, takes_native_step
from sgdf.environment import environment
from sgdf.optim.native import step as native_step

pytestmark = needs_native


class Tagged(torch.Tensor):
    """A type whose memory the native step must not interpret."""


def test_gradients_of_other_types_take_another_path():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = sgdf.SGDF([param], fused=True)
    for kind in (Tagged, torch.Tensor, Tagged):
        param.grad = torch.ones(3).as_subclass(kind)
        optimizer.step()
        assert takes_native_step(optimizer) == (kind is torch.Tensor)


@pytest.mark.parametrize("steps_before", [0, 1])
def test_dispatch_modes_see_torchs_kernels(steps_before):
    """This mode copies tensors that a backward pass still needs before they are overwritten."""
    weight, data = torch.nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    optimizer = sgdf.SGDF([weight], lr=0.5, fused=True)
    for _ in range(steps_before):
        optimizer.step()
    before = weight.detach().clone()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        loss = (weight * data).sum()
        optimizer.step()
        loss.backward()
    torch.testing.assert_close(weight.detach(), before - 0.5)
    assert torch.equal(data.grad, before)


@pytest.mark.parametrize("name", ["TensorGuards", "_torchinductor_pyobject_tensor_data_ptr"])
def test_foreach_is_used_without_torchs_private_parts(monkeypatch, name):
    """Another version of torch may not have them."""
    monkeypatch.delattr(f"torch._C._dynamo.guards.{name}")
    native_step._library.cache_clear()
    try:
        assert "lacks the guards" in native_step.native_fault()
        param = torch.nn.Parameter(torch.ones(2))
        param.grad = torch.ones(2)
        optimizer = sgdf.SGDF([param], lr=0.5)
        optimizer.step()
        assert param.tolist() == [0.5, 0.5]
        assert not takes_native_step(optimizer)
    finally:
        native_step._library.cache_clear()


def test_the_status_is_known_without_building(monkeypatch):
    """As in a command that only records the environment."""
    monkeypatch.setattr(native_step.build, "load", lambda source: pytest.fail("built"))
    native_step._library.cache_clear()
    try:
        assert native_step.native_status() == "not built yet"
        assert environment()["native step"] == "not built yet"
        monkeypatch.undo()
        sgdf.SGDF(filled((2,)), lr=0.5).step()
        assert native_step.native_status() == "built"
        assert environment()["native step"] == "built"
    finally:
        native_step._library.cache_clear()


def test_the_status_names_the_fault(monkeypatch):
    def load(source):
        raise OSError("no C compiler was found")

    monkeypatch.setattr(native_step.build, "load", load)
    native_step._library.cache_clear()
    try:
        sgdf.SGDF(filled((2,)), lr=0.5).step()
        assert native_step.native_status() == "no C compiler was found"
        assert environment()["native step"] == "no C compiler was found"
    finally:
        native_step._library.cache_clear()


@pytest.mark.parametrize("option", [{"foreach": True, "fused": None}, {"fused": False}])
def test_the_path_can_be_changed_between_steps(monkeypatch, option):
    optimizer = sgdf.SGDF(filled((2,)), lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer)
    monkeypatch.delattr(native_step.TensorTable, "step")
    optimizer.param_groups[0].update(option)
    optimizer.step()


def test_cuda_graph_capture_is_noticed_between_steps(monkeypatch):
    optimizer = sgdf.SGDF(filled((2,)))
    optimizer.step()
    monkeypatch.setattr("sgdf.optim.base.is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA graph capture"):
        optimizer.step()


@each_elementwise
def test_later_steps_reuse_the_tables(monkeypatch, case):
    """For speed alone: no other test would fail if they did not."""
    frozen, *params = filled((2,), (2, 3), (4,))
    frozen.grad = None
    optimizer = case.make([{"params": [param]} for param in (frozen, *params)])
    optimizer.step()
    monkeypatch.setattr(optimizer, "_step_part", None)
    for param in params:
        param.grad = torch.ones_like(param)
    assert optimizer.step(lambda: 0.25) == 0.25
    assert [state["step"].item() for state in optimizer.state.values()] == [2.0, 2.0]
