"""Which samples a base model trains on, as a pure function of seed and model; numpy alone.

A bag is drawn where it is used: nothing is copied and nothing is stored. It comes from 64-bit
words and whole-number arithmetic only, so every machine and every numpy draws the same.
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
from vflops.extensions import broken, offered

ENTRY_POINTS = "vflops.bootstraps"
"""Other packages offer a ``Bootstrap`` by an entry point of this group."""

_STREAM = int.from_bytes(b"bag")
"""Keeps these words apart from the others that a run draws from its seed."""
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_LARGEST = 1 << 32
"""Samples up to which 64-bit words suffice to draw one of them exactly."""


@dataclass(frozen=True)
class Bootstrap:
    """A way to draw bags."""

    name: str
    title: str
    draw: Callable[[int, int, int], NDArray[np.integer]]
    """(seed, model, size) → how often each of ``size`` samples is in the bag of base ``model``."""
    origin: str = "vflops"


def counts(method: str, seed: int, model: int, size: int) -> Indices:
    """How often each of ``size`` samples is in the bag of base model number ``model``."""
    if model < 0:
        raise UsageError(f"base model {model} does not exist", hint="models count from 0")
    if not 1 <= size < _LARGEST:
        raise UsageError(
            f"a bag cannot be drawn from {size} samples", hint="give 1 to 4,294,967,295 samples"
        )
    chosen = bootstrap(method)
    return _checked(chosen, chosen.draw(seed, model, size), size)


def bag(method: str, seed: int, model: int, size: int) -> Indices:
    """The samples in the bag, in order, each as often as it was drawn; never none."""
    return np.repeat(np.arange(size, dtype=np.int64), counts(method, seed, model, size))


def out_of_bag(method: str, seed: int, model: int, size: int) -> Indices:
    """The samples that the base model never sees; of very few samples there may be none."""
    return np.flatnonzero(counts(method, seed, model, size) == 0).astype(np.int64)


def _checked(chosen: Bootstrap, drawn: NDArray[np.integer], size: int) -> Indices:
    """``drawn`` if it can be counts; other packages draw them too."""
    found = np.asarray(drawn)
    if not np.issubdtype(found.dtype, np.integer):
        wrong = f"gave {found.dtype} instead of whole numbers"
    elif found.shape != (size,):
        wrong = f"gave counts of shape {found.shape} for {size} samples"
    elif (found := found.astype(np.int64, copy=False)).min() < 0:  # also what int64 cannot hold
        wrong = f"gave the count {found.min()} for sample {found.argmin()}"
    elif not found.any():
        wrong = f"left all {size} samples out"
    else:
        return found
    raise UsageError(
        f"bootstrap {chosen.name!r} of {chosen.origin} {wrong}",
        hint=f"mend {chosen.origin}, or choose another bootstrap",
    )


def _words(seed: int, count: int) -> NDArray[np.uint64]:
    """The first ``count`` words of the SplitMix64 generator that starts at ``seed``."""
    with np.errstate(over="ignore"):
        return splitmix64(np.arange(count, dtype=np.uint64) * _GAMMA + np.uint64(seed))


@cache
def _poisson_steps() -> NDArray[np.uint64]:
    """Where the distribution function of Poisson(1) passes from k to k + 1, in units of 2⁻⁶⁴.

    In exact fractions, because no two C libraries promise the same ``exp``.
    """
    one_over_e = sum(Fraction((-1) ** n, factorial(n)) for n in range(40))
    shares = accumulate(one_over_e / factorial(k) for k in range(21))  # 2⁻⁶⁴ sees no further
    steps = np.array([int(share * 2**64) for share in shares], dtype=np.uint64)
    steps.flags.writeable = False  # it is shared
    return steps


def _poisson(seed: int, model: int, size: int) -> Indices:
    for attempt in count():  # of few samples all may be left out: such a draw is repeated
        words = _words(mix(seed, _STREAM, model, attempt), size)
        drawn = np.searchsorted(_poisson_steps(), words, side="right")
        if drawn.any():
            break
    return drawn


def _multinomial(seed: int, model: int, size: int) -> Indices:
    words = _words(mix(seed, _STREAM, model, 0), size)
    # floor(word × size / 2⁶⁴), in halves so that no product passes 64 bits: a place's chance
    # differs from 1 / size by less than 2⁻⁶⁴.
    half, factor = np.uint64(32), np.uint64(size)
    low = ((words & np.uint64(_LARGEST - 1)) * factor) >> half
    places = ((words >> half) * factor + low) >> half
    return np.bincount(places.astype(np.int64), minlength=size)


def _none(seed: int, model: int, size: int) -> Indices:
    return np.ones(size, dtype=np.int64)


BUILT_IN = (
    Bootstrap("poisson", "each sample Poisson(1) times", _poisson),
    Bootstrap("multinomial", "as many draws with replacement as samples", _multinomial),
    Bootstrap("none", "every sample once, for comparison", _none),
)


@cache
def bootstraps() -> Mapping[str, Bootstrap]:
    """All ways to draw bags by name, built in and installed by others."""
    own = {each.name: each for each in BUILT_IN}
    return {**own, **offered(ENTRY_POINTS), **own}  # first in order, and never replaced


def bootstrap(name: str) -> Bootstrap:
    """The way to draw bags that is called ``name``."""
    if name not in bootstraps():
        if name in (cannot := broken(ENTRY_POINTS)):
            raise cannot[name]
        raise unknown_name("bootstrap", name, bootstraps())
    return bootstraps()[name]
