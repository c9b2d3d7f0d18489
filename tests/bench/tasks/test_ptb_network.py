"""The network of the task ptb: its size, what training leaves out, and the kernel it runs on."""

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # torch's own convention
from torch.utils._python_dispatch import TorchDispatchMode

from sgdf.bench.tasks.ptb.network import WeightDropLSTM, WordLSTM, locked_dropout

NOTHING = dict.fromkeys(
    ("input_dropout", "between_dropout", "output_dropout", "word_dropout", "weight_drop"), 0.0
)
ERROR = 4.5  # standard errors: a right share of what is left out fails one in 150,000 times


def made(words=50, embedding=24, hidden=32, layers=2, **shares):
    return WordLSTM(words, embedding, hidden, layers, **{**NOTHING, **shares})


def text(time=12, streams=5, words=50):
    return torch.randint(words, (time, streams))


def inputs_of_layers(model, codes):
    """Return what each LSTM took and gave, and what the network returned."""
    seen = []
    hooks = [
        layer.register_forward_hook(lambda _, taken, given: seen.append((taken[0], given[0])))
        for layer in model.layers
    ]
    returned = model(codes, None)
    for hook in hooks:
        hook.remove()
    return seen, returned


@pytest.mark.parametrize(
    ("layers", "parameters"), [(1, 5_293_200), (2, 13_632_400), (3, 24_221_600)]
)
def test_the_published_sizes_have_the_known_numbers_of_parameters(layers, parameters):
    with torch.device("meta"):
        model = made(10_000, 400, 1_150, layers)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_the_same_vectors_are_at_both_ends():
    model = made(layers=1, embedding=6).eval()
    codes = text()
    scores, _, outputs, _ = model(codes, None)
    torch.testing.assert_close(scores, outputs @ model.vectors.t() + model.bias)
    ((taken, _),), _ = inputs_of_layers(model, codes)
    assert torch.equal(taken, model.vectors[codes])


def test_the_first_values_are_drawn_from_the_published_ranges():
    model = made(2_000, 60, 90, layers=3)
    ranges = [(model.vectors, 0.1)]
    for layer in model.layers:
        ranges += [(weights, layer.hidden_size**-0.5) for weights in layer.parameters()]
    for values, bound in ranges:
        assert values.abs().max() <= bound
        # The largest of n uniform values is below 1 - 12/n of the bound once in 160,000 times.
        assert values.abs().max() > bound * (1 - 12 / values.numel())
        error = bound / math.sqrt(3 * values.numel())
        assert abs(values.mean()) < ERROR * error
    assert not model.bias.any()


# What is left out


def test_locked_dropout_is_the_same_at_all_times_and_differs_between_streams():
    share = 0.3
    kept = locked_dropout(torch.ones(7, 40, 250), share)
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert len({tuple(stream) for stream in kept[0].tolist()}) == 40
    assert kept.unique().tolist() == pytest.approx([0, 1 / (1 - share)])
    zeros = (kept[0] == 0).double().mean().item()
    assert abs(zeros - share) < ERROR * math.sqrt(share * (1 - share) / kept[0].numel())


@pytest.mark.parametrize("where", ["input", "between", "output"])
def test_units_are_left_out_at_all_times_where_the_option_says(where):
    model, codes = made(**{f"{where}_dropout": 0.5}), text()
    (first, second), (_, _, outputs, dropped) = inputs_of_layers(model, codes)
    pairs = {
        "input": (model.vectors[codes], first[0]),
        "between": (first[1], second[0]),
        "output": (outputs, dropped),
    }
    for name, (before, after) in pairs.items():
        kept = after / before
        if name != where:
            assert torch.equal(after, before)
            continue
        torch.testing.assert_close(kept, kept[:1].expand_as(kept))
        assert {round(value, 4) for value in kept[0].flatten().tolist()} == {0.0, 2.0}
        assert not torch.equal(kept[0, 0], kept[0, 1])
        again = inputs_of_layers(model, codes)
        after_again = {"input": again[0][0][0], "between": again[0][1][0], "output": again[1][3]}
        assert not torch.equal(after_again[name] == 0, after == 0)  # other units in each window
    model.eval()
    (first, second), (_, _, outputs, dropped) = inputs_of_layers(model, codes)
    assert torch.equal(first[0], model.vectors[codes])
    assert torch.equal(second[0], first[1])
    assert torch.equal(outputs, dropped)


def test_a_word_is_left_out_wherever_it_stands():
    share, words = 0.4, 400
    model, codes = made(words, word_dropout=share), text(60, 40, words)
    ((taken, _), _), _ = inputs_of_layers(model, codes)
    scale = (taken / model.vectors[codes]).detach()
    torch.testing.assert_close(scale, scale[..., :1].expand_as(scale))  # whole vectors
    by_word = {}
    for code, kept in zip(codes.flatten().tolist(), scale[..., 0].flatten().tolist(), strict=True):
        by_word.setdefault(code, set()).add(round(kept, 4))
    assert all(len(values) == 1 for values in by_word.values())
    values = [value for (value,) in by_word.values()]
    assert set(values) == {0.0, round(1 / (1 - share), 4)}
    bound = ERROR * math.sqrt(share * (1 - share) / len(values))
    assert abs(values.count(0.0) / len(values) - share) < bound
    ((again, _), _), _ = inputs_of_layers(model, codes)
    assert not torch.equal(again == 0, taken == 0)
    ((evaluated, _), _), _ = inputs_of_layers(model.eval(), codes)
    assert torch.equal(evaluated, model.vectors[codes])


@pytest.fixture
def recurrent(monkeypatch):
    """The recurrent weights that torch's kernel is called with, in the order of the calls."""
    calls, kernel = [], torch.lstm

    def spy(values, state, weights, **options):
        calls.append(weights[1])
        return kernel(values, state, weights, **options)

    monkeypatch.setattr(torch, "lstm", spy)
    return calls


def test_recurrent_weights_are_left_out_anew_in_each_window_but_not_within_it(recurrent):
    share = 0.4
    layer = WeightDropLSTM(10, 60, share)
    own = layer.weight_hh_l0.detach().clone()
    for _ in range(2):
        layer(torch.randn(9, 3, 10))
    first, second = recurrent  # one call, with one matrix, for all nine times
    assert not torch.equal(first == 0, second == 0)
    for used in (first, second):
        kept = used != 0
        torch.testing.assert_close(used[kept], own[kept] / (1 - share))
        zeros = (~kept).double().mean().item()
        assert abs(zeros - share) < ERROR * math.sqrt(share * (1 - share) / own.numel())
    assert torch.equal(layer.weight_hh_l0, own)
    recurrent.clear()
    layer.eval()(torch.randn(9, 3, 10))
    assert torch.equal(recurrent[0], own)


def test_every_layer_leaves_out_weights_of_its_own(recurrent):
    model = made(embedding=32, hidden=32, layers=3, weight_drop=0.5)
    model(text(), None)
    assert len(recurrent) == 3
    masks = [used == 0 for used in recurrent]
    assert not any(torch.equal(masks[a], masks[b]) for a, b in ((0, 1), (1, 2), (0, 2)))


# The kernel


def test_the_results_are_those_of_torchs_lstm_with_the_same_weights(recurrent):
    layer, reference = WeightDropLSTM(6, 8, 0.5), nn.LSTM(6, 8)
    values, goal = torch.randn(11, 4, 6), torch.randn(11, 4, 8)
    state = torch.randn(1, 4, 8), torch.randn(1, 4, 8)
    found, expected = [], []
    for module, results in ((layer, found), (reference, expected)):
        if module is reference:
            weights = dict(layer.named_parameters())
            weights["weight_hh_l0"] = recurrent[0]
            module.load_state_dict({name: value.detach() for name, value in weights.items()})
        taken = values.clone().requires_grad_()
        outputs, (last, cell) = module(taken, state)
        ((outputs - goal).square().sum() + (last * cell).sum()).backward()
        results += [outputs, last, cell, taken.grad]
        results += [module.weight_ih_l0.grad, module.bias_ih_l0.grad, module.bias_hh_l0.grad]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    scale = recurrent[0].detach() / layer.weight_hh_l0.detach()  # 0 or 2
    torch.testing.assert_close(
        layer.weight_hh_l0.grad, reference.weight_hh_l0.grad * scale, rtol=1e-5, atol=1e-6
    )
    assert layer.weight_hh_l0.grad.any()


def test_one_equation_for_each_time_gives_the_same_outputs(recurrent):
    layer, values = WeightDropLSTM(6, 8, 0.5), torch.randn(11, 4, 6)
    outputs, (last, cell) = layer(values)
    h = c = torch.zeros(4, 8)
    for time, value in enumerate(values):
        gates = F.linear(value, layer.weight_ih_l0, layer.bias_ih_l0)
        gates = gates + F.linear(h, recurrent[0], layer.bias_hh_l0)
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        torch.testing.assert_close(outputs[time], h, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close((last[0], cell[0]), (h, c), rtol=1e-5, atol=1e-6)


def test_the_first_state_has_the_precision_of_the_values():
    layer = WeightDropLSTM(6, 8, 0.0).double()
    outputs, state = layer(torch.randn(11, 4, 6, dtype=torch.float64))
    assert {values.dtype for values in (outputs, *state)} == {torch.float64}


class Operators(TorchDispatchMode):
    """Counts what torch runs."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Count a call and make it."""
        self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch has no fused LSTM for this processor"
)
@pytest.mark.parametrize("training", [True, False])
def test_a_longer_window_runs_no_more_operators(training):
    model = made(layers=3, **dict.fromkeys(NOTHING, 0.3)).train(training)
    found = []
    for time in (5, 200):
        codes = text(time)
        model.zero_grad()
        with Operators() as forward:
            scores = model(codes, None)[0]
        with Operators() as backward:
            scores.sum().backward()
        found.append((forward.counts, backward.counts))
    assert found[0] == found[1]
    assert found[0][0].total() > 3
    assert found[0][1].total() > 3
