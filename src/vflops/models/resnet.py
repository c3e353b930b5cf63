"""ResNets with bottleneck blocks, in both published forms.

v1 has the stride of a stage in the first 1×1 convolution of its first block (He et al. 2016, and
AIPerf's starting point); v1.5 has it in the 3×3 (HPC AI500's image classification). Both have the
same parameters; v1.5 does 6 % more work and is about half a point more accurate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

EXPANSION = 4

Stem = Literal["imagenet", "small"]


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up, added to the input, which is projected if the shapes differ."""

    channel_pairs = (("conv1", "bn1", "conv2"),)
    """Layers whose channels can be divided between ranks."""

    def __init__(self, channels_in: int, width: int, stride: int, *, stride_in_1x1: bool) -> None:
        super().__init__()
        channels_out = width * EXPANSION
        first, second = (stride, 1) if stride_in_1x1 else (1, stride)
        self.conv1 = nn.Conv2d(channels_in, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.projection: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.projection = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        shortcut = x if self.projection is None else self.projection(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        result: Tensor = self.relu(x)
        return result


def _stem(kind: Stem, channels: int, width: int) -> nn.Sequential:
    """Return 7×7/2 and max-pooling as published; for small images only 5×5/2."""
    kernel = 7 if kind == "imagenet" else 5
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, kernel, stride=2, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    if kind == "imagenet":
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers)


class ResNetBody(nn.Module):
    """A stem and stages of ``blocks`` bottlenecks; ``width`` is that of the first stage."""

    def __init__(
        self,
        blocks: Sequence[int] = (3, 4, 6, 3),
        *,
        channels: int = 3,
        width: int = 64,
        stem: Stem = "imagenet",
        stride_in_1x1: bool = False,
    ) -> None:
        super().__init__()
        self.stem = _stem(stem, channels, width)
        stages: list[nn.Module] = []
        channels_in = width
        for index, count in enumerate(blocks):
            stage_width = width * 2**index
            stage: list[nn.Module] = []
            for block in range(count):
                stride = 2 if index > 0 and block == 0 else 1
                stage.append(
                    Bottleneck(channels_in, stage_width, stride, stride_in_1x1=stride_in_1x1)
                )
                channels_in = stage_width * EXPANSION
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.channels_out = tuple(width * 2**index * EXPANSION for index in range(len(blocks)))
        """Channels of the output of each stage."""

    def stage_outputs(self, x: Tensor) -> list[Tensor]:
        """Return the output of each stage."""
        x = self.stem(x)
        results = []
        for stage in self.stages:
            x = stage(x)
            results.append(x)
        return results

    def initialise(self) -> None:
        """Apply He initialisation, as in AIPerf's table IV and HPC AI500's recipe."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNet(ResNetBody):
    """A ResNet that classifies images."""

    def __init__(
        self,
        blocks: Sequence[int] = (3, 4, 6, 3),
        *,
        classes: int = 1000,
        channels: int = 3,
        width: int = 64,
        stem: Stem = "imagenet",
        stride_in_1x1: bool = False,
    ) -> None:
        super().__init__(
            blocks, channels=channels, width=width, stem=stem, stride_in_1x1=stride_in_1x1
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(self.channels_out[-1], classes)
        self.initialise()

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (logits), one row per sample."""
        x = self.pool(self.stages(self.stem(x)))
        logits: Tensor = self.classifier(x.flatten(1))
        return logits


def resnet50() -> ResNet:
    """Return ResNet-50 v1.5, with 25 557 032 parameters."""
    return ResNet()


def resnet50_v1() -> ResNet:
    """Return ResNet-50 as first published."""
    return ResNet(stride_in_1x1=True)
