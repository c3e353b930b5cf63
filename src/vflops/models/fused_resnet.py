"""ResNet with a fused training step: the same function with fewer passes over memory.

Training a ResNet is limited by memory bandwidth, not by arithmetic: between two convolutions the
plain model reads and writes each activation about fourteen times per step. Here the convolution
before a batch normalisation computes its sums, the one after it applies its scale and the ReLU, and
the 1×1 convolutions of the early stages compute both gradients in one pass. cuDNN still
computes 3×3 convolutions, and 1×1 ones that are limited by arithmetic.

State names, initial values, gradients and running statistics are those of ``ResNet``. The class
is a subclass of it, and falls back to it where the kernels do not apply: on a CPU, in
evaluation, and without Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_step import TrunkStep
from vflops.models.resnet import ResNet

PIXELS = 32
"""The number of pixels of the smallest activation must be a multiple of this for the kernels."""


class FusedResNet(ResNet):
    """A ResNet with fused forward and backward passes in training; activations have ``dtype``.

    Parameters stay in fp32. With fp16, scale the loss, as with ``torch.autocast``. Each forward
    pass allows one backward pass and no second derivative. ``torch.compile`` does not help: record
    the whole step as a CUDA graph instead.
    """

    def __init__(self, *args: Any, dtype: torch.dtype = torch.float16, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dtype = dtype
        self._compiled_for: torch.Size | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (logits), one row per sample."""
        if not self.fuses(x):
            with torch.autocast(x.device.type, self.dtype, enabled=x.device.type != "cpu"):
                return super().forward(x)
        run: Any = _Trunk.apply
        classifier = self.classifier
        with torch.autocast(x.device.type, enabled=False):  # the dtypes are chosen here
            self._compile_kernels(x)
            features = run(self, x, *self._trunk_parameters())
            return functional.linear(
                features, classifier.weight.to(self.dtype), classifier.bias.to(self.dtype)
            )

    def fuses(self, x: Tensor) -> bool:
        """Whether the kernels apply to ``x``: training on Hopper, with sizes that fit the tiles."""
        if not (self.training and torch.is_grad_enabled() and x.is_cuda and _runs_on(x.device)):
            return False
        batch, channels, height, width = x.shape
        conv = self.stem[0]
        assert isinstance(conv, nn.Conv2d)
        largest = batch * (height // 2) * (width // 2) * conv.out_channels
        return (
            (channels, conv.out_channels, len(self.stages)) == (3, 64, 4)
            and not x.requires_grad
            and (height % 32, width % 32) == (0, 0)
            and batch * (height // 32) * (width // 32) % PIXELS == 0
            and largest < 2**31  # the kernels use 32-bit offsets
        )

    def _compile_kernels(self, x: Tensor) -> None:
        """Compile all kernels together before the first step: one by one they take half a minute.

        This takes steps that change neither weights nor running statistics. Convolutions by cuDNN
        do run, on arbitrary values: first without its search for algorithms, so that all kernels
        start to compile at once, then with the search while they compile.
        """
        if self._compiled_for == x.shape:
            return
        from vflops.models.kernels.launching import compile_together

        searches = torch.backends.cudnn.benchmark

        def step() -> None:
            try:
                for search in (False, True) if searches else (False,):
                    torch.backends.cudnn.benchmark = search
                    trunk = TrunkStep(self, self.dtype)
                    trunk.backward(trunk.forward(x))
            finally:
                torch.backends.cudnn.benchmark = searches

        layers = [tuple(p.shape) for p in self._trunk_parameters()]
        device = torch.cuda.get_device_name(x.device)
        with torch.no_grad():
            compile_together(f"{device} {self.dtype} {x.dtype} {tuple(x.shape)} {layers}", step)
        self._compiled_for = x.shape

    def _count_batch(self) -> None:
        """Increment the number of batches that each batch normalisation has seen."""
        norms = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]
        counters = [n.num_batches_tracked for n in norms if n.num_batches_tracked is not None]
        torch._foreach_add_(counters, 1)

    def _trunk_parameters(self) -> Iterator[nn.Parameter]:
        yield from self.stem.parameters()
        yield from self.stages.parameters()


class _Trunk(torch.autograd.Function):
    """The trunk as one autograd node: features from images and all its parameters."""

    @staticmethod
    def forward(ctx: Any, model: FusedResNet, x: Tensor, *parameters: nn.Parameter) -> Tensor:
        model._count_batch()
        step = TrunkStep(model, model.dtype)
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
def _runs_on(device: torch.device) -> bool:
    # Tiles fill the shared memory of a Hopper GPU; others have less, or were not measured.
    hopper = torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9
    return hopper and find_spec("triton") is not None
