"""ResNet with a fused training step: the same function with fewer passes over memory.

State names, initial values, gradients and running statistics are those of ``ResNet``. The class
is a subclass of it, and falls back to it where the kernels do not apply: on a CPU, in
evaluation, and without Triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_layers import IMAGE, FusedLayer, FusedLayers
from vflops.models.fused_trunk import FusedTrunk, runs_on
from vflops.models.resnet import Bottleneck, ResNet

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
        self._trunk = FusedTrunk(_layers(self), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (logits), one row per sample."""
        if not self.fuses(x):
            with torch.autocast(x.device.type, self.dtype, enabled=x.device.type != "cpu"):
                return super().forward(x)
        classifier = self.classifier
        with torch.autocast(x.device.type, enabled=False):  # the dtypes are chosen here
            return functional.linear(
                self._trunk.features(x),
                classifier.weight.to(self.dtype),
                classifier.bias.to(self.dtype),
            )

    def fuses(self, x: Tensor) -> bool:
        """Whether the kernels apply to ``x``: training on Hopper, with sizes that fit the tiles."""
        if not (self.training and torch.is_grad_enabled() and x.is_cuda and runs_on(x.device)):
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


def _layers(network: ResNet) -> FusedLayers:
    """Return the layers of a ResNet's trunk."""
    layers: list[FusedLayer] = []

    def convolution(source: int, conv: nn.Module, bn: nn.Module, *, relu: bool = True) -> int:
        assert isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d)
        id = len(layers) + 1
        layers.append(FusedLayer(id, "conv", (source,), relu, conv, bn))
        return id

    x = convolution(IMAGE, network.stem[0], network.stem[1])
    if any(isinstance(module, nn.MaxPool2d) for module in network.stem):
        layers.append(FusedLayer(x + 1, "max-pool", (x,), kernel=3, stride=2))
        x += 1
    for block in network.modules():
        if isinstance(block, Bottleneck):
            main = convolution(x, block.conv1, block.bn1)
            main = convolution(main, block.conv2, block.bn2)
            main = convolution(main, block.conv3, block.bn3, relu=False)
            if block.projection is not None:
                x = convolution(x, *block.projection.children(), relu=False)
            layers.append(FusedLayer(len(layers) + 1, "add", (main, x)))
            x = len(layers)
    return FusedLayers(tuple(layers))
