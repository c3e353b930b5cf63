"""Which sample stands at which place of training, as a pure function; numpy alone.

Training is one stream of samples: epoch after epoch, each a permutation of all of them. A step
takes the next ``batch`` places, a rank its equal share of those. So batches all have the same size,
one may hold the end of an epoch and the start of the next, and nothing is repeated or lost,
whatever the number of ranks or of readers and wherever a run is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Sampler:
    """The order of ``size`` samples over the epochs."""

    size: int
    seed: int

    def epoch(self, epoch: int) -> Indices:
        """The order of one epoch."""
        return _permutation(self.seed, epoch, self.size)

    def at(self, start: int, count: int) -> Indices:
        """The samples at places ``start`` to ``start + count`` of the stream."""
        parts = []
        while count > 0:
            epoch, place = divmod(start, self.size)
            part = self.epoch(epoch)[place : place + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def share(self, step: int, batch: int, rank: int, ranks: int) -> tuple[int, Indices]:
        """First place and samples of a rank's share of a step."""
        each = batch // ranks
        start = step * batch + rank * each
        return start, self.at(start, each)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> Indices:
    generator = np.random.Generator(np.random.Philox(key=[seed & _WORD, epoch]))
    order = generator.permutation(size).astype(np.int64)
    order.flags.writeable = False  # it is shared
    return order


def uniforms(seed: int, start: int, count: int, draws: int) -> NDArray[np.float32]:
    """Random numbers in [0, 1) for each place of the stream: (count, draws), a pure function.

    Randomness is data: whichever rank handles a place, it gets the same numbers.
    """
    places = np.arange(start, start + count, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        words = places * np.uint64(draws) + np.arange(draws, dtype=np.uint64)[None, :]
        words = mixed(words + np.uint64(mix(seed)))
    return ((words >> np.uint64(40)).astype(np.float32)) * np.float32(2.0**-24)


def mix(*numbers: int) -> int:
    """One well-mixed 64-bit number of several: the seed of a stream that they name."""
    word = 0
    for number in numbers:
        word = int(mixed(np.asarray([(word ^ (number & _WORD)) & _WORD], dtype=np.uint64))[0])
    return word


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64: neighbouring words come out unrelated."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(_GOLDEN)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))
