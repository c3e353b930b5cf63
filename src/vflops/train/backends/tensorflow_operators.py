"""The operators of TensorFlow that make a classifier."""

# ruff: noqa: D102  (the protocol Operators documents them)

from __future__ import annotations

from typing import Any

import numpy as np

from vflops.workloads.contract.classifier import NORM_EPSILON, NORM_MOMENTUM, RUNNING

Values = dict[str, Any]


class TensorFlowOperators:
    """The operators of TensorFlow on images of shape (samples, height, width, channels)."""

    def __init__(self, tf: Any, values: Values, dtype: str, *, trains: bool) -> None:
        self._tf, self._values, self._dtype, self._trains = tf, values, dtype, trains
        self._wide = "float64" if dtype == "float64" else "float32"

    def conv(self, x: Any, name: str, filters: int, kernel: int, stride: int) -> Any:
        weight = self._tf.cast(self._values[f"{name}.weight"], self._dtype)
        return self._tf.nn.conv2d(x, weight, stride, _padding(kernel))

    def norm(self, x: Any, name: str) -> Any:
        scale, shift = self._values[f"{name}.weight"], self._values[f"{name}.bias"]
        running = [self._values[f"{name}.{kind}"] for kind in RUNNING]
        if not self._trains:
            mean, variance = running
            factor = scale * self._tf.math.rsqrt(variance + NORM_EPSILON)
            return self._scaled(x, factor, shift - mean * factor)
        normalise = self._norm_of_operators if self._dtype == "float64" else self._fused_norm
        y, *seen = normalise(x, scale, shift)
        for variable, new in zip(running, seen, strict=True):
            variable.assign((1 - NORM_MOMENTUM) * variable + NORM_MOMENTUM * new)
        return y

    def _fused_norm(self, x: Any, scale: Any, shift: Any) -> tuple[Any, Any, Any]:
        """Return the output, and the mean and the unbiased variance of the batch."""
        result = self._tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=shift,
            mean=self._tf.zeros([0], scale.dtype),
            variance=self._tf.zeros([0], scale.dtype),
            epsilon=NORM_EPSILON,
            is_training=True,
        )
        return result.y, result.batch_mean, result.batch_variance

    def _norm_of_operators(self, x: Any, scale: Any, shift: Any) -> tuple[Any, Any, Any]:
        """Return the same as the fused kernel, which does not exist in float64."""
        tf = self._tf
        count = int(np.prod(x.shape[:-1]))
        mean, variance = tf.nn.moments(x, axes=[0, 1, 2])
        factor = scale * tf.math.rsqrt(variance + NORM_EPSILON)
        unbiased = variance * (count / max(count - 1, 1))
        return self._scaled(x, factor, shift - mean * factor), mean, unbiased

    def _scaled(self, x: Any, factor: Any, shift: Any) -> Any:
        return self._tf.cast(self._tf.cast(x, factor.dtype) * factor + shift, self._dtype)

    def relu(self, x: Any) -> Any:
        return self._tf.nn.relu(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def max_pool(self, x: Any) -> Any:
        padded = self._tf.pad(x, _padding(3), constant_values=x.dtype.min)
        return self._tf.nn.max_pool2d(padded, 3, 2, "VALID")

    def mean(self, x: Any) -> Any:
        # Kernels of the CPU add 16-bit numbers in 16 bits.
        wide = self._tf.cast(x, self._wide)
        return self._tf.cast(self._tf.reduce_mean(wide, axis=[1, 2]), self._dtype)

    def dense(self, x: Any, name: str, outputs: int) -> Any:
        weight, bias = (
            self._tf.cast(self._values[f"{name}.{kind}"], self._dtype)
            for kind in ("weight", "bias")
        )
        return x @ weight + bias


def _padding(kernel: int) -> list[list[int]]:
    """Return the padding of images on both sides; "SAME" would pad one side more with a stride."""
    side = [kernel // 2, kernel // 2]
    return [[0, 0], side, side, [0, 0]]
