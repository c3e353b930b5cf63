from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.machine.ceilings.sample_statistics import median, spread


def test_median_is_the_middle_or_the_mean_of_the_middle_two() -> None:
    assert median([5.0, 1.0, 9.0]) == 5.0
    assert median([4.0, 1.0, 2.0, 9.0]) == 3.0


def test_spread_is_the_interquartile_range_over_the_median() -> None:
    # numpy.percentile([1..5], [25, 50, 75]) is 2, 3, 4
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == pytest.approx(2 / 3)
    # numpy.percentile([10, 20, 30, 40], [25, 50, 75]) is 17.5, 25, 32.5
    assert spread([10.0, 20.0, 30.0, 40.0]) == pytest.approx(15 / 25)


def test_equal_samples_have_no_spread_and_one_sample_has_none_known() -> None:
    assert spread([7.0, 7.0, 7.0]) == 0.0
    assert spread([7.0]) is None


@given(st.lists(st.floats(1.0, 1e15), min_size=2, max_size=30), st.floats(1e-3, 1e3))
def test_spread_does_not_depend_on_the_unit(samples: list[float], scale: float) -> None:
    scaled = spread([scale * sample for sample in samples])
    assert scaled == pytest.approx(spread(samples), rel=1e-6, abs=1e-9)
