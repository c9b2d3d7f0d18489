"""What the monitor says: true sentences about trainings whose gradients are known."""

import math

import pytest
import torch

import sgdf
from cases import Quadratic, build, each_case, train


def watch(gradient, steps=600, size=4000, optimizer=sgdf.SGDF, every=20, **options):
    """Feed an optimizer made gradients; return all that the monitor says, in one line."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.full((size,), 10.0))
    options = {"lr": 1e-3, "betas": (0.9, 0.99)} | options
    made = optimizer([("weight", weight)], **options)
    monitor = sgdf.monitor.attach(made, every=every)
    for step in range(steps):
        weight.grad = gradient(step, size)
        made.step()
    return " ".join(str(monitor).split())


def noise(step, size):
    """Return steady noise."""
    return torch.randn(size)


def fading(step, size):
    """Return noise that shrinks faster than a variance of a thousand steps forgets."""
    return 0.99**step * torch.randn(size)


def shrinking(step, size):
    """Return noise that shrinks slowly."""
    return 0.998**step * torch.randn(size)


def growing(step, size):
    """Return noise that grows."""
    return 1.05**step * torch.randn(size)


def rare(step, size):
    """Return small gradients with a large one now and then, not in all elements at once."""
    gradient = 0.02 * torch.randn(size)
    return torch.where(torch.rand(size) < 0.01, 3.0 * gradient.sign(), gradient)


def steady(step, size):
    """Return almost no noise."""
    return torch.linspace(1.0, 2.0, size) + 0.01 * torch.randn(size)


def swinging(step, size):
    """Return a gradient that swings to and fro around a mean that is larger than it is."""
    return torch.full((size,), -0.2 if step % 20 == 19 else 1.0)


def mostly_zero(step, size):
    """Return noise in a tenth of the elements."""
    gradient = torch.randn(size)
    gradient[size // 10 :] = 0.0
    return gradient


@pytest.mark.parametrize(
    ("gradient", "options", "sentence"),
    [
        (noise, {}, "The filter works as on steady noise"),
        (noise, {"betas": (0.5, 0.9)}, "The filter works as on steady noise"),
        (noise, {"gamma": 1.0, "correction": "none"}, "The filter works as on steady noise"),
        (shrinking, {"betas": (0.9, 0.999)}, "lets more of the gradients through, as it does"),
        (
            fading,
            {"betas": (0.9, 0.999)},
            "The estimate is almost the gradient (cosine 1.00), since the gradients have shrunk "
            "faster than the filter's betas[1] forgets.",
        ),
        (
            steady,
            {},
            "The estimate is almost the gradient (cosine 1.00), since there is little noise to "
            "filter.",
        ),
        (noise, {"betas": (0.0, 0.99)}, "The estimate is almost the gradient (cosine 1.00)."),
        (noise, {"gamma": 0.0}, "The estimate is almost the gradient (cosine 1.00)."),
        (growing, {"betas": (0.9, 0.9)}, "The filter holds more of the gradients back"),
        (growing, {"betas": (0.9, 0.999)}, "mostly the running mean, as it is where noise grows"),
        (noise, {"eps": math.inf}, "The estimate is mostly the running mean (cosine"),
        (noise, {"eps": math.inf}, "steady noise would give 0.00 and 0.00"),
        (rare, {}, "The filter sees few large gradients among many small ones"),
        (lambda step, size: torch.zeros(size), {}, "The gradient or the estimate is 0."),
    ],
)
def test_the_filter(gradient, options, sentence):
    said = watch(gradient, **options)
    assert sentence in said, said


@pytest.mark.parametrize("options", [{"eps": math.inf}, {"betas": (0.0, 0.99)}])
def test_options_that_allow_no_gain_say_nothing_of_the_noise(options):
    said = watch(noise, **options)
    for reason in ("hardly vary", "little noise", "noise grows"):
        assert reason not in said, said


def test_the_numbers_are_compared_with_theory():
    said = watch(noise, steps=2000, betas=(0.9, 0.999))
    assert "The gain is 0.24 on average, 0.41 after its power; steady noise would give 0.24" in said
    said = watch(noise, betas=(0.5, 0.99))
    assert "The gain is 0.48 on average, 0.65 after its power; steady noise would give 0.48" in said


def test_the_first_steps_are_remembered_for_a_while():
    early = "It is early: the filter's betas[1] remembers the first gradients for about 100 steps."
    said = watch(noise, steps=80)
    assert said.index(early) < said.index("The gain is ")  # before what it weakens
    assert early not in watch(noise, steps=120)


def test_elements_without_noise():
    assert "In at least 75% of the elements the gain is below 0.001" in watch(mostly_zero)
    assert "of the elements" not in watch(noise)


@pytest.mark.parametrize(
    ("lr", "size"),
    [
        (1e-6, "9.5e-08 of their norm: small (below 0.0001)."),
        (1e-2, "0.001 of their norm: neither small (below 0.0001) nor large (above 0.01)."),
        (0.5, "0.044 of their norm: large (above 0.01)."),
    ],
)
def test_the_size_of_a_step(lr, size):
    said = watch(noise, steps=20, optimizer=sgdf.SignSGDF, lr=lr)
    assert f"A step changes the weights by {size}" in said, said


def test_weights_of_zero_have_no_ratio():
    weight = torch.nn.Parameter(torch.zeros(20))
    optimizer = sgdf.SGDF([weight], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    weight.grad = torch.ones(20)
    optimizer.step()
    assert "The weights were all 0" in str(monitor)


def model_of(layers=6, size=50):
    """Return named parameters."""
    return {f"layer{index}": torch.nn.Parameter(torch.ones(size)) for index in range(layers)}


def watch_layers(gradients, layers=6, every=20, steps=200, size=50, initial=None):
    """Feed SGDF noise, and the last layer something else; return what the monitor says of it."""
    torch.manual_seed(0)
    params = model_of(layers - 1)
    params["odd"] = torch.nn.Parameter(torch.full((size,), initial or 1.0))
    optimizer = sgdf.SGDF(params.items(), lr=1e-4, betas=(0.9, 0.99))
    monitor = sgdf.monitor.attach(optimizer, every=every)
    for step in range(steps):
        for name, param in params.items():
            usual = torch.randn(param.shape)
            param.grad = gradients(step, len(param)) if name == "odd" else usual
        optimizer.step()
    return " ".join(str(monitor).split())


def test_no_parameter_is_unlike_the_rest():
    assert watch_layers(noise).endswith("No parameter is unlike the rest.")


@pytest.mark.parametrize(
    ("gradients", "options", "fact"),
    [
        (fading, {"steps": 1000}, "odd (gain 1, median 0.2"),
        (lambda step, size: torch.zeros(size), {}, "odd (gain 0, median 0.2"),
        (noise, {"initial": 1e-2}, "odd (update ratio 0.00"),
        (noise, {"initial": 1e-2, "size": 1}, "odd (update ratio 0.0"),
    ],
)
def test_the_one_parameter_that_is_unlike_the_rest(gradients, options, fact):
    said = watch_layers(gradients, **options)
    _, found, sentence = said.partition("Unlike the rest: ")
    assert found, said
    assert sentence.startswith(fact), said
    assert "layer" not in sentence


def test_a_gradient_that_turns_around():
    said = watch_layers(swinging, every=20)
    assert "points away from the estimate (cosine below 0), as where it oscillates, in odd." in said
    assert "Unlike" not in said


@pytest.mark.parametrize("options", [{"steps": 40}, {"layers": 4}, {"size": 1}])
def test_what_may_be_chance_is_not_said(options):
    """After two measurements, of four parameters, or of one element."""
    said = watch_layers(lambda step, size: torch.zeros(size), **options)
    assert "odd" not in said, said


def test_at_most_three_names():
    torch.manual_seed(0)
    params = model_of(12)
    optimizer = sgdf.SGDF(params.items(), lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    for _ in range(3):
        for index, param in enumerate(params.values()):
            param.grad = torch.full((50,), math.nan) if index < 5 else torch.randn(50)
        optimizer.step()
    said = " ".join(str(monitor).split())
    assert (
        "NaN or infinity is in gradient, state or values of layer0, layer1, layer2 and 2 more."
        in said
    )
    assert "nan" not in said


def test_lines_are_short_and_names_whole():
    name = "a-module-with-a-name." * 6 + "weight"
    params = {**model_of(5), name: torch.nn.Parameter(torch.full((50,), 1e-3))}
    optimizer = sgdf.SGDF(params.items(), lr=1e-4)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    for _ in range(3):
        for param in params.values():
            param.grad = torch.randn(50)
        optimizer.step()
    assert name in str(monitor)
    assert all(len(line) <= 80 for line in str(monitor).splitlines() if name not in line)


@each_case
def test_every_optimizer_is_described(case):
    problem = Quadratic(torch.float32)
    optimizer = build(case, problem.params, "single")
    monitor = sgdf.monitor.attach(optimizer, every=1)
    train(optimizer, problem, 4)
    first, *rest = str(monitor).splitlines()
    assert first == f"{type(optimizer).__name__}, step 4, 4 parameters, medians of 4 measurements:"
    if "gamma" in case.arguments:
        assert rest[0].startswith("It is early: ")
    about = "\nThe gain is " if "gamma" in case.arguments else "\nUnifiedMomentum has"
    assert about in str(monitor)
    assert "nan" not in str(monitor)


def test_a_filtered_optimizer_is_described():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.ones(2000))
    optimizer = sgdf.filtered(torch.optim.Adam)([weight], lr=1e-4, filter_betas=(0.5, 0.99))
    monitor = sgdf.monitor.attach(optimizer, every=100)
    for _ in range(300):
        weight.grad = torch.randn(2000)
        optimizer.step()
    said = " ".join(str(monitor).split())
    assert said.startswith("FilteredAdam, step 300, 1 parameter, medians of 3 measurements: ")
    assert "would give 0.48 and 0.65. The filter works as on steady noise" in said
