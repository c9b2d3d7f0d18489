"""What a few seeds can tell: against closed forms, scipy, and how often it is right."""

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from made_runs import make_run
from sgdf.bench.report.sample_cells import mean_cell
from sgdf.bench.report.statistics import (
    FEWEST_SEEDS,
    Sample,
    compare,
    has_no_spread,
    holm,
    p_value,
    seeds_needed,
)
from sgdf.bench.report.write import Report

# Statistics


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_mean_sd_and_interval_are_scipys(count):
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    sample = Sample(tuple(values))
    assert sample.mean == pytest.approx(values.mean(), rel=1e-14)
    assert sample.sd == pytest.approx(values.std(ddof=1), rel=1e-14)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert sample.interval == pytest.approx((low, high), rel=1e-12)


def test_interval_in_closed_form():
    # Student's distribution with one degree of freedom is Cauchy's: its 97.5 % quantile is
    # tan(0.475 π); with two degrees it is 0.95 √2 / √(1 - 0.95²).
    low, high = Sample((0.0, 2.0)).interval
    assert (low, high) == pytest.approx(
        (1 - math.tan(0.475 * math.pi), 1 + math.tan(0.475 * math.pi))
    )
    reach = 0.95 * math.sqrt(2.0 / (1 - 0.95**2)) / math.sqrt(3.0)
    assert Sample((-1.0, 0.0, 1.0)).interval == pytest.approx((-reach, reach))


def test_interval_covers_the_mean_as_often_as_it_says():
    # 4,000 samples of three: the share of hits has a standard deviation of 0.34 %, so a right
    # interval fails this test once in ten thousand seeds.
    rng = np.random.default_rng(0)
    samples = (Sample(tuple(rng.normal(7.0, 1.0, 3))) for _ in range(4000))
    hits = sum(low <= 7.0 <= high for low, high in (sample.interval for sample in samples))
    assert hits / 4000 == pytest.approx(0.95, abs=0.0135)


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, math.nan), (math.inf, 1.0)])
def test_no_spread_is_claimed_where_there_is_none(values):
    sample = Sample(values)
    assert sample.sd is None
    assert sample.interval is None


def test_p_value_is_scipys():
    rng = np.random.default_rng(1)
    for count in (2, 3, 10):
        one, other = rng.normal(size=count), rng.normal(0.5, 1.0, count)
        expected = stats.ttest_rel(one, other).pvalue
        assert p_value(Sample(tuple(one - other))) == pytest.approx(expected, rel=1e-12)


def test_p_value_in_closed_form():
    # With one degree of freedom: p = 1 - 2 atan(t) / π.
    t = (1.0 + 2.0) / 2 * math.sqrt(2) / math.sqrt(0.5)
    assert p_value(Sample((1.0, 2.0))) == pytest.approx(1 - 2 * math.atan(t) / math.pi)


def test_differences_without_spread_prove_nothing():
    assert p_value(Sample((0.5, 0.5, 0.5))) is None
    assert p_value(Sample((0.4 - 0.2, 0.41 - 0.21, 0.42 - 0.22))) is None  # but for rounding
    assert p_value(Sample((0.0, 0.0, 0.0))) == 1.0
    assert p_value(Sample((0.5,))) is None


def test_holm_by_its_definition():
    # A hypothesis is rejected at a level if and only if the step-down procedure rejects it.
    rng = random.Random(0)
    for _ in range(50):
        values = [rng.random() ** 3 for _ in range(rng.randint(1, 6))]
        corrected = holm(values)
        for level in (0.01, 0.05, 0.3):
            rejected = set()
            for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
                if values[index] * (len(values) - rank) > level:
                    break
                rejected.add(index)
            assert rejected == {i for i, p in enumerate(corrected) if p <= level}


def test_comparisons_pair_by_seed():
    one, other = {0: 1.0, 1: 3.0, 2: 4.0, 9: 100.0}, {2: 1.0, 1: 2.0, 0: 0.5}
    (found,) = compare([one, other])
    assert found.difference.values == (0.5, 1.0, 3.0)
    assert found.p == pytest.approx(stats.ttest_rel([1.0, 3.0, 4.0], [0.5, 2.0, 1.0]).pvalue)
    assert found.corrected == found.p


def test_comparisons_are_corrected_for_their_number():
    rng = np.random.default_rng(3)
    settings = [dict(enumerate(rng.normal(shift, 1.0, 5))) for shift in (0.0, 1.0, 4.0)]
    found = compare(settings)
    assert [(c.first, c.second) for c in found] == list(itertools.combinations(range(3), 2))
    assert [c.corrected for c in found] == holm([c.p for c in found])


# Figures in words


@pytest.mark.parametrize(
    ("values", "scale", "text"),
    [
        ((0.9882, 0.9867, 0.9897), 100.0, "98.82 ± 0.15"),
        ((1234.0, 1250.0), 1.0, "1242 ± 11"),
        ((0.5,), 1.0, "0.5000 (one seed)"),
        ((2.8599798e13,), 1.0, "2.86e+13 (one seed)"),
        ((1e13, 3e13), 1.0, "2e+13 ± 1.41e+13"),
        ((2345678.0,), 1.0, "2345678 (one seed)"),
        ((0.0, 0.0), 1.0, "0 (no spread)"),
        ((math.nan, 1.0), 1.0, "nan"),
        ((math.inf,), 1.0, "inf (one seed)"),
        ((1e-12, 2e-12), 1.0, "1.5e-12 ± 7.07e-13"),
        ((), 1.0, "–"),
    ],
)
def test_means_in_words(values, scale, text):
    assert mean_cell(Sample(values), scale).text == text


def test_one_seed_shows_no_plus_minus(tmp_path):
    make_run(tmp_path, [0.5, 0.9])
    make_run(tmp_path, [0.5, 0.8], optimizer="adam")
    report = Report.of([tmp_path])
    (results, *_) = report.document.tables
    texts = [cell.text for row in results.rows for cell in row]
    assert "90.00 (one seed)" in texts
    assert not any("±" in text for text in texts)
    assert "one seed" in results.about
    assert any("one seed" in line for line in report.document.summary)
    assert not any(table.name.startswith("comparisons") for table in report.document.tables)


@pytest.mark.parametrize(
    ("effect", "needed"),
    # Cohen's tables and G*Power, for a two-sided paired t-test at 5 % with power 80 %.
    [(0.2, 199), (0.3, 90), (0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6), (2.0, 5), (-0.5, 34)],
)
def test_the_number_of_seeds_that_a_difference_needs(effect, needed):
    half = math.sqrt(0.5)  # so that the standard deviation is 1
    assert seeds_needed(Sample((effect - half, effect + half))) == needed


def test_some_differences_need_no_number_that_can_be_run():
    assert seeds_needed(Sample((1e-6, -1e-6, 1.0, -1.0))) is None
    assert seeds_needed(Sample((0.01, 1.0, -1.0))) is None
    assert seeds_needed(Sample((0.5, 0.5, 0.5))) is None
    assert seeds_needed(Sample((0.5,))) is None
    assert seeds_needed(Sample((-0.5, 0.5))) is None
    assert seeds_needed(Sample((100.0, 100.1, 100.2))) == 3


def test_differences_that_are_equal_but_for_rounding_have_no_spread():
    rounded = Sample((0.3 - 0.2, 0.4 - 0.3, 0.5 - 0.4))
    assert rounded.sd
    assert has_no_spread(rounded)
    assert p_value(rounded) is None
    assert seeds_needed(rounded) is None
    assert not has_no_spread(Sample((0.1, 0.2)))
    assert not has_no_spread(Sample((0.1,)))


def test_a_difference_of_hardly_any_spread_needs_the_fewest_seeds():
    """For a huge shift scipy knows no probability."""
    assert seeds_needed(Sample((1.0, 1.0 + 1e-8, 1.0 - 1e-8))) == FEWEST_SEEDS


def test_two_seeds_are_no_test():
    (two,) = compare([{0: 1.0, 1: 1.1}, {0: 0.1, 1: 0.2001}])
    assert (two.p, two.corrected) == (None, None)
    assert two.difference.mean > 0.8


def test_pairs_that_are_not_comparable_are_left_out():
    one, other = {s: 1.0 + s / 10 for s in range(5)}, {s: 0.1 + s / 9 for s in range(5)}
    (comparison,) = compare([one, other], lambda first, second, seed: "other data" * (seed == 1))
    assert comparison.obstacles == ("other data",)
    assert comparison.difference.values == tuple(one[s] - other[s] for s in (0, 2, 3, 4))
