"""The monitor's handle: its history, its log, and that nothing it meets stops a training."""

import contextlib
import copy
import io
import math
import pickle
import sys
import warnings

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import sgdf
from cases import Quadratic, assert_equal, train
from sgdf.monitor import handle


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"every": 0}, ValueError, "every, expected a whole number from 1: 0"),
        ({"every": 2.5}, ValueError, "2.5"),
        ({"max_elements": 0}, ValueError, "max_elements, expected a .*number from 1: 0"),
        ({"writer": "runs"}, TypeError, "no SummaryWriter .*no run of W&B .*: 'runs'"),
        ({"log": "loud"}, TypeError, "log is no function: 'loud'"),
        ({"model": "resnet18"}, TypeError, "model has no named_parameters: 'resnet18'"),
        ({"max_elements": 2.5}, ValueError, "2.5"),
    ],
)
def test_bad_arguments(arguments, error, message):
    optimizer = sgdf.SGDF([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(error, match=message):
        sgdf.monitor.attach(**{"optimizer": optimizer, **arguments})
    assert not optimizer._optimizer_step_pre_hooks


# What it keeps and prints.


def test_the_history_has_a_column_for_each_statistic():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=2)
    assert monitor.history == {}
    train(optimizer, problem, 7)
    assert monitor.history["step"] == [2, 4, 6]
    assert monitor.history.keys() == {"step", *monitor.latest["total"]}
    assert all(len(column) == 3 for column in monitor.history.values())
    assert monitor.history["gain_mean"][-1] == monitor.latest["total"]["gain_mean"]


def test_a_long_history_is_thinned(monkeypatch):
    monkeypatch.setattr(handle, "HISTORY_LENGTH", 8)
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    train(optimizer, problem, 14)
    assert monitor.history["step"] == [4, 8, 10, 12, 13, 14]
    assert {len(column) for column in monitor.history.values()} == {6}


def test_each_measurement_is_logged_in_one_line():
    lines = []
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=2, log=lines.append)
    train(optimizer, problem, 5)
    assert [line.partition(":")[0] for line in lines] == ["step 2", "step 4"]
    total = monitor.latest["total"]
    assert lines[-1] == (
        f"step 4: gain {total['gain_mean']:.2f} (steady noise 0.24), cosine "
        f"{total['cosine']:.2f}, update ratio {total['update_ratio']:.1e}"
    )


def test_before_the_first_measurement():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=3)
    assert str(monitor) == "SGDF: nothing is measured yet; step 3 will be the first."
    for _ in range(4):
        optimizer.zero_grad()
        optimizer.step()  # nothing has a gradient
    assert str(monitor) == "SGDF: nothing is measured yet; step 6 will be the first."


def test_only_the_totals_and_the_last_measurements_are_kept():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    train(optimizer, problem, 7)
    assert [measurement.step for measurement in monitor._recent] == [3, 4, 5, 6, 7]
    assert not any(measurement.gains for measurement in monitor._recent)


# What goes wrong around it.


class Broken:
    """A writer, a log and a model that fail."""

    def add_scalar(self, *_):
        """Fail."""
        raise OSError("disk full")

    add_histogram = named_parameters = __call__ = add_scalar


def train_beside(optimizer, problem, twin, steps=6):
    """Train both problems; they must agree to the bit."""
    alone = sgdf.SGDF(twin.params, lr=0.1)
    train(optimizer, problem, steps)
    train(alone, twin, steps)
    assert_equal(problem.params, twin.params)


@pytest.mark.parametrize(
    ("argument", "action"), [("writer", "write"), ("log", "log"), ("model", "measure")]
)
def test_what_fails_is_warned_of_once(argument, action):
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1, **{argument: Broken()})
    with pytest.warns(UserWarning, match=f"could not {action}: OSError: disk full") as found:
        train_beside(optimizer, problem, Quadratic())
    assert len(found) == 1
    assert f"The monitor could not {action}: OSError: disk full" in str(monitor)
    assert len(monitor.history.get("step", ())) == (0 if argument == "model" else 6)


def test_a_warning_is_no_error_either():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    sgdf.monitor.attach(optimizer, every=1, log=Broken())
    shown = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(shown):
        warnings.simplefilter("error")
        train_beside(optimizer, problem, Quadratic())
    assert shown.getvalue().count("could not log: OSError: disk full") == 1


class UnprintableError(Exception):
    """A fault that fails when it is shown."""

    def __str__(self):
        raise RuntimeError("no text")


def fail_to_log(_):
    """Raise a fault that has no text."""
    raise UnprintableError


def close_stderr(monkeypatch):
    """Close the stream that warnings are shown on; pytest, which records them, is bypassed."""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(warnings, "showwarning", lambda text, *_: print(text, file=sys.stderr))


def fail_to_show(monkeypatch):
    """Install a hook that fails, as a program may that collects warnings."""
    monkeypatch.setattr(warnings, "showwarning", Broken())


@pytest.mark.parametrize("spoil", [close_stderr, fail_to_show])
def test_a_warning_that_cannot_be_shown_stops_nothing(monkeypatch, spoil):
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1, log=Broken())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        spoil(monkeypatch)
        train_beside(optimizer, problem, Quadratic())
        monkeypatch.undo()
    assert "The monitor could not log: OSError: disk full" in str(monitor)


def test_a_fault_without_a_text_is_named():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1, log=fail_to_log)
    with pytest.warns(UserWarning, match="could not log: UnprintableError"):
        train_beside(optimizer, problem, Quadratic())
    assert str(monitor).endswith("The monitor could not log: UnprintableError")


def test_an_interrupt_passes():
    def interrupt(_):
        raise KeyboardInterrupt

    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1, log=interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(optimizer, problem, 1)
    assert monitor.latest["step"] == 1


def test_odd_parameters_beside_a_usual_one():
    """No gradient, no elements, NaN, infinity, half precision, complex: none of them stops it."""
    kinds = {
        "usual": torch.ones(4),
        "frozen": torch.ones(4),
        "empty": torch.ones(0, 3),
        "nan": torch.ones(4),
        "infinite": torch.ones(4),
        "half": torch.ones(4, dtype=torch.float16),
        "complex": torch.ones(4, dtype=torch.complex64),
        "scalar": torch.tensor(1.0),
    }
    params = {name: torch.nn.Parameter(tensor) for name, tensor in kinds.items()}
    optimizer = sgdf.SGDF(params.items(), lr=0.1)
    lines = []
    monitor = sgdf.monitor.attach(optimizer, every=1, log=lines.append)
    for _ in range(4):
        for name, param in params.items():
            param.grad = None if name == "frozen" else torch.ones_like(param)
        params["nan"].grad[0] = math.nan
        params["infinite"].grad[0] = math.inf
        optimizer.step()
    assert monitor.latest["params"].keys() == params.keys() - {"frozen", "empty"}
    for name, statistics in monitor.latest["params"].items():
        assert math.isfinite(statistics["residual_rms"]) == (name not in ("nan", "infinite"))
    assert "NaN or infinity is in gradient, state or values of nan, infinite." in str(monitor)
    assert lines[-1].endswith("not finite: nan, infinite")


def spoil_grad(optimizer, param):
    """Leave a sparse gradient behind."""
    param.grad = param.grad.to_sparse()


def spoil_shape(optimizer, param):
    """Leave a state of another shape behind."""
    optimizer.state[param]["exp_var"] = torch.ones(7)


def spoil_state(optimizer, param):
    """Leave no state behind."""
    del optimizer.state[param]


@pytest.mark.parametrize("spoil", [spoil_grad, spoil_shape, spoil_state])
def test_a_parameter_that_cannot_be_measured_is_left_out(spoil):
    first, second = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = sgdf.SGDF([("first", first), ("second", second)], lr=0.1)
    optimizer.register_step_post_hook(lambda *_: spoil(optimizer, first))
    monitor = sgdf.monitor.attach(optimizer, every=1)
    first.grad, second.grad = torch.ones(4), torch.ones(4)
    with pytest.warns(UserWarning, match="could not measure first: "):
        optimizer.step()
    assert list(monitor.latest["params"]) == ["second"]
    assert (first in optimizer.state) == (spoil is not spoil_state)


def test_a_parameter_without_values_is_left_out():
    real, meta = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4, device="meta"))
    optimizer = sgdf.SGDF([("real", real), ("meta", meta)], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    real.grad = torch.ones(4)
    with pytest.warns(UserWarning, match="could not measure meta: NotImplementedError"):
        optimizer.step()
    assert list(monitor.latest["params"]) == ["real"]


def test_a_group_that_is_added_later():
    first, second = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = sgdf.SGDF([first], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    first.grad, second.grad = torch.ones(4), torch.ones(4)
    optimizer.step()
    optimizer.add_param_group({"params": [second], "betas": (0.5, 0.9)})
    optimizer.step()
    assert list(monitor.latest["params"]) == ["group0.param0", "group1.param0"]


def test_a_closure_that_fails():
    """The step did not happen: it is not counted, and the next one is measured."""
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=2)
    train(optimizer, problem, 1)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimizer.step(fail)
    train(optimizer, problem, 1)
    assert monitor.latest["step"] == 2


def test_a_state_that_is_loaded():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    train(optimizer, problem, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    monitor = sgdf.monitor.attach(optimizer, every=1)
    train(optimizer, problem, 2)
    optimizer.load_state_dict(saved)
    train(optimizer, problem, 1)
    assert monitor.history["step"] == [1, 2, 3]
    assert optimizer.state[problem.params[0]]["step"] == 4


def test_copies_and_pickles_are_not_monitored():
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1, log=lambda line: None)
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        twin.step()
    assert monitor.latest == {}
    train(optimizer, problem, 1)
    assert monitor.latest["step"] == 1


def test_a_compiled_step_is_one_graph_and_not_measured():
    counter = CompileCounter()
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = sgdf.SGDF([weight], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=3)
    step = torch.compile(optimizer.step, backend=counter, fullgraph=True)
    for _ in range(7):
        step()
    assert counter.frame_count == 1
    assert str(monitor) == "SGDF: nothing is measured, since its step runs under torch.compile."


def test_a_graph_that_is_recorded_is_left_alone(monkeypatch):
    monkeypatch.setattr(handle, "is_capturing", lambda: True)
    problem = Quadratic()
    optimizer = sgdf.SGDF(problem.params, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    train(optimizer, problem, 2)
    assert monitor.latest == {}


def test_of_a_tensor_in_many_processes_the_own_part_is_measured():
    """To ask the others would wait for them, for ever if they are not monitored."""

    class Spread(torch.Tensor):
        """Stand for a DTensor: whatever needs the other processes fails."""

        def to_local(self):
            """Return the part of this process."""
            return self.as_subclass(torch.Tensor)[:2]

        def take(self, index):
            """Fail."""
            raise AssertionError("asks the other processes")

        reshape = numpy = take

    whole = torch.randn(5000).as_subclass(Spread)
    found = handle.choose_elements(whole, 10)
    assert torch.equal(found, whole.as_subclass(torch.Tensor)[:2])
