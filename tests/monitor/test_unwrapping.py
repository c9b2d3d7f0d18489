"""The optimizer inside of what wraps it."""

import pytest
import torch

import sgdf

pytestmark = pytest.mark.usefixtures("_watchdog")


class Wrapper:
    """Wrap an optimizer as accelerate and Lightning do: ``step`` is passed on."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        """Step."""
        self.optimizer.step()


class OtherWrapper(torch.optim.Optimizer):
    """Wrap an optimizer as fairscale does, and be one."""

    def __init__(self, optim):
        self.optim = optim

    def step(self):
        """Step."""
        self.optim.step()


class Inventor:
    """Invent a new object for every attribute, as mocks do."""

    def __getattr__(self, name):
        return Inventor()


class Lock:
    """Refuse to be looked at."""

    @property
    def optimizer(self):
        """Raise."""
        raise RuntimeError("not yet")


def sgd():
    """Return an optimizer that is none of ours."""
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


@pytest.mark.parametrize(
    "wrap", [Wrapper, OtherWrapper, lambda inner: Wrapper(OtherWrapper(Wrapper(inner)))]
)
def test_a_wrapped_optimizer_is_monitored(wrap):
    param = torch.nn.Parameter(torch.ones(2))
    wrapper = wrap(sgdf.filtered(torch.optim.Adam)([param], lr=0.1))
    monitor = sgdf.monitor.attach(wrapper, every=1)
    param.grad = torch.ones(2)
    wrapper.step()
    assert monitor.latest["step"] == 1


def test_what_wraps_itself_has_no_end():
    wrapper = Wrapper(None)
    wrapper.optimizer = Wrapper(wrapper)
    with pytest.raises(TypeError, match=r"got Wrapper around Wrapper$"):
        sgdf.monitor.attach(wrapper)


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (sgd(), "got SGD$"),
        (Wrapper(OtherWrapper(sgd())), "got Wrapper around OtherWrapper around SGD$"),
        (Inventor(), "got Inventor around Inventor"),
        (Lock(), "got Lock$"),
        (None, "got NoneType$"),
    ],
)
def test_without_an_optimizer_of_ours(thing, name):
    with pytest.raises(TypeError, match=name):
        sgdf.monitor.attach(thing)
