"""What is particular to each optimizer: its limits, its directions, its groups."""

import inspect

import pytest
import torch

import sgdf
from cases import Quadratic, assert_equal, snapshot, train
from sgdf.directions import orthogonal_direction, shape_scale

PATHS = [{"foreach": False}, {"foreach": True}, {}]


def trained(build, steps=50, seed=0):
    """Return the parameters after some steps on the noisy parabola."""
    problem = Quadratic(seed=seed)
    train(build(problem.params), problem, steps)
    return problem.params


def assert_same_path(ours, theirs, tolerance=1e-12):
    for p, q in zip(trained(ours), trained(theirs), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=tolerance)


# Limits.


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
def test_filter_adam_with_gamma_0_is_adam_without_momentum(path, weight_decay, decoupled):
    options = {"lr": 0.01, "weight_decay": weight_decay, "decoupled_weight_decay": decoupled}
    assert_same_path(
        lambda params: sgdf.FilterAdam(params, gamma=0.0, **path, **options),
        lambda params: torch.optim.Adam(params, betas=(0.0, 0.999), **options),
    )


@pytest.mark.parametrize("path", PATHS)
def test_filter_adam_starts_as_adam_does(path):
    for p, q in zip(
        trained(lambda params: sgdf.FilterAdam(params, lr=0.01, **path), steps=1),
        trained(lambda params: torch.optim.Adam(params, lr=0.01), steps=1),
        strict=True,
    ):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_sign_with_gamma_0_is_sign_descent(path):
    ours, theirs = Quadratic(), Quadratic()
    optimizer = sgdf.SignSGDF(ours.params, lr=0.01, gamma=0.0, **path)
    for _ in range(50):
        noise = ours.noise()
        for problem in (ours, theirs):
            problem.set_gradients(problem.params, noise)
        optimizer.step()
        for param in theirs.params:
            param.data -= 0.01 * param.grad.sign()
    for p, q in zip(ours.params, theirs.params, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)


def test_sign_takes_the_papers_unscaled_gain():
    assert sgdf.SignSGDF([torch.nn.Parameter(torch.ones(1))]).defaults["gamma"] == 1.0


@pytest.mark.parametrize("path", PATHS)
def test_classical_momentum_is_torchs(path):
    options = {"lr": 0.01, "weight_decay": 0.1}
    assert_same_path(
        lambda params: sgdf.UnifiedMomentum(params, beta=0.9, u=1.0, **path, **options),
        lambda params: torch.optim.SGD(params, momentum=0.9, **options),
    )


@pytest.mark.parametrize("path", PATHS)
def test_average_has_the_size_of_the_gradient(path):
    param = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = sgdf.UnifiedMomentum([param], lr=1.0, beta=0.5, **path)
    for _ in range(3):
        param.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
    assert param.item() == -(0.5 + 0.75 + 0.875)


# FilterMuon.

SHAPES = [(6, 6), (12, 5), (5, 12), (1, 7), (7, 1)]


def follow(optimizers, shapes, steps=20):
    """Give lists of parameters the same gradients, step, and compare after each step."""
    generator = torch.Generator().manual_seed(1)
    lists = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
    for _ in range(steps):
        for index, shape in enumerate(shapes):
            grad = torch.randn(shape, generator=generator, dtype=torch.float64)
            for params in lists:
                params[index].grad = grad.reshape(params[index].shape).clone()
        for optimizer in optimizers:
            optimizer.step()
        for p, q in zip(*lists, strict=True):
            torch.testing.assert_close(p.reshape(q.shape), q, rtol=0, atol=1e-12)


def matrices(shapes):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in shapes
    ]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("adjust_lr_fn", [None, "original", "match_rms_adamw"])
def test_filter_muon_with_gamma_0_is_torchs_muon(path, weight_decay, adjust_lr_fn):
    options = {"lr": 0.02, "weight_decay": weight_decay, "adjust_lr_fn": adjust_lr_fn}
    ours = sgdf.FilterMuon(matrices(SHAPES), gamma=0.0, **path, **options)
    theirs = torch.optim.Muon(matrices(SHAPES), momentum=0.0, nesterov=False, **options)
    follow([ours, theirs], SHAPES)


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_number_and_coefficients_of_the_iterations(steps):
    options = {"lr": 0.02, "ns_steps": steps, "ns_coefficients": (2.0, -1.5, 0.5)}
    ours = sgdf.FilterMuon(matrices(SHAPES), gamma=0.0, **options)
    theirs = torch.optim.Muon(
        matrices(SHAPES), momentum=0.0, nesterov=False, weight_decay=0.0, **options
    )
    follow([ours, theirs], SHAPES)


@pytest.mark.parametrize("path", PATHS)
def test_convolution_is_a_matrix_of_output_channels_by_the_rest(path):
    shapes = [(4, 3, 2, 2), (16, 2, 1, 1), (3, 2, 5)]
    ours = sgdf.FilterMuon(matrices(shapes), gamma=0.5, lr=0.1, **path)
    theirs = sgdf.FilterMuon(
        [torch.nn.Parameter(p.detach().flatten(1)) for p in matrices(shapes)], lr=0.1, **path
    )
    follow([ours, theirs], shapes)


@pytest.mark.parametrize("shape", [(16, 16), (64, 32), (32, 64), (128, 20), (8, 3, 10, 10)])
@pytest.mark.parametrize("seed", range(5))
def test_singular_values_end_in_the_band(shape, seed):
    """Those of a hundredth of the norm and more: [0.681, 1.135] exactly, ±0.02 for bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = shape[0], torch.Size(shape[1:]).numel()
    left = torch.linalg.qr(torch.randn(rows, min(rows, columns), generator=generator)).Q
    right = torch.linalg.qr(torch.randn(columns, min(rows, columns), generator=generator)).Q
    values = torch.logspace(-1, 0, min(rows, columns))
    assert values.min() / values.norm() > 0.01
    estimate = (left * values @ right.T).reshape(shape)
    direction = orthogonal_direction(1e3 * estimate, ns_steps=5)
    assert direction.shape == shape
    scale = shape_scale(torch.Size((rows, columns)), None)
    found = torch.linalg.svdvals(direction.flatten(1) / scale)
    assert found.min() > 0.66
    assert found.max() < 1.16
    # The singular vectors stay: the direction is aligned with the nearest orthogonal matrix.
    cosine = (direction.flatten(1) * (left @ right.T)).sum() / direction.norm()
    assert cosine / (left @ right.T).norm() > 0.97


def test_update_of_a_step_ends_in_the_band():
    (param,) = matrices([(32, 48)])
    before = param.detach().clone()
    optimizer = sgdf.FilterMuon([param], lr=0.5)
    for step in range(3):
        param.grad = torch.randn(32, 48, generator=torch.Generator().manual_seed(step)).double()
        before.copy_(param.detach())
        optimizer.step()
        values = torch.linalg.svdvals((before - param.detach()) / 0.5)
        assert values.max() < 1.16
        assert values.min() > 0.66


def mixed():
    return matrices([(4, 3), (5,), (), (3, 2, 2)])


@pytest.mark.parametrize("path", PATHS)
def test_without_groups_matrices_move_orthogonally_and_the_rest_like_adam(path):
    params, matrix_only, vector_only = mixed(), mixed(), mixed()
    optimizer = sgdf.FilterMuon(params, lr=0.05, weight_decay=0.1, **path)
    parts = [
        sgdf.FilterMuon(
            [{"params": [matrix_only[i] for i in (0, 3)], "direction": "orthogonal"}],
            lr=0.05,
            weight_decay=0.1,
            **path,
        ),
        sgdf.FilterAdam(
            [vector_only[i] for i in (1, 2)],
            lr=0.05,
            weight_decay=0.1,
            decoupled_weight_decay=True,
            **path,
        ),
    ]
    for _ in range(5):
        for index, param in enumerate(params):
            param.grad = torch.randn_like(param)
            for other in (matrix_only, vector_only):
                other[index].grad = param.grad.clone()
        for each in (optimizer, *parts):
            each.step()
    expected = [matrix_only[0], vector_only[1], vector_only[2], matrix_only[3]]
    for p, q in zip(params, expected, strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(("direction", "other"), [("sgdf", sgdf.SGDF), ("adam", sgdf.FilterAdam)])
def test_groups_choose_their_direction(direction, other):
    shapes = [(4, 3), (5,)]
    group = {"params": matrices(shapes), "direction": direction}
    ours = sgdf.FilterMuon([group], lr=0.1, weight_decay=0.1)
    theirs = other(matrices(shapes), lr=0.1, weight_decay=0.1, decoupled_weight_decay=True)
    follow([ours, theirs], shapes)
    assert [list(s) for s in ours.state.values()] == [list(s) for s in theirs.state.values()]


def test_checkpoints_contain_the_directions():
    params, copies = mixed(), mixed()
    optimizer = sgdf.FilterMuon(
        [{"params": params[:2], "direction": "adam"}, {"params": params[2:]}], lr=0.1
    )
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    second = sgdf.FilterMuon([{"params": copies[:2]}, {"params": copies[2:]}], lr=0.5)
    second.load_state_dict(optimizer.state_dict())
    assert second.param_groups[0]["direction"] == "adam"
    assert_equal(second.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"params": [torch.nn.Parameter(torch.ones(3))], "direction": "orthogonal"}, r"\(3,\)"),
        ({"params": [torch.nn.Parameter(torch.ones(3))], "direction": "up"}, "'up'"),
        ({"params": [torch.nn.Parameter(torch.ones(3, 3, dtype=torch.complex64))]}, "complex"),
    ],
)
def test_filter_muon_refuses_unsupported_parameters(group, message):
    with pytest.raises(ValueError, match=message):
        sgdf.FilterMuon([group])
    optimizer = sgdf.FilterMuon([torch.nn.Parameter(torch.ones(2, 2))])
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group(group)
    assert_equal(snapshot(optimizer), before)


class Language(torch.nn.Module):
    """A model with something for every group."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.conv = torch.nn.Conv1d(4, 4, 3)
        self.norm = torch.nn.LayerNorm(4)
        self.position = torch.nn.Parameter(torch.zeros(3, 4))
        self.token = torch.nn.Parameter(torch.zeros(1, 3, 4))
        self.frozen = torch.nn.Parameter(torch.zeros(3, 4), requires_grad=False)
        self.head = torch.nn.Linear(4, 10)


def test_attention_is_no_output_layer():
    groups = sgdf.muon_groups(torch.nn.TransformerDecoderLayer(8, 2, 16))
    orthogonal = [name for name, _ in groups[0]["params"]]
    assert {"multihead_attn.in_proj_weight", "linear1.weight"} <= set(orthogonal)
    assert len(groups) == 2
    with pytest.raises(TypeError, match=r"expected a list of patterns: '\*linear\*'"):
        sgdf.muon_groups(Language(), adam_names="*linear*")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (1, 1)])
def test_matrices_of_any_size(path, shape):
    param = torch.nn.Parameter(torch.ones(shape))
    optimizer = sgdf.FilterMuon([param], lr=0.1, **path)
    param.grad = torch.ones(shape)
    optimizer.step()
    assert param.isfinite().all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zero_gradients_leave_matrices_alone(path, dtype):
    param = torch.nn.Parameter(torch.ones(3, 4, dtype=dtype))
    optimizer = sgdf.FilterMuon([param], lr=0.1, **path)
    for _ in range(3):
        param.grad = torch.zeros(3, 4, dtype=dtype)
        optimizer.step()
    assert torch.equal(param, torch.ones(3, 4, dtype=dtype))
    assert optimizer.state[param]["exp_avg"].dtype == torch.float32


def test_a_direction_changed_during_training_is_an_error():
    param = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = sgdf.FilterMuon([param], lr=0.1)
    param.grad = torch.ones(3, 4)
    optimizer.step()
    optimizer.param_groups[0]["direction"] = "adam"
    with pytest.raises(RuntimeError, match="no 'exp_avg_sq': was its group's direction or state"):
        optimizer.step()


def test_signatures_are_spelled_out():
    class Mine(sgdf.SGDF):
        """A class of the user's, with arguments of its own."""

        def __init__(self, params, flavour):
            super().__init__(params)

    shared = set(inspect.signature(sgdf.SGDF).parameters)
    for optimizer_class in (sgdf.FilterAdam, sgdf.SignSGDF, sgdf.FilterMuon):
        assert shared <= set(inspect.signature(optimizer_class).parameters)
    assert list(inspect.signature(Mine).parameters) == ["params", "flavour"]


def names(groups):
    return [[name for name, _ in group["params"]] for group in groups]


def test_muon_groups_sort_by_shape_and_name():
    groups = sgdf.muon_groups(
        Language(), adam_lr=3e-4, adam_weight_decay=0.01, no_decay_names=["position"]
    )
    assert names(groups) == [
        ["conv.weight"],
        ["token", "embed.weight", "head.weight"],
        ["position", "conv.bias", "norm.weight", "norm.bias", "head.bias"],
    ]
    assert [group["direction"] for group in groups] == ["orthogonal", "adam", "adam"]
    optimizer = sgdf.FilterMuon(groups, lr=0.02, weight_decay=0.1)
    options = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert options == [(0.02, 0.1), (3e-4, 0.01), (3e-4, 0.0)]
    assert optimizer.param_groups[0]["param_names"] == ["conv.weight"]


def test_muon_groups_take_other_patterns():
    groups = sgdf.muon_groups(Language(), adam_lr=None, adam_names=["*conv*"])
    assert names(groups)[:2] == [
        ["position", "head.weight"],
        ["token", "embed.weight", "conv.weight"],
    ]
    assert all("lr" not in group for group in groups)
    assert names(sgdf.muon_groups(torch.nn.Linear(2, 2, bias=False))) == [["weight"]]
    with pytest.raises(ValueError, match=r"adam_names: no parameter .* '\*attention\*'.*position"):
        sgdf.muon_groups(Language(), adam_names=["*wte*", "*attention*"])
    with pytest.raises(ValueError, match=r"no_decay_names: .*'biases'"):
        sgdf.muon_groups(Language(), no_decay_names=["biases"])
    with pytest.raises(TypeError, match="got list"):
        sgdf.muon_groups([])
