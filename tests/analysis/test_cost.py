"""sgdf cost: what it counts, measures and prints."""

import dataclasses
import functools
import json
import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import sgdf
from cases import needs_native
from sgdf.analysis.cost import measure
from sgdf.analysis.cost.measure import BASELINE, LIMIT, MEMORY_ALONE, gpt2_shapes
from sgdf.analysis.cost.operations import count_operations, operation_table, units_of
from sgdf.analysis.cost.plot import draw
from sgdf.analysis.cost.report import Report
from sgdf.bench.tasks.imagenet import networks
from sgdf.cli import app
from sgdf.environment import environment

# Tensors and elements of the published ImageNet forms.
SIZES = {
    "vgg11": (22, 132_863_336),
    "vgg13": (26, 133_047_848),
    "vgg11_bn": (38, 132_868_840),
    "vgg13_bn": (46, 133_053_736),
    "resnet18": (62, 11_689_512),
    "resnet34": (110, 21_797_672),
    "resnet50": (161, 25_557_032),
    "resnet101": (314, 44_549_160),
    "densenet121": (364, 7_978_856),
    "densenet161": (484, 28_681_000),
}


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_networks_have_the_published_sizes(name):
    with torch.device("meta"):
        network = networks.NETWORKS[name]()
        outputs = network(torch.empty(2, 3, 64, 64))
    params = list(network.parameters())
    assert (len(params), sum(p.numel() for p in params)) == SIZES[name]
    assert outputs.shape == (2, networks.CLASSES)


def test_gpt2_has_the_published_size():
    shapes = gpt2_shapes()
    assert (len(shapes), sum(torch.Size(s).numel() for s in shapes)) == (148, 124_439_808)


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "vgg11"])
def test_networks_train(name):
    problem = measure.make_problem(name, batch=2, resolution=32)
    first = problem.params[0].grad
    problem.renew()
    assert all(param.grad.isfinite().all() for param in problem.params)
    assert problem.params[0].grad.any()
    assert problem.params[0].grad is not first


# Operations.


def test_operations_of_a_known_step():
    """P - lr * g, then p * (1 - lr * decay) - lr * g: what the paper counts for SGD."""
    assert count_operations(lambda params: torch.optim.SGD(params, lr=0.1)) == {"×": 1, "+": 1}
    momentum = count_operations(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))
    assert momentum == {"×": 2, "+": 2}


class Spendthrift(torch.optim.SGD):
    """Takes one root and one exponential more."""

    def step(self, closure=None):
        """Spend."""
        (param,) = self.param_groups[0]["params"]
        param.grad.abs().sqrt()
        param.grad.exp()


def test_unknown_operations_are_not_passed_over():
    with pytest.raises(NotImplementedError, match="exp"):
        count_operations(lambda params: Spendthrift(params, lr=0.1))


def test_operation_table_beside_the_papers():
    rows = {(row.optimizer, row.decay): row for row in operation_table()}
    assert {name for name, _ in rows} == {"SGD", "SGDM", "Adam", "SGDF"}
    plain, simplified = rows["SGDF", "none"].published
    assert (plain, simplified) == (22, 20)
    # As many as the paper's simplified form, and as many more for each kind of decay.
    assert rows["SGDF", "none"].total == 20
    assert rows["SGDF", "none"].counted["√"] == 1
    assert rows["SGDF", "coupled"].total == 22
    assert rows["SGDF", "decoupled"].total == 21
    assert rows["Adam", "none"].total <= 14
    for name in ("SGD", "SGDM"):
        assert rows[name, "coupled"].total == rows[name, "coupled"].published[0]


# Measurements, on a problem small enough for a test.


def small_problem():
    """Return one under a name that the paper's runtime table has."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((300, 40), (40,))]

    def train():
        for param in params:
            param.grad = torch.randn_like(param)

    train()
    return measure.Problem("vgg13", params, train, is_network=True)


def test_powers_are_counted_as_the_paper_counts():
    assert units_of("pow", (None, 0.5), {}) == ["√"]
    assert units_of("pow", (None, 2), {}) == ["×"]
    assert units_of("pow", (None, 1), {}) == []
    assert units_of("pow", (None, 0.3), {}) == ["other"]


@pytest.fixture(scope="module")
def result():
    return measure.measure(small_problem(), rounds=3, training="batch 2 at 32 × 32 pixels")


@needs_native
def test_everything_is_measured(result):
    names = {(c.optimizer, c.implementation) for c in result.costs}
    for optimizer in ("SGDF", "SGD", "Adam", "AdamW"):
        for implementation in ("loop", "foreach", "fused"):
            assert (optimizer, implementation) in names
    assert {("AdaBelief", "library"), ("Lion", "library"), LIMIT, MEMORY_ALONE} <= names
    for c in result.costs:
        for spread in (c.seconds, c.to_adam, c.to_limit):
            assert 0 < spread.lower <= spread.median <= spread.upper
        assert 0 < c.share < 1
    assert result.cost(*BASELINE).to_adam == measure.Spread(1.0, 1.0, 1.0)
    assert (result.tensors, result.parameters) == (2, 12_040)


@needs_native
def test_bytes_are_those_of_float32_buffers(result):
    slack = 0.1  # step counts
    for optimizer, buffers in (("SGD", 1), ("Adam", 2), ("SGDF", 2)):
        for implementation in ("loop", "foreach", "fused"):
            found = result.cost(optimizer, implementation)
            assert found.state_bytes == pytest.approx(4 * buffers, abs=slack)
    # Parameters, gradients, state, and for foreach two temporaries of the parameters' size.
    assert result.cost("SGDF", "fused").peak_bytes == pytest.approx(16, abs=slack)
    assert result.cost("SGDF", "foreach").peak_bytes == pytest.approx(24, abs=slack)


@needs_native
def test_formats_have_their_bytes():
    problem = measure.Problem("flat", [torch.nn.Parameter(torch.ones(2**16))], lambda: None, False)
    problem.params[0].grad = torch.ones(2**16)
    found = measure.measure(problem, rounds=2, native_only=True)
    most = {"full": 8.01, "bfloat16": 4.01, "int8": 2.1, "block": 4.1, "bfloat16-block": 2.1}
    for name, bound in (most | {"int8-block": 1.1}).items():
        cost = found.cost("SGDF" if name == "full" else f"SGDF {name}", "fused")
        assert bound - 0.2 < cost.state_bytes <= bound
        assert cost.moved_bytes == pytest.approx(12 + 2 * cost.state_bytes)
    assert found.cost("SGD", "fused").moved_bytes == pytest.approx(20, abs=0.01)


def test_measuring_leaves_the_parameters_nearly_alone():
    problem = small_problem()
    before = [param.detach().clone() for param in problem.params]
    measure.measure(problem, rounds=2)
    for param, start in zip(problem.params, before, strict=True):
        torch.testing.assert_close(param.detach(), start, rtol=0, atol=1e-5)


def test_without_native_code_the_rest_is_measured(monkeypatch):
    no_library = functools.cache(lambda: OSError("no C compiler"))
    monkeypatch.setattr("sgdf.optim.native.step._library", no_library)
    found = measure.measure(small_problem(), rounds=2)
    names = {(c.optimizer, c.implementation) for c in found.costs}
    assert ("SGDF", "foreach") in names
    assert not names & {("SGDF", "fused"), LIMIT, MEMORY_ALONE}
    assert all(c.to_limit is None for c in found.costs)
    assert environment()["native step"] == "no C compiler"


def test_whole_steps_stand_beside_the_published_hours(result):
    rows = {(row["optimizer"], row["implementation"]): row for row in measure.whole_steps(result)}
    assert rows["SGD", "loop"]["ratio_to_sgd"] == 1
    row = rows["SGDF", "foreach"]
    assert row["published_ratio"] == pytest.approx(47.78 / 45.71)
    network = result.forward_backward.median
    expected = (network + result.cost("SGDF", "foreach").seconds.median) / (
        network + result.cost("SGD", "foreach").seconds.median
    )
    assert row["ratio_to_sgd"] == pytest.approx(expected)
    assert measure.whole_steps(dataclasses.replace(result, problem="resnet18")) == []


def test_spread_is_median_and_quartiles():
    assert measure.Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == measure.Spread(3.0, 2.0, 4.0)


def test_ratios_are_taken_round_by_round():
    """So that a machine that is slow in one round is slow for both."""
    assert measure.ratios([1.0, 10.0, 2.0], [2.0, 20.0, 4.0]) == measure.Spread(0.5, 0.5, 0.5)


def test_chart(result, tmp_path):
    path = tmp_path / "new" / "chart.png"
    draw(Report(environment(), 3, [result, result], operation_table()), path)
    assert path.read_bytes().startswith(b"\x89PNG")


# The command.


@pytest.fixture
def small(monkeypatch):
    """Let the command measure the small problem whatever it is asked for."""
    monkeypatch.setattr(measure, "make_problem", lambda name, batch, resolution: small_problem())


def test_command_prints_tables_and_writes_files(small, tmp_path):
    file, chart = tmp_path / "new" / "cost.json", tmp_path / "cost.svg"
    arguments = ["cost", "resnet18", "flat", "--rounds", "2"]
    outcome = CliRunner().invoke(app, [*arguments, "--json", str(file), "--plot", str(chart)])
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"SGDF, foreach +[\d.]+ +[\d.]+ \(", outcome.output)
    assert "Whole training steps" in outcome.output
    assert re.search(r"SGDF +none .* 20 +22 → 20", outcome.output)
    found = json.loads(file.read_text())
    assert found["environment"]["torch"] == torch.__version__
    assert len(found["problems"]) == 2
    assert found["problems"][0]["costs"][0]["optimizer"] == "SGDF"
    assert found["problems"][0]["whole_steps"]
    assert found["operations"]
    assert "<svg" in chart.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "nope"),
        (["--rounds", "1"], "rounds"),
        (["--batch", "many"], "--batch"),
        (["--resolution", "8"], "resolution"),
        (["--threads", "0"], "threads"),
        (["--plot", "chart.foo"], "chart.foo"),
        (["--plot", "/dev/null/chart.png"], "/dev/null"),
        (["--json", "/"], "cannot write /"),
        (["--what"], "--what"),
    ],
)
def test_wrong_input_is_explained(arguments, message):
    outcome = CliRunner().invoke(app, ["cost", *arguments])
    assert outcome.exit_code == 2
    assert message in outcome.output
    assert "Traceback" not in outcome.output


def test_command_without_names_takes_the_usual_ones(small, tmp_path):
    file = tmp_path / "cost.json"
    outcome = CliRunner().invoke(app, ["cost", "--rounds", "2", "--json", str(file)])
    assert outcome.exit_code == 0, outcome.output
    assert len(json.loads(file.read_text())["problems"]) == len(measure.DEFAULT_PROBLEMS)


def test_refused_options_leave_nothing_behind(tmp_path):
    arguments = ["--json", str(tmp_path / "new" / "x.json"), "--plot", "bad.foo"]
    assert CliRunner().invoke(app, ["cost", *arguments]).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_help_and_version():
    runner = CliRunner()
    assert sgdf.__version__ in runner.invoke(app, ["--version"]).output
    text = runner.invoke(app, ["cost", "--help"]).output
    for name in (*measure.PROBLEMS, "--compile", "--json", "--plot"):
        assert name in text
    assert "cost" in runner.invoke(app, []).output


def test_missing_extra_is_named():
    program = "import sys; sys.modules['typer'] = None; import sgdf.cli"
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert outcome.returncode == 1
    assert "pip install 'sgdf[bench]'" in outcome.stderr
    assert "Traceback" not in outcome.stderr
