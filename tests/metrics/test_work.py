"""Work and speed: V3.0's equations 3 to 6, and AIPerf's table VII as an outside figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.metrics import apc, epoch_ops, flops, out_of_bag_samples, system_scale

counts = st.integers(0, 10**13)
sizes = st.integers(1, 10**6)
times_s = st.floats(1e-6, 1e9)


def test_the_papers_resnet50_iteration_is_11776_gflops() -> None:
    assert apc(ops_per_sample=23 * 10**9, batch_size=512) == 11_776 * 10**9  # V3.0 section 2


@given(counts, sizes, st.integers(1, 10**5))
def test_m_models_do_m_times_the_work_of_one(ops: int, batch: int, models: int) -> None:
    one = apc(ops_per_sample=ops, batch_size=batch)
    assert apc(ops_per_sample=ops, batch_size=batch, models=models) == models * one


@given(st.integers(1, 10**9), st.integers(1, 10**4), st.integers(1, 512), st.integers(1, 9))
def test_an_epoch_is_the_sum_of_its_iterations_with_a_ragged_last_batch(
    ops: int, samples: int, batch: int, models: int
) -> None:
    batches = [min(batch, samples - start) for start in range(0, samples, batch)]
    iterations = [apc(ops_per_sample=ops, batch_size=size, models=models) for size in batches]
    assert epoch_ops(ops_per_sample=ops, samples=samples, models=models) == sum(iterations)


def test_a_bootstrap_leaves_out_the_share_that_its_draws_miss() -> None:
    samples = 100_000
    assert out_of_bag_samples(samples) == round(samples * (1 - 1 / samples) ** samples)


def test_aiperf_table_vii_follows_from_the_counts_of_one_image() -> None:
    forward, backward = 7_806_583_495, 15_246_874_820  # the original program's, FACTS.md section 1
    train_forward = epoch_ops(ops_per_sample=forward, samples=1_281_167)
    train_backward = epoch_ops(ops_per_sample=backward, samples=1_281_167)
    validation = epoch_ops(ops_per_sample=forward, samples=50_000)
    assert f"{train_forward:.2e}" == "1.00e+16"
    assert f"{train_backward:.2e}" == "1.95e+16"
    assert f"{train_forward + train_backward:.2e}" == "2.95e+16"
    assert f"{validation:.2e}" == "3.90e+14"
    assert f"{train_forward + train_backward + validation:.2e}" == "2.99e+16"


def test_counts_stay_exact_beyond_the_integers_a_float_can_hold() -> None:
    ops = epoch_ops(ops_per_sample=23_053_458_315, samples=1_281_167, models=512)
    assert ops == 23_053_458_315 * 1_281_167 * 512
    assert ops > 2**53
    assert isinstance(ops, int)


def test_the_2020_rankings_ninety_epochs_in_72_seconds() -> None:
    ops = 90 * epoch_ops(ops_per_sample=23 * 10**9, samples=1_280_000)
    assert flops(ops=ops, time_s=72) == pytest.approx(36.8e15)


@given(counts, times_s, st.integers(1, 1000))
def test_flops_are_proportional_to_work_and_inverse_to_time(
    ops: int, time_s: float, factor: int
) -> None:
    once = flops(ops=ops, time_s=time_s)
    assert flops(ops=factor * ops, time_s=time_s) == pytest.approx(factor * once)
    assert flops(ops=ops, time_s=factor * time_s) == pytest.approx(once / factor)
    assert once * time_s == pytest.approx(ops)


@pytest.mark.parametrize("models", range(1, 9))
def test_the_papers_scaling_experiment_meets_equation_5(models: int) -> None:
    gpus = (8, 16, 24, 32, 40, 48, 56, 64)  # V3.0 figure 5, eight GPUs a job
    assert system_scale(models=models, parallel_degree=8) == gpus[models - 1]


@pytest.mark.parametrize(("models", "degree"), [(8, 8), (4, 16), (1, 64)])
def test_the_papers_trade_off_keeps_the_scale(models: int, degree: int) -> None:
    assert system_scale(models=models, parallel_degree=degree) == 64  # V3.0 figure 7


def test_no_work_is_no_speed() -> None:
    assert flops(ops=0, time_s=1) == 0


@pytest.mark.parametrize("ops", [-1, 1.5, 2.0, float("nan"), True])
def test_an_operation_count_is_a_non_negative_integer(ops: int) -> None:
    expected = f"is {ops!r}: expected an integer of 0 or more"
    with pytest.raises(ValueError, match=f"^ops_per_sample {expected}"):
        apc(ops_per_sample=ops, batch_size=1)
    with pytest.raises(ValueError, match=f"^ops_per_sample {expected}"):
        epoch_ops(ops_per_sample=ops, samples=1)
    with pytest.raises(ValueError, match=f"^ops {expected}"):
        flops(ops=ops, time_s=1)


@pytest.mark.parametrize("count", [0, -3])
def test_batches_models_and_degrees_start_at_one(count: int) -> None:
    expected = f"is {count}: expected an integer of 1 or more"
    with pytest.raises(ValueError, match=f"^batch_size {expected}"):
        apc(ops_per_sample=1, batch_size=count)
    with pytest.raises(ValueError, match=f"^models {expected}"):
        apc(ops_per_sample=1, batch_size=1, models=count)
    with pytest.raises(ValueError, match=f"^models {expected}"):
        epoch_ops(ops_per_sample=1, samples=1, models=count)
    with pytest.raises(ValueError, match=f"^models {expected}"):
        system_scale(models=count, parallel_degree=1)
    with pytest.raises(ValueError, match=f"^parallel_degree {expected}"):
        system_scale(models=1, parallel_degree=count)


def test_an_epoch_has_no_negative_samples() -> None:
    with pytest.raises(ValueError, match=r"^samples is -1: expected an integer of 0 or more"):
        epoch_ops(ops_per_sample=1, samples=-1)


@pytest.mark.parametrize("time_s", [0, -1.0, float("nan"), float("inf")])
def test_time_is_positive_and_finite(time_s: float) -> None:
    with pytest.raises(ValueError, match=f"^time_s is {time_s!r}: expected .* greater than 0"):
        flops(ops=1, time_s=time_s)
