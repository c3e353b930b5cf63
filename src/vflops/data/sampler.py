"""The order of training samples as a pure function of seed and position; needs only numpy.

Training is one stream of samples: one permutation of all samples per epoch. A step takes the next
``batch`` positions and a rank an equal share of them. So all batches have the same size, a batch
may span two epochs, and no sample is repeated or lost, whatever the number of ranks or readers and
wherever a run is resumed.
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
    """The order of ``size`` samples over all epochs."""

    size: int
    seed: int

    def epoch(self, epoch: int) -> Indices:
        """Return the order of one epoch."""
        return _permutation(self.seed, epoch, self.size)

    def slice(self, start: int, count: int) -> Indices:
        """Return the samples at positions ``start`` to ``start + count`` of the stream."""
        parts = []
        while count > 0:
            epoch, offset = divmod(start, self.size)
            part = self.epoch(epoch)[offset : offset + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def share(self, step: int, batch: int, rank: int, ranks: int) -> tuple[int, Indices]:
        """Return the first position and the samples of a rank's share of a step."""
        count = batch // ranks
        start = step * batch + rank * count
        return start, self.slice(start, count)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> Indices:
    generator = np.random.Generator(np.random.Philox(key=[seed & _WORD, epoch]))
    order = generator.permutation(size).astype(np.int64)
    order.flags.writeable = False  # callers share it
    return order


def uniforms(seed: int, start: int, count: int, draws: int) -> NDArray[np.float32]:
    """Return ``draws`` random numbers in [0, 1) for each position of the stream: (count, draws).

    They depend on seed and position alone, not on the rank that reads a sample.
    """
    positions = np.arange(start, start + count, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        words = positions * np.uint64(draws) + np.arange(draws, dtype=np.uint64)[None, :]
        words = splitmix64(words + np.uint64(mix(seed)))
    return ((words >> np.uint64(40)).astype(np.float32)) * np.float32(2.0**-24)


def mix(*numbers: int) -> int:
    """Hash several numbers into one 64-bit number: the seed of the stream that they identify."""
    word = 0
    for number in numbers:
        word = int(splitmix64(np.asarray([(word ^ (number & _WORD)) & _WORD], dtype=np.uint64))[0])
    return word


def splitmix64(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit words, so that consecutive numbers give unrelated results."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(_GOLDEN)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))
