"""The order of samples is a pure function that loses and repeats none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vflops.data.sampler import Sampler, mix, uniforms

sizes = st.integers(1, 200)
seeds = st.integers(0, 2**63 - 1)


@given(size=sizes, seed=seeds, epoch=st.integers(0, 5))
def test_every_epoch_holds_every_sample_once(size: int, seed: int, epoch: int) -> None:
    order = Sampler(size, seed).epoch(epoch)
    assert sorted(order) == list(range(size))


@given(size=sizes, seed=seeds, ranks=st.sampled_from([1, 2, 3, 4]), share=st.integers(1, 20))
def test_any_number_of_ranks_reads_the_same_stream(
    size: int, seed: int, ranks: int, share: int
) -> None:
    sampler, batch = Sampler(size, seed), ranks * share
    shares = [
        sampler.share(step, batch, rank, ranks)[1] for step in range(5) for rank in range(ranks)
    ]
    assert np.array_equal(np.concatenate(shares), sampler.slice(0, 5 * batch))


@given(size=sizes, seed=seeds, start=st.integers(0, 500), count=st.integers(0, 300))
def test_resuming_anywhere_repeats_and_loses_nothing(
    size: int, seed: int, start: int, count: int
) -> None:
    sampler = Sampler(size, seed)
    whole = sampler.slice(0, start + count)
    assert np.array_equal(whole[start:], Sampler(size, seed).slice(start, count))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first = Sampler(1000, 1)
    assert not np.array_equal(first.epoch(0), first.epoch(1))
    assert not np.array_equal(first.epoch(0), Sampler(1000, 2).epoch(0))


def test_random_numbers_belong_to_places_and_not_to_ranks() -> None:
    whole = uniforms(7, 0, 100, 5)
    assert np.array_equal(whole[40:60], uniforms(7, 40, 20, 5))
    assert not np.array_equal(whole, uniforms(8, 0, 100, 5))
    assert whole.min() >= 0 and whole.max() < 1


def test_random_numbers_are_uniform_and_unrelated() -> None:
    numbers = uniforms(mix(3, 1), 0, 20_000, 4).astype(np.float64)
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    correlation = np.corrcoef(numbers.T)
    assert np.abs(correlation - np.eye(4)).max() < 0.03
    neighbours = np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]
    assert abs(neighbours) < 0.03


def test_mixed_seeds_depend_on_every_number_and_their_order() -> None:
    actual = {mix(1), mix(2), mix(1, 2), mix(2, 1), mix(1, 2, 3), mix(0, 1)}
    assert len(actual) == 6
