"""Batches of photographs of one shape: complete, reproducible, and skipped without loading."""

import itertools
from collections import Counter

import pytest
import torch

from sgdf.bench.tasks.detection.batches import GROUPS_PER_SIDE, GroupedBatches, shape_group

GROUPS = [0, 1, 2] * 7 + [3, 3]


def order(seed=0):
    return torch.Generator().manual_seed(seed)


def batches(batch_size=4, seed=0, groups=GROUPS):
    """Return batches whose photographs are their numbers and whether they are mirrored."""
    return GroupedBatches(groups, lambda number, flip: (number, flip), batch_size, order(seed))


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 5, 23, 40])
def test_every_photograph_is_in_one_batch(batch_size):
    found = list(batches(batch_size))
    assert sorted(number for batch in found for number, _ in batch) == list(range(len(GROUPS)))
    assert len(found) == len(batches(batch_size)) == -(-len(GROUPS) // batch_size)
    assert all(len(batch) == batch_size for batch in found[:-1])


def test_only_what_is_left_over_is_mixed():
    found = [{GROUPS[number] for number, _ in batch} for batch in batches(2)]
    whole = sum(count // 2 for count in Counter(GROUPS).values())
    assert all(len(groups) == 1 for groups in found[:whole])
    assert any(len(groups) > 1 for groups in found[whole:])


def test_order_and_flips_are_those_of_the_seed():
    assert list(batches()) == list(batches())
    assert list(batches()) != list(batches(seed=1))


def test_skipping_leaves_the_rest_as_it_was():
    for count in range(len(batches()) + 1):
        assert list(batches().skip(count)) == list(batches())[count:]


def test_processes_take_turns_and_load_only_their_own():
    loaded = []
    epoch = GroupedBatches(GROUPS, lambda *one: loaded.append(one) or one, 4, order())
    whole = list(epoch)
    for rank in range(3):
        loaded.clear()
        assert list(epoch.skip(2).dealt(rank, 3)) == whole[2 + rank :: 3]
        assert loaded == [one for batch in whole[2 + rank :: 3] for one in batch]


def test_what_is_skipped_is_not_loaded():
    loaded = []
    left = GroupedBatches(GROUPS, lambda number, _: loaded.append(number), 4, order()).skip(5)
    list(left)
    assert len(loaded) == len(GROUPS) - 20


def test_half_of_the_photographs_are_mirrored():
    epochs = [batches(seed=seed) for seed in range(200)]
    flips = [flip for epoch in epochs for batch in epoch for _, flip in batch]
    deviation = 0.5 * len(flips) ** -0.5
    assert abs(sum(flips) / len(flips) - 0.5) < 4 * deviation


def test_any_photograph_can_be_the_first():
    firsts = {next(iter(batches(1, seed)))[0][0] for seed in range(300)}
    assert len(firsts) == len(GROUPS)


def test_shapes_are_grouped_by_ratio_three_on_each_side():
    sizes = [(wide, 1000) for wide in range(300, 3000)]
    groups = [shape_group(*size) for size in sizes]
    assert groups == sorted(groups)
    assert set(groups) == set(range(2 * GROUPS_PER_SIDE + 2))
    assert shape_group(999, 1000) < shape_group(1000, 1000)
    for wide, tall in itertools.product((333, 375, 500), repeat=2):
        assert (shape_group(wide, tall) >= 4) == (wide >= tall)
