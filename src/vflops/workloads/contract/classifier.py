"""Image classifiers described without a framework: the network and the names of its arrays.

The network is written once, in terms of seven operators. Whoever implements them can compute it:
every framework trains the same layers under the same names, those of ``vflops.models.resnet``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

EXPANSION = 4
NORM_EPSILON = 1e-5
NORM_MOMENTUM = 0.1
"""The share of a batch in the running statistics of batch norm."""
Arrays = dict[str, NDArray[Any]]
"""Arrays by the names that they have in PyTorch; convolutions have shape (out, in, height,
width)."""
RUNNING = ("running_mean", "running_var")
"""The running statistics of batch norm."""
COUNTER = "num_batches_tracked"


class Operators(Protocol):
    """The operators of a framework; ``name`` is the prefix of a layer's parameters."""

    def conv(self, x: Any, name: str, filters: int, kernel: int, stride: int) -> Any:
        """Return a convolution without bias, padded by ``kernel // 2``."""

    def norm(self, x: Any, name: str) -> Any:
        """Return a batch norm."""

    def relu(self, x: Any) -> Any:
        """Return the positive part."""

    def add(self, x: Any, y: Any) -> Any:
        """Return the sum."""

    def max_pool(self, x: Any) -> Any:
        """Return the maxima of 3×3 windows with stride 2, padded by 1."""

    def mean(self, x: Any) -> Any:
        """Return the mean of each channel."""

    def dense(self, x: Any, name: str, outputs: int) -> Any:
        """Return a linear layer with bias."""


@dataclass(frozen=True)
class Classifier:
    """A ResNet with bottleneck blocks and its loss, a cross entropy with label smoothing."""

    blocks: tuple[int, ...]
    width: int
    stem: str
    classes: int
    size: int
    """The side length of the images, in pixels."""
    label_smoothing: float = 0.0
    channels: int = 3

    def logits(self, x: Any, ops: Operators) -> Any:
        """Return class scores, computed from images by the operators of a framework."""

        def unit(x: Any, conv: str, norm: str, filters: int, kernel: int, stride: int = 1) -> Any:
            return ops.norm(ops.conv(x, conv, filters, kernel, stride), norm)

        kernel = 7 if self.stem == "imagenet" else 5
        x = ops.relu(unit(x, "stem.0", "stem.1", self.width, kernel, 2))
        if self.stem == "imagenet":
            x = ops.max_pool(x)
        for stage, count in enumerate(self.blocks):
            inner = self.width * 2**stage
            for block in range(count):
                name = f"stages.{stage}.{block}"
                stride = 2 if stage and not block else 1
                shortcut = x
                if not block:
                    names = (f"{name}.projection.0", f"{name}.projection.1")
                    shortcut = unit(x, *names, inner * EXPANSION, 1, stride)
                y = ops.relu(unit(x, f"{name}.conv1", f"{name}.bn1", inner, 1))
                y = ops.relu(unit(y, f"{name}.conv2", f"{name}.bn2", inner, 3, stride))
                y = unit(y, f"{name}.conv3", f"{name}.bn3", inner * EXPANSION, 1)
                x = ops.relu(ops.add(y, shortcut))
        return ops.dense(ops.mean(x), "classifier", self.classes)


def parameter_names(arrays: Arrays) -> list[str]:
    """Return the names of the arrays that are trained."""
    return [name for name in arrays if not name.endswith((*RUNNING, COUNTER))]


def is_decayed(name: str, array: NDArray[Any]) -> bool:
    """Whether weight decay applies: not to biases and batch norm."""
    return array.ndim > 1
