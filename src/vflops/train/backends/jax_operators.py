"""The operators of JAX that make a classifier."""

# ruff: noqa: D102  (the protocol Operators documents them)

from __future__ import annotations

from typing import Any

import numpy as np

from vflops.workloads.contract.classifier import NORM_EPSILON, NORM_MOMENTUM, RUNNING

Values = dict[str, Any]


class JaxOperators:
    """The operators of JAX on images of shape (samples, height, width, channels)."""

    def __init__(
        self, jax: Any, weights: Values, running: Values, dtype: str, *, trains: bool
    ) -> None:
        self._jax, self._weights, self._before = jax, weights, running
        self._dtype, self._trains = dtype, trains
        self.running: Values = {}
        """The running statistics after the batch."""

    def conv(self, x: Any, name: str, filters: int, kernel: int, stride: int) -> Any:
        return self._jax.lax.conv_general_dilated(
            x,
            self._weights[f"{name}.weight"].astype(self._dtype),
            window_strides=(stride, stride),
            padding=[(kernel // 2, kernel // 2)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def norm(self, x: Any, name: str) -> Any:
        jnp = self._jax.numpy
        scale, shift = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        mean, variance = (self._before[f"{name}.{kind}"] for kind in RUNNING)
        if self._trains:
            wide = x.astype(scale.dtype)
            count = x.size // x.shape[-1]
            before = (mean, variance)
            mean = wide.mean(axis=(0, 1, 2))
            variance = jnp.square(wide - mean).mean(axis=(0, 1, 2))
            if self._dtype == "bfloat16":  # one pass over the batch; x is rounded anyway
                variance = jnp.square(wide).mean(axis=(0, 1, 2)) - jnp.square(mean)
                variance = jnp.maximum(variance, 0)
            seen = (mean, variance * (count / max(count - 1, 1)))
            for kind, old, new in zip(RUNNING, before, seen, strict=True):
                self.running[f"{name}.{kind}"] = self._jax.lax.stop_gradient(
                    (1 - NORM_MOMENTUM) * old + NORM_MOMENTUM * new
                )
        factor = scale * self._jax.lax.rsqrt(variance + NORM_EPSILON)
        return (x.astype(scale.dtype) * factor + (shift - mean * factor)).astype(self._dtype)

    def relu(self, x: Any) -> Any:
        return self._jax.nn.relu(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def max_pool(self, x: Any) -> Any:
        lowest = np.array(-np.inf, x.dtype)
        padding = [(0, 0), (1, 1), (1, 1), (0, 0)]
        maximum = self._jax.lax.max
        return self._jax.lax.reduce_window(x, lowest, maximum, (1, 3, 3, 1), (1, 2, 2, 1), padding)

    def mean(self, x: Any) -> Any:
        return x.mean(axis=(1, 2))

    def dense(self, x: Any, name: str, outputs: int) -> Any:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return x @ weight.astype(self._dtype) + bias.astype(self._dtype)
