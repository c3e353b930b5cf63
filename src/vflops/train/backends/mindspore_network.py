"""The network of a classifier as a function that MindSpore compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vflops.workloads.contract.classifier import (
    NORM_EPSILON,
    NORM_MOMENTUM,
    RUNNING,
    Classifier,
)

Values = dict[str, Any]


def network_function(ms: Any, classifier: Classifier, values: Values, *, trains: bool) -> Any:
    """Return a function from images to class scores, for the compiler."""
    program = _Program(ms, values, trains=trains)
    classifier.logits(0, program)
    layers, inputs = tuple(program.layers), tuple(program.inputs)
    to_channels_first = ms.ops.Transpose()

    def network(images: Any) -> Any:
        results: tuple[Any, ...] = (to_channels_first(images, (0, 3, 1, 2)),)
        for index in range(len(layers)):
            sources = inputs[index]
            if len(sources) == 2:
                result = layers[index](results[sources[0]], results[sources[1]])
            else:
                result = layers[index](results[sources[0]])
            results = (*results, result)
        return results[-1]

    return network


class _Program:
    """Operators that note layers in order; in place of values, they pass on numbers of results.

    Result 0 is the images.
    """

    def __init__(self, ms: Any, values: Values, *, trains: bool) -> None:
        self._ms, self._values, self._trains = ms, values, trains
        self.layers: list[Callable[..., Any]] = []
        self.inputs: list[tuple[int, ...]] = []
        """Numbers of the results that each layer takes."""

    def _noted(self, layer: Callable[..., Any], *inputs: int) -> int:
        self.layers.append(layer)
        self.inputs.append(inputs)
        return len(self.layers)

    def conv(self, x: int, name: str, filters: int, kernel: int, stride: int) -> int:
        weight = self._values[f"{name}.weight"]
        convolution = self._ms.ops.Conv2D(
            filters, kernel, pad_mode="pad", pad=kernel // 2, stride=stride
        )

        def layer(x: Any) -> Any:
            return convolution(x, weight)

        return self._noted(layer, x)

    def norm(self, x: int, name: str) -> int:
        scale, shift, mean, variance = (
            self._values[f"{name}.{kind}"] for kind in ("weight", "bias", *RUNNING)
        )
        # It updates the running statistics too, by the unbiased variance.
        batch_norm = self._ms.ops.BatchNorm(self._trains, NORM_EPSILON, NORM_MOMENTUM)

        def layer(x: Any) -> Any:
            return batch_norm(x, scale, shift, mean, variance)[0]

        return self._noted(layer, x)

    def relu(self, x: int) -> int:
        return self._noted(self._ms.ops.ReLU(), x)

    def add(self, x: int, y: int) -> int:
        return self._noted(self._ms.ops.Add(), x, y)

    def max_pool(self, x: int) -> int:
        pad = self._ms.ops.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))
        maximum = self._ms.ops.MaxPool(3, 2, "valid")

        def layer(x: Any) -> Any:
            # The padding of 0 is never above the maximum: inputs come from a ReLU.
            return maximum(pad(x))

        return self._noted(layer, x)

    def mean(self, x: int) -> int:
        mean = self._ms.ops.ReduceMean()

        def layer(x: Any) -> Any:
            return mean(x, (2, 3))

        return self._noted(layer, x)

    def dense(self, x: int, name: str, outputs: int) -> int:
        weight, bias = self._values[f"{name}.weight"], self._values[f"{name}.bias"]
        product, bias_add = self._ms.ops.MatMul(transpose_b=True), self._ms.ops.BiasAdd()

        def layer(x: Any) -> Any:
            return bias_add(product(x, weight), bias)

        return self._noted(layer, x)
