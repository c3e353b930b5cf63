"""JAX: one jitted function takes a step; several ranks share batches by ``shard_map``."""

from __future__ import annotations

import os
import re
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
from vflops.train.backends.jax_operators import JaxOperators, Values
from vflops.train.backends.loss_scale import ScaleState, first_state, next_state, plain_state
from vflops.workloads.contract.classifier import (
    Arrays,
    Classifier,
    is_decayed,
    parameter_names,
)
from vflops.workloads.contract.workload import Inputs

_RANKS = "ranks"
State = tuple[Values, Values, Values, Values]
"""Weights, running statistics, momentum, and the loss scaler's numbers or nothing."""


class JaxBackend(ArrayBackend):
    """A classifier in JAX."""

    framework = "jax"

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        super().__init__(classifier, recipe, weights)
        jax = _configured(recipe)
        self.version = jax.__version__
        self._jax, self._dtypes = jax, _Dtypes.of(recipe.precision)
        if not self.on_accelerator and _widens(jax, self._dtypes):
            self.emulated = "emulated: XLA computes convolutions in fp32 on this CPU"
        self._state: State = ({}, {}, {}, {})
        self._mesh = _mesh(jax, recipe)
        self._take_step: Any = self._compiled_step()
        self._predict = jax.jit(self._probabilities)
        self.write(NamedState(without_counters(weights), zero_momentum(weights)))
        self.write_scale(first_state(recipe.precision))

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
        weights, running, *_ = self._local()
        return np.asarray(self._predict(weights, running, images))

    def read(self) -> NamedState:
        """Copy the state to host memory."""
        weights, running, momentum = (
            {name: to_torch_layout(np.asarray(value)) for name, value in values.items()}
            for values in self._local()[:3]
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
        self._state = (*self._jax.tree.map(self._whole, values), self._state[-1])

    def read_scale(self) -> ScaleState:
        """Return the state of the loss scaler."""
        return plain_state({name: np.asarray(value) for name, value in self._local()[-1].items()})

    def write_scale(self, state: ScaleState) -> None:
        """Replace the state of the loss scaler."""
        arrays = {
            name: self._whole(np.asarray(value, "float32" if isinstance(value, float) else "int32"))
            for name, value in state.items()
        }
        self._state = (*self._state[:3], arrays)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator."""
        statistics = self._jax.local_devices()[0].memory_stats()
        return statistics.get("peak_bytes_in_use") if statistics else None

    def is_out_of_memory(self, error: Exception) -> bool:
        """Also XLA's errors."""
        exhausted = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return exhausted or super().is_out_of_memory(error)

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

    def _local(self) -> State:
        """Return the state as arrays of this rank; it is the same on every rank."""
        if self._mesh is None:
            return self._state
        local: State = self._jax.tree.map(lambda value: value.addressable_data(0), self._state)
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

    def _step(self, state: State, images: Any, labels: Any, rate: Any) -> Any:
        """Return the next state and the loss, as a function that JAX traces."""
        jax = self._jax
        weights, running, momentum, scaling = state
        parts = []
        for part in zip(images, labels, strict=True):
            with_gradient = jax.grad(self._scaled_loss, has_aux=True)
            gradient, (loss, running) = with_gradient(weights, running, scaling, *part)
            parts.append((loss, gradient))
        mean = jax.tree.map(lambda *values: sum(values) / len(values), *parts)
        if self._mesh is not None:
            # The mean of running statistics is linear, so that it may be taken at every step.
            mean, running = jax.lax.pmean((mean, running), _RANKS)
        loss, gradient = mean
        if not scaling:
            updated, velocity = self._updated(weights, momentum, gradient, rate)
            return (updated, running, velocity, scaling), loss
        gradient = jax.tree.map(lambda slope: slope / scaling["scale"], gradient)
        finite = jax.numpy.array([jax.numpy.isfinite(s).all() for s in gradient.values()]).all()
        new = self._updated(weights, momentum, gradient, rate)
        # A gradient that is not finite changes nothing but the scale.
        updated, velocity = jax.tree.map(partial(jax.numpy.where, finite), new, (weights, momentum))
        scaling = next_state(scaling, finite, jax.numpy.where)
        return (updated, running, velocity, scaling), loss

    def _updated(
        self, weights: Values, momentum: Values, gradient: Values, rate: Any
    ) -> tuple[Values, Values]:
        """Return weights and momentum after a step."""
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
        return updated, velocity

    def _scaled_loss(
        self, weights: Values, running: Values, scaling: Values, images: Any, labels: Any
    ) -> Any:
        loss, after = self._loss(weights, running, images, labels)
        return (loss * scaling["scale"] if scaling else loss), (loss, after)

    def _loss(self, weights: Values, running: Values, images: Any, labels: Any) -> Any:
        jnp, nn = self._jax.numpy, self._jax.nn
        operators = JaxOperators(self._jax, weights, running, self._dtypes.operands, trains=True)
        logits = self.classifier.logits(images.astype(self._dtypes.operands), operators)
        logs = nn.log_softmax(logits.astype(self._dtypes.weights))
        smoothing = self.classifier.label_smoothing
        true = jnp.take_along_axis(logs, labels[:, None].astype("int32"), axis=1)[:, 0]
        losses = -(1 - smoothing) * true - smoothing * logs.mean(axis=1)
        return losses.mean(), {**running, **operators.running}

    def _probabilities(self, weights: Values, running: Values, images: Any) -> Any:
        operators = JaxOperators(self._jax, weights, running, self._dtypes.operands, trains=False)
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
            "mixed-fp16": cls("float32", "float16"),
        }[precision]


def _configured(recipe: Recipe) -> Any:
    """Import JAX for the device of the recipe; settings that it reads at its import come first."""
    os.environ.setdefault("NPROC", str(recipe.threads))  # the threads of XLA on a CPU
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch prepares batches there
    import jax as module

    jax: Any = module
    if recipe.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    # Exact products in fp32, as torch computes them here (train/precision.py); JAX's default is
    # TF32 on GPUs.
    jax.config.update("jax_default_matmul_precision", "highest")
    if recipe.precision == "fp64":
        jax.config.update("jax_enable_x64", True)
    if recipe.ranks > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(recipe.addresses[0], recipe.ranks, recipe.rank)
    return jax


def _widens(jax: Any, dtypes: _Dtypes) -> bool:
    """Whether XLA compiles convolutions in 16 bits to ones in fp32, as on most CPUs."""
    if dtypes.operands == dtypes.weights:
        return False
    images = jax.ShapeDtypeStruct((1, 8, 8, 8), dtypes.operands)
    kernel = jax.ShapeDtypeStruct((3, 3, 8, 8), dtypes.operands)
    rows = ("NHWC", "HWIO", "NHWC")
    convolve = partial(
        jax.lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=rows,
    )
    program = jax.jit(convolve).lower(images, kernel).compile().as_text()
    return bool(re.search(r"= f32\[[^=\n]*\bconvolution\(", program))


def _mesh(jax: Any, recipe: Recipe) -> Any:
    """Return the mesh of one device per rank; None for one rank."""
    if recipe.ranks == 1:
        return None
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    devices = np.array([first[rank] for rank in range(recipe.ranks)])
    return jax.sharding.Mesh(devices, (_RANKS,))
