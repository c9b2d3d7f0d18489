"""Steps in a forked child, which has none of its parent's threads."""

import json
import subprocess
import sys

import pytest

from cases import CASES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and torch's OpenMP")

# One process for all cases, since importing torch takes seconds. A child that hangs ends by its
# own alarm, so that no process is left behind.
PARENT = """
import json, os, signal, sys, traceback, warnings
import torch, sgdf

cases, parent_steps = json.loads(sys.argv[1])
torch.set_num_threads(2)
# So large that torch and the native step use several threads. Made before any fork: in the child
# even this would hang.
values = [torch.full((300, 200), 1.0) for _ in range(4 * len(cases))]
grad = torch.full((300, 200), 0.5)


def new_optimizer(name, options):
    param = torch.nn.Parameter(values.pop())
    param.grad = grad
    make = getattr(sgdf, name, None) or sgdf.filtered(getattr(torch.optim, name))
    return make([param], lr=0.1, **options), param


def take_steps(optimizer, param):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
        optimizer.step()
    corners = param.detach()[0, 0].item(), param.detach()[-1, -1].item()
    return corners, torch.get_num_threads(), [str(w.message) for w in caught]


for name, options in cases:
    inherited = new_optimizer(name, options)
    if parent_steps:
        inherited[0].step()
    new = new_optimizer(name, options)
    for pair in (inherited, new):
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                print(json.dumps(take_steps(*pair)), flush=True)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            print(json.dumps(None), flush=True)
    if parent_steps:
        for pair in (inherited, new):
            print(json.dumps(take_steps(*pair)), flush=True)
"""


def outcomes(cases, *, parent_steps):
    """Return what two steps do: in two children for each case, and then in their parent."""
    result = subprocess.run(
        [sys.executable, "-c", PARENT, json.dumps([cases, parent_steps])],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


GRANDCHILD = """
import os, signal, sys, warnings
import torch, sgdf

torch.set_num_threads(2)
params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
for param in params:
    param.grad = torch.ones(3)
make = sgdf.SGDF if sys.argv[1] == "SGDF" else sgdf.filtered(torch.optim.AdamW)
first, second = (make([param], lr=0.1, foreach=True) for param in params)
first.step()
for _ in range(2):
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(10)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    second.step()
print(*(warning.message for warning in caught), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("name", ["SGDF", "filtered(AdamW)"])
def test_a_grandchild_is_warned_of_its_grandparents_threads(name):
    result = subprocess.run(
        [sys.executable, "-c", GRANDCHILD, name], capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr
    assert "forked after" in result.stdout
    assert "'spawn'" in result.stdout


CASES_AND_PATHS = [
    *((name, {}) for name in [*(case.name for case in CASES), "AdamW"]),
    *((name, {"foreach": foreach}) for name in ("SGDF", "AdamW") for foreach in (True, False)),
]


def test_a_forked_child_steps_as_its_parent_does():
    lines = outcomes(CASES_AND_PATHS, parent_steps=True)
    for case, *steps in zip(CASES_AND_PATHS, *(lines[i::4] for i in range(4)), strict=True):
        assert None not in steps, f"hung, or failed: {case}"
        for child, parent in zip(steps[:2], steps[2:], strict=True):  # inherited, new
            assert child[0] == pytest.approx(parent[0], rel=1e-5), case
            assert child[0] != pytest.approx([1.0, 1.0]), case
            assert child[1] == parent[1] == 2, f"torch's number of threads has changed: {case}"
            assert parent[2] == []
            (message,) = child[2]  # once, not at each step
            assert "'spawn'" in message
            assert "torch.set_num_threads(1)" in message


def test_a_child_that_is_forked_before_the_first_step():
    for step in outcomes([("SGDF", {}), ("SGDF", {"foreach": True})], parent_steps=False):
        assert step is not None, "hung, or failed"
        corners, threads, messages = step
        assert corners != pytest.approx([1.0, 1.0])
        assert (threads, messages) == (2, [])
