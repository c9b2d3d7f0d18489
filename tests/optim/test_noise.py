"""The noise of stochastic rounding: its definition, where it is the same, and its statistics."""

import numpy as np
import pytest
import scipy.stats
import torch
from torch._dynamo.testing import CompileCounter

from sgdf.optim.noise import high_half, low_half, noise_key, random_bits

MASK = 0xFFFFFFFF


def mix(x):
    x ^= x >> 15
    x = x * 0x2C1B3C6D & MASK
    x ^= x >> 12
    x = x * 0x297A2D39 & MASK
    return x ^ x >> 15


def fold(key, number):
    return mix(((key ^ (number & MASK)) + 0x9E3779B9) & MASK)


def bits_of_element(seed, stream, parameter, step, index):
    """The definition, on Python's integers."""
    k0 = fold(fold(fold(fold(0, seed), stream), parameter), step)
    k1 = fold(k0, 1)
    x = ((index + (index >> 32) * 0x9E3779B1) & MASK) ^ k0
    x ^= x >> 15
    x = x * 0x2C1B3C6D & MASK
    x = (x + k1) & MASK
    x ^= x >> 12
    x = x * 0x297A2D39 & MASK
    return x ^ x >> 15


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0, 1), (0, 1, 0, 1), (7, 1, 3, 12), (2**40 + 5, 0, 1999, 2**24)]
)
@pytest.mark.parametrize("start", [0, 1000, 2**32 - 5, 2**40 + 3])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.int64])
def test_the_bits_are_those_of_the_definition(numbers, start, dtype):
    *fixed, step = numbers
    key = noise_key(*fixed, step if dtype is None else torch.tensor(step, dtype=dtype))
    expected = [bits_of_element(*numbers, start + index) for index in range(12)]
    assert random_bits(key, start, (12,)).tolist() == expected


def test_the_bits_never_change():
    """A checkpoint of any version continues with the noise that it would have had."""
    assert random_bits(noise_key(0, 0, 0, 1), 0, (4,)).tolist() == [
        0xD94EC50B,
        0x1DF93100,
        0x797AC87A,
        0xEFEC9FE6,
    ]


def test_a_step_that_is_a_number_gives_numbers_and_a_tensor_gives_tensors():
    key = noise_key(3, 1, 2, 5)
    on_device = noise_key(3, 1, 2, torch.tensor(5.0))
    assert all(type(number) is int for number in key)
    assert all(tensor.dtype == torch.int64 and tensor.dim() == 0 for tensor in on_device)
    assert key == tuple(map(int, on_device))


def test_the_step_is_not_changed():
    step = torch.tensor(5)
    noise_key(0, 0, 0, step)
    assert step == 5


def test_elements_are_counted_in_row_major_order_and_halves_split_the_bits():
    key = noise_key(0, 0, 0, 1)
    bits = random_bits(key, 0, (3, 4, 5))
    assert bits.shape == (3, 4, 5)
    assert torch.equal(bits.flatten(), random_bits(key, 0, (60,)))
    low, high = low_half(bits), high_half(bits)
    assert low.dtype == high.dtype == torch.int32
    assert torch.equal(low + 65536 * high.long(), bits)


@pytest.mark.parametrize("offset", [0, 2**32 - 30])
def test_a_shard_draws_its_part_of_the_whole(offset):
    key = noise_key(0, 0, 4, 9)
    whole = random_bits(key, offset, (10, 6))
    assert torch.equal(random_bits(key, offset + 18, (4, 6)), whole[3:7])
    assert random_bits(key, offset + 18, (0, 6)).shape == (0, 6)
    assert random_bits(key, offset + 1, ()) == whole[0, 1]


def test_no_generator_is_touched_and_no_setting_of_the_process_counts():
    before = torch.get_rng_state()
    expected = random_bits(noise_key(0, 0, 0, 1), 0, (100,))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.equal(random_bits(noise_key(0, 0, 0, 1), 0, (100,)), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_it_works_without_values():
    bits = random_bits(noise_key(0, 0, 0, torch.tensor(1.0, device="meta")), 0, (2, 3), "meta")
    assert bits.is_meta
    assert bits.shape == low_half(bits).shape == (2, 3)


def test_it_compiles_to_one_graph_for_all_steps():
    def draw(step):
        return random_bits(noise_key(0, 1, 2, step), 5, (4, 50))

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(draw, fullgraph=True, backend=counter)
    for step in (1.0, 2.0, 70000.0):
        step = torch.tensor(step)
        assert torch.equal(compiled(step), draw(step))
    assert counter.frame_count == 1


AXES = {
    "element": lambda n: random_bits(noise_key(0, 0, 0, 1), 100 * n, (100,)),
    "far element": lambda n: random_bits(noise_key(0, 0, 0, 1), 2**32 * n, (100,)),
    "step": lambda n: random_bits(noise_key(0, 0, 0, 1 + n), 0, (100,)),
    "parameter": lambda n: random_bits(noise_key(0, 0, n, 1), 0, (100,)),
    "stream": lambda n: random_bits(noise_key(0, n, 0, 1), 0, (100,)),
    "seed": lambda n: random_bits(noise_key(n, 0, 0, 1), 0, (100,)),
}


@pytest.mark.parametrize("axis", AXES)
def test_halves_are_uniform_and_independent(axis):
    """100,000 draws: 100 of each of 1,000 neighbours on the axis.

    True random numbers would fail on one of the axes with a chance of 1 in 1,000.
    """
    bits = torch.stack([AXES[axis](number) for number in range(1000)])
    low, high = low_half(bits).numpy(), high_half(bits).numpy()
    assert low.size == 100_000
    pairs = [(low, high)]
    p_values = []
    for half in (low, high):
        neighbours = half[1:], half[:-1]
        pairs += [neighbours, (half[:, 1:], half[:, :-1])]
        p_values += [p_uniform(half >> 8), p_uniform(half & 255)]
        p_values += [p_uniform((neighbours[0] ^ neighbours[1]) >> 8)]
    for first, second in pairs:
        p_values += [scipy.stats.pearsonr(first.ravel(), second.ravel()).pvalue]
        # Correlations of any form, of the upper bits, which decide most, and of the lowest.
        p_values += [p_uniform((first >> 12) * 16 + (second >> 12))]
        p_values += [p_uniform((first & 15) * 16 + (second & 15))]
    assert min(p_values) > 1e-3 / (len(AXES) * len(p_values))


def p_uniform(numbers):
    """The chance of counts at least as uneven, if all numbers below 256 are equally likely."""
    return scipy.stats.chisquare(np.bincount(numbers.ravel(), minlength=256)).pvalue
