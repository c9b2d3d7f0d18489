"""Windows over streams of a text, of equal and of drawn lengths, and the state carried by them."""

import itertools
import math

import pytest
import torch

from sgdf.bench.tasks.sequence import Windows, detached, moved, vary_lengths

LENGTHS = [(70, None), (12, None), (70, 0), (12, 1), (5, 2)]  # and the seed of drawn ones
each_length = pytest.mark.parametrize(("length", "seed"), LENGTHS)


def windows_of(codes, streams, length, seed=None):
    order = None if seed is None else torch.Generator().manual_seed(seed)
    return Windows(codes, streams, length, order)


def lengths_of(windows):
    return [len(codes) for codes, _ in windows]


@each_length
@pytest.mark.parametrize(("total", "streams"), [(1_000, 3), (999, 1), (2_003, 20)])
def test_windows_cover_every_stream_once_in_order(length, seed, total, streams):
    windows = windows_of(torch.arange(total), streams, length, seed)
    codes, targets = (torch.cat(parts) for parts in zip(*windows, strict=True))
    height = total // streams
    expected = torch.stack([torch.arange(height) + height * n for n in range(streams)], 1)
    assert torch.equal(codes, expected[:-1])
    assert torch.equal(targets, expected[1:])
    assert len(windows) == len(list(windows))


def test_equal_lengths_are_equal_but_for_the_rest():
    assert lengths_of(windows_of(torch.arange(101), 1, 30)) == [30, 30, 30, 10]
    assert lengths_of(windows_of(torch.arange(91), 1, 30)) == [30, 30, 30]


@pytest.mark.parametrize("length", [5, 6, 12, 70])
@pytest.mark.parametrize("total", [1, 3, 8, 34, 103, 1_000])
def test_there_are_as_many_windows_whatever_the_seed(length, total):
    drawn = [lengths_of(windows_of(torch.arange(total + 1), 1, length, s)) for s in range(40)]
    counts = {len(lengths) for lengths in drawn}
    assert counts == {max(1, round(total / (0.975 * length)))}
    assert all(min(lengths) >= 1 and sum(lengths) == total for lengths in drawn)
    if counts != {1}:
        assert len(set(map(tuple, drawn))) > 1  # they do depend on it


def test_drawn_lengths_depend_on_the_order_alone():
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        drawn.append(lengths_of(windows_of(torch.arange(5_000), 1, 70, seed=0)))
    assert drawn[0] == drawn[1]


def test_drawn_lengths_follow_their_law():
    """20,000 lengths. Each bound is 4.5 standard errors: a right law fails one in 40,000 times."""
    count, error = 20_000, 4.5
    total = round(count * 0.975 * 70)
    ends = vary_lengths(total, 70, torch.Generator().manual_seed(0))
    assert len(ends) == count
    assert ends[-1] == total
    lengths = torch.tensor([0, *ends], dtype=torch.float64).diff()
    halves, wholes = lengths[lengths < 52.5], lengths[lengths >= 52.5]  # 3.5 deviations from both
    share = len(halves) / count
    assert abs(share - 0.05) < error * math.sqrt(0.05 * 0.95 / count)
    rounding = 1 / 6  # both ends of a window are rounded
    for part, mean in ((wholes, 70), (halves, 35)):
        deviation = math.sqrt(25 + rounding)
        # All are stretched so that they fill the total: the drawn sum differs by chance.
        stretch = math.sqrt(0.05 * 0.95 * 35**2 + 25) / math.sqrt(count) / 68.25
        assert abs(part.mean() - mean) < error * (deviation / len(part) ** 0.5 + mean * stretch)
        assert abs(part.std() / deviation - 1) < error / math.sqrt(2 * len(part))


def test_no_drawn_length_is_much_below_five():
    total = 48_750
    ends = vary_lengths(total, 10, torch.Generator().manual_seed(0))
    lengths = torch.tensor([0, *ends]).diff()
    # Without the bound, the shortest of 5,000 would be below -8: 10 less 3.7 deviations.
    assert lengths.min() >= 4  # stretched to 0.93 and rounded
    assert (lengths <= 5).double().mean() > 0.15  # those which the bound has raised


@each_length
@pytest.mark.parametrize("streams", [1, 4])
def test_skipping_is_the_same_as_dropping(length, seed, streams):
    windows = windows_of(torch.arange(600), streams, length, seed)
    every = list(windows)
    for count in range(len(every) + 1):
        rest = windows.skip(count)
        assert len(rest) == len(every) - count
        for mine, other in zip(rest, every[count:], strict=True):
            assert all(map(torch.equal, mine, other))
    twice = list(windows.skip(1).skip(1))
    assert all(map(torch.equal, itertools.chain(*twice), itertools.chain(*every[2:])))
    assert len(windows) == len(every)  # which skipping has not changed


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("total", [0, 1, 3, 4, 7])
def test_a_text_of_less_than_two_codes_a_stream_has_no_windows(total, seed):
    windows = windows_of(torch.arange(total), 4, 70, seed)
    assert len(windows) == 0
    assert list(windows) == []


@pytest.mark.parametrize("seed", [None, 0])
def test_two_codes_a_stream_are_one_window(seed):
    ((codes, targets),) = windows_of(torch.arange(8), 4, 70, seed)
    assert codes.tolist() == [[0, 2, 4, 6]]
    assert targets.tolist() == [[1, 3, 5, 7]]


def test_states_of_any_form_are_detached_and_moved():
    def made():
        return torch.zeros(2, requires_grad=True) * 1

    for state in (made(), (made(), made()), ((made(), made()), (made(), made()))):
        flat = leaves(detached(state))
        assert len(flat) == len(leaves(state))
        assert not any(part.requires_grad for part in flat)
        assert all(part.is_meta for part in leaves(moved(state, torch.device("meta"))))
    assert moved(None, torch.device("meta")) is None


def leaves(state):
    return [state] if isinstance(state, torch.Tensor) else [*itertools.chain(*map(leaves, state))]
