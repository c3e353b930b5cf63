"""A fused trunk as a part of a torch model: autograd nodes, with kernels compiled in advance."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, cast

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
        self.count_batch()
        step, run = self.step(), cast("Callable[..., Tensor]", _Part.apply)
        result = x
        for number, part in enumerate(self._layers.parts):
            parameters = (parameter for layer in part for parameter in layer.parameters)
            result = run(step, number, x, result, *parameters)
        return result

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


class _Part(torch.autograd.Function):
    """A part of the trunk as an autograd node, which passes no tensor to the next one.

    The step has the activations and their gradients, since it fuses across the boundaries of parts.
    """

    @staticmethod
    def forward(
        ctx: Any, step: TrunkStep, part: int, x: Tensor, order: Tensor, *parameters: nn.Parameter
    ) -> Tensor:
        """Return the features after the last part, otherwise a tensor that orders the nodes."""
        ctx.step, ctx.part, ctx.parameters, ctx.device = step, part, parameters, x.device.type
        ctx.set_materialize_grads(False)
        step.forward_part(part, x)
        return step.features() if part == len(step.trunk.parts) - 1 else x.new_empty(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        step: TrunkStep = ctx.step
        (of_features,) = gradients
        with torch.autocast(ctx.device, enabled=False):
            if of_features is not None:
                step.begin_backward(of_features)
            step.backward_part(ctx.part)
        # Removed from the dictionary: autograd copies a gradient that has another reference.
        results = [step.gradients.pop(parameter) for parameter in ctx.parameters]
        low = [i for i, gradient in enumerate(results) if gradient.dtype != torch.float32]
        cast = [torch.empty_like(results[i], dtype=torch.float32) for i in low]
        if low:
            torch._foreach_copy_(cast, [results[i] for i in low])
        for i, gradient in zip(low, cast, strict=True):
            results[i] = gradient
        return None, None, None, None, *results


@cache
def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on ``device``: they need Triton and the memory of a Hopper GPU."""
    # Tiles fill the shared memory of a Hopper GPU; others have less, or were not measured.
    hopper = torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9
    return hopper and find_spec("triton") is not None
