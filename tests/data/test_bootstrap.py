"""Bags: drawn as the distribution says, apart from each other, and the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vflops.data.bootstrap import (
    _poisson_cumulative,
    _random_words,
    bag,
    bootstrap,
    bootstraps,
    counts,
    out_of_bag,
)
from vflops.data.sampler import mix
from vflops.errors import UsageError

DRAWN = ("poisson", "multinomial")
METHODS = (*DRAWN, "none")
SIZE, SEED = 200_000, 11
FAR = 4.5
"""Standard deviations that chance passes once in 150,000 times."""

# Frozen: changing these would change the bags of every published run.
GOLDEN_POISSON = [0, 2, 2, 3, 0, 2, 2, 1, 2, 1, 2, 1]
GOLDEN_MULTINOMIAL = [0, 1, 0, 1, 0, 0, 0, 2, 1, 2, 4, 1]
GOLDEN_BAG = [1, 5, 6, 8, 8, 11]
GOLDEN_DIGESTS = ["8ea93df2bf540653", "153fe019f713b872"]


def test_the_words_are_those_of_the_published_generator() -> None:
    # The published reference values of SplitMix64 from 1234567.
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    assert tuple(_random_words(1234567, 3).tolist()) == published


def test_the_steps_are_the_distribution_function_of_poisson() -> None:
    expected = stats.poisson.cdf(np.arange(len(_poisson_cumulative())), 1)
    assert _poisson_cumulative().astype(np.float64) / 2**64 == pytest.approx(expected, rel=1e-15)
    assert 2**64 * stats.poisson.sf(len(_poisson_cumulative()) - 1, 1) < 1


def test_two_machines_agree() -> None:
    assert counts("poisson", 7, 0, 12).tolist() == GOLDEN_POISSON
    assert counts("multinomial", 7, 0, 12).tolist() == GOLDEN_MULTINOMIAL
    assert bag("poisson", 7, 3, 12).tolist() == GOLDEN_BAG
    digests = [_digest(method, -5, 513, 100_003) for method in DRAWN]
    assert digests == GOLDEN_DIGESTS


def _digest(method: str, seed: int, model: int, size: int) -> str:
    return sha256(counts(method, seed, model, size).astype("<i8").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("method", DRAWN)
@pytest.mark.parametrize("model", range(8))
def test_63_percent_of_the_samples_appear(method: str, model: int) -> None:
    appear = 1 - exp(-1)
    seen = np.count_nonzero(counts(method, SEED, model, SIZE))
    # Draws with replacement spread less than the binomial, so its bound holds for both.
    assert abs(seen - SIZE * appear) < FAR * sqrt(SIZE * appear * (1 - appear))


@pytest.mark.parametrize("method", DRAWN)
def test_counts_follow_poisson(method: str) -> None:
    most = 7
    result = counts(method, SEED, 0, SIZE)
    seen = np.bincount(np.minimum(result, most), minlength=most + 1)
    expected = stats.poisson.pmf(np.arange(most), 1)
    expected = np.append(expected, 1 - expected.sum()) * SIZE
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_a_multinomial_bag_has_the_size_of_the_data_and_no_favourites() -> None:
    bags = np.array([counts("multinomial", SEED, model, 997) for model in range(400)])
    assert (bags.sum(axis=1) == 997).all()
    assert stats.chisquare(bags.sum(axis=0)).pvalue > 1e-3


def test_a_multinomial_draw_is_the_exact_product_of_its_word() -> None:
    size = 1_000_003  # large enough that the lower halves of the words matter
    words = _random_words(mix(7, int.from_bytes(b"bag"), 2, 0), size).tolist()
    exact = np.bincount([(word * size) >> 64 for word in words], minlength=size)
    assert np.array_equal(counts("multinomial", 7, 2, size), exact)


def test_every_outcome_of_a_small_bag_is_as_likely_as_it_should_be() -> None:
    # Three draws from three samples: multinomial chances, known exactly.
    drawn = [tuple(counts("multinomial", SEED, model, 3).tolist()) for model in range(6000)]
    outcomes = sorted(set(drawn))
    expected = [6000 * stats.multinomial.pmf(item, 3, [1 / 3] * 3) for item in outcomes]
    assert len(outcomes) == 10
    assert stats.chisquare([drawn.count(item) for item in outcomes], expected).pvalue > 1e-3


@pytest.mark.parametrize("method", DRAWN)
@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2), (0, 256), (511, 512)])
def test_models_are_independent(method: str, first: int, second: int) -> None:
    _assert_unrelated(counts(method, SEED, first, SIZE), counts(method, SEED, second, SIZE))


@pytest.mark.parametrize("method", DRAWN)
def test_seeds_and_neighbouring_samples_are_independent(method: str) -> None:
    result = counts(method, SEED, 0, SIZE)
    _assert_unrelated(result, counts(method, SEED + 1, 0, SIZE))
    _assert_unrelated(result[:-1], result[1:])


def _assert_unrelated(one: np.ndarray, other: np.ndarray) -> None:
    assert abs(np.corrcoef(one, other)[0, 1]) < FAR / sqrt(len(one))
    joint = np.histogram2d(np.minimum(one, 4), np.minimum(other, 4), bins=np.arange(6))[0]
    assert stats.chi2_contingency(joint).pvalue > 1e-3


@pytest.mark.parametrize("method", DRAWN)
def test_many_models_are_spread_as_chance_spreads_them(method: str) -> None:
    # Over 2,000 models the count of a sample has mean 1 and variance 1, whichever sample it is.
    bags = np.array([counts(method, SEED, model, 200) for model in range(2000)])
    assert abs(bags.mean(axis=0) - 1).max() < FAR / sqrt(2000)
    assert bags.var() == pytest.approx(1, abs=0.02)


@given(
    method=st.sampled_from(METHODS),
    seed=st.integers(-(2**63), 2**64),
    model=st.integers(0, 5000),
    size=st.integers(1, 40),
)
def test_bag_and_out_of_bag_cover_everything_once(
    method: str, seed: int, model: int, size: int
) -> None:
    inside, outside = bag(method, seed, model, size), out_of_bag(method, seed, model, size)
    assert len(inside) > 0
    assert sorted({*inside.tolist(), *outside.tolist()}) == list(range(size))
    assert not {*inside.tolist()} & {*outside.tolist()}
    result = counts(method, seed, model, size)
    assert np.array_equal(np.bincount(inside, minlength=size), result)
    assert result.dtype == inside.dtype == outside.dtype == np.int64


def test_of_two_samples_no_bag_is_empty_and_the_others_stay_as_likely() -> None:
    bags = [tuple(counts("poisson", SEED, model, 2).tolist()) for model in range(4000)]
    assert (0, 0) not in bags
    share = exp(-2) / (1 - exp(-2))  # of (0, 1), given that it is not (0, 0)
    assert abs(bags.count((0, 1)) - 4000 * share) < FAR * sqrt(4000 * share * (1 - share))


def test_none_is_every_sample_once() -> None:
    assert bag("none", 1, 2, 5).tolist() == [0, 1, 2, 3, 4]
    assert out_of_bag("none", 1, 2, 5).tolist() == []


def test_an_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        counts("posson", 1, 0, 10)
    assert caught.value.message == "unknown bootstrap 'posson'"
    assert caught.value.hint == "did you mean poisson?"


@pytest.mark.parametrize(
    ("model", "size", "message"),
    [
        (-1, 10, "base model -1 does not exist"),
        (0, 0, "a bag cannot be drawn from 0 samples"),
        (0, 1 << 32, "a bag cannot be drawn from 4294967296 samples"),
    ],
)
def test_what_cannot_be_drawn_is_refused(model: int, size: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        counts("poisson", 1, model, size)
    assert caught.value.message == message


PLUG_IN = """
import numpy as np
from vflops.data.bootstrap import Bootstrap

def half(seed, model, size):
    found = np.zeros(size, dtype=np.uint8)
    found[model % 2 :: 2] = 1
    return found

HALF = Bootstrap("half", "every second sample", half)
OWN = Bootstrap("poisson", "not the real one", half)
FLOATS = Bootstrap("floats", "", lambda seed, model, size: np.ones(size))
SHORT = Bootstrap("short", "", lambda seed, model, size: [1] * (size - 1))
NEGATIVE = Bootstrap("negative", "", lambda seed, model, size: [1, -2] + [0] * (size - 2))
EMPTY = Bootstrap("empty", "", lambda seed, model, size: np.zeros(size, dtype=int))
"""
NAMES = {"half": "HALF", "poisson": "OWN", "lost": "MISSING"} | {
    name: name.upper() for name in ("floats", "short", "negative", "empty")
}


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that offers bootstraps, as pip would have installed it."""
    (tmp_path / "other_bags.py").write_text(PLUG_IN)
    metadata = tmp_path / "other_bags-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-bags\nVersion: 1\n")
    lines = [f"{name} = other_bags:{target}" for name, target in NAMES.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[vflops.bootstraps]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)
    bootstraps.cache_clear()
    yield
    bootstraps.cache_clear()


@pytest.mark.usefixtures("plug_in")
def test_another_packages_bootstrap_draws_and_says_where_it_is_from() -> None:
    assert bag("half", 1, 1, 6).tolist() == [1, 3, 5]
    assert out_of_bag("half", 1, 1, 6).tolist() == [0, 2, 4]
    assert bootstrap("half").origin == "other-bags"
    assert bootstrap("poisson").origin == "vflops"


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("floats", "returned float64 instead of integers"),
        ("short", "returned counts of shape (5,) for 6 samples"),
        ("negative", "returned the count -2 for sample 1"),
        ("empty", "left out all 6 samples"),
    ],
)
def test_another_packages_wrong_counts_are_refused(method: str, wrong: str) -> None:
    with pytest.raises(UsageError) as caught:
        counts(method, 1, 0, 6)
    assert caught.value.message == f"bootstrap {method!r} of other-bags {wrong}"


@pytest.mark.usefixtures("plug_in")
def test_another_packages_bootstrap_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(UsageError, match=r"'lost' from other-bags cannot be loaded"):
        counts("lost", 1, 0, 6)
