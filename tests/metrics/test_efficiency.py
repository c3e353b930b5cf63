"""Efficiency over ranks, of a measured ceiling and for a watt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.metrics import flops, mfu, strong_efficiency, vflops_per_watt, weak_efficiency

NAN, INF = float("nan"), float("inf")

ranks = st.integers(1, 10**6)
times_s = st.floats(1e-3, 1e6)
speeds = st.floats(1, 1e18)


@given(speeds, ranks, ranks)
def test_weak_efficiency_is_one_when_speed_grows_with_the_ranks(
    per_rank: float, base: int, more: int
) -> None:
    efficiency = weak_efficiency(
        base_flops=per_rank * base, base_ranks=base, flops=per_rank * more, ranks=more
    )
    assert efficiency == pytest.approx(1)


@given(st.integers(1, 10**12), ranks, times_s, ranks, times_s)
def test_weak_efficiency_is_the_ratio_of_times_when_each_rank_has_the_same_work(
    ops_per_rank: int, base: int, base_time_s: float, more: int, time_s: float
) -> None:
    efficiency = weak_efficiency(
        base_flops=flops(ops=ops_per_rank * base, time_s=base_time_s),
        base_ranks=base,
        flops=flops(ops=ops_per_rank * more, time_s=time_s),
        ranks=more,
    )
    assert efficiency == pytest.approx(base_time_s / time_s)


@given(times_s, ranks, ranks)
def test_strong_efficiency_is_one_when_time_shrinks_with_the_ranks(
    rank_time_s: float, base: int, more: int
) -> None:
    efficiency = strong_efficiency(
        base_time_s=rank_time_s / base, base_ranks=base, time_s=rank_time_s / more, ranks=more
    )
    assert efficiency == pytest.approx(1)


def test_scaling_by_hand() -> None:
    # Eight times the ranks: four times the speed, or a quarter of the time, is half of the ideal.
    assert weak_efficiency(base_flops=10e12, base_ranks=8, flops=40e12, ranks=64) == 0.5
    assert strong_efficiency(base_time_s=100, base_ranks=8, time_s=25, ranks=64) == 0.5


def test_more_than_ideal_scaling_is_not_cut_off() -> None:
    assert weak_efficiency(base_flops=1.0, base_ranks=1, flops=3.0, ranks=2) == 1.5
    assert strong_efficiency(base_time_s=3, base_ranks=1, time_s=1, ranks=2) == 1.5


def test_mlperf_v4_resnet50_loses_what_the_published_logs_say() -> None:
    # FACTS.md section 4, images a second and H100: 7 162 at 8, 4 908 at 64, 2 819 at 3 584.
    # The work is the same at every scale, so time is inverse to images a second.
    for gpus, images_per_s, percent in ((64, 4_908, 69), (3_584, 2_819, 39)):
        efficiency = strong_efficiency(
            base_time_s=1 / (8 * 7_162), base_ranks=8, time_s=1 / (gpus * images_per_s), ranks=gpus
        )
        assert round(100 * efficiency) == percent


def test_mfu_of_the_compiled_resnet50_on_one_h200() -> None:
    # FACTS.md section 4: 7 081 images/s, 24.299 GFLOP each, GEMM in bf16 772 TFLOPS.
    share = mfu(flops=7_081 * 24.299e9, ceiling_flops=772e12)
    assert share == pytest.approx(0.2229, abs=5e-5)


@given(speeds, speeds, st.floats(0.01, 100))
def test_mfu_is_a_ratio(speed: float, ceiling: float, unit: float) -> None:
    share = mfu(flops=speed, ceiling_flops=ceiling)
    assert share is not None
    assert share * ceiling == pytest.approx(speed)
    assert mfu(flops=speed * unit, ceiling_flops=ceiling * unit) == pytest.approx(share)


def test_an_impossible_mfu_is_shown_as_it_is() -> None:
    assert mfu(flops=152.0, ceiling_flops=100.0) == 1.52


def test_watts_by_hand() -> None:
    assert vflops_per_watt(vflops=350e12, power_w=700) == 0.5e12


@given(speeds, st.floats(1, 1e8))
def test_twice_the_power_for_the_same_work_is_half_the_figure(speed: float, power: float) -> None:
    once = vflops_per_watt(vflops=speed, power_w=power)
    twice = vflops_per_watt(vflops=speed, power_w=2 * power)
    assert once is not None
    assert twice == pytest.approx(once / 2)
    assert once * power == pytest.approx(speed)


def test_what_was_not_measured_gives_no_figure() -> None:
    assert mfu(flops=1e12, ceiling_flops=None) is None
    assert vflops_per_watt(vflops=1e12, power_w=None) is None


def test_a_wrong_speed_is_refused_even_without_a_ceiling_or_a_reading() -> None:
    with pytest.raises(ValueError, match=r"^flops is nan"):
        mfu(flops=NAN, ceiling_flops=None)
    with pytest.raises(ValueError, match=r"^vflops is -1"):
        vflops_per_watt(vflops=-1.0, power_w=None)


@pytest.mark.parametrize("name", ["base_flops", "base_ranks", "ranks"])
def test_weak_efficiency_refuses_nothing_and_less(name: str) -> None:
    good: dict[str, Any] = {"base_flops": 1.0, "base_ranks": 1, "flops": 1.0, "ranks": 1}
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"^{name} is {value}: expected .* [0-9]"):
            weak_efficiency(**good | {name: value})
    with pytest.raises(ValueError, match=r"^flops is -1: expected a finite number of 0 or more"):
        weak_efficiency(**good | {"flops": -1})


@pytest.mark.parametrize("name", ["base_time_s", "base_ranks", "time_s", "ranks"])
def test_strong_efficiency_refuses_nothing_and_less(name: str) -> None:
    good: dict[str, Any] = {"base_time_s": 1.0, "base_ranks": 1, "time_s": 1.0, "ranks": 1}
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"^{name} is {value}: expected .* [0-9]"):
            strong_efficiency(**good | {name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, INF])
def test_a_ceiling_and_a_power_are_positive_or_absent(value: float) -> None:
    expected = f"is {value!r}: expected a finite number greater than 0"
    with pytest.raises(ValueError, match=f"^ceiling_flops {expected}"):
        mfu(flops=1.0, ceiling_flops=value)
    with pytest.raises(ValueError, match=f"^power_w {expected}"):
        vflops_per_watt(vflops=1.0, power_w=value)
