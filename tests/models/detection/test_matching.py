"""Matching agrees with the definition; sampling has its invariants and probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from vflops.counting.capture import InputSpec, capture
from vflops.models.detection.matching import (
    BACKGROUND,
    IGNORED,
    match,
    random_numbers,
    sample,
    select,
)


def by_definition(
    overlaps: list[list[float]], present: list[bool], low: float, high: float, rescue: bool
) -> list[int]:
    """Return the true box of each anchor of one image, one anchor at a time."""
    there = [truth for truth, is_there in enumerate(present) if is_there]
    best = [max(there, key=lambda truth: (row[truth], -truth), default=-1) for row in overlaps]
    matched = []
    for row, truth in zip(overlaps, best, strict=True):
        value = row[truth] if there else -1.0
        matched.append(BACKGROUND if value < low else IGNORED if value < high else truth)
    if rescue:
        for truth in there:
            most = max((row[truth] for row in overlaps), default=0.0)
            for anchor, row in enumerate(overlaps):
                if row[truth] == most > 0:
                    matched[anchor] = best[anchor]
    return matched


def check(overlaps: Tensor, present: Tensor, low: float, high: float, rescue: bool) -> Tensor:
    matched = match(overlaps, present, low=low, high=high, rescue=rescue)
    assert matched.dtype == torch.int64
    for image in range(len(overlaps)):
        expected = by_definition(
            overlaps[image].tolist(), present[image].tolist(), low, high, rescue
        )
        assert matched[image].tolist() == expected
    return matched


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.integers(1, 6),
    st.sampled_from([4, 8, 1 << 20]),  # few values: ties everywhere
    st.booleans(),
    st.sampled_from([(0.25, 0.75), (0.5, 0.5), (0.0, 1.0)]),
)
def test_it_is_its_definition(
    seed: int, anchors: int, truths: int, values: int, rescue: bool, limits: tuple[float, float]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    overlaps = torch.randint(0, values + 1, (3, anchors, truths), generator=generator) / values
    present = torch.rand(3, truths, generator=generator) < 0.7
    check(overlaps, present, *limits, rescue)


def test_thresholds_belong_to_the_upper_side() -> None:
    overlaps = torch.tensor([[[0.25], [0.2499], [0.75], [0.7499]]])
    present = torch.ones(1, 1, dtype=torch.bool)
    matched = check(overlaps, present, 0.25, 0.75, rescue=False)
    assert matched.tolist() == [[IGNORED, BACKGROUND, 0, IGNORED]]


def test_rescue_gives_each_truth_all_of_its_best_anchors() -> None:
    overlaps = torch.tensor([[[0.125, 0.0], [0.125, 0.0], [0.0, 0.25], [0.9, 0.5], [0.0, 0.1]]])
    overlaps[0, 3, 0] = 0.0
    present = torch.ones(1, 2, dtype=torch.bool)
    assert check(overlaps, present, 0.3, 0.7, rescue=True).tolist() == [[0, 0, -1, 1, -1]]
    assert check(overlaps, present, 0.3, 0.7, rescue=False).tolist() == [[-1, -1, -1, -2, -1]]


def test_a_rescued_anchor_goes_to_its_own_best_truth() -> None:
    # The best anchor of the second box prefers the first box, which another anchor fits better.
    overlaps = torch.tensor([[[0.4, 0.3], [0.6, 0.0]]])
    present = torch.ones(1, 2, dtype=torch.bool)
    assert check(overlaps, present, 0.5, 0.7, rescue=True).tolist() == [[0, 0]]


def test_a_truth_that_no_anchor_touches_rescues_none() -> None:
    overlaps = torch.zeros(1, 5, 2)
    assert (check(overlaps, torch.ones(1, 2, dtype=torch.bool), 0.3, 0.7, True) == -1).all()


@pytest.mark.parametrize("rescue", [True, False])
def test_without_truths_all_is_background(rescue: bool) -> None:
    overlaps = torch.rand(2, 9, 3)
    absent = torch.zeros(2, 3, dtype=torch.bool)
    assert (check(overlaps, absent, 0.3, 0.7, rescue) == BACKGROUND).all()


def flags(seed: int, count: int, shares: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Return disjoint positives and negatives, and random numbers, of three images."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.rand(3, count, generator=generator)
    positive = kind < shares[0]
    negative = (kind > 1 - shares[1]) & ~positive
    return positive, negative, torch.rand(3, count, generator=generator)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 200),
    st.integers(1, 64),
    st.sampled_from([0.25, 0.5, 0.0, 1.0]),
    st.sampled_from([(0.5, 0.5), (0.02, 0.9), (0.0, 1.0), (1.0, 0.0), (0.1, 0.1), (0.0, 0.0)]),
)
def test_numbers_are_exact_and_the_highest_lots_win(
    seed: int, count: int, number: int, fraction: float, shares: tuple[float, float]
) -> None:
    positive, negative, numbers = flags(seed, count, shares)
    numbers = (numbers * 8).floor() / 8  # ties everywhere
    hits, misses = sample(positive, negative, numbers, number=number, fraction=fraction)
    indices, is_positive, is_used = select(positive, negative, numbers, number, fraction)
    assert indices.shape == is_positive.shape == is_used.shape == (3, number)
    for image in range(3):
        wanted = []
        room = int(number * fraction)
        for group, chosen in ((positive, hits), (negative, misses)):
            ranked = sorted(
                group[image].nonzero().flatten().tolist(),
                key=lambda index: (-numbers[image, index].item(), index),
            )[:room]
            assert chosen[image].nonzero().flatten().tolist() == sorted(ranked)
            wanted.append(ranked)
            room = number - len(ranked)
        used = is_used[image]
        assert used.tolist() == [index < used.sum() for index in range(number)]
        assert not (is_positive[image] & ~used).any()
        assert indices[image, is_positive[image]].tolist() == wanted[0]
        assert indices[image, used & ~is_positive[image]].tolist() == wanted[1]
        assert not indices[image, ~used].any()


def test_too_few_positives_are_made_up_for_by_negatives() -> None:
    positive = torch.zeros(1, 1000, dtype=torch.bool)
    positive[0, [5, 700]] = True
    hits, misses = sample(positive, ~positive, torch.rand(1, 1000), number=256, fraction=0.5)
    assert torch.equal(hits, positive)
    assert misses.sum() == 254
    assert not (hits & misses).any()


def test_too_few_negatives_leave_places_unused() -> None:
    negative = torch.zeros(1, 1000, dtype=torch.bool)
    negative[0, :3] = True
    hits, misses = sample(~negative, negative, torch.rand(1, 1000), number=256, fraction=0.25)
    assert hits.sum() == 64
    assert torch.equal(misses, negative)


def test_lots_are_uniform_and_look_independent() -> None:
    numbers = random_numbers(torch.rand(64, generator=torch.Generator().manual_seed(0)), 4096, 1)
    assert numbers.dtype == torch.float32
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    counts = torch.histc(numbers, 256, 0, 1).numpy()
    assert stats.chisquare(counts).pvalue > 1e-3
    for first, second in (
        (numbers[:, :-1], numbers[:, 1:]),  # along a row
        (numbers[:-1], numbers[1:]),  # from one sample to the next
    ):
        pairs, _, _ = np.histogram2d(first.flatten().numpy(), second.flatten().numpy(), 16)
        assert stats.chisquare(pairs.flatten()).pvalue > 1e-3


def test_seeds_side_by_side_and_other_salts_give_other_numbers() -> None:
    seeds = torch.tensor([0.5, 0.5 + 2**-24, 0.0, 2**-24])
    numbers = torch.cat(
        (
            random_numbers(seeds, 500, 0),
            random_numbers(seeds, 500, 1),
            random_numbers(seeds, 500, -1),
        )
    )
    correlation = torch.corrcoef(numbers.double()) - torch.eye(12)
    assert correlation.abs().max() < 0.2  # 4.5 standard deviations


def test_lots_are_a_pure_function_of_the_samples_own_seed() -> None:
    seeds = torch.rand(8)
    together = random_numbers(seeds, 300, 7)
    assert torch.equal(together, random_numbers(seeds, 300, 7))
    assert torch.equal(together[5:6], random_numbers(seeds[5:6], 300, 7))
    assert torch.equal(together[:, :100], random_numbers(seeds, 100, 7))
    assert torch.equal(together[::2], random_numbers(seeds[::2], 300, 7))
    assert len({*random_numbers(torch.tensor([0.25]), 100_000, 7)[0].tolist()}) > 99_000


def test_lots_are_these_numbers() -> None:
    """These values are fixed: others would change every seeded run."""
    actual = random_numbers(torch.tensor([0.0, 0.75]), 3, 4) * 2**24
    assert actual.tolist() == [[4837856, 7587482, 4276421], [15354267, 9293386, 9537448]]


def test_every_candidate_has_the_same_chance() -> None:
    seeds = torch.rand(4000, generator=torch.Generator().manual_seed(3))
    positive = torch.arange(60).expand(4000, 60) < 20
    hits, misses = sample(
        positive, ~positive, random_numbers(seeds, 60, 5), number=16, fraction=0.25
    )
    assert (hits.sum(1) == 4).all()
    assert (misses.sum(1) == 12).all()
    # Draws without replacement vary less than independent ones, so the test is conservative.
    assert stats.chisquare(hits.sum(0)[:20].numpy()).pvalue > 1e-3
    assert stats.chisquare(misses.sum(0)[20:].numpy()).pvalue > 1e-3


class Chosen(nn.Module):
    def forward(self, overlaps: Tensor, seeds: Tensor) -> tuple[Tensor, ...]:
        present = torch.ones(overlaps.shape[0], overlaps.shape[2], dtype=torch.bool)
        matched = match(overlaps, present, low=0.3, high=0.7, rescue=True)
        numbers = random_numbers(seeds.squeeze(1), overlaps.shape[1], 3)
        masks = sample(matched >= 0, matched == -1, numbers, number=16, fraction=0.5)
        return (*masks, *select(matched >= 0, matched == -1, numbers, 16, 0.5), numbers)


def test_all_of_it_compiles_whole_and_counts_on_the_meta_device() -> None:
    inputs = torch.rand(3, 50, 4), torch.rand(3, 1)
    compiled = torch.compile(Chosen(), backend="aot_eager", fullgraph=True)
    for actual, other in zip(compiled(*inputs), Chosen()(*inputs), strict=True):
        assert torch.equal(actual, other)
    graph = capture(Chosen, [InputSpec((50, 4)), InputSpec((1,))], name="chosen", batch=3)
    assert [graph.values[index].shape for index in graph.outputs] == [
        *[(3, 50)] * 2,
        *[(3, 16)] * 3,
        (3, 50),
    ]
