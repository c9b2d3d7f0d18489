"""The native step: the right answer or a clear error for whatever tensors it meets.

One file for all that can go wrong with an address, hence its length: the tensors that the
random trials are made of serve the cases picked by hand as well.
"""

import copy
import pickle
import weakref
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sgdf
from cases import CASES, assert_equal, describe, needs_native
from sgdf.optim.native import step as native_step

pytestmark = needs_native


ELEMENTWISE = [case for case in CASES if case.fused and not case.orthogonal]
each_elementwise = pytest.mark.parametrize("case", ELEMENTWISE, ids=describe)
each_filter = pytest.mark.parametrize(
    "case", [case for case in ELEMENTWISE if "gamma" in case.arguments], ids=describe
)


def takes_native_step(optimizer):
    return bool(optimizer._tables)


@pytest.fixture
def threads():
    """Return the function that sets how many there are; the old number comes back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# Random tensors.

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
]
LAYOUTS = [
    *("contiguous", "permuted", "channels_last", "reversed halves") * 4,
    "with gaps",  # rare: a single one sends its whole group to foreach
]
GRAD_LAYOUTS = ["as autograd", "contiguous", "permuted", "expanded", "with gaps", "lazy", "wide"]


@dataclass(frozen=True)
class Recipe:
    """How to make one parameter and its gradients."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    grad_layout: str
    shares: bool
    """Lies in the memory of the parameter before it."""
    rests: bool
    """Has no gradient at the second step."""


recipes = st.builds(
    Recipe,
    shape=st.one_of(
        st.lists(st.integers(0, 5), max_size=4).map(tuple),
        st.integers(30_000, 70_000).map(lambda size: (size,)),  # enough for several threads
    ),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    grad_layout=st.sampled_from(GRAD_LAYOUTS),
    shares=st.sampled_from([False] * 19 + [True]),
    rests=st.booleans(),
)


def laid_out(values, layout):
    """Return a tensor of the same values whose elements lie otherwise in memory."""
    shape = values.shape
    if layout == "permuted":
        order = list(range(values.dim()))[::-1]
        return values.permute(order).contiguous().permute(order)
    if layout == "channels_last" and values.dim() == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "with gaps" and values.dim():
        wide = torch.zeros(*shape[:-1], 2 * shape[-1], dtype=values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    if layout == "reversed halves" and values.dim():  # a view into a larger tensor
        return torch.cat([values, values])[len(values) :]
    return values.clone(memory_format=torch.contiguous_format)


def random(shape, dtype, generator):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype)


def gradient(recipe, param, generator):
    """Return a gradient for ``param`` that lies in memory as the recipe says."""
    values = random(param.shape, recipe.dtype, generator)
    if recipe.grad_layout == "as autograd":
        return torch.empty_like(param).copy_(values)
    if recipe.grad_layout == "expanded":
        return torch.ones((), dtype=recipe.dtype).expand(param.shape)
    if recipe.grad_layout == "lazy":
        if recipe.dtype.is_complex:
            return values.conj()
        if recipe.dtype in (torch.float32, torch.float64):
            return torch.complex(values, -values).conj().imag  # to be negated when read
    if recipe.grad_layout == "wide" and recipe.dtype in (torch.bfloat16, torch.float16):
        param.grad_dtype = torch.float32
        return values.float() + 1e-3
    return laid_out(values, recipe.grad_layout)


def make(recipes, seed):
    """Return parameters; equal seeds give equal ones in separate memory."""
    generator = torch.Generator().manual_seed(seed)
    params = []
    for recipe in recipes:
        data = laid_out(random(recipe.shape, recipe.dtype, generator), recipe.layout)
        before = params[-1] if params else None
        if recipe.shares and before is not None and before.dtype == recipe.dtype:
            data = before.detach()  # the same elements, in another parameter
        params.append(torch.nn.Parameter(data))
    return params


def tolerance(dtype):
    return {torch.float64: 1e-12, torch.complex128: 1e-12}.get(
        dtype, torch.finfo(dtype).eps * 4 if dtype.itemsize == 2 else 1e-6
    )


@settings(max_examples=400)
@given(
    # Not SignSGDF: where an estimate is all but 0, rounding decides on its sign.
    case=st.sampled_from([case for case in ELEMENTWISE if not case.jumps]),
    recipes=st.lists(recipes, min_size=1, max_size=5),
    seed=st.integers(0, 10_000),
    threads=st.integers(1, 8),
    gamma=st.sampled_from([0.5, 1.0, 0.0, 0.3]),
    decay=st.sampled_from([{}, {"decoupled_weight_decay": True}]),
    maximize=st.booleans(),
)
def test_any_tensors(case, recipes, seed, threads, gamma, decay, maximize):
    options = {"lr": 0.1, "weight_decay": 0.1, "maximize": maximize, **decay}
    options |= case.known(gamma=gamma)
    results = []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for path in ({"fused": True}, {"foreach": True}):
            params = make(recipes, seed)
            optimizer = case.make(params, **path, **options)
            generator = torch.Generator().manual_seed(seed)
            for step in range(3):
                for recipe, param in zip(recipes, params, strict=True):
                    param.grad = None
                    if not (recipe.rests and step == 1):
                        param.grad = gradient(recipe, param, generator)
                optimizer.step()
            results.append((params, optimizer))
    finally:
        torch.set_num_threads(before)
    (params, optimizer), (expected, slow) = results
    if not any(recipe.layout == "with gaps" or recipe.shares for recipe in recipes):
        assert takes_native_step(optimizer)
    for p, q in zip(params, expected, strict=True):
        assert p.shape == q.shape
        assert p.dtype == q.dtype
        near = {"rtol": 0, "atol": tolerance(p.dtype) * 3}  # values of about 3 at most
        torch.testing.assert_close(p, q, **near)
        assert optimizer.state[p].keys() == slow.state[q].keys()
        for key, value in slow.state[q].items():
            state = optimizer.state[p][key]
            assert state.dtype == value.dtype
            # A half that was rounded the other way reaches the state through the decay.
            torch.testing.assert_close(state, value, **near)


# Layouts: which are for the native step, and what becomes of the others.


def with_memory_of_its_own(shape=(4, 3, 2, 2)):
    return torch.nn.Parameter(torch.randn(shape))


@pytest.mark.parametrize(
    ("layout", "native"),
    [
        ("contiguous", True),
        ("permuted", True),
        ("channels_last", True),
        ("reversed halves", True),
        ("with gaps", False),
    ],
)
@pytest.mark.parametrize("grad_layout", ["contiguous", "permuted", "with gaps"])
def test_dense_layouts_take_the_native_step(layout, grad_layout, native):
    values = torch.randn(4, 3, 2, 2)
    param = torch.nn.Parameter(laid_out(values, layout))
    param.grad = laid_out(torch.ones_like(values), grad_layout)
    optimizer = sgdf.SGDF([param], lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer) == native
    torch.testing.assert_close(param.detach(), values - 0.5)


def test_shared_memory_is_left_to_the_other_paths():
    base = torch.ones(6)
    overlapping = [torch.nn.Parameter(base[:4]), torch.nn.Parameter(base[2:])]
    apart = [torch.nn.Parameter(base[:3].clone()), torch.nn.Parameter(base[3:].clone())]
    for params, native in ((overlapping, False), (apart, True)):
        optimizer = sgdf.SGDF(params, lr=0.25)
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
        assert takes_native_step(optimizer) == native
    assert base.tolist() == [0.75, 0.75, 0.5, 0.5, 0.75, 0.75]


def test_gradient_in_the_memory_of_its_parameter():
    base = torch.arange(5.0)
    param = torch.nn.Parameter(base[:4])
    param.grad = base[1:]
    sgdf.SGDF([param], lr=1.0).step()
    assert base.tolist() == [-1.0, -1.0, -1.0, -1.0, 4.0]


def test_one_gradient_for_two_parameters():
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    params[0].grad = params[1].grad = torch.ones(3)
    optimizer = sgdf.SGDF(params, lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer)
    assert_equal([p.detach() for p in params], [torch.full((3,), 0.5)] * 2)


def test_parameter_that_repeats_its_elements_is_refused():
    param = torch.nn.Parameter(torch.ones(1).expand(3))
    param.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        sgdf.SGDF([param]).step()


def test_gradient_without_memory():
    param = torch.nn.Parameter(torch.ones(3))
    param.grad = torch._efficientzerotensor(3)
    sgdf.SGDF([param], weight_decay=0.1, decoupled_weight_decay=True, lr=1.0).step()
    torch.testing.assert_close(param.detach(), torch.full((3,), 0.9))


@pytest.mark.parametrize("path", ["fused", "foreach"])
def test_gradient_of_another_shape_is_refused(path):
    param = torch.nn.Parameter(torch.ones(4, 4))
    param.grad = torch.ones(4, 4)
    param.data = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"size of tensor|shape"):
        sgdf.SGDF([param], **{path: True}).step()


# What may change between two steps.


def two_steps(case, change):
    """Step, change something, step again: natively and, for comparison, with foreach."""
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        torch.manual_seed(0)
        param = torch.nn.Parameter(torch.randn(4, 4))
        optimizer = case.make([param], **path)
        param.grad = torch.randn(4, 4)
        optimizer.step()
        param.grad = torch.randn(4, 4)
        change(param, optimizer.state[param])
        try:
            optimizer.step()
        except RuntimeError as error:
            outcomes.append(type(error))
        else:
            outcomes.append([param.detach().clone(), *optimizer.state[param].values()])
    return outcomes


def move_parameter(param, _):
    param.data = param.data.clone()


def move_mean(_, state):
    state["exp_avg"].data = state["exp_avg"].data.clone()


def move_variance(_, state):
    state["exp_var"].data = state["exp_var"].data.clone()


def move_square(_, state):
    if "exp_avg_sq" in state:
        state["exp_avg_sq"].data = state["exp_avg_sq"].data.clone()


def move_count(_, state):
    state["step"].data = state["step"].data.clone()


def replace_state(_, state):
    state["exp_avg"] = torch.ones(4, 4)


def share_state(_, state):
    state["exp_avg"].share_memory_()


def turn_parameter(param, _):
    param.data = param.data.t()


def turn_state(_, state):
    state["exp_var"] = state["exp_var"].t()


def leave_gaps_everywhere(param, state):
    grad, param.grad = param.grad, None
    param.data = laid_out(param.data, "with gaps")
    param.grad = laid_out(grad, "with gaps")
    for key in ("exp_avg", "exp_var"):
        state[key] = laid_out(state[key], "with gaps")


def share_one_buffer(_, state):
    state["exp_var"] = state["exp_avg"]


def turn_state_in_place(_, state):
    state["exp_var"].t_()


def shrink_state_in_place(_, state):
    state["exp_avg"].resize_(4)


def shrink_parameter_alone(param, _):
    param.data = param.data[:2]


def narrow_parameter_in_place(param, _):
    param.grad_dtype = torch.float32
    param.data = param.data.view(torch.bfloat16)[:, :4]


def empty_count(_, state):
    state["step"] = torch.empty(0)


def lend_memory_to_the_gradient(param, state):
    param.grad = None
    param.grad = state["exp_avg"]


def reset_count(_, state):
    state["step"].zero_()


def widen_parameter(param, _):
    grad, param.grad = param.grad, None
    param.data = param.data.double()
    param.grad = grad.double()


def narrow_parameter(param, _):
    grad, param.grad = param.grad, None
    param.data = param.data.bfloat16()
    param.grad = grad.bfloat16()


def grow_parameter(param, _):
    param.grad = None
    param.data = torch.randn(8, 4)
    param.grad = torch.randn(8, 4)


def reshape_parameter(param, _):
    param.grad = None
    param.data = param.data.view(2, 8)
    param.grad = torch.ones(2, 8)


def swap_parameter(param, state):
    """As ``module.to`` does if asked to: the object stays, and all within it is another's."""
    grad, param.grad = param.grad, None
    torch.utils.swap_tensors(param, torch.nn.Parameter(torch.ones(4, 4)))
    param.grad = grad


def forget_state(_, state):
    state.clear()


def forget_mean(_, state):
    del state["exp_avg"]


def add_to_state(_, state):
    state["note"] = torch.ones(2)


def turn_gradient(param, _):
    param.grad = param.grad.t()


def take_state_from_nowhere(_, state):
    state["exp_avg"] = torch._efficientzerotensor(4, 4)


def take_gradient_from_nowhere(param, _):
    param.grad = torch._efficientzerotensor(4, 4)


def negate_gradient_lazily(param, _):
    param.grad = torch._neg_view(param.grad)


def take_gradient_away(param, _):
    param.grad = None


@pytest.mark.parametrize(
    "change",
    [
        swap_parameter,
        forget_state,
        forget_mean,
        add_to_state,
        turn_gradient,
        take_gradient_from_nowhere,
        take_state_from_nowhere,
        negate_gradient_lazily,
        take_gradient_away,
        move_parameter,
        move_mean,
        move_variance,
        move_square,
        move_count,
        leave_gaps_everywhere,
        share_one_buffer,
        turn_state_in_place,
        shrink_state_in_place,
        shrink_parameter_alone,
        narrow_parameter_in_place,
        empty_count,
        lend_memory_to_the_gradient,
        replace_state,
        share_state,
        turn_parameter,
        turn_state,
        reset_count,
        widen_parameter,
        narrow_parameter,
        grow_parameter,
        reshape_parameter,
    ],
)
@each_filter
def test_changes_between_steps(case, change):
    native, lists = two_steps(case, change)
    if isinstance(lists, type):
        assert native is lists
    else:
        torch.testing.assert_close(native, lists, rtol=1e-6, atol=1e-6, equal_nan=True)


class Tagged(torch.Tensor):
    """A type whose memory the native step must not take for its numbers."""


def test_gradients_of_another_type_are_left_to_the_other_paths():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = sgdf.SGDF([param], fused=True)
    for kind in (Tagged, torch.Tensor, Tagged):
        param.grad = torch.ones(3).as_subclass(kind)
        optimizer.step()
        assert takes_native_step(optimizer) == (kind is torch.Tensor)


@pytest.mark.parametrize("steps_before", [0, 1])
def test_modes_that_watch_the_kernels_are_given_way_to(steps_before):
    """This one saves what a backward pass still needs before it is overwritten."""
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
def test_without_torchs_guards_foreach_serves(monkeypatch, name):
    """They are private to torch, and may go in another version."""
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


# Groups.


def filled(*shapes):
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


def test_each_group_has_its_own_table():
    first, second, third = filled((2,), (3, 2), (4,))
    gaps = torch.nn.Parameter(torch.ones(6)[::2])
    gaps.grad = torch.ones(3)
    groups = [{"params": [first]}, {"params": [gaps, second]}, {"params": [third], "lr": 0.25}]
    optimizer = sgdf.SGDF(groups, lr=0.5)
    for step in range(1, 3):
        optimizer.step()
        assert optimizer._tables.keys() == {
            (0, "sgdf"),
            (2, "sgdf"),
        }  # the gaps keep their group from it
        for param, lr in ((first, 0.5), (gaps, 0.5), (second, 0.5), (third, 0.25)):
            torch.testing.assert_close(param.detach(), torch.full_like(param, 1 - step * lr))


def test_parameters_may_change_groups_and_groups_may_go():
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([{"params": [first]}, {"params": [second], "lr": 0.25}], lr=0.5)
    optimizer.step()
    groups = optimizer.param_groups
    groups[0]["params"], groups[1]["params"] = groups[1]["params"], groups[0]["params"]
    optimizer.step()
    for param in (first, second):
        torch.testing.assert_close(param.detach(), torch.full_like(param, 0.25))
    groups.pop()
    optimizer.step()
    assert (second == -0.25).all()
    assert (first == 0.25).all()


def test_a_group_that_cannot_step_keeps_the_others_from_it():
    """In the second step too, when the tables are there."""
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([{"params": [first]}, {"params": [second]}], lr=0.5)
    optimizer.step()
    second.grad = second.grad.to_sparse()
    before = copy.deepcopy((first, optimizer.state[first]))
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert_equal((first, optimizer.state[first]), before)


def test_a_step_that_is_refused_leaves_no_trace():
    """Not even an empty state, for a parameter whose first gradient it is."""
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([first, second])
    second.grad = None
    optimizer.step()
    second.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert list(optimizer.state) == [first]


def test_groups_may_share_a_step_count():
    """Each then counts the steps of both, in turn."""
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        params = filled((2,), (3,))
        optimizer = sgdf.SGDF([{"params": [param]} for param in params], lr=0.5, **path)
        optimizer.step()
        first, second = optimizer.state.values()
        second["step"] = first["step"]
        for _ in range(3):
            for param in params:
                param.grad = torch.rand(param.shape, generator=torch.Generator().manual_seed(0))
            optimizer.step()
        outcomes.append((params, first, second))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)
    assert first["step"].item() == 7.0


def test_gradients_may_come_and_go():
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        params = filled((2,), (3,), (4,))
        optimizer = sgdf.SGDF(params, lr=0.5, **path)
        for absent in ((), (1,), (1,), (), (0, 1), (0, 1, 2), (2,)):
            for index, param in enumerate(params):
                param.grad = None if index in absent else torch.ones_like(param)
            optimizer.step()
        outcomes.append((params, list(optimizer.state.values())))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)
    assert [state["step"].item() for state in outcomes[0][1]] == [5.0, 3.0, 5.0]


@pytest.mark.parametrize("option", [{"foreach": True, "fused": None}, {"fused": False}])
def test_another_path_may_be_asked_for_between_steps(monkeypatch, option):
    optimizer = sgdf.SGDF(filled((2,)), lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer)
    monkeypatch.delattr(native_step.TensorTable, "step")
    optimizer.param_groups[0].update(option)
    optimizer.step()


def test_a_recording_of_cuda_graphs_is_noticed_between_steps(monkeypatch):
    optimizer = sgdf.SGDF(filled((2,)))
    optimizer.step()
    monkeypatch.setattr("sgdf.optim.base._is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA graph capture"):
        optimizer.step()


@each_elementwise
def test_a_usual_training_takes_the_short_way(monkeypatch, case):
    """It is taken for its speed alone: nothing else would tell if it no longer were."""
    frozen, *params = filled((2,), (2, 3), (4,))
    frozen.grad = None
    optimizer = case.make([{"params": [param]} for param in (frozen, *params)])
    optimizer.step()
    monkeypatch.setattr(optimizer, "_step_group", None)
    for param in params:
        param.grad = torch.ones_like(param)
    assert optimizer.step(lambda: 0.25) == 0.25
    assert [state["step"].item() for state in optimizer.state.values()] == [2.0, 2.0]


def test_native_groups_may_stand_beside_matrices():
    """The table of the first group is there in each step, and that of the second never."""
    outcomes = []
    for path in ({}, {"foreach": True}):
        bias, weight = filled((3,), (4, 3))
        groups = [{"params": [bias], "direction": "adam"}, {"params": [weight]}]
        optimizer = sgdf.FilterMuon(groups, lr=0.1, **path)
        for step in range(3):
            bias.grad, weight.grad = torch.full((3,), step - 1.0), torch.eye(4, 3)
            optimizer.step()
        assert optimizer._tables.keys() == (set() if path else {(0, "adam")})
        outcomes.append((bias, weight, list(optimizer.state.values())))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)


def test_pickled_optimizer_goes_on():
    (param,) = filled((3,))
    optimizer = sgdf.SGDF([param], lr=0.25)
    optimizer.step()
    loaded = pickle.loads(pickle.dumps(optimizer))
    (copied,) = loaded.param_groups[0]["params"]
    copied.grad = param.grad.clone()
    for which in (optimizer, loaded):
        which.step()
        assert takes_native_step(which)
    assert torch.equal(copied, param)


def test_tensors_lie_still_in_a_usual_training():
    """The table is made once; a new gradient costs no new one."""
    param = with_memory_of_its_own()
    optimizer = sgdf.SGDF([param])
    tables = set()
    for _ in range(3):
        param.grad = torch.randn_like(param)
        optimizer.step()
        tables.add(optimizer._tables[0, "sgdf"])
    assert len(tables) == 1


def test_gradients_are_let_go():
    param = with_memory_of_its_own()
    optimizer = sgdf.SGDF([param])
    param.grad = torch.ones_like(param)
    optimizer.step()
    grad = weakref.ref(param.grad)
    optimizer.zero_grad()
    assert grad() is None


def test_loaded_state_lies_as_the_parameter_does():
    plain = with_memory_of_its_own()
    plain.grad = torch.ones_like(plain)
    first = sgdf.SGDF([plain], lr=0.1)
    first.step()
    param = torch.nn.Parameter(plain.detach().contiguous(memory_format=torch.channels_last))
    second = sgdf.SGDF([param], lr=0.1)
    second.load_state_dict(first.state_dict())
    for param_, optimizer in ((plain, first), (param, second)):
        param_.grad = torch.full_like(param_, 0.5)
        optimizer.step()
        assert takes_native_step(optimizer)
    assert torch.equal(plain, param)
    assert second.state[param]["exp_var"].is_contiguous(memory_format=torch.channels_last)


def test_copies_do_not_share_a_table():
    param = with_memory_of_its_own()
    param.grad = torch.ones_like(param)
    optimizer = sgdf.SGDF([param], lr=0.1)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    assert not takes_native_step(twin)
    before = param.detach().clone()
    (other,) = twin.param_groups[0]["params"]
    other.grad = torch.ones_like(other)
    twin.step()
    assert torch.equal(param, before)
    assert not torch.equal(other, before)


def test_autograd_learns_of_the_change():
    """A backward pass through a parameter that has moved since is an error, not a wrong number."""
    weight = torch.nn.Parameter(torch.ones(3))
    data = torch.ones(3, requires_grad=True)
    loss = (weight * data).sum()
    weight.grad = torch.ones(3)
    optimizer = sgdf.SGDF([weight])
    optimizer.step()
    assert takes_native_step(optimizer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# Numbers.


@each_elementwise
def test_results_do_not_depend_on_the_threads(case, threads):
    results = []
    for count in range(1, 9):
        threads(count)
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(size)) for size in (1, 7, 50_001, 3, 100_003)]
        params.append(torch.nn.Parameter(torch.randn(33_333).bfloat16()))
        optimizer = case.make(params, weight_decay=0.01)
        for _ in range(3):
            for param in params:
                param.grad = torch.randn_like(param)
            optimizer.step()
        assert takes_native_step(optimizer)
        results.append((params, optimizer.state_dict()))
    for other in results[1:]:
        assert_equal(list(other), list(results[0]))


SPECIAL = [0.0, -0.0, 1e-45, 1e-38, -1e-30, 1e15, -1e15, 1e30, float("inf"), float("nan")]


@each_elementwise
@pytest.mark.parametrize("eps", [0.0, 1e-8, float("inf")])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 1.0])
def test_special_numbers(case, eps, gamma):
    results = []
    for path in ({"fused": True}, {"foreach": True}):
        param = torch.nn.Parameter(torch.ones(len(SPECIAL)))
        optimizer = case.make([param], **case.known(eps=eps, gamma=gamma), **path)
        for sign in (1.0, -1.0, 1.0):
            param.grad = sign * torch.tensor(SPECIAL)
            optimizer.step()
        assert takes_native_step(optimizer) == ("fused" in path)
        results.append([param.detach(), *optimizer.state[param].values()])
    torch.testing.assert_close(*results, equal_nan=True, rtol=1e-5, atol=0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_infinite_parameters_do_not_spoil_the_state(weight_decay):
    param = torch.nn.Parameter(torch.tensor([float("inf"), 1.0]))
    param.grad = torch.ones(2)
    optimizer = sgdf.SGDF(
        [param], lr=0.1, weight_decay=weight_decay, decoupled_weight_decay=True, fused=True
    )
    optimizer.step()
    assert takes_native_step(optimizer)
    assert optimizer.state[param]["exp_avg"].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_survives_the_way_to_float_and_back(dtype):
    numbers = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    param = torch.nn.Parameter(numbers.clone())
    param.grad = torch.zeros_like(param)
    optimizer = sgdf.SGDF([param], lr=0.0, fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    same = param.detach().view(torch.int16) == numbers.view(torch.int16)
    assert (same | numbers.isnan()).all()
    assert torch.equal(param.isnan(), numbers.isnan())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_floats_are_rounded_to_halves_as_torch_does(dtype):
    """With both betas 0 the update is the gradient, and 0 minus it the rounded negative."""
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    exact = halves[halves.isfinite()].float()
    bits = exact.view(torch.int32)
    half_way = 1 << (15 if dtype == torch.bfloat16 else 12)
    ties = [(bits + half_way + offset).view(torch.float32) for offset in (-1, 0, 1)]
    ties += [exact * (1 + 2.0**-12), exact / 3, torch.tensor([65519.9, 65520.0, 1e38, -1e-44])]
    grads = torch.cat([exact, *ties])
    param = torch.nn.Parameter(torch.zeros(len(grads), dtype=dtype))
    param.grad_dtype = torch.float32
    param.grad = -grads
    optimizer = sgdf.SGDF([param], lr=1.0, betas=(0.0, 0.0), fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    expected = grads.to(dtype)
    finite = grads.abs() < 1e15  # larger ones have squares that float32 cannot hold
    assert torch.equal(param.detach()[finite], expected[finite])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_nan_of_any_bits_stays_one_in_a_half(dtype):
    bits = torch.tensor([0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32)
    param = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    param.grad_dtype = torch.float32
    param.grad = bits.view(torch.float32)
    optimizer = sgdf.SGDF([param], fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    assert param.isnan().all()


def test_reading_and_writing_alone_changes_nothing():
    params = [torch.randn(4, 3), torch.ones(50_000)]
    grads = [torch.ones_like(p) for p in params]
    state = {p: {"step": torch.zeros(()), "a": torch.randn_like(p), "b": p.clone()} for p in params}
    tensors = [params, grads, [list(own.values()) for own in state.values()]]
    before = copy.deepcopy(tensors)
    native_step.TensorTable.of(params, grads, state, ["step", "a", "b"]).touch()
    assert_equal(tensors, before)
    with pytest.raises(ValueError, match="two buffers"):
        native_step.TensorTable.of(params, grads, state, ["step", "a"]).touch()
