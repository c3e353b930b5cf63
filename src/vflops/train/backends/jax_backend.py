"""JAX: one jitted function takes a step; several ranks share batches by ``shard_map``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
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
from vflops.workloads.contract.classifier import (
    NORM_EPSILON,
    NORM_MOMENTUM,
    RUNNING,
    Arrays,
    Classifier,
    is_decayed,
    parameter_names,
)
from vflops.workloads.contract.workload import Inputs

Values = dict[str, Any]
_RANKS = "ranks"


class JaxBackend(ArrayBackend):
    """A classifier in JAX."""

    framework = "jax"

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        super().__init__(classifier, recipe, weights)
        jax = _configured(recipe)
        self.version = jax.__version__
        self._jax, self._dtypes = jax, _Dtypes.of(recipe.precision)
        self._state: tuple[Values, Values, Values] = ({}, {}, {})
        self._mesh = _mesh(jax, recipe)
        self._take_step: Any = self._compiled_step()
        self._predict = jax.jit(self._probabilities)
        self.write(NamedState(without_counters(weights), zero_momentum(weights)))

    def batch(self, tensor: Tensor) -> Any:
        """Return an array of JAX, without a copy on an accelerator."""
        if tensor.device.type == "cpu":
            return tensor.numpy()
        return self._jax.dlpack.from_dlpack(tensor.detach())

    def loss_tensor(self, loss: Any) -> Tensor:
        """Return the loss as a tensor; on an accelerator it may still be computed."""
        return (
            torch.utils.dlpack.from_dlpack(loss)
            if self.on_accelerator
            else super().loss_tensor(loss)
        )

    def step(self, parts: Sequence[tuple[Any, Any]], learning_rate: float) -> Any:
        """Update the weights; the host does not wait for the device."""
        images, labels = zip(*parts, strict=True)
        rate = np.asarray(learning_rate, self._dtypes.weights)
        batch = self._shared((images, labels))
        self._state, loss = self._take_step(self._state, *batch, self._whole(rate))
        return loss if self._mesh is None else loss.addressable_data(0)

    def probabilities(self, images: Any) -> NDArray[Any]:
        """Return the class probabilities of a batch."""
        weights, running, _ = self._local()
        return np.asarray(self._predict(weights, running, images))

    def read(self) -> NamedState:
        """Copy the state to host memory."""
        weights, running, momentum = (
            {name: to_torch_layout(np.asarray(value)) for name, value in values.items()}
            for values in self._local()
        )
        ordered = {name: {**weights, **running}[name] for name in self._names}
        return NamedState(ordered, momentum)

    def write(self, state: NamedState) -> None:
        """Replace the state."""
        self._names = list(state.model)
        trained = parameter_names(state.model)
        dtype = self._dtypes.weights
        momentum = state.momentum or zero_momentum(state.model)
        values = (
            {name: from_torch_layout(state.model[name], dtype) for name in trained},
            {name: state.model[name].astype(dtype) for name in self._names if name not in trained},
            {name: from_torch_layout(momentum[name], dtype) for name in trained},
        )
        self._decayed = {name for name in trained if is_decayed(name, state.model[name])}
        self._state = self._jax.tree.map(self._whole, values)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator."""
        statistics = self._jax.local_devices()[0].memory_stats()
        return statistics.get("peak_bytes_in_use") if statistics else None

    def own_count(self, parts: Sequence[Inputs]) -> FrameworkCounted | None:
        """Return what XLA counts for a step before it optimises, on one rank."""
        if self._mesh is not None:
            return None
        images, labels = zip(*(self._converted(*part) for part in parts), strict=True)
        rate = np.asarray(0.0, self._dtypes.weights)
        analysis = self._take_step.lower(self._state, images, labels, rate).cost_analysis()
        flops = (analysis or {}).get("flops", 0.0)
        samples = sum(len(part) for part in labels)
        return FrameworkCounted(source="XLA", samples=samples, flops=flops) if flops else None

    def _local(self) -> tuple[Values, Values, Values]:
        """Return the state as arrays of this rank; it is the same on every rank."""
        if self._mesh is None:
            return self._state
        local: tuple[Values, Values, Values] = self._jax.tree.map(
            lambda value: value.addressable_data(0), self._state
        )
        return local

    def _whole(self, value: Any) -> Any:
        """Return an array that every rank has."""
        if self._mesh is None:
            return self._jax.device_put(value)
        sharding = self._jax.sharding.NamedSharding(self._mesh, self._jax.P())
        return self._jax.make_array_from_process_local_data(sharding, np.asarray(value))

    def _shared(self, values: Any) -> Any:
        """Return arrays whose rows are divided between the ranks, made of this rank's rows."""
        if self._mesh is None:
            return values
        sharding = self._jax.sharding.NamedSharding(self._mesh, self._jax.P(_RANKS))
        return self._jax.tree.map(
            partial(self._jax.make_array_from_process_local_data, sharding), values
        )

    def _compiled_step(self) -> Any:
        jax, step = self._jax, self._step
        if self._mesh is not None:
            whole, rows = jax.P(), jax.P(_RANKS)
            step = jax.shard_map(
                step,
                mesh=self._mesh,
                in_specs=(whole, rows, rows, whole),
                out_specs=(whole, whole),
                check_vma=False,
            )
        return jax.jit(step, donate_argnums=0)

    def _step(
        self, state: tuple[Values, Values, Values], images: Any, labels: Any, rate: Any
    ) -> Any:
        """Return the next state and the loss, as a function that JAX traces."""
        jax = self._jax
        weights, running, momentum = state
        parts = []
        for part in zip(images, labels, strict=True):
            with_gradient = jax.value_and_grad(self._loss, has_aux=True)
            (loss, running), gradient = with_gradient(weights, running, *part)
            parts.append((loss, gradient))
        mean = jax.tree.map(lambda *values: sum(values) / len(values), *parts)
        if self._mesh is not None:
            # The mean of running statistics is linear, so that it may be taken at every step.
            mean, running = jax.lax.pmean((mean, running), _RANKS)
        loss, gradient = mean
        recipe = self.recipe
        updated, velocity = {}, {}
        for name, weight in weights.items():
            slope = gradient[name]
            if name in self._decayed:
                slope = slope + recipe.weight_decay * weight
            velocity[name] = recipe.momentum * momentum[name] + slope
            direction = (
                slope + recipe.momentum * velocity[name] if recipe.nesterov else velocity[name]
            )
            updated[name] = weight - rate * direction
        return (updated, running, velocity), loss

    def _loss(self, weights: Values, running: Values, images: Any, labels: Any) -> Any:
        jnp, nn = self._jax.numpy, self._jax.nn
        operators = _Operators(self._jax, weights, running, self._dtypes.operands, trains=True)
        logits = self.classifier.logits(images.astype(self._dtypes.operands), operators)
        logs = nn.log_softmax(logits.astype(self._dtypes.weights))
        smoothing = self.classifier.label_smoothing
        true = jnp.take_along_axis(logs, labels[:, None].astype("int32"), axis=1)[:, 0]
        losses = -(1 - smoothing) * true - smoothing * logs.mean(axis=1)
        return losses.mean(), {**running, **operators.running}

    def _probabilities(self, weights: Values, running: Values, images: Any) -> Any:
        operators = _Operators(self._jax, weights, running, self._dtypes.operands, trains=False)
        logits = self.classifier.logits(images.astype(self._dtypes.operands), operators)
        return self._jax.nn.softmax(logits.astype(self._dtypes.weights))


class _Dtypes:
    """The types of weights and of operands."""

    def __init__(self, weights: str, operands: str) -> None:
        self.weights, self.operands = weights, operands

    @classmethod
    def of(cls, precision: str) -> _Dtypes:
        return {
            "fp64": cls("float64", "float64"),
            "fp32": cls("float32", "float32"),
            "mixed-bf16": cls("float32", "bfloat16"),
        }[precision]


class _Operators:
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


def _configured(recipe: Recipe) -> Any:
    """Import JAX for the device of the recipe; settings that it reads at its import come first."""
    os.environ.setdefault("NPROC", str(recipe.threads))  # the threads of XLA on a CPU
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch prepares batches there
    import jax as module

    jax: Any = module
    if recipe.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if recipe.precision == "fp64":
        jax.config.update("jax_enable_x64", True)
    if recipe.ranks > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(recipe.coordinator, recipe.ranks, recipe.rank)
    return jax


def _mesh(jax: Any, recipe: Recipe) -> Any:
    """Return the mesh of one device per rank; None for one rank."""
    if recipe.ranks == 1:
        return None
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    devices = np.array([first[rank] for rank in range(recipe.ranks)])
    return jax.sharding.Mesh(devices, (_RANKS,))
