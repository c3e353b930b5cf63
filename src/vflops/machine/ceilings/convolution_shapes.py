"""The shapes of the convolutions in the two workloads, which the benchmark runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from vflops.machine.ceilings.interleave import interleave


@dataclass(frozen=True)
class ConvolutionShape:
    """A two-dimensional convolution with a square kernel, padded to keep the size."""

    part: str
    """The part of a model where it occurs: ``resnet50.stage2``, ``weather.fpn8`` …"""
    channels_in: int
    channels_out: int
    height: int
    """Height of the input."""
    width: int
    kernel: int
    stride: int = 1

    @property
    def padding(self) -> int:
        """Number of zeros on each side."""
        return self.kernel // 2

    @property
    def height_out(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def width_out(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        """Operations per image, the same in all three directions: 2·Cout·Ho·Wo·Cin·K²."""
        taps = self.channels_in * self.kernel**2
        return 2 * self.channels_out * self.height_out * self.width_out * taps

    @property
    def numbers(self) -> int:
        """Number of elements in the input and the output of one image."""
        inputs = self.channels_in * self.height * self.width
        return inputs + self.channels_out * self.height_out * self.width_out

    def setting(self, batch: int) -> dict[str, int | str]:
        """Return the setting as it is recorded."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return {
            "shape": self.part,
            "kernel": f"{self.kernel}x{self.kernel}{stride}",
            "channels": f"{self.channels_in}-{self.channels_out}",
            "size": f"{self.height}x{self.width}",
            "batch": batch,
        }


def resnet50() -> Counter[ConvolutionShape]:
    """Return the convolutions of ResNet-50 v1.5 at 3×224×224, with the number of occurrences."""
    return Counter(_backbone("resnet50", 3, 224, 224))


def extreme_weather() -> Counter[ConvolutionShape]:
    """Return the convolutions of the extreme-weather detector at 16×768×1152."""
    shapes = Counter(_backbone("weather", 16, 768, 1152))
    for stage in range(4):
        scale = 4 << stage
        height, width = 768 // scale, 1152 // scale
        part = f"weather.fpn{scale}"
        shapes[ConvolutionShape(part, 256 << stage, 256, height, width, 1)] += 1
        # The pyramid's output convolution and the region proposal head have the same shape.
        shapes[ConvolutionShape(part, 256, 256, height, width, 3)] += 2
    return shapes


def search_order(*, densest_first: bool) -> list[ConvolutionShape]:
    """Return all shapes, alternating between workloads and kernel sizes in case time runs out.

    On an accelerator, where all calls are short, shapes with the most FLOPs per element come first:
    they are the most likely to reach the peak. On a CPU shapes with the fewest FLOPs come first, so
    that a long call does not use up the time.
    """
    queues = [
        sorted(
            (shape for shape in shapes if shape.kernel == kernel),
            key=lambda shape: (
                -shape.flops / shape.numbers if densest_first else shape.flops,
                shape.part,
                shape.channels_in,
            ),
        )
        for kernel in (3, 1, 7)
        for shapes in (resnet50(), extreme_weather())
    ]
    if not densest_first:
        queues.sort(key=lambda queue: queue[0].flops)
    return list(interleave(*queues))


def _backbone(model: str, channels: int, height: int, width: int) -> Iterator[ConvolutionShape]:
    yield ConvolutionShape(f"{model}.stem", channels, 64, height, width, 7, 2)
    channels, height, width = 64, height // 4, width // 4
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        part = f"{model}.stage{stage + 1}"
        for block in range(blocks):
            # v1.5 halves the size in the 3×3 convolution of a stage's first block.
            stride = 2 if stage > 0 and block == 0 else 1
            yield ConvolutionShape(part, channels, inner, height, width, 1)
            yield ConvolutionShape(part, inner, inner, height, width, 3, stride)
            if block == 0:
                yield ConvolutionShape(part, channels, 4 * inner, height, width, 1, stride)
            height, width = height // stride, width // stride
            yield ConvolutionShape(part, inner, 4 * inner, height, width, 1)
            channels = 4 * inner
