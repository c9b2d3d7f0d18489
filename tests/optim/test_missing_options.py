"""Options of torch's optimizers that ours do not have: refused, with what to write instead."""

import copy
import inspect

import pytest
import torch
from torch.optim import SGD, Adam

import sgdf

CLASSES = [sgdf.SGDF, sgdf.FilterAdam, sgdf.SignSGDF, sgdf.FilterMuon, sgdf.UnifiedMomentum]
ADVICE = [
    (sgdf.SGDF, {"momentum": 0.9}, "for SGD's lr=0.1 with momentum=0.9 write lr=1.0"),
    (sgdf.SGDF, {"momentum": 0.95}, "for SGD's lr=0.1 with momentum=0.95 write lr=2.0"),
    (sgdf.SGDF, {"momentum": 0.0}, "for SGD's lr=0.1 with momentum=0.0 write lr=0.1"),
    (sgdf.SGDF, {"momentum": 0.9, "dampening": 0.5}, "momentum=0.9 and dampening=0.5 write lr=0.5"),
    (sgdf.SGDF, {"momentum": 0.9, "nesterov": True}, "has no momentum and no nesterov: .*lr=1.0"),
    (sgdf.SGDF, {"momentum": 1.5}, r"write lr = sgd_lr / \(1 - momentum\)"),
    (sgdf.SGDF, {"momentum": "much"}, r"write lr = sgd_lr / \(1 - momentum\)"),
    (sgdf.SGDF, {"momentum": 0.9, "dampening": 2.0}, "dampening=2.0 .*has to be below 1"),
    (sgdf.SGDF, {"momentum": 0.9, "dampening": 1}, "dampening=1 .*has to be below 1"),
    (sgdf.SGDF, {"momentum": 0, "dampening": 2.0}, "dampening=2.0 write lr=0.1"),
    (sgdf.SGDF, {"momentum": 10**400}, r"write lr = sgd_lr / \(1 - momentum\)"),
    (sgdf.SGDF, {"nesterov": True}, "has no nesterov: leave it out"),
    (sgdf.SGDF, {"dampening": 0.5}, "has no dampening: leave it out"),
    (sgdf.SGDF, {"amsgrad": True}, "has no amsgrad: leave it out"),
    (sgdf.FilterAdam, {"momentum": 0.8}, r"its memory is betas\[0\]: write betas=\(0.8, 0.999\)"),
    (sgdf.FilterAdam, {"amsgrad": True}, r"sgdf.filtered\(torch.optim.Adam\).*amsgrad=True"),
    (sgdf.SignSGDF, {"momentum": 0.8}, r"write betas=\(0.8, 0.999\)"),
    (sgdf.FilterMuon, {"momentum": 0.95, "nesterov": True}, r"write betas=\(0.95, 0.999\)"),
    (sgdf.UnifiedMomentum, {"momentum": 0.8}, "write beta=0.8, u=1.0"),
    (sgdf.UnifiedMomentum, {"momentum": 0.8, "dampening": 0.5}, "beta=0.8, u=1.0, lr=0.05"),
    (sgdf.UnifiedMomentum, {"momentum": 0.8, "dampening": 1.5}, "dampening=1.5 .*be below 1"),
    (sgdf.UnifiedMomentum, {"momentum": 0.0, "dampening": 0.5}, "write beta=0.0, u=1.0$"),
    (sgdf.UnifiedMomentum, {"nesterov": True}, "has no nesterov: leave it out"),
]


def weights():
    return [torch.nn.Parameter(torch.ones(2, 2))]


@pytest.mark.parametrize(("optimizer", "options", "message"), ADVICE)
def test_the_constructor_says_what_to_write(optimizer, options, message):
    with pytest.raises(TypeError, match=message) as refused:
        optimizer(weights(), lr=0.1, **options)
    assert str(refused.value).startswith(f"{optimizer.__name__} has no ")
    with pytest.raises(TypeError, match=message):
        optimizer(weights(), 0.1, **options)


@pytest.mark.parametrize(("optimizer", "options", "message"), ADVICE)
def test_a_group_is_refused_with_the_same_words(optimizer, options, message):
    with pytest.raises(TypeError, match=message):
        optimizer([{"params": weights(), "lr": 0.1, **options}], lr=3.0)
    ours = optimizer(weights(), lr=0.1)
    before = copy.deepcopy(ours.state_dict())
    with pytest.raises(TypeError, match=message):
        ours.add_param_group({"params": weights(), **options})
    assert ours.state_dict() == before


def test_the_default_rate_is_no_rate_of_sgd():
    with pytest.raises(TypeError, match=r"write lr = sgd_lr / \(1 - momentum\), 10 times SGD's"):
        sgdf.SGDF(weights(), momentum=0.9)
    with pytest.raises(TypeError, match="10 times SGD's"):
        sgdf.SGDF([{"params": weights(), "momentum": 0.9}])
    with pytest.raises(TypeError, match="10 times SGD's"):  # whichever object the number is
        sgdf.SGDF(weights(), lr=float("0.5"), momentum=0.9)


def test_the_rule_names_the_dampening():
    with pytest.raises(
        TypeError, match=r"lr = sgd_lr \* \(1 - dampening\) / \(1 - momentum\), 5 times SGD's"
    ):
        sgdf.SGDF(weights(), momentum=0.9, dampening=0.5)
    with pytest.raises(
        TypeError, match=r"u=1.0, lr = sgd_lr \* \(1 - dampening\), 0.5 times SGD's"
    ):
        sgdf.UnifiedMomentum(weights(), momentum=0.9, dampening=0.5)


def test_a_tensor_rate_is_converted_too():
    with pytest.raises(TypeError, match=r"write lr=1\.0"):
        sgdf.SGDF(weights(), lr=torch.tensor(0.1), momentum=0.9)


def test_the_advised_rate_is_that_of_take_over():
    sgd = SGD(weights(), lr=0.03, momentum=0.8, dampening=0.4)
    (group,) = sgdf.take_over(sgd).param_groups
    with pytest.raises(TypeError, match=f"write lr={group['lr']:.6g}"):
        sgdf.SGDF(weights(), lr=0.03, momentum=0.8, dampening=0.4)


def test_the_advised_momentum_is_that_of_sgd():
    theirs, ours = weights(), weights()
    steps = SGD(theirs, lr=0.1, momentum=0.8), sgdf.UnifiedMomentum(ours, 0.1, beta=0.8, u=1.0)
    for _ in range(5):
        for optimizer, (weight,) in zip(steps, (theirs, ours), strict=True):
            weight.grad = 2 * weight.detach()
            optimizer.step()
    torch.testing.assert_close(theirs, ours)


def test_groups_of_torch_may_have_options_that_are_off():
    for given in ({"amsgrad": False}, {"nesterov": False, "dampening": 0}):
        sgdf.FilterAdam([{"params": weights(), **given}])
    sgdf.FilterAdam(Adam(weights(), lr=0.01).param_groups)


def test_a_checkpoint_with_such_an_option_still_loads():
    optimizer = sgdf.SGDF(weights(), lr=0.1)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["momentum"] = 0.9
    optimizer.load_state_dict(saved)


@pytest.mark.parametrize("optimizer", CLASSES)
def test_other_unknown_options_are_refused_as_python_does(optimizer):
    with pytest.raises(TypeError, match="unexpected keyword argument 'momentun'"):
        optimizer(weights(), lr=0.1, momentun=0.9)


@pytest.mark.parametrize("optimizer", CLASSES)
def test_signatures_name_what_is_accepted_alone(optimizer):
    kinds = {p.kind for p in inspect.signature(optimizer).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def test_a_subclass_may_have_such_an_option_of_its_own():
    class Own(sgdf.SGDF):
        def __init__(self, params, momentum):
            super().__init__(params, lr=0.1, betas=(momentum, 0.999))

    assert Own(weights(), momentum=0.5).param_groups[0]["betas"] == (0.5, 0.999)


def test_filtered_classes_have_the_options_of_their_inner_class():
    optimizer = sgdf.filtered(SGD)(weights(), lr=0.1, momentum=0.9, nesterov=True)
    assert optimizer.param_groups[0]["momentum"] == 0.9
    optimizer.add_param_group({"params": weights(), "momentum": 0.5})


def test_take_over_knows_the_momentum_already():
    with pytest.raises(TypeError, match="momentum: take_over reads it from SGD; leave it out"):
        sgdf.take_over(SGD(weights(), lr=0.1, momentum=0.9), momentum=0.9)
