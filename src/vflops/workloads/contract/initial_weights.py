"""The initial weights of a classifier, the same for every framework (numpy alone).

Convolutions have He's normal distribution by their outputs (He et al. 2015, as in AIPerf's table
IV), the linear layer the uniform distribution that is PyTorch's default. Each array has a random
stream of its own, named by the seed and the array: it does not depend on the other layers.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from vflops.workloads.contract.classifier import COUNTER, RUNNING, Arrays, Classifier

_STREAM_BYTES = 16
"""The size of a key of the generator."""


def initial_weights(classifier: Classifier, seed: int) -> Arrays:
    """Return parameters, running statistics and counters before the first step, by name."""
    layers = _Layers(seed)
    classifier.logits(classifier.channels, layers)
    return layers.arrays


class _Layers:
    """Operators that draw the arrays of layers; in place of values, they pass on channels."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.arrays: Arrays = {}

    def conv(self, x: int, name: str, filters: int, kernel: int, stride: int) -> int:
        scale = math.sqrt(2 / (filters * kernel**2))
        shape = (filters, x, kernel, kernel)
        self._set(f"{name}.weight", scale * self._stream(f"{name}.weight").standard_normal(shape))
        return filters

    def norm(self, x: int, name: str) -> int:
        mean, variance = RUNNING
        for kind, value in (("weight", 1), ("bias", 0), (mean, 0), (variance, 1)):
            self._set(f"{name}.{kind}", np.full(x, value))
        self.arrays[f"{name}.{COUNTER}"] = np.array(0, dtype=np.int64)
        return x

    def relu(self, x: int) -> int:
        return x

    def add(self, x: int, y: int) -> int:
        return x

    def max_pool(self, x: int) -> int:
        return x

    def mean(self, x: int) -> int:
        return x

    def dense(self, x: int, name: str, outputs: int) -> int:
        limit = 1 / math.sqrt(x)
        for kind, shape in (("weight", (outputs, x)), ("bias", (outputs,))):
            array = f"{name}.{kind}"
            self._set(array, self._stream(array).uniform(-limit, limit, shape))
        return outputs

    def _set(self, name: str, values: NDArray[np.generic]) -> None:
        self.arrays[name] = values.astype(np.float32)

    def _stream(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed} {name}".encode()).digest()
        key = int.from_bytes(digest[:_STREAM_BYTES], "little")
        return np.random.Generator(np.random.Philox(key=key))
