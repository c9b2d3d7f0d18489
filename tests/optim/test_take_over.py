"""Continuing a training with SGDF that another optimizer, or implementation, has begun."""

import copy

import pytest
import torch

import sgdf
from cases import Quadratic, assert_equal, snapshot, train

SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW


def running(build, steps=200, **options):
    problem = Quadratic()
    optimizer = build(problem.params, **options)
    train(optimizer, problem, steps)
    return problem, optimizer


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adams_mean_is_copied_exactly(amsgrad, weight_decay):
    options = {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": weight_decay}
    problem, adam = running(Adam, amsgrad=amsgrad, **options)
    before = snapshot(adam)
    optimizer = sgdf.take_over(adam, lr=0.1)
    assert_equal(snapshot(adam), before)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"]) == (pytest.approx(0.1), (0.8, 0.99))
    assert (group["weight_decay"], group["decoupled_weight_decay"]) == (weight_decay, False)
    for param in problem.params:
        state = optimizer.state[param]
        assert torch.equal(state["exp_avg"], adam.state[param]["exp_avg"])
        assert state["exp_avg"] is not adam.state[param]["exp_avg"]
        assert state["step"] == 200
        assert (state["exp_var"] >= 0).all()
    train(optimizer, problem, 5)


def test_variance_from_adam_is_what_sgdf_would_have():
    """Under steady noise; 5,000 elements, 1,500 steps: the means agree within 2 %.

    The standard error of either is below 0.2 %: an element's variance is that of some 1,000
    gradients, whose relative standard error is sqrt(2 / 1000).
    """
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.zeros(5000)) for _ in range(2)]
    adam, expected = Adam(params[:1], lr=0.0), sgdf.SGDF(params[1:], lr=0.0)
    for _ in range(1500):
        params[0].grad = params[1].grad = 0.5 + torch.randn(5000)
        adam.step()
        expected.step()
    adam.param_groups[0]["lr"] = 0.001
    taken = sgdf.take_over(adam, lr=0.5).state[params[0]]
    wanted = expected.state[params[1]]
    torch.testing.assert_close(taken["exp_avg"], wanted["exp_avg"], rtol=1e-4, atol=1e-5)
    ratio = taken["exp_var"].mean() / wanted["exp_var"].mean()
    assert ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("dampening", [0.0, 0.5])
@pytest.mark.parametrize("maximize", [False, True])
def test_sgds_momentum_is_scaled(dampening, maximize):
    problem = Quadratic(sign=-1.0 if maximize else 1.0)
    options = {"momentum": 0.9, "dampening": dampening, "weight_decay": 0.1, "maximize": maximize}
    sgd = SGD(problem.params, lr=0.01, **options)
    mean = sgdf.UnifiedMomentum(
        [torch.nn.Parameter(p.detach().clone()) for p in problem.params], lr=0.0, beta=0.9
    )
    for _ in range(200):
        problem.set_gradients(problem.params, problem.noise())
        for own, twin in zip(problem.params, mean.param_groups[0]["params"], strict=True):
            sign = -1.0 if maximize else 1.0
            twin.grad = sign * own.grad + 0.1 * own.detach()
        sgd.step()
        mean.step()
    optimizer = sgdf.take_over(sgd)
    (group,) = optimizer.param_groups
    assert group["lr"] == pytest.approx(0.01 * (1 - dampening) / 0.1)
    assert (group["betas"], group["weight_decay"]) == ((0.9, 0.999), 0.1)
    assert group["maximize"] == maximize
    for own, twin in zip(problem.params, mean.param_groups[0]["params"], strict=True):
        state = optimizer.state[own]
        corrected = state["exp_avg"] / (1 - 0.9 ** state["step"].item())
        torch.testing.assert_close(corrected, mean.state[twin]["exp_avg"], rtol=1e-6, atol=1e-8)


def test_after_sgd_the_gain_settles_within_some_hundred_steps():
    """Under steady noise it tends to 0.24 (docs/guide/not_helping.md)."""
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.zeros(8000))
    sgd = SGD([param], lr=0.01, momentum=0.9)
    for _ in range(100):
        param.grad = torch.randn(8000)
        sgd.step()
    optimizer = sgdf.take_over(sgd)
    gains = {}
    for step in range(400):
        param.grad = torch.randn(8000)
        if step in (0, 10, 399):
            with sgdf.monitor.attach(optimizer, every=1) as monitor:
                optimizer.step()
            gains[step] = monitor.latest["total"]["gain_mean"]
        else:
            optimizer.step()
    assert gains[0] < 0.02
    assert 0.05 < gains[10] < 0.2
    assert gains[399] == pytest.approx(0.24, abs=0.03)


def test_after_sgd_the_first_steps_are_the_momentum():
    problem, sgd = running(SGD, lr=0.01, momentum=0.9)
    optimizer = sgdf.take_over(sgd)
    problem.set_gradients(problem.params, problem.noise())
    before = [p.detach().clone() for p in problem.params]
    expected = [0.9 * sgd.state[p]["momentum_buffer"] * 0.1 + 0.1 * p.grad for p in problem.params]
    optimizer.step()
    for param, start, mean in zip(problem.params, before, expected, strict=True):
        moved = (start - param.detach()) / optimizer.param_groups[0]["lr"]
        gap, distance = (moved - mean).norm(), (param.grad - mean).norm()
        assert gap < 0.2 * distance  # near the mean, far from the gradient


def test_adamws_decay_shrinks_as_before():
    problem, adamw = running(AdamW, lr=0.001, weight_decay=0.05)
    optimizer = sgdf.take_over(adamw, lr=0.5)
    (group,) = optimizer.param_groups
    assert group["decoupled_weight_decay"]
    assert group["lr"] * group["weight_decay"] == pytest.approx(0.001 * 0.05)
    for param in problem.params:
        assert torch.equal(optimizer.state[param]["exp_avg"], adamw.state[param]["exp_avg"])


def test_groups_keep_names_and_the_ratio_of_their_lr():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    named = list(model.named_parameters())
    groups = [{"params": named[:2]}, {"params": named[2:], "lr": 0.02, "weight_decay": 0.3}]
    sgd = SGD(groups, lr=0.1, momentum=0.5)
    optimizer = sgdf.take_over(sgd, lr=1.0, gamma=1.0)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1.0, 0.2])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 0.3]
    assert [group["gamma"] for group in optimizer.param_groups] == [1.0, 1.0]
    assert optimizer.defaults["gamma"] == 1.0
    assert optimizer.param_groups[1]["param_names"] == ["1.weight", "1.bias"]
    assert not optimizer.state  # nothing has moved yet


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (lambda params: SGD(params, lr=0.1), {}),
        (lambda params: SGD(params, lr=0.1, momentum=0.9), {"betas": (0.5, 0.999)}),
        (lambda params: Adam(params), {"betas": (0.5, 0.999), "lr": 0.1}),
    ],
)
def test_without_the_same_momentum_the_filter_starts_from_zero(build, options):
    problem, optimizer = running(build, steps=5)
    taken = sgdf.take_over(optimizer, **options)
    assert not taken.state
    assert taken.param_groups[0]["betas"] == options.get("betas", (0.9, 0.999))
    train(taken, problem, 2)
    assert taken.state[problem.params[0]]["step"] == 2


@pytest.mark.parametrize("build", [lambda p: SGD(p, lr=0.1, momentum=0.9), Adam])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_other_dtypes(build, dtype):
    param = torch.nn.Parameter(torch.randn(4, dtype=dtype))
    old = build([param])
    for _ in range(3):
        param.grad = torch.randn(4, dtype=dtype)
        old.step()
    optimizer = sgdf.take_over(old, lr=0.1)
    wide = torch.complex64 if dtype.is_complex else torch.float32
    assert all(optimizer.state[param][key].dtype == wide for key in ("exp_avg", "exp_var"))
    param.grad = torch.randn(4, dtype=dtype)
    optimizer.step()
    assert param.isfinite().all()


def test_tensor_lr_stays_a_tensor():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = sgdf.take_over(SGD([param], lr=torch.tensor(0.1), momentum=0.9))
    torch.testing.assert_close(optimizer.param_groups[0]["lr"], torch.tensor(1.0))
    optimizer = sgdf.take_over(AdamW([param], lr=0.001), lr=torch.tensor(0.1))
    torch.testing.assert_close(optimizer.param_groups[0]["lr"], torch.tensor(0.1))
    assert optimizer.param_groups[0]["weight_decay"] == pytest.approx(1e-4)


def test_groups_added_later_are_like_the_first():
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = sgdf.take_over(AdamW([first], lr=0.001, betas=(0.8, 0.9)), lr=0.1)
    optimizer.add_param_group({"params": [second]})
    old, new = ({**group, "params": None} for group in optimizer.param_groups)
    assert new == old


def test_decay_is_kept_where_it_is_to_be_coupled():
    adamw = AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.001, weight_decay=0.05)
    (group,) = sgdf.take_over(adamw, lr=0.1, decoupled_weight_decay=False).param_groups
    assert (group["weight_decay"], group["decoupled_weight_decay"]) == (0.05, False)


def test_zero_learning_rates():
    param = torch.nn.Parameter(torch.ones(2))
    adamw = AdamW([param], lr=0.001)
    assert sgdf.take_over(adamw, lr=0.0).param_groups[0]["lr"] == 0.0
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=2)
    param.grad = torch.ones(2)
    for _ in range(2):
        adamw.step()
        schedule.step()
    assert adamw.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)
    adamw.param_groups[0]["lr"] = 0.0
    (group,) = sgdf.take_over(adamw, lr=0.5).param_groups
    assert group["lr"] == pytest.approx(0.5)
    assert group["lr"] * group["weight_decay"] == pytest.approx(0.001 * 0.01)


def test_a_schedule_resumes_at_its_epoch():
    def factor(epoch):
        return 0.9**epoch

    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    sgd = SGD([param], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(sgd, factor)
    for _ in range(4):
        sgd.step()
        schedule.step()
    optimizer = sgdf.take_over(sgd)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor, schedule.last_epoch - 1)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**4)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**5)


def test_a_first_step_that_overflowed_leaves_nothing_to_take_over():
    param = torch.nn.Parameter(torch.ones(2))
    adam = Adam([param], lr=0.001, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale((param * float("inf")).sum()).backward()
    scaler.step(adam)
    assert adam.state[param]["step"] == 0
    assert not sgdf.take_over(adam, lr=0.1).state


def test_refusals():
    param = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match=r"got RMSprop; sgdf.filtered"):
        sgdf.take_over(torch.optim.RMSprop([param]))
    with pytest.raises(ValueError, match=r"Adam's learning rate is no guide"):
        sgdf.take_over(Adam([param]))
    with pytest.raises(ValueError, match=r"learning rate to take over: 0"):
        sgdf.take_over(Adam([param], lr=0.0), lr=0.1)
    with pytest.raises(ValueError, match=r"less than 1: 1.5, 0"):
        sgdf.take_over(SGD([param], lr=0.1, momentum=1.5))
    with pytest.raises(ValueError, match=r"less than 1: 0.9, 1.0"):
        sgdf.take_over(SGD([param], lr=0.1, momentum=0.9, dampening=1.0))
    with pytest.raises(ValueError, match="gamma value: -1"):
        sgdf.take_over(SGD([param], lr=0.1), gamma=-1)
    with pytest.raises(TypeError, match="gama"):
        sgdf.take_over(SGD([param], lr=0.1), gama=1)


# The authors' own implementation.


@pytest.mark.parametrize("fused", [False, None])
def test_checkpoints_of_the_authors_code_can_be_loaded(fused):
    """They have a Python int for the count, and in the groups only what the paper names."""
    whole, halves = Quadratic(torch.float32), Quadratic(torch.float32)
    options = {"lr": 0.3, "betas": (0.5, 0.999), "eps": 1e-8, "weight_decay": 5e-4}
    uninterrupted = sgdf.SGDF(whole.params, fused=fused, **options)
    train(uninterrupted, whole, 30)
    first = sgdf.SGDF(halves.params, fused=fused, **options)
    train(first, halves, 20)
    public = {
        "state": {
            index: {**copy.deepcopy(entry), "step": int(entry["step"])}
            for index, entry in first.state_dict()["state"].items()
        },
        "param_groups": [{**options, "params": [0, 1, 2, 3]}],
    }
    assert set(public["state"][0]) == {"step", "exp_avg", "exp_var"}
    second = sgdf.SGDF(halves.params, fused=fused)
    second.load_state_dict(public)
    train(second, halves, 10)
    assert_equal(halves.params, whole.params)
    assert_equal(second.state_dict(), uninterrupted.state_dict())
