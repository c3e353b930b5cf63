"""The bag of a base model: the samples it trains on, as a pure function of seed and model.

A bag is drawn wherever it is needed, and is never copied or stored. It is computed from 64-bit
integers with integer arithmetic only, so every machine and every version of numpy draws the same
bag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate, count
from math import factorial

import numpy as np
from numpy.typing import NDArray

from vflops.data.sampler import Indices, mix, splitmix64
from vflops.errors import UsageError, unknown_name
from vflops.extensions import extension_errors, load_extensions

ENTRY_POINTS = "vflops.bootstraps"
"""Entry point group through which other packages provide a ``Bootstrap``."""

_STREAM = int.from_bytes(b"bag")
"""Makes these random numbers independent of others from the same seed."""
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_SIZE_LIMIT = 1 << 32
"""Samples must be fewer than this, so that 64-bit products do not overflow."""


@dataclass(frozen=True)
class Bootstrap:
    """A method of drawing bags."""

    name: str
    title: str
    draw: Callable[[int, int, int], NDArray[np.integer]]
    """(seed, model, size) → how often each of ``size`` samples is in the bag of ``model``."""
    origin: str = "vflops"


def counts(method: str, seed: int, model: int, size: int) -> Indices:
    """Return how often each of ``size`` samples is in the bag of base model ``model``."""
    if model < 0:
        raise UsageError(f"base model {model} does not exist", hint="models count from 0")
    if not 1 <= size < _SIZE_LIMIT:
        raise UsageError(
            f"a bag cannot be drawn from {size} samples", hint="give 1 to 4,294,967,295 samples"
        )
    chosen = bootstrap(method)
    return _checked(chosen, chosen.draw(seed, model, size), size)


def bag(method: str, seed: int, model: int, size: int) -> Indices:
    """Return the indices of the samples in the bag in order, each as often as it was drawn."""
    return np.repeat(np.arange(size, dtype=np.int64), counts(method, seed, model, size))


def out_of_bag(method: str, seed: int, model: int, size: int) -> Indices:
    """Return the indices of the samples that are not in the bag; there may be none."""
    return np.flatnonzero(counts(method, seed, model, size) == 0).astype(np.int64)


def _checked(chosen: Bootstrap, drawn: NDArray[np.integer], size: int) -> Indices:
    """Return ``drawn`` as int64 counts; raise if they are invalid, as another package's may be."""
    result = np.asarray(drawn)
    if not np.issubdtype(result.dtype, np.integer):
        fault = f"returned {result.dtype} instead of integers"
    elif result.shape != (size,):
        fault = f"returned counts of shape {result.shape} for {size} samples"
    elif (result := result.astype(np.int64, copy=False)).min() < 0:  # also if int64 overflows
        fault = f"returned the count {result.min()} for sample {result.argmin()}"
    elif not result.any():
        fault = f"left out all {size} samples"
    else:
        return result
    raise UsageError(
        f"bootstrap {chosen.name!r} of {chosen.origin} {fault}",
        hint=f"fix {chosen.origin}, or choose another bootstrap",
    )


def _random_words(seed: int, count: int) -> NDArray[np.uint64]:
    """Return the first ``count`` numbers of the SplitMix64 generator seeded with ``seed``."""
    with np.errstate(over="ignore"):
        return splitmix64(np.arange(count, dtype=np.uint64) * _GAMMA + np.uint64(seed))


@cache
def _poisson_cumulative() -> NDArray[np.uint64]:
    """Return the cumulative probabilities of Poisson(1), in units of 2⁻⁶⁴.

    They are computed with exact fractions, because C libraries differ in the last digit of ``exp``.
    """
    one_over_e = sum(Fraction((-1) ** n, factorial(n)) for n in range(40))
    shares = accumulate(one_over_e / factorial(k) for k in range(21))  # the rest is below 2⁻⁶⁴
    cumulative = np.array([int(share * 2**64) for share in shares], dtype=np.uint64)
    cumulative.flags.writeable = False  # the array is cached and shared
    return cumulative


def _poisson(seed: int, model: int, size: int) -> Indices:
    for attempt in count():  # until a sample is in the bag
        words = _random_words(mix(seed, _STREAM, model, attempt), size)
        drawn = np.searchsorted(_poisson_cumulative(), words, side="right")
        if drawn.any():
            break
    return drawn


def _multinomial(seed: int, model: int, size: int) -> Indices:
    words = _random_words(mix(seed, _STREAM, model, 0), size)
    # floor(word × size / 2⁶⁴), in halves so that no product exceeds 64 bits: the probability of a
    # sample differs from 1 / size by less than 2⁻⁶⁴.
    half, factor = np.uint64(32), np.uint64(size)
    low = ((words & np.uint64((1 << 32) - 1)) * factor) >> half
    samples = ((words >> half) * factor + low) >> half
    return np.bincount(samples.astype(np.int64), minlength=size)


def _none(seed: int, model: int, size: int) -> Indices:
    return np.ones(size, dtype=np.int64)


BUILT_IN = (
    Bootstrap("poisson", "each sample Poisson(1) times", _poisson),
    Bootstrap("multinomial", "as many draws with replacement as samples", _multinomial),
    Bootstrap("none", "every sample once, for comparison", _none),
)


@cache
def bootstraps() -> Mapping[str, Bootstrap]:
    """Return all bootstraps by name, both built-in and installed ones."""
    built_in = {method.name: method for method in BUILT_IN}
    return {
        **built_in,
        **load_extensions(ENTRY_POINTS),
        **built_in,
    }  # built-in ones cannot be replaced


def bootstrap(name: str) -> Bootstrap:
    """Return the bootstrap called ``name``."""
    if name not in bootstraps():
        if name in (errors := extension_errors(ENTRY_POINTS)):
            raise errors[name]
        raise unknown_name("bootstrap", name, bootstraps())
    return bootstraps()[name]
