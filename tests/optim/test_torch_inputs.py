"""The inputs that torch tests its own optimizers with, where they apply."""

import pytest
import torch
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    optim_error_inputs_func_adam,
    optim_error_inputs_func_sgd,
    optim_inputs_func_adamw,
    optim_inputs_func_sgd,
)

from cases import build, each_case
from sgdf.optim.native import step

# What is refused there and works here.
ALLOWED_HERE = "lr as a Tensor is not supported"


def applicable(case, inputs):
    return [i for i in inputs if set(i.kwargs) <= case.arguments]


@each_case
def test_valid_inputs_train(case):
    inputs = applicable(
        case,
        optim_inputs_func_adamw("cpu", torch.float32) + optim_inputs_func_sgd("cpu", torch.float32),
    )
    assert len(inputs) > 5
    for given in inputs:
        for path in ("single", "foreach", *(["fused"] * (not step.native_fault()))):
            weight = torch.nn.Parameter(torch.randn(10, 5))
            bias = torch.nn.Parameter(torch.randn(10))
            data, sign = torch.randn(5), -1 if given.kwargs.get("maximize") else 1
            optimizer = build(case, [weight, bias], path, **{"lr": 1e-3} | given.kwargs)
            losses = []
            for _ in range(20):
                optimizer.zero_grad()
                loss = sign * (weight.mv(data) + bias).pow(2).sum()
                loss.backward()
                optimizer.step()
                losses.append(sign * loss.item())
            assert losses[-1] < losses[0], given.desc


@each_case
def test_invalid_inputs_are_refused(case):
    errors = optim_error_inputs_func_adam("cpu", torch.float32)
    errors += optim_error_inputs_func_sgd("cpu", torch.float32)
    refused = 0
    for given in errors:
        wrong = given.optimizer_error_input
        if set(wrong.kwargs) - case.arguments:
            continue
        if given.error_regex.startswith(ALLOWED_HERE):
            case.make([torch.nn.Parameter(torch.ones(1))], **wrong.kwargs)
            continue
        assert given.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR
        regex = given.error_regex
        if regex.startswith("betas"):  # Tensor betas: refused here in any combination
            regex = "Invalid beta parameter"
        params = wrong.params
        if params is None:
            params = [torch.nn.Parameter(torch.ones(1))]
        if issubclass(given.error_type, Warning):
            with pytest.warns(given.error_type, match=regex):
                case.make(params, **wrong.kwargs)
        else:
            with pytest.raises(given.error_type, match=regex):
                case.make(params, **wrong.kwargs)
        refused += 1
    assert refused > 8
