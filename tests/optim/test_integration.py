"""SGDF inside the machinery around torch.optim: schedulers, AMP, averaging, hooks."""

import copy
import inspect

import pytest
import torch
from torch.nn.utils import get_total_norm
from torch.optim import lr_scheduler, swa_utils

from cases import build, each_case, each_path

SCHEDULERS = {
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [2, 4]},
    "ConstantLR": {"total_iters": 3},
    "LinearLR": {"total_iters": 3},
    "ExponentialLR": {"gamma": 0.9},
    "CosineAnnealingLR": {"T_max": 6},
    "PolynomialLR": {"total_iters": 6},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "ReduceLROnPlateau": {"patience": 1},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 8},
}
COMPOUND = {"SequentialLR", "ChainedScheduler"}  # made of those above; tested below
NOT_SCHEDULERS = {"LRScheduler", "_LRScheduler"}


def model_and_data():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    inputs = torch.randn(32, 4)
    return model, inputs, inputs.sum(1, keepdim=True)


def backward(model, inputs, targets):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss


def test_every_scheduler_of_this_torch_is_listed():
    found = {
        name
        for name, value in vars(lr_scheduler).items()
        if inspect.isclass(value) and issubclass(value, lr_scheduler.LRScheduler)
    }
    assert found - NOT_SCHEDULERS == set(SCHEDULERS) | COMPOUND


@each_case
@pytest.mark.parametrize("tensor_lr", [False, True], ids=["float", "Tensor"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_do_what_they_do_to_adam(case, name, tensor_lr):
    model, inputs, targets = model_and_data()
    twin = copy.deepcopy(model)
    lr = 0.05
    ours = build(case, model.parameters(), lr=torch.tensor(lr) if tensor_lr else lr)
    adam = torch.optim.Adam(twin.parameters(), lr=torch.tensor(lr) if tensor_lr else lr)
    make = getattr(lr_scheduler, name)
    cycles_momentum = name in ("CyclicLR", "OneCycleLR")
    options = SCHEDULERS[name]
    if cycles_momentum and "betas" not in case.arguments:
        options = {**options, "cycle_momentum": False}
        cycles_momentum = False
    schedulers = make(ours, **options), make(adam, **options)
    betas = []
    for _ in range(7):
        for net, optimizer, scheduler in zip((model, twin), (ours, adam), schedulers, strict=True):
            optimizer.zero_grad()
            backward(net, inputs, targets)
            optimizer.step()
            scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        assert float(ours.param_groups[0]["lr"]) == float(adam.param_groups[0]["lr"])
        assert isinstance(ours.param_groups[0]["lr"], torch.Tensor) == tensor_lr
        if "betas" in case.arguments:
            assert ours.param_groups[0]["betas"] == adam.param_groups[0]["betas"]
        betas.append(adam.param_groups[0]["betas"][0])
    assert (len(set(betas)) > 1) == cycles_momentum


@each_case
def test_changed_betas_are_used(case):
    """What OneCycleLR writes into the group reaches the arithmetic."""
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    constructed = build(case, params[:1], **case.another)
    rewritten = build(case, params[1:])
    rewritten.param_groups[0].update(case.another)
    for grad in (1.0, -2.0, 0.5):
        for param, optimizer in zip(params, (constructed, rewritten), strict=True):
            param.grad = torch.full((2,), grad)
            optimizer.step()
    assert torch.equal(*params)


@each_case
@each_path
@pytest.mark.parametrize("compound", sorted(COMPOUND))
def test_compound_schedulers(case, path, compound):
    model, inputs, targets = model_and_data()
    optimizer = build(case, model.parameters(), path, lr=0.1)
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    if compound == "SequentialLR":
        scheduler = lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[3])
    else:
        scheduler = lr_scheduler.ChainedScheduler([warmup, cosine], optimizer)
    first = backward(model, inputs, targets)
    for _ in range(25):
        optimizer.zero_grad()
        last = backward(model, inputs, targets)
        optimizer.step()
        scheduler.step()
    assert last < first


@each_case
@each_path
def test_grad_scaler(case, path):
    """Scaled and unscaled training agree, and an overflow skips the step."""
    model, inputs, targets = model_and_data()
    twin = copy.deepcopy(model)
    plain, scaled = build(case, model.parameters(), path), build(case, twin.parameters(), path)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(5):
        plain.zero_grad()
        backward(model, inputs, targets)
        plain.step()
        scaled.zero_grad()
        scaler.scale(torch.nn.functional.mse_loss(twin(inputs), targets)).backward()
        scaler.step(scaled)
        scaler.update()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)

    before = copy.deepcopy(twin.state_dict())
    scaled.zero_grad()
    scaler.scale(torch.nn.functional.mse_loss(twin(inputs * torch.inf), targets)).backward()
    scaler.step(scaled)
    scaler.update()
    assert all(torch.equal(value, before[name]) for name, value in twin.state_dict().items())
    assert all(state["step"] == 5 for state in scaled.state.values())
    assert scaler.get_scale() == 512.0


@each_case
def test_weight_averaging(case):
    model, inputs, targets = model_and_data()
    model.insert(1, torch.nn.BatchNorm1d(8))
    optimizer = build(case, model.parameters())
    averaged = swa_utils.AveragedModel(model)
    scheduler = swa_utils.SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
    weights = []
    for _ in range(6):
        optimizer.zero_grad()
        backward(model, inputs, targets)
        optimizer.step()
        averaged.update_parameters(model)
        scheduler.step()
        weights.append(model[0].weight.detach().clone())
    torch.testing.assert_close(averaged.module[0].weight, torch.stack(weights).mean(0))
    swa_utils.update_bn([inputs], averaged)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


@each_case
@each_path
def test_stepping_inside_the_backward_pass(case, path):
    model, inputs, targets = model_and_data()
    twin = copy.deepcopy(model)
    together = build(case, model.parameters(), path)
    alone = {param: build(case, [param], path) for param in twin.parameters()}

    def step_and_free(param):
        alone[param].step()
        alone[param].zero_grad()

    for param in twin.parameters():
        param.register_post_accumulate_grad_hook(step_and_free)
    for _ in range(5):
        together.zero_grad()
        backward(model, inputs, targets)
        together.step()
        backward(twin, inputs, targets)
        assert all(param.grad is None for param in twin.parameters())
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)


@each_case
@each_path
def test_accumulated_and_clipped_gradients(case, path):
    """Two half batches are a whole one, and clipping in place is seen."""
    model, inputs, targets = model_and_data()
    twin = copy.deepcopy(model)
    whole, halves = build(case, model.parameters(), path), build(case, twin.parameters(), path)
    for _ in range(3):
        whole.zero_grad()
        backward(model, inputs, targets)
        halves.zero_grad()
        for part in range(2):
            loss = torch.nn.functional.mse_loss(twin(inputs[part::2]), targets[part::2])
            (loss / 2).backward()
        for net, optimizer in ((model, whole), (twin, halves)):
            before = [p.detach().clone() for p in net.parameters()]
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()
            moved = [p.detach() - q for p, q in zip(net.parameters(), before, strict=True)]
            assert case.scale_free or get_total_norm(moved) <= 1.01 * case.lr * 1e-3
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@each_case
def test_profiler_shows_the_step(case):
    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    optimizer = build(case, [param])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
    names = {event.key for event in profile.key_averages()}
    assert f"Optimizer.step#{case.name}.step" in names
