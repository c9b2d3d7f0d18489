"""Stochastic rounding: its definition, its mean, its neighbours, and blocks of all shapes."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from sgdf.optim.noise import high_half, low_half, noise_key, random_bits
from sgdf.optim.rounding import (
    blocks_of,
    decode_float8,
    decode_int8,
    encode_float8,
    encode_int8,
    to_bfloat16,
    to_float16,
)

HALVES = {"bfloat16": to_bfloat16, "float16": to_float16}
CODES = {"int8": (encode_int8, decode_int8), "float8": (encode_float8, decode_float8)}
LARGEST = torch.finfo(torch.float32).max

each_half = pytest.mark.parametrize("to_half", HALVES.values(), ids=HALVES)
each_code = pytest.mark.parametrize(("encode", "decode"), CODES.values(), ids=CODES)
each_format = pytest.mark.parametrize("name", [*HALVES, *CODES])


def noise(shape, step=1):
    return low_half(random_bits(noise_key(0, 0, 0, step), 0, shape))


def constant_noise(shape, number):
    return torch.full(shape, number, dtype=torch.int32)


def rounded(name, x, r):
    """The float32 numbers that ``x`` becomes in the format."""
    if name in HALVES:
        return HALVES[name](x, r).float()
    encode, decode = CODES[name]
    return decode(*encode(x, r))


def bits_of(tensor):
    """The bits of numbers of 16 or 32 bits, in which NaNs and signs of zero can be compared."""
    dtype = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(dtype)


def all_sizes(count):
    """Numbers of both signs and of every exponent, subnormal ones, infinity and NaNs among them."""
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32)
    edges = [0.0, 2.0**-149, 2.0**-126, 2.0**-118, 2.0**-25, 2.0**-24, 2.0**-14, 1.0]
    edges += [65504.0, 65519.996, 65520.0, 65536.0, LARGEST, math.inf, math.nan]
    edges = torch.tensor(edges)
    below = torch.nextafter(edges, torch.zeros(()))
    return torch.cat([bits.view(torch.float32), edges, -edges, below, -below])


def within_a_block(shape, spread=9.0):
    """Numbers of both signs, whose sizes in a block differ by many powers of ten."""
    generator = torch.Generator().manual_seed(2)
    sizes = torch.exp(spread * torch.randn(shape, generator=generator))
    return sizes * torch.randn(shape, generator=generator).sign()


def defined_bfloat16(x, r):
    bits = x.view(np.uint32).astype(np.int64)
    return np.where(np.isnan(x), 0x7FC0, (bits + r) >> 16).astype(np.uint16)


def defined_float16(x, r):
    def one(x, r):
        a = abs(x)
        if a < 2.0**-14:
            half = int(a * np.float32(2.0**24) + np.float32(r * 2.0**-16))
        elif a < 65520:
            half = min((int(a.view(np.uint32)) - 0x38000000 + (int(r) >> 3)) >> 13, 0x7BFF)
        else:
            half = 0x7E00 if np.isnan(a) else 0x7C00
        return half | (0x8000 if np.signbit(x) else 0)

    return np.array([one(*pair) for pair in zip(x, r, strict=True)], np.uint16)


def defined_int8(x, r):
    """Codes and scale of one block."""
    finite = np.isfinite(x)
    largest = np.abs(x[finite]).max(initial=np.float32(0))
    scale = np.float32(0) if largest < 2.0**-118 else largest / np.float32(127)
    inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
    shifted = np.where(finite, x, 0) * inverse + (128 + r * 2.0**-16).astype(np.float32)
    return np.where(finite, np.clip(np.trunc(shifted), 1, 255) - 128, -128), scale


def defined_float8(x, r):
    """Codes and scale of one block."""
    finite = np.isfinite(x)
    largest = x[finite].max(initial=np.float32(0))
    scale = np.float32(0) if largest < 2.0**-126 else largest / np.float32(0.875)
    inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
    raised = np.where(finite, x, 0) * inverse + np.float32(2.0**-32)
    bits = raised.view(np.uint32).astype(np.int64)
    codes = np.minimum((bits - 0x2F800000 + (r << 4) + 8) >> 20, 254)
    return np.where(finite, codes, 255), scale


@pytest.mark.parametrize("number", [None, 0, 1, 0x8000, 65535])
@pytest.mark.parametrize("name", HALVES)
def test_halves_have_the_bits_of_the_definition(name, number):
    x = all_sizes(5000)
    r = noise(x.shape) if number is None else constant_noise(x.shape, number)
    expected = {"bfloat16": defined_bfloat16, "float16": defined_float16}[name]
    expected = expected(x.numpy(), r.numpy().astype(np.int64))
    assert torch.equal(bits_of(HALVES[name](x, r)), torch.from_numpy(expected.view(np.int16)))


SHAPES = [(), (1,), (255,), (256,), (257,), (1000,), (3, 256), (5, 147), (4, 9), (3, 700), (700, 1)]
SHAPES += [(2, 5, 3, 30), (0,), (0, 300), (3, 0)]


@pytest.mark.parametrize("number", [None, 0, 0x8000, 65535])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CODES)
def test_codes_and_scales_are_those_of_the_definition(name, shape, number):
    encode, decode = CODES[name]
    x = within_a_block(shape)
    x = x.abs() if name == "float8" else x
    r = noise(shape) if number is None else constant_noise(shape, number)
    codes, scales = encode(x, r)
    assert codes.shape == x.shape
    assert codes.is_contiguous()
    assert scales.dtype == torch.float32

    define = {"int8": defined_int8, "float8": defined_float8}[name]
    rows = shape[0] if len(shape) > 1 else 1
    expected_codes, expected_scales = [], []
    for row, row_noise in zip(
        x.reshape(rows, -1).numpy() if x.numel() else [],
        r.reshape(rows, -1).numpy().astype(np.int64) if x.numel() else [],
        strict=True,
    ):
        for start in range(0, len(row), 256):
            block = slice(start, start + 256)
            block_codes, scale = define(row[block], row_noise[block])
            expected_codes += block_codes.tolist()
            expected_scales.append(scale.item())
    assert codes.flatten().tolist() == expected_codes
    assert scales.flatten().tolist() == expected_scales
    assert decode(codes, scales).shape == x.shape


@pytest.mark.parametrize(
    ("shape", "rows", "length", "per_row", "scale_shape"),
    [
        ((), 1, 1, 1, (1,)),
        ((1000,), 1, 1000, 4, (4,)),
        ((512,), 1, 512, 2, (2,)),
        ((6, 512), 6, 512, 2, (6, 2)),
        ((64, 3, 7, 7), 64, 147, 1, (64, 1)),
        ((0, 300), 0, 300, 2, (0, 2)),
    ],
)
def test_blocks_never_cross_a_row(shape, rows, length, per_row, scale_shape):
    blocks = blocks_of(shape)
    assert blocks == (rows, length, per_row, scale_shape)
    assert encode_int8(torch.ones(shape), noise(shape))[1].shape == scale_shape


EXAMPLES = torch.tensor([1.0, 0.7311, 0.3, 0.01234, 1e-3, 3.3e-5, 1e-6, 0.0])


def means(name, r):
    """Mean of each example over the draws, the neighbour below, and the distance of both."""
    x = EXAMPLES if name == "float8" else EXAMPLES * torch.tensor([1, -1] * 4)
    results = rounded(name, x.expand(r.shape).contiguous(), r).double()
    low, high = results.amin(0), results.amax(0)
    # Two neighbours are all that there is, so that the distance decides about the spread.
    assert ((results == low) | (results == high)).all()
    return results.mean(0), low, high - low, x.double()


@each_format
def test_the_mean_over_all_noise_is_the_number(name):
    r = torch.arange(65536, dtype=torch.int32)[:, None].expand(-1, len(EXAMPLES))
    mean, _, distance, x = means(name, r.contiguous())
    # 16 bits of noise, float32, and for int8 a sum with 128.
    assert ((mean - x).abs() <= distance * 2.0**-15 + x.abs() * 2.0**-22).all()


@each_format
def test_the_mean_of_draws_is_the_number(name):
    """100,000 draws: true random numbers would fail with a chance of 1 in 1,000 for all formats."""
    count = 100_000
    mean, low, distance, x = means(name, noise((count, len(EXAMPLES))))
    chance = ((x - low) / distance.clamp(min=1e-30)).clamp(0, 1)
    error = distance * (chance * (1 - chance) / count).sqrt()
    bound = scipy.stats.norm.isf(1e-3 / (4 * len(x)) / 2)
    assert ((mean - x).abs() <= bound * error + x.abs() * 2.0**-22).all()


@each_half
def test_a_half_is_one_of_the_two_neighbours(to_half):
    x = all_sizes(20_000)
    largest = 65504.0 if to_half is to_float16 else LARGEST
    x = x[x.abs() <= largest]
    half = to_half(x, noise(x.shape))
    below = to_half(x, constant_noise(x.shape, 0))
    above = (bits_of(below) + 1).view(half.dtype)  # away from zero
    assert (below.double().abs() <= x.double().abs()).all()
    assert (x.double().abs() < above.double().abs()).all()
    is_below, is_above = (bits_of(half) == bits_of(other) for other in (below, above))
    assert (is_below | is_above).all()
    assert is_below.any()
    assert is_above.any()


@each_code
def test_a_code_is_one_of_the_two_neighbours(encode, decode):
    x = within_a_block((20, 700), spread=3.0)
    x = x.abs() if encode is encode_float8 else x
    codes, scales = encode(x, noise(x.shape))
    lower, _ = encode(x, constant_noise(x.shape, 0))
    steps = codes.int() - lower.int()
    assert set(steps.unique().tolist()) == {0, 1}
    upper = (lower.int() + 1).clamp(max=127 if encode is encode_int8 else 254).to(codes.dtype)
    below, above = (decode(codes, scales).double() for codes in (lower, upper))
    tolerance = (above - below) * 2.0**-15 + x.abs() * 2.0**-22
    assert (below - tolerance <= x).all()
    assert (x <= above + tolerance).all()


# Subnormal halves are sums of noise and an integer of 10 bits, in the 24 bits of float32: there
# the two largest numbers of the noise are rounded up to 1.
@pytest.mark.parametrize(("to_half", "largest"), [(to_bfloat16, 65535), (to_float16, 65533)])
def test_a_half_is_kept_with_its_sign(to_half, largest):
    patterns = torch.arange(-(2**15), 2**15).to(torch.int16)
    halves = patterns.view(torch.bfloat16 if to_half is to_bfloat16 else torch.float16)
    halves = halves[~halves.isnan()]  # infinity stays
    for r in (0, noise(halves.shape), largest):
        r = torch.as_tensor(r, dtype=torch.int32).expand(halves.shape)
        assert torch.equal(bits_of(to_half(halves.float(), r)), bits_of(halves))


@pytest.mark.parametrize("scale", [2e-30, 0.3, 5e30])
@pytest.mark.parametrize("number", [None, 3, 65532])
@each_code
def test_a_code_is_kept(encode, decode, number, scale):
    """Whatever the noise, but for its outermost numbers: int8's sum with 128 is rounded."""
    every = torch.arange(-127, 128) if encode is encode_int8 else torch.arange(255)
    codes = every.to(torch.int8 if encode is encode_int8 else torch.uint8).flip(0)
    r = noise(codes.shape) if number is None else constant_noise(codes.shape, number)
    again, scales = encode(decode(codes, torch.tensor([scale])), r)
    assert torch.equal(again, codes)
    torch.testing.assert_close(scales, torch.tensor([scale]), rtol=2.0**-22, atol=0.0)


@each_half
def test_a_half_of_what_is_not_finite(to_half):
    x = torch.tensor([math.inf, -math.inf, math.nan]).repeat(1000)
    half = to_half(x, noise(x.shape)).float()
    torch.testing.assert_close(half, x, rtol=0.0, atol=0.0, equal_nan=True)
    # A NaN whose upper 16 bits alone would be infinity.
    x = torch.tensor([0x7F800001, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    assert to_half(x, constant_noise(x.shape, 65535)).isnan().all()


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("length", [600, 100])
def test_what_is_not_finite_becomes_nan_and_its_block_stays(name, length):
    x = within_a_block((3, length), spread=1.0).abs()
    r = noise(x.shape)
    expected = rounded(name, x, r)
    positions = [(0, 0), (1, 50), (1, 99), (2, length - 1)]
    values = [math.nan, math.inf, -math.inf, -math.nan]
    for (row, column), value in zip(positions, values, strict=True):
        # The block's scale must not depend on the place that is lost.
        assert x[row, column] < x[row, column // 256 * 256 :][:256].max()
        x[row, column] = value
        expected[row, column] = math.nan
    torch.testing.assert_close(rounded(name, x, r), expected, rtol=0.0, atol=0.0, equal_nan=True)


@each_code
def test_blocks_of_nothing_but_zero_or_what_is_not_finite(encode, decode):
    x = torch.zeros(4, 300)
    x[1] = math.nan
    x[2] = math.inf
    x[3, ::2] = -0.0
    codes, scales = encode(x, constant_noise(x.shape, 65535))
    assert (scales == 0.0).all()
    assert (codes[[0, 3]] == 0).all()
    decoded = decode(codes, scales)
    assert decoded[1:3].isnan().all()
    assert (decoded[[0, 3]] == 0.0).all()


@pytest.mark.parametrize(("name", "smallest"), [("int8", 2.0**-118), ("float8", 2.0**-126)])
def test_tiny_blocks_count_as_zero(name, smallest):
    encode, decode = CODES[name]
    small = torch.tensor([smallest, smallest / 2, 0.0])
    r = constant_noise(small.shape, 0)
    assert decode(*encode(small, r))[0].item() == pytest.approx(smallest, rel=1e-6, abs=0.0)
    codes, scales = encode(torch.nextafter(small, torch.zeros(())), r)
    assert (codes == 0).all()
    assert (scales == 0.0).all()


@pytest.mark.parametrize(
    ("name", "largest"), [("int8", LARGEST * (1 - 2.0**-20)), ("float8", LARGEST * 0.8749)]
)
def test_huge_blocks_stay_finite(name, largest):
    x = torch.tensor([largest, largest / 2, 1.0, 0.0])
    for number in (0, 65535):
        result = rounded(name, x, constant_noise(x.shape, number))
        assert result.isfinite().all()
        assert result[0].item() == pytest.approx(largest, rel=1e-6)


def test_a_negative_number_is_a_float8_of_zero():
    x = torch.tensor([1.0, -0.5, -1e-12])
    for number in (0, 65535):
        result = rounded("float8", x, constant_noise(x.shape, number))
        assert (result[1:] <= 2.0**-34).all()
        assert (result[1:] >= 0.0).all()


@each_format
def test_the_layout_does_not_count(name):
    x = within_a_block((3, 20, 6, 5)).abs()
    r = noise(x.shape)
    expected = rounded(name, x, r)
    assert torch.equal(rounded(name, x.contiguous(memory_format=torch.channels_last), r), expected)
    assert torch.equal(rounded(name, x.transpose(1, 3).contiguous().transpose(1, 3), r), expected)


@each_code
def test_codes_are_contiguous(encode, decode):
    x = within_a_block((3, 20, 6, 5)).to(memory_format=torch.channels_last).abs()
    codes, scales = encode(x, noise(x.shape))
    assert codes.is_contiguous()
    assert scales.is_contiguous()


@each_format
def test_a_shard_of_rows_is_rounded_as_in_the_whole(name):
    x = within_a_block((8, 300)).abs()
    key = noise_key(0, 1, 2, 3)
    whole = rounded(name, x, high_half(random_bits(key, 0, x.shape)))
    shard = rounded(name, x[3:6], high_half(random_bits(key, 3 * 300, (3, 300))))
    assert torch.equal(shard, whole[3:6])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@each_format
def test_the_default_dtype_does_not_count(name, dtype):
    x = within_a_block((3, 300)).abs()
    r = noise(x.shape)
    expected = rounded(name, x, r)
    try:
        torch.set_default_dtype(dtype)
        assert torch.equal(rounded(name, x, r), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@each_format
def test_arguments_are_not_changed(name):
    x = within_a_block((3, 300)).abs()
    r = noise(x.shape)
    before = x.clone(), r.clone()
    rounded(name, x, r)
    assert torch.equal(x, before[0])
    assert torch.equal(r, before[1])


@each_code
def test_codes_are_not_changed_by_decoding(encode, decode):
    codes, scales = encode(within_a_block((3, 300)).abs(), noise((3, 300)))
    before = codes.clone(), scales.clone()
    decode(codes, scales)
    assert torch.equal(codes, before[0])
    assert torch.equal(scales, before[1])


def test_it_compiles_to_one_graph():
    def every_format(x, r):
        return [rounded(name, x, r) for name in (*HALVES, *CODES)]

    x = within_a_block((3, 300)).abs()
    x[1, 5] = math.nan
    r = noise(x.shape)
    torch._dynamo.reset()
    # This backend replaces operations in place by others, as compilers do.
    compiled = torch.compile(every_format, fullgraph=True, backend="aot_eager")
    for result, expected in zip(compiled(x, r), every_format(x, r), strict=True):
        assert torch.equal(bits_of(result), bits_of(expected))


@each_format
def test_it_works_without_values(name):
    x = torch.empty(3, 300, device="meta")
    assert rounded(name, x, torch.empty_like(x, dtype=torch.int32)).shape == x.shape


@pytest.fixture(scope="module")
@torch.inference_mode()
def variance_ratios():
    """A running variance in small formats relative to the exact one, by format and rounding.

    After 10,000 steps, and after 10,000 more with a tenth of the noise in the gradient. Variances
    within a block are spread over a factor of e^12. The first row is rounded stochastically, the
    second to nearest.
    """
    count, beta2, batch = 2048, 0.999, 100
    generator = torch.Generator().manual_seed(0)
    variances = torch.exp(12 * torch.rand(count, generator=generator) - 6)
    exact = torch.zeros(count, dtype=torch.float64)
    half = torch.zeros(2, count, dtype=torch.bfloat16)
    low, high = constant_noise((2, batch, 2, count), 0x8000)
    codes, scales = encode_float8(half.float(), low[0])
    ratios = {}
    for first in range(1, 20_001, batch):
        spread = variances if first <= 10_000 else variances / 10**2
        added = torch.randn(batch, count, generator=generator).square_().mul_(spread * (1 - beta2))
        # A row for each step: only keys and noise for many steps at once are fast.
        key = noise_key(0, 0, 0, torch.arange(first, first + batch)[:, None])
        bits = random_bits(key, 0, (batch, count))
        low[:, 0], high[:, 0] = low_half(bits), high_half(bits)
        for new, half_noise, code_noise in zip(added, low, high, strict=True):
            exact.mul_(beta2).add_(new)
            half = to_bfloat16(half.float().mul_(beta2).add_(new), half_noise)
            decoded = decode_float8(codes, scales)
            codes, scales = encode_float8(decoded.mul_(beta2).add_(new), code_noise)
        if (last := first + batch - 1) in (10_000, 20_000):
            decoded = decode_float8(codes, scales)
            ratios["bfloat16", last] = (half.double() / exact).mean(1).tolist()
            ratios["float8", last] = (decoded.double() / exact).mean(1).tolist()
    return ratios


@pytest.mark.parametrize("step", [10_000, 20_000])
@pytest.mark.parametrize("name", ["bfloat16", "float8"])
def test_a_running_variance_follows_its_recursion(variance_ratios, name, step):
    """Within 2 %: four standard errors of this mean for float8, twenty for bfloat16."""
    stochastic, _ = variance_ratios[name, step]
    assert stochastic == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("step", [10_000, 20_000])
@pytest.mark.parametrize("name", ["bfloat16", "float8"])
def test_a_running_variance_rounded_to_nearest_does_not(variance_ratios, name, step):
    _, nearest = variance_ratios[name, step]
    assert nearest > 1.3


def test_the_largest_numbers_do_not_spoil_their_block():
    """Their scale would be infinite, and all numbers of the block not a number."""
    x = torch.full((256,), 1e30)
    x[3] = 3.3e38
    codes, scales = encode_float8(x, torch.full((256,), 0x8000, dtype=torch.int32))
    decoded = decode_float8(codes, scales)
    assert decoded.isfinite().all()
    assert decoded[3] > 2.9e38
