"""The neutral description has the layers, names and shapes of the ResNet that PyTorch trains."""

from __future__ import annotations

import pytest
from torch import nn

from vflops.models.resnet import ResNet
from vflops.record.formats.job import DataFacts
from vflops.workloads.image_classification.description import classifier
from vflops.workloads.image_classification.settings import ImageSettings, ResNetSettings

Shapes = dict[str, tuple[int, ...]]


class Tracer:
    """Operators that note the shapes of parameters; values are (channels, pixels)."""

    def __init__(self) -> None:
        self.shapes: Shapes = {}

    def conv(
        self, x: tuple[int, int], name: str, filters: int, kernel: int, stride: int
    ) -> tuple[int, int]:
        self.shapes[f"{name}.weight"] = (filters, x[0], kernel, kernel)
        return filters, -(-x[1] // stride)

    def norm(self, x: tuple[int, int], name: str) -> tuple[int, int]:
        for part in ("weight", "bias", "running_mean", "running_var"):
            self.shapes[f"{name}.{part}"] = (x[0],)
        self.shapes[f"{name}.num_batches_tracked"] = ()
        return x

    def relu(self, x: tuple[int, int]) -> tuple[int, int]:
        return x

    def add(self, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
        assert x == y
        return x

    def max_pool(self, x: tuple[int, int]) -> tuple[int, int]:
        return x[0], -(-x[1] // 2)

    def mean(self, x: tuple[int, int]) -> tuple[int, int]:
        return x[0], 1

    def dense(self, x: tuple[int, int], name: str, outputs: int) -> tuple[int, int]:
        self.shapes[f"{name}.weight"] = (outputs, x[0])
        self.shapes[f"{name}.bias"] = (outputs,)
        return outputs, 1


@pytest.mark.parametrize(
    ("blocks", "width", "stem"),
    [((3, 4, 6, 3), 64, "imagenet"), ((1, 1, 1), 8, "small"), ((2, 1), 4, "imagenet")],
)
def test_names_and_shapes_are_those_of_pytorch(
    blocks: tuple[int, ...], width: int, stem: str
) -> None:
    network = ResNetSettings.model_validate({"blocks": blocks, "width": width, "stem": stem})
    data = DataFacts(
        path="", synthetic=True, fingerprint="", train=1, validation=1, facts={"classes": 7}
    )
    described = classifier(ImageSettings(network=network), data)
    tracer = Tracer()
    assert described.logits((3, described.size), tracer) == (7, 1)
    model: nn.Module = ResNet(blocks, classes=7, width=width, stem=network.stem)
    assert tracer.shapes == {name: tuple(t.shape) for name, t in model.state_dict().items()}
