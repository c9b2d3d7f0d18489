"""The names of parameters: from the model, from the optimizer, or made up."""

import torch

import sgdf


def names_after_a_step(optimizer, **options):
    """Return the names that the monitor gives the parameters."""
    monitor = sgdf.monitor.attach(optimizer, every=1, **options)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()
    return list(monitor.latest["params"])


def test_equal_names_in_two_groups():
    models = [torch.nn.Linear(2, 2, bias=False) for _ in range(2)]
    groups = [{"params": model.named_parameters()} for model in models]
    optimizer = sgdf.SGDF([*groups, {"params": [("own", torch.nn.Parameter(torch.ones(1)))]}])
    assert names_after_a_step(optimizer) == ["group0.weight", "group1.weight", "own"]


def test_names_from_the_model():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    stranger = torch.nn.Parameter(torch.ones(1))
    optimizer = sgdf.SGDF([{"params": model.parameters()}, {"params": [stranger]}])
    wanted = ["0.weight", "0.bias", "1.weight", "1.bias", "group1.param0"]
    assert names_after_a_step(optimizer, model=model) == wanted


def test_the_models_name_is_preferred():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = sgdf.SGDF([("mine", model.weight)])
    assert names_after_a_step(optimizer, model=model) == ["weight"]


class Wrapper(torch.nn.Module):
    """Hold a model as DistributedDataParallel does, whose construction needs processes."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_prefixes_of_wrappers_are_removed():
    inner = torch.nn.Linear(2, 1, bias=False)
    model = torch.nn.ModuleDict({"head": torch.compile(inner), "module": torch.nn.Linear(1, 1)})
    for wrapped in (model, Wrapper(model), torch.compile(Wrapper(Wrapper(torch.compile(model))))):
        optimizer = sgdf.SGDF(model.parameters())
        found = names_after_a_step(optimizer, model=wrapped)
        assert found == ["head.weight", "module.weight", "module.bias"]


def test_a_parameter_without_a_name_among_named_ones():
    first, second = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = sgdf.SGDF([("first", first)])
    optimizer.param_groups[0]["params"].append(second)
    assert names_after_a_step(optimizer) == ["first", "group0.param1"]
