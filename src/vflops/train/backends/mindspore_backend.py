"""MindSpore: one compiled graph takes a step on a CPU.

Several ranks average gradients and loss in that graph, and running statistics in a second one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
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
from vflops.train.backends.mindspore_count import counted_flops
from vflops.train.backends.mindspore_network import Values, network_function
from vflops.train.backends.mindspore_ranks import join_ranks, mean_over_ranks, name_rank
from vflops.workloads.contract.classifier import (
    Arrays,
    Classifier,
    is_decayed,
    parameter_names,
)
from vflops.workloads.contract.workload import Inputs


class MindSporeBackend(ArrayBackend):
    """A classifier in MindSpore, on a CPU in fp32: its CPU kernels have no fp64 convolution."""

    framework = "mindspore"

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        super().__init__(classifier, recipe, weights)
        _check(recipe)
        ms = _configured(recipe)
        self.version = ms.__version__
        self._ms, self._assign = ms, ms.ops.Assign()
        arrays = without_counters(weights)
        trained = parameter_names(arrays)
        self._values = {name: _parameter(ms, name, array) for name, array in arrays.items()}
        self._momentum = {
            name: _parameter(ms, f"momentum.{name}", array)
            for name, array in zero_momentum(weights).items()
        }
        decayed = tuple(is_decayed(name, arrays[name]) for name in trained)
        updated = [(self._values[name], self._momentum[name]) for name in trained]
        network = network_function(ms, classifier, self._values, trains=True)
        self._loss = _loss(ms, network, classifier)
        self._trained = ms.ParameterTuple([weight for weight, _ in updated])
        self._take_step = ms.jit(_step(ms, self._loss, updated, decayed, recipe))
        running = [value for name, value in self._values.items() if name not in trained]
        self._average_running = ms.jit(_running_average(ms, running, recipe.ranks))
        self._predict = ms.jit(
            _softmax(ms, network_function(ms, classifier, self._values, trains=False))
        )

    def batch(self, tensor: Tensor) -> Any:
        """Return a tensor of MindSpore in the same memory."""
        return self._ms.Tensor.from_numpy(tensor.numpy())

    def step(self, parts: Sequence[tuple[Any, Any]], learning_rate: float) -> Any:
        """Update the weights."""
        # A number in place of a tensor would be a constant of the graph, compiled anew for each.
        rate = self._ms.Tensor(np.float32(learning_rate))
        loss = self._take_step(rate, *(array for part in parts for array in part))
        if self.recipe.ranks > 1:
            # The mean of running statistics is linear, so that it may be taken at every step.
            self._average_running()
        return loss.asnumpy()

    def probabilities(self, images: Any) -> NDArray[Any]:
        """Return the class probabilities of a batch."""
        probabilities: NDArray[Any] = self._predict(images).asnumpy()
        return probabilities

    def read(self) -> NamedState:
        """Copy the state."""
        return NamedState(*(_copies(values) for values in (self._values, self._momentum)))

    def write(self, state: NamedState) -> None:
        """Replace the state."""
        momentum = state.momentum or zero_momentum(state.model)
        for values, arrays in ((self._values, state.model), (self._momentum, momentum)):
            for name, value in values.items():
                # After set_data, a compiled graph would update memory that is no longer read.
                self._assign(value, self._ms.Tensor(arrays[name].astype(np.float32)))

    def is_out_of_memory(self, error: Exception) -> bool:
        """Also MindSpore's errors, and those of oneDNN below it.

        oneDNN cannot create a primitive without memory for it; of an unsupported operation it
        cannot even create the descriptor, which is another message.
        """
        text = str(error).strip() if isinstance(error, RuntimeError) else ""
        exhausted = "Memory not enough" in text or text == "could not create a primitive"
        return exhausted or super().is_out_of_memory(error)

    def own_count(self, parts: Sequence[Inputs]) -> FrameworkCounted | None:
        """Return what MindSpore counts for a step, on one rank."""
        if self.recipe.ranks > 1:
            return None
        batches = [self._converted(*part) for part in parts]
        flops = counted_flops(self._ms, self._loss, self._trained, *batches[0]) * len(parts)
        samples = sum(len(labels) for _, labels in batches)
        return FrameworkCounted(source="MindSpore", samples=samples, flops=flops)


def _step(
    ms: Any, loss: Callable[..., Any], updated: Any, decayed: tuple[bool, ...], recipe: Recipe
) -> Callable[..., Any]:
    """Return a function that updates the parameters and returns the loss, for the compiler.

    MindSpore compiles the source of functions: it unrolls their loops.
    """
    weights = ms.ParameterTuple([weight for weight, _ in updated])
    momenta = ms.ParameterTuple([momentum for _, momentum in updated])
    with_gradient = ms.value_and_grad(loss, None, weights)
    update = _update(ms, recipe)
    weight_decay = recipe.weight_decay
    count = len(updated)
    several = recipe.ranks > 1
    shapes = ((), *(tuple(weight.shape) for weight, _ in updated))
    mean = mean_over_ranks(ms, shapes, recipe.ranks)

    def step(rate: Any, *batches: Any) -> Any:
        parts = len(batches) // 2
        loss, gradient = with_gradient(batches[0], batches[1])
        for part in range(1, parts):
            other_loss, other_gradient = with_gradient(batches[2 * part], batches[2 * part + 1])
            loss = loss + other_loss
            gradient = add(gradient, other_gradient)
        if several:
            means = mean((loss, *gradient))
            loss, gradient = means[0], means[1:]
        for index in range(count):
            slope = gradient[index]
            if parts > 1:
                slope = slope / parts
            if decayed[index]:
                slope = slope + weight_decay * weights[index]
            update(weights[index], momenta[index], slope, rate)
        return loss / parts

    def add(one: Any, other: Any) -> Any:
        return tuple([one[index] + other[index] for index in range(count)])

    return step


def _running_average(ms: Any, running: list[Any], ranks: int) -> Callable[..., Any]:
    """Return a function that averages the running statistics over the ranks, for the compiler."""
    parameters, assign = ms.ParameterTuple(running), ms.ops.Assign()
    mean = mean_over_ranks(ms, tuple(tuple(value.shape) for value in running), ranks)
    count = len(running)

    def average() -> Any:
        means = mean(parameters)
        for index in range(count):
            assign(parameters[index], means[index])
        return means[0]

    return average


def _update(ms: Any, recipe: Recipe) -> Callable[..., Any]:
    """Return a function that updates a weight and its momentum, for the compiler."""
    factor = recipe.momentum
    fused, assign = ms.ops.ApplyMomentum(), ms.ops.Assign()

    def update(weight: Any, momentum: Any, slope: Any, rate: Any) -> Any:
        return fused(weight, momentum, rate, slope, factor)

    def update_nesterov(weight: Any, momentum: Any, slope: Any, rate: Any) -> Any:
        velocity = factor * momentum + slope
        assign(momentum, velocity)
        return assign(weight, weight - rate * (slope + factor * velocity))

    # The fused kernel for CPUs ignores use_nesterov (2.10).
    return update_nesterov if recipe.nesterov else update


def _loss(ms: Any, network: Any, classifier: Classifier) -> Callable[..., Any]:
    """Return a function from images and labels to the loss."""
    log_softmax = ms.ops.LogSoftmax(-1)
    one_hot = ms.ops.OneHot()
    classes, smoothing = classifier.classes, classifier.label_smoothing
    on = ms.Tensor(np.float32(1 - smoothing + smoothing / classes))
    off = ms.Tensor(np.float32(smoothing / classes))

    def loss(images: Any, labels: Any) -> Any:
        logs = log_softmax(network(images))
        return -(logs * one_hot(labels, classes, on, off)).sum() / images.shape[0]

    return loss


def _softmax(ms: Any, network: Any) -> Callable[..., Any]:
    softmax = ms.ops.Softmax(-1)

    def probabilities(images: Any) -> Any:
        return softmax(network(images))

    return probabilities


def _check(recipe: Recipe) -> None:
    if recipe.device != "cpu":
        raise ValueError(f"MindSpore is offered on cpu, not on {recipe.device}")
    if recipe.precision != "fp32":
        raise ValueError(
            f"MindSpore is offered in fp32, not in {recipe.precision}: its CPU kernels have no "
            "convolution in fp64"
        )


def _configured(recipe: Recipe) -> Any:
    """Import MindSpore for the threads of the recipe; it must not have computed before."""
    os.environ.setdefault("GLOG_v", "3")  # errors only
    if recipe.ranks > 1:
        name_rank(recipe)
    import mindspore as ms

    ms.set_device("CPU")
    with suppress(RuntimeError):  # a process can set them only once
        ms.device_context.cpu.op_tuning.threads_num(recipe.threads)
        ms.runtime.dispatch_threads_num(1)  # more of them wait for work in a loop
    if recipe.ranks > 1:
        join_ranks(ms)
    return ms


def _parameter(ms: Any, name: str, array: NDArray[Any]) -> Any:
    return ms.Parameter(ms.Tensor(array.astype(np.float32)), name=name)


def _copies(values: Values) -> Arrays:
    return {name: np.array(value.asnumpy()) for name, value in values.items()}
