"""The WGAN-GP: whose turn it is, what each loss is, and what no step may touch."""

import copy

import pytest
import torch
from torch import nn

from bench_tasks import equal, trained
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks import data_record
from sgdf.bench.tasks.digits.data import digits
from sgdf.bench.tasks.wgan.penalty import gradient_penalty
from sgdf.bench.tasks.wgan.task import WGANGP
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from wgan_runs import TASK, TINY, Quick, wgan_run


def first_batches(task, count=1, batch_size=32):
    batches = list(task.batches(batch_size, torch.Generator().manual_seed(0)))
    return batches[:count]


def weights(network):
    return {name: param.detach().clone() for name, param in network.named_parameters()}


def forget(loss, optimizer):
    """Take no step."""


def watch(network, calls):
    """Note the inputs of every call of a network."""
    network.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0].detach().clone()))


# Turns


def test_the_generator_has_its_turn_at_every_fifth_batch_of_each_epoch():
    trainer = Trainer(wgan_run(epochs=3, batch_size=60), Ranks())
    turns = {"critic": [], "generator": []}
    trainer.update.before_step = lambda name: turns[name].append(
        (trainer.epoch, trainer.epoch_step)
    )
    trainer.fit(lambda trainer: None)
    assert trainer.epoch_steps % 5, "else the count would not begin anew"
    every = [(epoch, step) for epoch in range(3) for step in range(trainer.epoch_steps)]
    assert turns["critic"] == every
    assert turns["generator"] == [(epoch, step) for epoch, step in every if step % 5 == 0]


def test_batches_of_other_processes_do_not_count():
    task, turns = WGANGP(**TINY), []
    mine = list(task.batches(50, torch.Generator().manual_seed(0)))[1::3]
    for batch in mine:
        turns.append("generator" in task.step(batch, forget))
    assert turns == [number % 5 == 0 for number in range(len(mine))]
    assert sum(turns) > 1


def test_batches_that_are_left_are_those_that_would_have_come():
    task = WGANGP(**TINY)
    whole, rest = (task.batches(200, torch.Generator().manual_seed(1)) for _ in range(2))
    rest = rest.skip(2).skip(1)
    assert len(rest) == len(whole) - 3
    assert equal(list(rest), list(whole)[3:])


def test_both_losses_of_a_batch_are_of_the_same_vectors():
    task, calls = WGANGP(**TINY), []
    watch(task.model["generator"], calls)
    for number, (batch, times) in enumerate(
        zip(first_batches(task, 6), (2, 1, 1, 1, 1, 2), strict=True)
    ):
        task.step(batch, forget)
        assert len(calls) == times, number
        assert all(torch.equal(vectors, calls[0]) for vectors in calls)
        before, calls[:] = calls[0], []
    task.step(first_batches(task)[0], forget)
    assert not torch.equal(calls[0], before)


def test_the_generator_takes_its_turn_after_the_critic():
    trainer = Trainer(wgan_run(batch_size=700), Ranks())
    order = []
    trainer.update.before_step = order.append
    trainer.fit(lambda trainer: None)
    assert order == ["critic", "generator", "critic"]


# Losses


def test_each_loss_is_that_of_the_paper():
    task, losses = WGANGP(**TINY, penalty=7.0), {}
    batch = first_batches(task)[0]
    model = copy.deepcopy(task.model)
    torch.manual_seed(5)
    numbers = task.step(batch, lambda loss, name: losses.update({name: loss.item()}))

    critic, generator, real = model["critic"], model["generator"], batch
    torch.manual_seed(5)
    vectors = torch.randn(len(real), TINY["latent"])
    fake = generator(vectors).detach()
    shares = torch.rand(len(real), 1, 1, 1)
    distance = (critic(real).mean() - critic(fake).mean()).item()
    penalty = gradient_penalty(critic, real, fake, shares).item()
    assert losses["critic"] == pytest.approx(-distance + 7.0 * penalty)
    assert losses["generator"] == pytest.approx(-critic(fake).mean().item(), abs=1e-6)
    assert {name: value.item() for name, value in numbers.items()} == pytest.approx(
        {"wasserstein": distance, "penalty": penalty, "generator": losses["generator"]}, abs=1e-6
    )


def test_only_turns_of_the_generator_log_its_loss():
    task = WGANGP(**TINY, generator_every=2)
    logged = [set(task.step(batch, forget)) for batch in first_batches(task, 3)]
    assert [numbers - {"wasserstein", "penalty"} for numbers in logged] == [
        {"generator"},
        set(),
        {"generator"},
    ]


# What a step touches


def test_the_critics_loss_has_no_graph_of_the_generator():
    task, reached = WGANGP(**TINY), {}

    def look(loss, name):
        for of, network in task.model.items():
            params = list(network.parameters())
            slopes = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
            reached[name, of] = [slope is not None for slope in slopes]

    task.step(first_batches(task)[0], look)
    assert not any(reached["critic", "generator"])
    assert all(reached["generator", "generator"])
    assert all(reached["critic", "critic"])


def test_a_turn_of_the_generator_leaves_the_critic_as_it_was():
    trainer = Trainer(wgan_run(), Ranks())
    task, seen = trainer.task, {}

    def look(name):
        if name == "generator":
            seen["critic"] = weights(task.model["critic"])
            seen["gradients"] = [param.grad for param in task.model["critic"].parameters()]

    trainer.update.before_step = look
    before = weights(task.model["critic"])
    task.step(first_batches(task)[0], trainer.update)
    after = weights(task.model["critic"])
    assert seen["gradients"] == [None] * len(before)
    assert equal(after, seen["critic"])
    assert not equal(after, before)
    assert all(param.grad is None for param in task.model.parameters())


def test_the_generators_batch_norm_sees_the_images_of_every_forward_pass():
    task = WGANGP(**TINY)
    (norm,) = (m for m in task.model["generator"].modules() if isinstance(m, torch.nn.BatchNorm2d))
    seen = []
    for batch in first_batches(task, 3):
        task.step(batch, forget)
        seen.append(norm.num_batches_tracked.item())
    assert seen == [2, 3, 4]


# Optimizers


def test_both_optimizers_have_the_same_settings():
    options = {"name": "adam", "lr": 3e-4, "betas": [[0.5, 0.99]], "weight_decay": 0.01}
    trainer = Trainer(wgan_run(optimizer=options), Ranks())
    groups = {name: one.param_groups for name, one in trainer.optimizers.items()}
    assert set(groups) == {"critic", "generator"}
    for name, (group,) in groups.items():
        own = set(trainer.model[name].parameters())
        assert set(group["params"]) == own
        assert (group["lr"], tuple(group["betas"]), group["weight_decay"]) == (
            3e-4,
            (0.5, 0.99),
            0.01,
        )
    rest = [{k: v for k, v in group.items() if k != "params"} for (group,) in groups.values()]
    assert rest[0] == rest[1]


# Precision and accumulation


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "pure-bfloat16"])
def test_both_networks_learn_in_every_precision(precision):
    # In steps of 0.01, which weights around 1 can take in bfloat16 too.
    run = wgan_run({"name": "adam", "lr": 0.01}, precision=precision, batch_size=220)
    trainer = Trainer(run, Ranks())
    before = weights(trainer.model)
    trainer.fit(lambda trainer: None)
    assert trainer.diverged is None
    unchanged = [
        name for name, value in weights(trainer.model).items() if value.equal(before[name])
    ]
    assert set(unchanged) <= {"critic.layers.3.bias"}  # which shifts all scores alike
    assert all(value.isfinite().all() for value in weights(trainer.model).values())


def test_a_critic_with_batch_norm_learns_in_float16():
    """Its second backward pass is beyond the range of float16, where its steps would be skipped."""
    trainer = Trainer(wgan_run(task={"side": 16}, precision="float16", batch_size=220), Ranks())
    critic = trainer.model["critic"]
    assert any(isinstance(module, nn.BatchNorm2d) for module in critic.modules())
    before = weights(critic)
    trainer.fit(lambda trainer: None)
    assert trainer.diverged is None
    unchanged = {name for name, value in weights(critic).items() if value.equal(before[name])}
    assert unchanged <= {"layers.6.bias"}  # which shifts all scores alike


def test_in_mixed_precision_the_generator_meets_the_critic_after_its_step():
    trainer = Trainer(wgan_run({"name": "sgd-vanilla", "lr": 0.3}, precision="bfloat16"), Ranks())
    task, update = trainer.task, trainer.update
    fake, losses = [], []

    task.model["generator"].register_forward_hook(
        lambda _, __, images: fake.append(images.detach())
    )

    def note(loss, name):
        update(loss, name)
        losses.append(loss.item())

    with torch.autocast("cpu", torch.bfloat16):
        task.step(first_batches(task)[0], note)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        scores = task.model["critic"](fake[1])
    assert losses[1] == -scores.float().mean().item()


def test_batches_cannot_be_accumulated():
    with pytest.raises(SpecError, match=r"train\.accumulate = 2: must be 1, since a network"):
        trained(wgan_run(accumulate=2))


# Images


def test_an_epoch_has_every_training_image_once_from_minus_one_to_one():
    task = WGANGP(**TINY)
    seen = torch.cat(list(task.batches(64, torch.Generator().manual_seed(0))))
    expected = (255 * digits()["train"][0]).round() / 127.5 - 1
    assert {image.numpy().tobytes() for image in seen} == {
        image.numpy().tobytes() for image in expected
    }
    assert len(seen) == len(expected)
    assert (seen.min(), seen.max()) == (-1, 1)


def test_a_batch_has_the_side_that_is_asked_for():
    task = WGANGP(**{**TINY, "side": 16})
    large, *_ = task.batches(4, torch.Generator().manual_seed(0))
    small, *_ = WGANGP(**TINY).batches(4, torch.Generator().manual_seed(0))
    assert large.shape == (4, 1, 16, 16)
    expected = torch.nn.functional.interpolate(
        small, size=(16, 16), mode="bilinear", align_corners=False
    )
    # To a byte: half a step of 2 / 255, and rounding.
    torch.testing.assert_close(large, expected, rtol=0, atol=1.01 / 255)


def test_drawn_images_depend_on_the_noise_alone():
    task = WGANGP(**TINY)
    task.model.eval()
    with torch.no_grad():
        images = [task.draw(5, 0, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert images[0].shape == (5, 1, 8, 8)
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])
    assert images[0].abs().max() <= 1


# Training and scores


def test_training_brings_the_drawn_images_nearer_to_the_real_ones():
    options = {"name": "adam", "lr": 2e-3, "betas": [[0.5, 0.9]]}
    trainer = Trainer(wgan_run(options, {"channels": 16, "latent": 16}, epochs=10), Ranks())
    before = trainer.evaluate(costly=True)["test"]["frechet_distance"]
    trainer.fit(lambda trainer: None)
    last = trainer.rows[-1]
    assert last["test"]["frechet_distance"] < 0.6 * before
    assert last["train"]["penalty"] < 0.1  # 1 of the first, flat critic
    assert last["train"]["wasserstein"] > 0


def test_only_the_generator_is_averaged_and_its_average_is_drawn_from(monkeypatch):
    drawing = []
    monkeypatch.setattr(Quick, "evaluate", lambda self, split: drawing.append(self.model) or {})
    run = wgan_run("sgdf", {"generator_every": 1}, ema_decay=0.5, batch_size=700)
    trainer = trained(run)
    assert drawing[0]["critic"] is trainer.model["critic"]
    assert not equal(weights(drawing[0]["generator"]), weights(trainer.model["generator"]))


def test_images_are_scored_at_the_end():
    """By the extractor for digits, which is trained first."""
    (row,) = (row for row in trained(wgan_run(name=TASK)).rows if row["kind"] == "epoch")
    assert row["test"]["frechet_distance"] > 0


@pytest.mark.parametrize("compared_with", ["train", "test"])
def test_the_images_that_are_compared_are_those_that_were_asked_for(compared_with):
    task = WGANGP(**{**TINY, "compared_with": compared_with})
    assert task.splits == ("validation", "test")
    train, validation, test = (task.images.clone(), *task.real.images.values())
    assert equal(test, train) == (compared_with == "train")
    task.train_on_validation()
    assert equal(task.images, torch.cat([train, validation]))
    assert list(task.real.images) == ["test"]
    assert equal(task.real.images["test"], task.images if compared_with == "train" else test)
    assert task.count_examples() == {"train": 1400, "test": len(task.real.images["test"])}


def test_all_images_are_described():
    facts = WGANGP(**TINY).describe_data()
    assert {f"data of {split}" for split in ("train", "validation", "test")} <= set(facts)
    assert len({facts[f"data of {split}"] for split in ("train", "validation", "test")}) == 3


@pytest.mark.parametrize("compared_with", ["train", "test"])
def test_it_is_recorded_how_many_test_images_were_trained_on(compared_with):
    """By which the report warns."""
    task = WGANGP(**{**TINY, "compared_with": compared_with})
    images, test = task.images, task.real.images["test"]
    trained_on = {image.numpy().tobytes() for image in images}
    shared = sum(image.numpy().tobytes() in trained_on for image in test)
    assert task.describe_data()["test rows in train"] == f"{shared:,} of {len(test):,}"
    assert (shared == len(test)) == (compared_with == "train")
    task.train_on_validation()
    count = len(task.real.images["test"])
    found = task.describe_data()["test rows in train"]
    assert (found == f"{count:,} of {count:,}") == (compared_with == "train")


def test_training_images_need_not_be_counted_where_they_stand_for_test_data(monkeypatch):
    """As those of CIFAR, which are too many to be counted."""
    monkeypatch.setattr(data_record, "COMPARED_ROWS", 100)
    found = WGANGP(**{**TINY, "compared_with": "train"}).describe_data()["test rows in train"]
    assert found == "1,100 of 1,100"
    assert "test rows in train" not in WGANGP(**TINY).describe_data()


# Options


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "cifar100"}, "data = 'cifar100': must be one of digits, cifar10"),
        ({"side": 24}, "side = 24: must be a power of two from 8 on"),
        ({"side": 4}, "side = 4: must be a power of two from 8 on"),
        ({"channels": 0}, "channels = 0: must be at least 1"),
        ({"latent": -1}, "latent = -1: must be at least 1"),
        ({"generator_every": 0}, "generator_every = 0: must be at least 1"),
        ({"penalty": -1.0}, "penalty = -1.0: must be at least 0, and finite"),
        ({"compared_with": "tests"}, "compared_with = 'tests': must be one of train, test"),
        ({"data": "cifar10", "side": 32}, 'extractor = "digits-cnn": knows digits alone'),
        ({"data": "cifar10", "extractor": "resnet20"}, "side = 8: images of .* have 32"),
        ({"penalty": float("inf")}, "penalty = inf: must be at least 0, and finite"),
    ],
)
def test_options_that_cannot_be_are_refused_when_the_experiment_is_read(change, message):
    with pytest.raises(SpecError, match=message):
        WGANGP(**{**TINY, **change})
    with pytest.raises(SpecError, match=f"task .*: {message}"):
        wgan_run(**{"task": change})


def test_without_batch_norm_the_critic_normalises_nothing():
    critics = [
        WGANGP(**{**TINY, "side": 16, "critic_batch_norm": on}).model["critic"]
        for on in (True, False)
    ]
    norms = [
        sum(isinstance(m, torch.nn.BatchNorm2d) for m in critic.modules()) for critic in critics
    ]
    assert norms == [1, 0]
