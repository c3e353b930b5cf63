"""TensorFlow: one ``tf.function`` takes a step; XLA compiles it on accelerators."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.train.backends.array_backend import (
    ArrayBackend,
    NamedState,
    Recipe,
    without_counters,
    zero_momentum,
)
from vflops.train.backends.channels_last import from_torch_layout, to_torch_layout
from vflops.workloads.contract.classifier import (
    NORM_EPSILON,
    NORM_MOMENTUM,
    RUNNING,
    Arrays,
    Classifier,
    is_decayed,
    parameter_names,
)

Values = dict[str, Any]
_DTYPES = {
    "fp64": ("float64", "float64"),
    "fp32": ("float32", "float32"),
    "mixed-bf16": ("float32", "bfloat16"),
}
"""The types of weights and of operands, by precision."""


class TensorFlowBackend(ArrayBackend):
    """A classifier in TensorFlow, of plain operators without Keras."""

    framework = "tensorflow"

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        super().__init__(classifier, recipe, weights)
        tf = _configured(recipe)
        self.version = tf.__version__
        self.compiled = self.on_accelerator
        self._tf = tf
        self._weight_dtype, self._operand_dtype = _DTYPES[recipe.precision]
        arrays = without_counters(weights)
        momentum = zero_momentum(weights)
        self._trained = parameter_names(arrays)
        self._decayed = {name for name in self._trained if is_decayed(name, arrays[name])}
        self._values = {name: self._variable(array) for name, array in arrays.items()}
        self._momentum = {name: self._variable(array) for name, array in momentum.items()}
        # On a CPU, XLA has no fast convolutions; the kernels of oneDNN do.
        self._take_step = tf.function(self._step, jit_compile=self.on_accelerator)
        self._predict = tf.function(self._probabilities, jit_compile=self.on_accelerator)

    def batch(self, tensor: Tensor) -> Any:
        """Return a tensor of TensorFlow, without a copy on an accelerator."""
        if tensor.device.type == "cpu":
            return self._tf.convert_to_tensor(tensor.numpy())
        # TensorFlow computes on a stream of its own.
        torch.accelerator.current_stream(tensor.device).synchronize()
        return self._tf.experimental.dlpack.from_dlpack(tensor.detach().__dlpack__())

    def step(self, parts: Sequence[tuple[Any, Any]], learning_rate: float) -> Any:
        """Update the weights."""
        # A number in place of a tensor would be a constant of the function, traced anew for each.
        rate = self._tf.constant(learning_rate, self._weight_dtype)
        return self._take_step(tuple(parts), rate)

    def probabilities(self, images: Any) -> NDArray[Any]:
        """Return the class probabilities of a batch."""
        return np.asarray(self._predict(images))

    def read(self) -> NamedState:
        """Copy the state to host memory."""
        return NamedState(*(_host_copies(v) for v in (self._values, self._momentum)))

    def write(self, state: NamedState) -> None:
        """Replace the state."""
        momentum = state.momentum or zero_momentum(state.model)
        for variables, arrays in ((self._values, state.model), (self._momentum, momentum)):
            for name, variable in variables.items():
                variable.assign(from_torch_layout(arrays[name], self._weight_dtype))

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator."""
        if not self.on_accelerator:
            return None
        return int(self._tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def _variable(self, array: NDArray[Any]) -> Any:
        return self._tf.Variable(from_torch_layout(array, self._weight_dtype))

    def _step(self, parts: tuple[tuple[Any, Any], ...], rate: Any) -> Any:
        """Update the variables and return the loss, as a function that TensorFlow traces."""
        tf = self._tf
        losses, gradients = [], []
        weights = [self._values[name] for name in self._trained]
        for images, labels in parts:
            with tf.GradientTape() as tape:
                loss = self._loss(images, labels)
            losses.append(loss)
            gradients.append(tape.gradient(loss, weights))
        for name, *slopes in zip(self._trained, *gradients, strict=True):
            self._update(name, sum(slopes[1:], slopes[0]) / len(slopes), rate)
        return sum(losses[1:], losses[0]) / len(losses)

    def _update(self, name: str, slope: Any, rate: Any) -> None:
        recipe, weight = self.recipe, self._values[name]
        if name in self._decayed and recipe.weight_decay:
            slope = slope + recipe.weight_decay * weight
        self._tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle,
            accum=self._momentum[name].handle,
            lr=rate,
            grad=slope,
            momentum=self._tf.constant(recipe.momentum, self._weight_dtype),
            use_nesterov=recipe.nesterov,
        )

    def _loss(self, images: Any, labels: Any) -> Any:
        tf, smoothing = self._tf, self.classifier.label_smoothing
        logs = tf.nn.log_softmax(self._logits(images, trains=True))
        true = tf.gather(logs, labels, axis=1, batch_dims=1)
        return -tf.reduce_mean((1 - smoothing) * true + smoothing * tf.reduce_mean(logs, axis=1))

    def _probabilities(self, images: Any) -> Any:
        return self._tf.nn.softmax(self._logits(images, trains=False))

    def _logits(self, images: Any, *, trains: bool) -> Any:
        operators = _Operators(self._tf, self._values, self._operand_dtype, trains=trains)
        logits = self.classifier.logits(self._tf.cast(images, self._operand_dtype), operators)
        return self._tf.cast(logits, self._weight_dtype)


class _Operators:
    """The operators of TensorFlow on images of shape (samples, height, width, channels)."""

    def __init__(self, tf: Any, values: Values, dtype: str, *, trains: bool) -> None:
        self._tf, self._values, self._dtype, self._trains = tf, values, dtype, trains

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
        return self._tf.reduce_mean(x, axis=[1, 2])

    def dense(self, x: Any, name: str, outputs: int) -> Any:
        weight, bias = (
            self._tf.cast(self._values[f"{name}.{kind}"], self._dtype)
            for kind in ("weight", "bias")
        )
        return x @ weight + bias


def _configured(recipe: Recipe) -> Any:
    """Import TensorFlow for the device of the recipe; it must not have computed before."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(recipe.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    devices = tf.config.list_physical_devices("GPU")
    visible = [] if recipe.device == "cpu" else [devices[recipe.index]]
    tf.config.set_visible_devices(visible, "GPU")
    for device in visible:
        tf.config.experimental.set_memory_growth(device, True)  # torch prepares batches there
    return tf


def _padding(kernel: int) -> list[list[int]]:
    """Return the padding of images on both sides; "SAME" would pad one side more with a stride."""
    side = [kernel // 2, kernel // 2]
    return [[0, 0], side, side, [0, 0]]


def _host_copies(variables: Values) -> Arrays:
    # numpy() may be a view of a variable's memory, which the next step overwrites
    return {name: np.array(to_torch_layout(v.numpy())) for name, v in variables.items()}
