"""What is recorded of a run is what its gradients and its steps were."""

import json
import math

import numpy as np
import pytest
import torch

import sgdf
from sgdf.analysis.gradients.distribution import counts_from_text
from sgdf.analysis.gradients.measure import ALL, Watch, measure_run, steady_scale
from sgdf.analysis.replay import replay
from sgdf.bench.errors import SpecError
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read

TRAIN = {"steps": 12, "batch_size": 64, "threads": 1, "device": "cpu"}


def the_run(optimizer="sgd-ema", lr=0.1, *, schedule=None, task="digits-mlp", **train):
    document = {
        "task": {"name": task},
        "optimizer": {"name": optimizer, "lr": lr, "weight_decay": 5e-4},
        "train": {**TRAIN, **train},
        **({"schedule": schedule} if schedule else {}),
    }
    (run,) = resolve_machine(read(document), threads=1).runs
    return run


def measured(run, every=4, steps=100):
    return measure_run(run, every, steps, lambda share: None)


def weights(trainer):
    params = trainer.model.named_parameters()
    return {name: param.detach().double().clone() for name, param in params}


def test_the_direction_times_the_rate_is_the_change_of_the_parameters(monkeypatch):
    # With one step in an epoch, the schedule halves the rate between each step and the next.
    schedule = {"name": "ExponentialLR", "gamma": 0.5, "every": "step"}
    run = the_run("sgdf", 0.5, schedule=schedule)
    path, directions = {}, {}
    replay(run, after=lambda trainer: path.__setitem__(trainer.step, weights(trainer)))
    monkeypatch.setattr(
        Watch, "_add", lambda self, step, name, scale, g, u: directions.update({(step, name): u})
    )
    watch = Watch(every=4)
    replay(run, watch.before, watch.after)
    assert {step for step, _ in directions} == {4, 8, 12}
    for (step, name), direction in directions.items():
        if name != ALL:
            change = path[step - 1][name] - path[step][name]
            rate = 0.5 * 0.5 ** (step - 1)
            torch.testing.assert_close(rate * direction, change, rtol=1e-12, atol=0.0)
            assert change.abs().max() > 0.0


def test_statistics_of_all_parameters_are_those_of_the_tensors_together():
    tensors = measured(the_run())["tensors"]
    names = [name for name in tensors if name != ALL]
    sizes = np.array([math.prod(tensors[name]["shape"]) for name in names])
    assert tensors[ALL]["shape"] == [sizes.sum()]
    for kind in ("gradient", "direction"):
        whole = tensors[ALL][kind]
        assert whole["step"] == [4, 8, 12]
        for i in range(3):
            means = np.array([tensors[name][kind]["mean"][i] for name in names])
            spreads = np.array([tensors[name][kind]["deviation"][i] for name in names])
            share = sizes / sizes.sum()
            mean = share @ means
            assert whole["mean"][i] == pytest.approx(mean, rel=1e-6, abs=1e-12)
            second = share @ (spreads**2 + means**2)
            assert whole["deviation"][i] == pytest.approx((second - mean**2) ** 0.5, rel=1e-6)
            counts = [counts_from_text(tensors[name][kind]["counts"][i]) for name in names]
            np.testing.assert_array_equal(
                counts_from_text(whole["counts"][i]), np.sum(counts, axis=0)
            )


def test_histograms_have_every_element():
    for tensor in measured(the_run("sgd-cm"))["tensors"].values():
        for kind in ("gradient", "direction"):
            for counts in tensor[kind]["counts"]:
                assert counts_from_text(counts).sum() == math.prod(tensor["shape"])


def test_plain_sgd_takes_the_gradient_and_its_decay():
    tensors = measured(the_run("sgd-vanilla"))["tensors"]
    for tensor in tensors.values():
        gradient, direction = tensor["gradient"], tensor["direction"]
        np.testing.assert_allclose(direction["deviation"], gradient["deviation"], rtol=0.05)
        assert direction["deviation"] != gradient["deviation"]


def test_classical_momentum_at_a_tenth_of_the_rate_takes_the_path_of_the_running_mean():
    ends = [weights(replay(run)) for run in (the_run("sgd-ema", 0.1), the_run("sgd-cm", 0.01))]
    torch.testing.assert_close(*ends, rtol=0.0, atol=1e-6)
    mean, classical = (
        measured(the_run(*arm))["tensors"] for arm in (("sgd-ema", 0.1), ("sgd-cm", 0.01))
    )
    for name, tensor in mean.items():
        other = classical[name]
        np.testing.assert_allclose(
            other["gradient"]["deviation"], tensor["gradient"]["deviation"], rtol=1e-3
        )
        np.testing.assert_allclose(
            np.array(other["direction"]["deviation"]) / other["scale"],
            np.array(tensor["direction"]["deviation"]) / tensor["scale"],
            rtol=1e-3,
        )
    # The same rate is another path.
    far = weights(replay(the_run("sgd-cm", 0.1)))
    assert max((far[name] - end).abs().max() for name, end in ends[0].items()) > 1e-3


def test_the_mean_of_the_last_layers_gradient_is_zero_for_softmax():
    for name in ("sgd-vanilla", "sgdf"):
        tensors = measured(the_run(name))["tensors"]
        last = [name for name in tensors if name != ALL][-2:]
        for tensor in last:
            gradient = tensors[tensor]["gradient"]
            assert np.max(np.abs(gradient["mean"]) / gradient["deviation"]) < 1e-5


def test_the_loss_is_that_of_every_step_and_measuring_changes_no_bit():
    run, losses = the_run("sgdf", 0.5), []
    watch = Watch(every=3)
    watched = weights(replay(run, watch.before, watch.after))
    assert all(torch.equal(watched[name], value) for name, value in weights(replay(run)).items())
    replay(run, lambda moment: losses.append(moment.task.loss(moment.batch).item()))
    np.testing.assert_allclose(measured(run)["loss"], losses, rtol=1e-6)


def test_steps_are_limited_and_progress_ends_at_one():
    shares = []
    found = measure_run(the_run(), 2, 6, shares.append)
    assert found["tensors"][ALL]["gradient"]["step"] == [2, 4, 6]
    assert len(found["loss"]) == 6
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_the_last_step_of_an_epoch_is_described():
    epoch = 1437 // 64  # steps
    found = measured(the_run(steps=2 * epoch + 2), every=1)
    steps = found["tensors"][ALL]["direction"]["step"]
    assert steps == list(range(1, len(found["loss"]) + 1))


def test_a_run_too_short_for_any_description_is_refused():
    with pytest.raises(SpecError, match="every 13 steps: the run takes only 12 steps"):
        measured(the_run(), every=13)


def test_a_diverged_run_ends_with_its_last_finite_step():
    found = measured(the_run("sgd-vanilla", 1e18), every=1)
    for tensor in found["tensors"].values():
        assert np.isfinite(tensor["direction"]["deviation"]).all()
        assert tensor["direction"]["step"][-1] < found["nonfinite"]
    assert "nonfinite" not in measured(the_run())


def test_what_is_measured_is_plain_json():
    found = measured(the_run())
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("make", "scale"),
    [
        (lambda params: sgdf.UnifiedMomentum(params, lr=0.1, beta=0.9), 1.0),
        (lambda params: sgdf.UnifiedMomentum(params, lr=0.1, beta=0.9, u=1.0), 10.0),
        (lambda params: sgdf.UnifiedMomentum(params, lr=0.1, beta=0.5, u=0.75), 1.5),
        (lambda params: torch.optim.SGD(params, lr=0.1), 1.0),
        (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), 10.0),
        (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.9), 1.0),
        (lambda params: sgdf.SGDF(params, lr=0.1), 1.0),
    ],
)
def test_the_scale_is_what_a_steady_gradient_becomes(make, scale):
    param = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = make([param])
    for _ in range(400):
        before = param.item()
        param.grad = torch.full_like(param, 2.0)
        optimizer.step()
    assert (before - param.item()) / 0.1 / 2.0 == pytest.approx(scale)
    assert steady_scale(optimizer, optimizer.param_groups[0]) == pytest.approx(scale)


def test_a_direction_that_does_not_grow_with_the_gradient_has_no_scale():
    param = torch.zeros(1, requires_grad=True)
    for optimizer in (torch.optim.Adam([param]), sgdf.SignSGDF([param], lr=0.1)):
        assert steady_scale(optimizer, optimizer.param_groups[0]) is None
