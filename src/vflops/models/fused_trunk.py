"""A fused trunk as a part of a torch model: one autograd node, with kernels compiled in advance."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from vflops.models.fused_layers import FusedLayers
from vflops.models.fused_step import TrunkStep


class FusedTrunk:
    """Computes the features of images, and in the backward pass the gradients of all parameters.

    It is not a module: the parameters belong to the modules of its layers.
    """

    def __init__(self, layers: FusedLayers, dtype: torch.dtype) -> None:
        self._layers, self._dtype = layers, dtype
        self._compiled_for: torch.Size | None = None

    def features(self, x: Tensor) -> Tensor:
        """Return the features of images ``[batch, channels]``; needs a GPU and Triton."""
        self._compile_kernels(x)
        run: Any = _Trunk.apply
        features: Tensor = run(self, x, *self._layers.parameters)
        return features

    def evaluate(self, x: Tensor) -> Tensor:
        """Return the features of images as a model in evaluation computes them."""
        return TrunkStep(self._layers, self._dtype, evaluates=True).forward(x)

    def step(self) -> TrunkStep:
        """Return a new training step."""
        return TrunkStep(self._layers, self._dtype)

    def count_batch(self) -> None:
        """Increment the number of batches that each batch normalisation has seen."""
        norms = self._layers.norms
        counters = [n.num_batches_tracked for n in norms if n.num_batches_tracked is not None]
        torch._foreach_add_(counters, 1)

    def _compile_kernels(self, x: Tensor) -> None:
        """Compile all kernels together before the first step: one by one they take half a minute.

        This takes steps that change neither weights nor running statistics. Convolutions by cuDNN
        do run, on arbitrary values: first without its search for algorithms, so that all kernels
        start to compile at once, then with the search while they compile. The results of a search
        are those of its thread, and autograd has its own, so this pays for the forward pass only.
        """
        if self._compiled_for == x.shape:
            return
        from vflops.models.kernels.launching import compile_together

        searches = torch.backends.cudnn.benchmark

        def step() -> None:
            try:
                torch.backends.cudnn.benchmark = False
                trunk = self.step()
                trunk.backward(trunk.forward(x))
                if searches:
                    torch.backends.cudnn.benchmark = True
                    self.step().forward(x)
            finally:
                torch.backends.cudnn.benchmark = searches

        layers = [(layer.kind, layer.inputs, layer.relu) for layer in self._layers.layers]
        shapes = [tuple(parameter.shape) for parameter in self._layers.parameters]
        device = torch.cuda.get_device_name(x.device)
        name = f"{device} {self._dtype} {x.dtype} {tuple(x.shape)} {layers} {shapes}"
        with torch.no_grad():
            compile_together(name, step, x.device)
        self._compiled_for = x.shape


class _Trunk(torch.autograd.Function):
    """The trunk as one autograd node: features from images and all its parameters."""

    @staticmethod
    def forward(ctx: Any, trunk: FusedTrunk, x: Tensor, *parameters: nn.Parameter) -> Tensor:
        trunk.count_batch()
        step = trunk.step()
        ctx.step, ctx.parameters = step, parameters
        return step.forward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        step: TrunkStep = ctx.step
        with torch.autocast(gradients[0].device.type, enabled=False):
            step.backward(gradients[0])
        # Removed from the dictionary: autograd copies a gradient that has another reference.
        results = [step.gradients.pop(parameter) for parameter in ctx.parameters]
        low = [i for i, gradient in enumerate(results) if gradient.dtype != torch.float32]
        cast = [torch.empty_like(results[i], dtype=torch.float32) for i in low]
        if low:
            torch._foreach_copy_(cast, [results[i] for i in low])
        for i, gradient in zip(low, cast, strict=True):
            results[i] = gradient
        return None, None, *results


@cache
def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on ``device``: they need Triton and the memory of a Hopper GPU."""
    # Tiles fill the shared memory of a Hopper GPU; others have less, or were not measured.
    hopper = torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9
    return hopper and find_spec("triton") is not None
