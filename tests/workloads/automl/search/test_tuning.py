"""Tuning: repeatable without a database, and better than chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean

import pytest

from vflops.errors import UsageError
from vflops.workloads.automl.search.tuning import Setting, Space, TuningResult, suggest

SPACE = Space(tuple(range(8, 264, 8)), tuple(range(1, 17, 2)))
Choice = Callable[[list[TuningResult]], Setting]


def accuracy(setting: Setting) -> float:
    """Best, 0.9, at a batch of 160 and a kernel of 11."""
    return 0.9 - ((setting.batch - 160) / 256) ** 2 - ((setting.kernel - 11) / 16) ** 2


def tuned(choose: Choice, budget: int) -> list[TuningResult]:
    tried: list[TuningResult] = []
    for _ in range(budget):
        setting = choose(tried)
        tried.append(TuningResult(setting, accuracy(setting)))
    return tried


def chance(seed: int) -> Choice:
    rng = random.Random(seed)
    return lambda tried: Setting(rng.choice(SPACE.batches), rng.choice(SPACE.kernels))


def best(tried: list[TuningResult]) -> float:
    return max(record.accuracy or 0.0 for record in tried)


def test_it_beats_chance_with_the_same_budget() -> None:
    tpe = [best(tuned(lambda tried, s=seed: suggest(SPACE, tried, s), 20)) for seed in range(6)]  # type: ignore[misc]
    random_ = [best(tuned(chance(seed), 20)) for seed in range(200)]
    assert 0.9 - mean(tpe) < (0.9 - mean(random_)) / 2


def test_it_maximises() -> None:
    # Half of the records are good and small, half bad and large: the next ones are small.
    tried = [TuningResult(Setting(16 + 8 * (i % 3), 3), 0.8) for i in range(15)]
    tried += [TuningResult(Setting(240 + 8 * (i % 3), 13), 0.1) for i in range(15)]
    suggested = [suggest(SPACE, tried, seed) for seed in range(12)]
    assert mean(setting.batch for setting in suggested) < 100
    assert mean(setting.kernel for setting in suggested) < 8
    worse = [TuningResult(record.setting, 0.9 - (record.accuracy or 0.0)) for record in tried]
    suggested = [suggest(SPACE, worse, seed) for seed in range(12)]
    assert mean(setting.batch for setting in suggested) > 160


def test_the_same_records_and_seed_give_the_same_suggestion() -> None:
    tried = tuned(chance(1), 9)
    assert suggest(SPACE, tried, 4) == suggest(SPACE, list(tried), 4)
    assert len({suggest(SPACE, tried, seed) for seed in range(6)}) > 1
    assert len({suggest(SPACE, tried[:count], 4) for count in range(5)}) > 3  # random, not equal


def test_no_record_is_needed_and_strangers_are_left_out() -> None:
    assert suggest(SPACE, [], 1) in SPACE
    strangers = [TuningResult(Setting(7, 3), 0.9), TuningResult(Setting(8, 4), 0.9)]
    assert suggest(SPACE, strangers, 1) in SPACE


def test_a_space_of_one_point() -> None:
    assert suggest(Space((32,), (3,)), [TuningResult(Setting(32, 3), 0.5)], 1) == Setting(32, 3)


@pytest.mark.parametrize(("batches", "kernels"), [((), (3,)), ((8, 8), (3,)), ((8,), (5, 3))])
def test_a_space_that_is_none_is_refused(
    batches: tuple[int, ...], kernels: tuple[int, ...]
) -> None:
    with pytest.raises(UsageError, match="sizes to tune over"):
        Space(batches, kernels)
    with pytest.raises(UsageError, match="sizes to tune over"):
        Space((0, 8), (3,))


def test_an_accuracy_must_be_a_number() -> None:
    with pytest.raises(ValueError, match="nan"):
        suggest(SPACE, [TuningResult(Setting(8, 3), float("nan"))], 1)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    suggest(SPACE, tuned(chance(1), 6), 1)
    assert capfd.readouterr() == ("", "")


def test_it_avoids_settings_that_ran_out_of_memory() -> None:
    """They count as worse than the worst that was trained, although nothing is known of them."""
    tried = [TuningResult(Setting(16 + 8 * (i % 3), 3), 0.5) for i in range(10)]
    tried += [TuningResult(Setting(240 + 8 * (i % 3), 3), None) for i in range(10)]
    suggested = [suggest(SPACE, tried, seed) for seed in range(12)]
    assert mean(setting.batch for setting in suggested) < 128
