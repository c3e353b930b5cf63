"""The networks that a search starts from: ResNet-50, and small ones of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Kind, Layer

EXPANSION = 4

Profile = Literal["tiny", "laptop"]
Stem = Literal["imagenet", "small"]

_SMALL: dict[Profile, tuple[int, ...]] = {"tiny": (1, 1, 1), "laptop": (2, 2, 2, 2)}
"""The number of bottleneck blocks in each stage."""
_SMALL_WIDTH = 8


def resnet50(
    input_shape: tuple[int, int, int] = (3, 224, 224), classes: int = 1000
) -> Architecture:
    """Return ResNet-50 v1.5."""
    return resnet((3, 4, 6, 3), input_shape, classes)


def small(
    profile: Profile = "tiny", input_shape: tuple[int, int, int] = (3, 16, 16), classes: int = 4
) -> Architecture:
    """Return a starting network small enough for small images and two cores."""
    return resnet(_SMALL[profile], input_shape, classes, width=_SMALL_WIDTH, stem="small")


def resnet(
    blocks: Sequence[int],
    input_shape: tuple[int, int, int],
    classes: int,
    *,
    width: int = 64,
    stem: Stem = "imagenet",
    stride_in_1x1: bool = False,
) -> Architecture:
    """Return the architecture of `vflops.models.resnet` with ``blocks`` bottlenecks per stage.

    ``stride_in_1x1`` gives the original v1, which AIPerf starts from.
    """
    layers: list[Layer] = []

    def append(kind: Kind, *inputs: int, **fields: int) -> int:
        layers.append(Layer(id=len(layers) + 1, kind=kind, inputs=inputs, **fields))
        return len(layers)

    def conv(x: int, filters: int, kernel: int, stride: int = 1, *, relu: bool = True) -> int:
        return append("conv", x, filters=filters, kernel=kernel, stride=stride, relu=relu)

    x = conv(IMAGE, width, 7 if stem == "imagenet" else 5, 2)
    if stem == "imagenet":
        x = append("max-pool", x, kernel=3, stride=2)
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            first, second = (stride, 1) if stride_in_1x1 else (1, stride)
            main = conv(conv(x, inner, 1, first), inner, 3, second)
            main = conv(main, inner * EXPANSION, 1, relu=False)
            shortcut = x if block else conv(x, inner * EXPANSION, 1, stride, relu=False)
            x = append("add", main, shortcut, relu=True)
    append("dense", append("global-pool", x))
    return Architecture(input_shape=input_shape, classes=classes, layers=tuple(layers))
