"""TensorFlow: one ``tf.function`` takes a step; XLA compiles it on accelerators.

Several ranks average gradients, loss and running statistics inside the step, by the collectives of
``tf.distribute.MultiWorkerMirroredStrategy``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.record.formats.job_events import FrameworkCounted
from vflops.train.backends.array_backend import (
    ArrayBackend,
    NamedState,
    Recipe,
    without_counters,
    zero_momentum,
)
from vflops.train.backends.channels_last import from_torch_layout, to_torch_layout
from vflops.train.backends.loss_scale import ScaleState, first_state, next_state, plain_state
from vflops.train.backends.tensorflow_operators import TensorFlowOperators, Values
from vflops.workloads.contract.classifier import (
    Arrays,
    Classifier,
    is_decayed,
    parameter_names,
)
from vflops.workloads.contract.workload import Inputs

_DTYPES = {
    "fp64": ("float64", "float64"),
    "fp32": ("float32", "float32"),
    "mixed-bf16": ("float32", "bfloat16"),
    "mixed-fp16": ("float32", "float16"),
}
"""The types of weights and of operands, by precision."""


class TensorFlowBackend(ArrayBackend):
    """A classifier in TensorFlow, of plain operators without Keras."""

    framework = "tensorflow"

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        super().__init__(classifier, recipe, weights)
        tf = _configured(recipe)
        # Before anything is computed: it connects this process with the others.
        self._strategy = _strategy(tf, recipe)
        self.version = tf.__version__
        self._tf = tf
        self._weight_dtype, self._operand_dtype = _DTYPES[recipe.precision]
        arrays = without_counters(weights)
        momentum = zero_momentum(weights)
        self._trained = parameter_names(arrays)
        self._decayed = {name for name in self._trained if is_decayed(name, arrays[name])}
        self._values = {name: self._variable(array) for name, array in arrays.items()}
        self._momentum = {name: self._variable(array) for name, array in momentum.items()}
        self._scaling: Values = {
            name: tf.Variable(value, dtype="float32" if isinstance(value, float) else "int32")
            for name, value in first_state(recipe.precision).items()
        }
        # On a CPU, XLA has no fast convolutions; the kernels of oneDNN do.
        self._take_step = tf.function(self._shared_step, jit_compile=self.on_accelerator)
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

    def read_scale(self) -> ScaleState:
        """Return the state of the loss scaler."""
        return plain_state({name: variable.numpy() for name, variable in self._scaling.items()})

    def write_scale(self, state: ScaleState) -> None:
        """Replace the state of the loss scaler."""
        for name, variable in self._scaling.items():
            variable.assign(state[name])

    def is_out_of_memory(self, error: Exception) -> bool:
        """Also TensorFlow's errors; memory that runs out in its threads aborts the process."""
        exhausted = isinstance(error, self._tf.errors.ResourceExhaustedError)
        return exhausted or super().is_out_of_memory(error)

    def own_count(self, parts: Sequence[Inputs]) -> FrameworkCounted | None:
        """Return what tf.profiler counts in the graph of a step, on one rank."""
        if self._strategy is not None:
            return None
        batches = tuple(self._converted(*part) for part in parts)
        rate = self._tf.constant(0.0, self._weight_dtype)
        flops = counted_flops(self._tf, self._take_step.get_concrete_function(batches, rate).graph)
        samples = sum(len(labels) for _, labels in batches)
        return FrameworkCounted(source="tf.profiler", samples=samples, flops=flops)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator."""
        if not self.on_accelerator:
            return None
        return int(self._tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def _variable(self, array: NDArray[Any]) -> Any:
        return self._tf.Variable(from_torch_layout(array, self._weight_dtype))

    def _shared_step(self, parts: tuple[tuple[Any, Any], ...], rate: Any) -> Any:
        """Take a step on each of the ranks, as a function that TensorFlow traces."""
        if self._strategy is None:
            return self._step(parts, rate)
        return self._strategy.run(self._step, args=(parts, rate))

    def _step(self, parts: tuple[tuple[Any, Any], ...], rate: Any) -> Any:
        """Update the variables and return the loss."""
        tf = self._tf
        scale = self._scaling.get("scale", 1.0)
        losses, gradients = [], []
        weights = [self._values[name] for name in self._trained]
        for images, labels in parts:
            with tf.GradientTape() as tape:
                loss = self._loss(images, labels)
                scaled = loss * scale if self._scaling else loss
            losses.append(loss)
            gradients.append(tape.gradient(scaled, weights))
        mean_loss = _mean(losses)
        slopes = [_mean(list(parts)) for parts in zip(*gradients, strict=True)]
        if self._strategy is not None:
            mean_loss, *slopes = self._averaged([mean_loss, *slopes])
        if not self._scaling:
            self._update_all(slopes, rate)
            return mean_loss
        slopes = [slope / scale for slope in slopes]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(slope)) for slope in slopes])
        # A gradient that is not finite changes nothing but the scale.
        tf.cond(finite, lambda: self._update_all(slopes, rate), lambda: None)
        for name, value in next_state(self._scaling, finite, tf.where).items():
            self._scaling[name].assign(value)
        return mean_loss

    def _averaged(self, values: list[Any]) -> list[Any]:
        """Return the means over the ranks; average the running statistics too.

        Running statistics are linear in those of the batches, so that they may be averaged at every
        step.
        """
        tf = self._tf
        running = [value for name, value in self._values.items() if name not in self._trained]
        context, mean = tf.distribute.get_replica_context(), tf.distribute.ReduceOp.MEAN
        means = context.all_reduce(mean, [*values, *(value.read_value() for value in running)])
        for variable, value in zip(running, means[len(values) :], strict=True):
            variable.assign(value)
        averaged: list[Any] = means[: len(values)]
        return averaged

    def _update_all(self, slopes: list[Any], rate: Any) -> None:
        for name, slope in zip(self._trained, slopes, strict=True):
            self._update(name, slope, rate)

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
        operators = TensorFlowOperators(self._tf, self._values, self._operand_dtype, trains=trains)
        logits = self.classifier.logits(self._tf.cast(images, self._operand_dtype), operators)
        return self._tf.cast(logits, self._weight_dtype)


def _configured(recipe: Recipe) -> Any:
    """Import TensorFlow for the device of the recipe; it must not have computed before."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(recipe.threads)
    # Exact products in fp32, as torch computes them here (train/precision.py).
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    devices = tf.config.list_physical_devices("GPU")
    visible = [] if recipe.device == "cpu" else [devices[recipe.index]]
    tf.config.set_visible_devices(visible, "GPU")
    for device in visible:
        tf.config.experimental.set_memory_growth(device, True)  # torch prepares batches there
    return tf


def _strategy(tf: Any, recipe: Recipe) -> Any:
    """Return the strategy that connects the ranks; None for one rank."""
    if recipe.ranks == 1:
        return None
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(recipe.addresses)}),
        task_type="worker",
        task_id=recipe.rank,
        rpc_layer="grpc",
    )
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    return tf.distribute.MultiWorkerMirroredStrategy(
        resolver, tf.distribute.experimental.CommunicationOptions(implementation=ring)
    )


def counted_flops(tf: Any, graph: Any) -> int:
    """Return the operations of a graph with static shapes, as tf.profiler counts them.

    It counts what TensorFlow has registered formulas for: convolutions and matrix products in both
    passes, pooling, means and sums; not batch norm, ReLU, the softmax and the update of weights. It
    also counts the gradient of the images, which is in the graph but is never computed.
    """
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    tf.get_logger().setLevel("ERROR")  # tf.profiler itself calls what it says is deprecated
    return int(profiler.profile(graph, options=options).total_float_ops)


def _mean(values: list[Any]) -> Any:
    # tf.profiler would also count a division by 1.
    return sum(values[1:], values[0]) / len(values) if len(values) > 1 else values[0]


def _host_copies(variables: Values) -> Arrays:
    # numpy() may be a view of a variable's memory, which the next step overwrites
    return {name: np.array(to_torch_layout(v.numpy())) for name, v in variables.items()}
