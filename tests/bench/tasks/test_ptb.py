"""The task ptb: loss, learning rate, carried state, evaluation, and what is trained of it."""

import itertools
import math

import pytest
import torch
from torch import nn

from bench_tasks import run_of
from made_data import FEW_WORDS
from sgdf.bench.catalog.lookup import options_of
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.jobs.plan import prepare_data
from sgdf.bench.tasks.ptb.task import PennTreebank
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("words")
SHARES = ("input_dropout", "between_dropout", "output_dropout", "word_dropout", "weight_drop")
PLAIN = {**FEW_WORDS, **dict.fromkeys((*SHARES, "activation", "slowness"), 0.0)}
"""Without anything random, and without penalties."""


def order(seed=0):
    return torch.Generator().manual_seed(seed)


def trainer_of(task=(), optimizer="sgd-vanilla", train=(), **rest):
    task = {"name": "ptb", **FEW_WORDS, **dict(task)}
    train = {"epochs": 1, "batch_size": 20, **dict(train)}
    return Trainer(run_of(task, {"name": optimizer, "lr": 0.5}, train, **rest), Ranks())


# The loss


class Fixed(nn.Module):
    """Returns given outputs before and after dropout, and equal scores for three words."""

    def __init__(self, outputs, dropped):
        super().__init__()
        self.outputs, self.dropped = torch.tensor(outputs), torch.tensor(dropped)

    def forward(self, codes, states):
        """Return them."""
        return torch.zeros(*codes.shape, 3), states or (), self.outputs, self.dropped


def fixed_loss(outputs, dropped):
    task = PennTreebank(**{**FEW_WORDS, "activation": 0.5, "slowness": 3.0})
    task.model = Fixed(outputs, dropped)
    codes = torch.zeros(len(outputs), 1, dtype=torch.int64)
    return task.loss((codes, codes)).item()


def test_penalties_are_those_computed_by_hand():
    outputs = [[[1.0, -2.0]], [[4.0, -2.0]], [[4.0, 0.0]]]
    dropped = [[[2.0, 0.0]], [[8.0, 0.0]], [[8.0, 0.0]]]
    squares = (2**2 + 8**2 + 8**2) / 6  # after dropout
    changes = (3**2 + 2**2) / 4  # before it
    expected = math.log(3) + 0.5 * squares + 3.0 * changes
    assert fixed_loss(outputs, dropped) == pytest.approx(expected, rel=1e-6)


def test_one_word_has_no_change_to_be_punished():
    assert fixed_loss([[[1.0]]], [[[2.0]]]) == pytest.approx(math.log(3) + 0.5 * 4, rel=1e-6)


def test_the_cross_entropy_is_logged_without_penalties():
    trainer = trainer_of()
    batch = next(iter(trainer.task.batches(20, order())))
    seen = []
    hook = trainer.model.register_forward_hook(lambda *call: seen.append(call[-1]))
    numbers = trainer.task.step(batch, lambda loss: None)
    hook.remove()
    ((scores, _, outputs, dropped),) = seen
    entropy = -scores.log_softmax(-1).gather(-1, batch[1][..., None]).mean()
    torch.testing.assert_close(numbers["cross_entropy"], entropy)
    penalties = 2.0 * dropped.pow(2).mean() + outputs.diff(dim=0).pow(2).mean()
    torch.testing.assert_close(numbers["loss"], entropy + penalties)
    assert penalties > 0


# The carried state


def test_two_windows_with_the_carried_state_are_one_long_window():
    task = PennTreebank(**PLAIN)
    task.model.eval()
    columns = task.batches(6, order()).columns[:31]
    whole = task.model(columns[:-1], None)[0]
    task.batches(6, order())
    seen = []
    task.model.register_forward_hook(lambda *call: seen.append(call[-1][0]))
    losses = [task.loss((columns[a:b], columns[a + 1 : b + 1])) for a, b in ((0, 13), (13, 30))]
    torch.testing.assert_close(torch.cat(seen), whole, rtol=1e-5, atol=1e-6)
    expected = nn.functional.cross_entropy(whole.flatten(0, 1), columns[1:].flatten())
    torch.testing.assert_close((13 * losses[0] + 17 * losses[1]) / 30, expected)
    assert not torch.allclose(task.model(columns[13:30], None)[0], whole[13:], atol=1e-4)


def test_no_gradient_flows_from_one_window_to_the_one_before():
    task = PennTreebank(**PLAIN)
    first, second, *_ = task.batches(6, order())
    task.carry(first)
    assert all(
        not part.requires_grad and part.grad_fn is None
        for part in itertools.chain.from_iterable(task.hidden)
    )
    task.carry(second)[0].backward()
    own = [parameter.grad.clone() for parameter in task.model.parameters()]

    def gradients(cut):
        states = task.model(first[0], None)[1]
        if cut:
            states = tuple((h.detach(), c.detach()) for h, c in states)
        scores = task.model(second[0], states)[0]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), second[1].flatten())
        return torch.autograd.grad(loss, list(task.model.parameters()))

    torch.testing.assert_close(own, list(gradients(cut=True)))
    assert not torch.allclose(own[0], gradients(cut=False)[0], rtol=1e-4)


def test_each_epoch_begins_without_memory():
    task = PennTreebank(**PLAIN)
    task.carry(next(iter(task.batches(6, order()))))
    assert task.hidden is not None
    task.batches(6, order())
    assert task.hidden is None


# The learning rate


@pytest.mark.parametrize("vary_length", [True, False])
def test_the_rate_of_a_step_is_in_proportion_to_its_length(vary_length):
    task = PennTreebank(**{**FEW_WORDS, "vary_length": vary_length})

    def make(params):
        first, *others = params
        return torch.optim.SGD([{"params": [first], "lr": 0.7}, {"params": others}], lr=0.1)

    (optimizer,) = task.optimizers(make).values()

    def rates():
        return [group["lr"] for group in optimizer.param_groups]

    used, lengths = [], []
    for batch in task.batches(20, order()):
        task.step(batch, lambda loss: used.append(rates()))
        assert rates() == [0.7, 0.1]
        lengths.append(len(batch[0]))
    assert used == [[0.7 * (n / 12), 0.1 * (n / 12)] for n in lengths]
    assert len(set(lengths)) > (5 if vary_length else 1)  # the last is shorter


def test_a_step_that_raises_restores_the_rate():
    task = PennTreebank(**FEW_WORDS)
    (optimizer,) = task.optimizers(lambda params: torch.optim.SGD(params, lr=0.1)).values()
    batch = next(iter(task.batches(20, order(1))))
    assert len(batch[0]) != 12

    def fail(loss):
        assert optimizer.param_groups[0]["lr"] != 0.1
        raise RuntimeError("no further")

    with pytest.raises(RuntimeError, match="no further"):
        task.step(batch, fail)
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        ({"name": "MultiStepLR", "milestones": [[1]]}, lambda epoch, step: 0.1**epoch),
        ({"name": "ExponentialLR", "gamma": 0.9, "every": "step"}, lambda epoch, step: 0.9**step),
        (
            {"name": "ExponentialLR", "gamma": 0.9, "every": "step", "warmup": 4},
            lambda epoch, step: (step + 1) / 5 if step < 4 else 0.9 ** (step - 4),
        ),
    ],
    ids=["by epoch", "by step", "warm-up"],
)
def test_schedules_multiply_the_rate_too(schedule, factor):
    trainer = trainer_of(train={"epochs": 2, "log_every": 1}, schedule=schedule)
    (optimizer,), used, lengths = trainer.optimizers.values(), [], []
    trainer.update.before_step = lambda name: used.append(optimizer.param_groups[0]["lr"])
    trainer.model.register_forward_pre_hook(lambda _, taken: lengths.append(taken[0].shape))
    trainer.fit(lambda trainer: None)
    lengths = [time for time, streams in lengths if streams == 20]  # evaluations have one
    steps = trainer.epoch_steps
    assert len(lengths) == len(used) == 2 * steps
    expected = [0.5 * factor(step // steps, step) * n / 12 for step, n in enumerate(lengths)]
    assert used == pytest.approx(expected)
    logged = [row["lr"] for row in trainer.rows if row["kind"] == "train"]
    scheduled = [0.5 * factor(step // steps, step) for step in range(2 * steps)]
    assert logged == pytest.approx(scheduled)


# Evaluation


def test_the_perplexity_of_a_uniform_model_is_the_vocabulary():
    task = PennTreebank(**FEW_WORDS)
    nn.init.zeros_(task.model.vectors)
    nn.init.zeros_(task.model.bias)
    for split in ("validation", "test"):
        figures = task.evaluate(split)
        assert figures["perplexity"] == pytest.approx(120, rel=1e-6)
        assert figures["loss"] == pytest.approx(math.log(120), rel=1e-7)


def test_a_loss_beyond_all_numbers_has_an_infinite_perplexity():
    task = PennTreebank(**FEW_WORDS)
    with torch.no_grad():
        task.model.bias[0] = 1e4
    figures = task.evaluate("test")
    assert 700 < figures["loss"] < math.inf
    assert figures["perplexity"] == math.inf


def sharpened():
    """Return a task whose model is far from uniform and has a long memory."""
    task = PennTreebank(**FEW_WORDS)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.mul_(4)
    task.model.eval()
    return task


@torch.no_grad()
def test_an_evaluation_reads_one_stream_and_does_not_depend_on_its_windows(monkeypatch):
    task = sharpened()
    codes = task.data["test"]
    scores = task.model(codes[:-1, None], None)[0].squeeze(1).double()
    expected = nn.functional.cross_entropy(scores, codes[1:]).exp().item()
    assert abs(expected / 120 - 1) > 0.1
    found = []
    for length in (1, 7, 64, 400, 10_000):
        monkeypatch.setattr(PennTreebank, "evaluation_length", length)
        found.append(task.evaluate("test")["perplexity"])
    assert found == pytest.approx([expected] * 5, rel=1e-6)


@torch.no_grad()
def test_an_evaluation_and_the_training_leave_each_other_alone():
    task = sharpened()
    expected = task.evaluate("validation")
    for batch_size in (3, 20):
        task.carry(next(iter(task.batches(batch_size, order()))))
        before = task.hidden
        assert task.evaluate("validation") == expected
        assert task.hidden is before


def test_the_paper_protocol_has_the_training_text_alone():
    trainer = trainer_of(protocol="paper")
    assert list(trainer.task.data) == ["train", "test"]
    assert torch.equal(trainer.task.data["train"], PennTreebank(**FEW_WORDS).data["train"])
    trainer.fit(lambda trainer: None)
    (row,) = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert "perplexity" in row["test"]
    assert "validation" not in row


# What is trained


def is_recurrent(name):
    return "weight_hh" in name


@pytest.mark.parametrize("trained_too", [True, False])
def test_recurrent_matrices_are_trained_unless_the_option_says_otherwise(trained_too):
    trainer = trainer_of({"train_recurrent": trained_too, "layers": 3})
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    (optimizer,) = trainer.optimizers.values()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert any(map(is_recurrent, before))

    def check(_):
        for name, parameter in trainer.model.named_parameters():
            if trained_too or not is_recurrent(name):
                assert parameter.grad.any(), name
            else:
                assert parameter.grad is None, name

    trainer.update.before_step = check
    trainer.fit(lambda trainer: None)
    for name, parameter in trainer.model.named_parameters():
        is_trained = trained_too or not is_recurrent(name)
        assert (id(parameter) in held) is is_trained, name
        assert torch.equal(parameter, before[name]) is not is_trained, name


def test_curvature_is_measured_in_the_state_that_the_batch_began_with():
    task = PennTreebank(**PLAIN)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.mul_(4)
    first, second, *_ = task.batches(20, order())
    task.carry(first)
    carried = task.hidden
    task.carry(second)
    scores = {
        name: task.model(second[0], state)[0].flatten(0, 1).detach()
        for name, state in (("before", carried), ("after", task.hidden))
    }
    expected = {}
    for name, one in scores.items():
        torch.manual_seed(0)
        drawn = torch.multinomial(one.softmax(-1), 1).squeeze(-1)
        expected[name] = nn.functional.cross_entropy(one, drawn)
    torch.manual_seed(0)
    loss, count = task.sampled_loss(second)
    torch.testing.assert_close(loss, expected["before"])
    assert not torch.allclose(loss, expected["after"], rtol=1e-4)
    assert count == second[0].numel()
    assert task.before is carried


def test_sophia_trains():
    sophia = {"name": "sophia", "lr": 0.01, "hessian_every": 2}
    train = {"epochs": 1, "batch_size": 60}
    trainer = Trainer(run_of({"name": "ptb", **FEW_WORDS}, sophia, train), Ranks())
    (optimizer,) = trainer.optimizers.values()
    counts, update = [], optimizer.update_hessian
    optimizer.update_hessian = lambda count: (counts.append(count), update(count))
    trainer.fit(lambda trainer: None)
    assert len(counts) == trainer.steps // 2
    assert math.isfinite(trainer.rows[-1]["test"]["perplexity"])


def test_bfloat16_carries_the_state_too():
    found = {}
    for precision in ("float32", "bfloat16", "pure-bfloat16"):
        trainer = trainer_of(train={"batch_size": 60, "precision": precision})
        trainer.fit(lambda trainer: None)
        found[precision] = trainer.rows[-1]["test"]["loss"]
        assert trainer.task.hidden is not None
    for half in ("bfloat16", "pure-bfloat16"):
        assert found[half] == pytest.approx(found["float32"], rel=0.01)
    assert len(set(found.values())) == 3


# Where it runs


def test_everything_is_moved_to_the_device():
    task = PennTreebank(**FEW_WORDS)
    task.carry(next(iter(task.batches(20, order()))))
    state = task.state()
    task.to(torch.device("meta"))
    assert all(parameter.is_meta for parameter in task.model.parameters())
    assert all(codes.is_meta for codes in task.data.values())
    task.load_state(state)
    assert all(part.is_meta for part in itertools.chain.from_iterable(task.hidden))
    assert all(codes.is_meta and targets.is_meta for codes, targets in task.batches(20, order()))


# Options and data


def test_the_defaults_are_the_published_ones():
    assert options_of(PennTreebank, {}) == {
        "layers": 1,
        "embedding": 400,
        "hidden": 1_150,
        "vocabulary": 10_000,
        "input_dropout": 0.4,
        "between_dropout": 0.25,
        "output_dropout": 0.4,
        "word_dropout": 0.1,
        "weight_drop": 0.5,
        "activation": 2.0,
        "slowness": 1.0,
        "length": 70,
        "vary_length": True,
        "train_recurrent": True,
        "official": True,
    }


def test_every_option_of_the_network_has_its_own_place():
    shares = dict(zip(SHARES, (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    task = PennTreebank(**{**FEW_WORDS, **shares, "layers": 3})
    assert task.model.dropouts == [0.1, 0.2, 0.2, 0.3]
    assert task.model.word_dropout == 0.4
    assert {layer.weight_drop for layer in task.model.layers} == {0.5}
    widths = [(layer.input_size, layer.hidden_size) for layer in task.model.layers]
    assert widths == [(12, 16), (16, 16), (16, 12)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers = 0: must be at least 1"),
        ({"embedding": 0}, "embedding = 0: must be at least 1"),
        ({"hidden": -1}, "hidden = -1: must be at least 1"),
        ({"length": 0}, "length = 0: must be at least 1"),
        ({"length": 4}, "length = 4: must be at least 5 where vary_length is true"),
        ({"vocabulary": 1}, "vocabulary = 1: must be at least 2"),
        *(
            ({name: value}, f"{name} = {value}: must be at least 0 and below 1")
            for name in SHARES
            for value in (1.0, -0.1)
        ),
        *(
            ({name: value}, f"{name} = {value}: must be at least 0, and finite")
            for name in ("activation", "slowness")
            for value in (-1.0, math.inf)
        ),
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_read(change, message, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", "/nowhere")  # and before any data are looked for
    with pytest.raises(SpecError, match=f"task 'ptb': .*{message}"):
        run_of({"name": "ptb", **change})
    with pytest.raises(SpecError, match=message):
        PennTreebank(**change)


def test_the_least_options_can_be(words):
    least = {"layers": 1, "embedding": 1, "hidden": 1, "vocabulary": 2, "activation": 0.0}
    shares = dict.fromkeys(SHARES, 0.0)
    options = {**least, **shares, "length": 1, "vary_length": False, "official": False}
    trainer = trainer_of(options, train={"batch_size": 600})
    trainer.fit(lambda trainer: None)
    assert math.isfinite(trainer.rows[-1]["test"]["perplexity"])


def test_missing_data_are_noticed_before_a_run_begins(words):
    (words / "ptb/ptb.test.txt").unlink()
    with pytest.raises(DataError, match=r"ptb lacks ptb\.test\.txt"):
        prepare_data([run_of({"name": "ptb", **FEW_WORDS})])


def test_a_text_too_short_for_the_batch_is_refused(words):
    with pytest.raises(ValueError, match="do not make up one whole step"):
        trainer_of(train={"batch_size": 1_000_000})


def test_the_digest_depends_on_the_text_and_the_vocabulary(words):
    def digest(**change):
        return PennTreebank(**{**FEW_WORDS, **change}).digest

    usual = digest()
    assert usual == digest(hidden=8)
    assert usual != digest(vocabulary=119)
    with (words / "ptb/ptb.valid.txt").open("a") as file:
        file.write("more\n")
    assert usual != digest()


def test_the_digests_of_the_splits_are_apart(words):
    before = PennTreebank(**FEW_WORDS).describe_data()
    assert list(before) == ["data of train", "data of validation", "data of test"]
    with (words / "ptb/ptb.valid.txt").open("a") as file:
        file.write("more\n")
    after = PennTreebank(**FEW_WORDS).describe_data()
    assert [name for name in before if before[name] != after[name]] == ["data of validation"]
