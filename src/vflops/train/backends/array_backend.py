"""The common part of the backends of other frameworks than PyTorch: arrays in place of tensors.

Such a framework implements four methods: ``step``, ``probabilities``, ``read`` and ``write``. A
state has the same names and shapes in every framework, so that each can resume from a checkpoint
of another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.metrics.traffic import bytes_sent
from vflops.record.files.document import Data
from vflops.record.formats.job_events import Exchanged
from vflops.train.backends.backend import Backend
from vflops.train.backends.loss_scale import ScaleState
from vflops.workloads.contract.classifier import COUNTER, Arrays, Classifier, parameter_names
from vflops.workloads.contract.workload import Inputs

MOMENTUM = "momentum_buffer"
"""The name of an optimizer's momentum in PyTorch."""


@dataclass(frozen=True)
class Recipe:
    """What a backend needs besides the network: SGD with momentum, and where to compute."""

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    """Not applied to batch norm and biases."""
    precision: str = "fp32"
    """``fp32``, ``mixed-bf16`` …; ``fp64`` in tests."""
    emulated: str | None = None
    """A note if the device has no arithmetic of this precision, whatever the framework does."""
    device: str = "cpu"
    """``cpu``, or the kind of the accelerator as torch calls it."""
    index: int = 0
    """The index of the accelerator."""
    threads: int = 1
    """The CPU threads of this rank."""
    rank: int = 0
    ranks: int = 1
    local_ranks: int = 1
    """The ranks on this node."""
    addresses: tuple[str, ...] = ()
    """``host:port`` at which each of several ranks can listen; empty for one rank."""


@dataclass(frozen=True)
class NamedState:
    """The state of a model and its optimizer as arrays by name."""

    model: Arrays
    momentum: Arrays
    """Of each trained parameter; empty before the first step."""


class ArrayBackend(Backend):
    """A classifier and its optimizer in another framework, which averages gradients itself."""

    compiled = True
    may_count = True

    def __init__(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> None:
        self.classifier, self.recipe = classifier, recipe
        self.parameters = sum(weights[name].size for name in parameter_names(weights))
        self.on_accelerator = recipe.device != "cpu"
        self.device = torch.device("cpu")
        if self.on_accelerator:
            self.device = torch.device(recipe.device, recipe.index)
        # The conformance tests train twice on one thread of a CPU and compare bits. More threads
        # were not tested; on accelerators, libraries choose kernels by time, and some of them add
        # in any order.
        self.deterministic = not self.on_accelerator and recipe.threads == 1
        self.emulated = recipe.emulated
        self.steps = 0
        """Steps that this process has taken."""
        self._batches = 0

    @abstractmethod
    def step(self, parts: Sequence[tuple[Any, Any]], learning_rate: float) -> Any:
        """Update the weights with the mean gradient of batches of images and labels.

        Images have shape (samples, height, width, channels) and labels are int32, both as returned
        by ``batch``. Return the mean loss: a number or an array without dimensions.
        """

    @abstractmethod
    def probabilities(self, images: Any) -> NDArray[Any]:
        """Return the class probabilities of a batch, by the running statistics."""

    @abstractmethod
    def read(self) -> NamedState:
        """Return a copy of the state, without the counters of batches."""

    @abstractmethod
    def write(self, state: NamedState) -> None:
        """Replace the state."""

    def batch(self, tensor: Tensor) -> Any:
        """Return a tensor as the framework takes it; by default as numpy in the same memory."""
        return tensor.numpy()

    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights; return the mean loss."""
        self.steps += 1
        self._batches += len(parts)
        loss = self.step([self._converted(*part) for part in parts], learning_rate)
        return self.loss_tensor(loss)

    def loss_tensor(self, loss: Any) -> Tensor:
        """Return what ``step`` returned as a tensor; by default the host waits for it."""
        return torch.from_numpy(np.array(loss))

    def predict(self, *inputs: Tensor) -> Tensor:
        """Return class probabilities."""
        images, _ = self._converted(*inputs)
        rows = torch.from_numpy(np.array(self.probabilities(images), dtype=np.float32))
        return rows.to(self.device)

    def _converted(self, images: Tensor, labels: Tensor) -> tuple[Any, Any]:
        rows = images.permute(0, 2, 3, 1).contiguous()
        if rows.dtype is torch.bfloat16 and rows.device.type == "cpu":
            rows = rows.float()  # numpy has no such type; the backend rounds them again
        return self.batch(rows), self.batch(labels.to(torch.int32))

    def collect(self) -> dict[str, Any] | None:
        """Return the state as PyTorch names it."""
        state = self.read()
        if self.recipe.rank:
            return None
        momentum = state.momentum if self._batches else {}
        return {
            "model": self._tensors(state.model),
            "optimizer": {name: {MOMENTUM: _tensor(a)} for name, a in momentum.items()},
            "scaler": self.read_scale(),
        }

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Load the state of any backend."""
        model: dict[str, Tensor] = contents["model"]
        arrays = {name: _array(tensor) for name, tensor in model.items()}
        momentum = {
            name: _array(state[MOMENTUM])
            for name, state in contents["optimizer"].items()
            if state.get(MOMENTUM) is not None
        }
        counters = [int(array) for name, array in arrays.items() if name.endswith(COUNTER)]
        self._batches = max(counters, default=0)
        self.write(NamedState(without_counters(arrays), momentum))
        self.restore_scale(contents["scaler"])

    def read_scale(self) -> ScaleState:
        """Return the state of the loss scaler, as GradScaler names it; empty without scaling."""
        return {}

    def write_scale(self, state: ScaleState) -> None:
        """Replace the state of the loss scaler, in backends that have one."""

    def restore_scale(self, state: ScaleState) -> None:
        """Load the scaler's state of any backend; one without scaling leaves the scale."""
        if state and self.read_scale():
            self.write_scale(state)

    def weights(self) -> dict[str, Tensor] | None:
        """Return the tensors of the model as PyTorch names them."""
        model = self.read().model
        return None if self.recipe.rank else self._tensors(model)

    def synchronise_buffers(self) -> None:
        """Do nothing: running statistics are averaged at every step."""

    def is_finite(self) -> bool:
        """Whether all weights are finite; they are equal on all ranks."""
        return all(bool(np.isfinite(array).all()) for array in self.read().model.values())

    def perturb(self, relative: float) -> None:
        """Change every weight by ``relative`` of itself, up or down."""
        random = np.random.Generator(np.random.Philox(0))
        state = self.read()
        model = dict(state.model)
        for name in parameter_names(model):
            signs = random.integers(0, 2, model[name].shape) * 2 - 1
            model[name] = (model[name] * (1.0 + relative * signs)).astype(model[name].dtype)
        self.write(NamedState(model, state.momentum))

    def report(self) -> list[tuple[str, Data]]:
        """Return the estimated traffic: what a ring needs for the gradients."""
        recipe = self.recipe
        if recipe.ranks == 1 or not self.steps:
            return []
        sent = bytes_sent("all-reduce", "fp32", recipe.ranks, recipe.local_ranks, self.parameters)
        exchange = Exchanged(
            mode="all-reduce",
            precision="fp32",
            ranks=recipe.ranks,
            near=recipe.local_ranks,
            backend=self.framework,
            algorithm=None,
            reason=f"{self.framework} does not report it; the bytes are an estimate, those of a "
            "ring for the gradients alone",
            bytes_near=self.steps * sent.near,
            bytes_far=self.steps * sent.far,
            steps=self.steps,
            elements=self.steps * recipe.ranks * self.parameters,
        )
        return [("exchange", exchange)]

    def _tensors(self, model: Arrays) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, array in model.items():
            tensors[name] = _tensor(array)
            if name.endswith("running_var"):
                counter = name.removesuffix("running_var") + COUNTER
                tensors[counter] = torch.tensor(self._batches)
        return tensors


def without_counters(arrays: Arrays) -> Arrays:
    """Return the arrays without the numbers of batches that batch norm has seen."""
    return {name: array for name, array in arrays.items() if not name.endswith(COUNTER)}


def zero_momentum(arrays: Arrays) -> Arrays:
    """Return the momentum before the first step."""
    return {name: np.zeros_like(arrays[name]) for name in parameter_names(arrays)}


def _array(tensor: Tensor) -> NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy(), order="C")


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array))
