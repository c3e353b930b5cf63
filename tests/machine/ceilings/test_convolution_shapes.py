from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vflops.machine.ceilings.convolution_shapes import (
    ConvolutionShape,
    extreme_weather,
    resnet50,
    search_order,
)


def test_resnet50_has_53_convolutions_of_the_known_flops() -> None:
    shapes = resnet50()
    assert shapes.total() == 53
    # torch's FlopCounterMode on torchvision's v1.5 gives this and 2·2048·1000 for the last layer
    assert sum(shape.flops * count for shape, count in shapes.items()) == 8_174_272_512


def test_extreme_weather_has_the_backbone_the_pyramid_and_the_proposal_head() -> None:
    shapes = extreme_weather()
    assert shapes.total() == 53 + 4 + 4 + 4
    # the backbone is ResNet-50 on 17.63 times the pixels, but for its stem's 16 channels
    backbone = sum(
        shape.flops * count
        for shape, count in shapes.items()
        if "fpn" not in shape.part and "stem" not in shape.part
    )
    stem = 2 * 64 * 112 * 112 * 3 * 49
    assert backbone * (224 * 224) == (8_174_272_512 - stem) * (768 * 1152)


@pytest.mark.parametrize("shape", sorted(resnet50(), key=lambda shape: shape.flops)[::5])
def test_flops_and_sizes_are_those_of_torch(shape: ConvolutionShape) -> None:
    with torch.device("meta"):
        x = torch.empty(2, shape.channels_in, shape.height, shape.width)
        weight = torch.empty(shape.channels_out, shape.channels_in, shape.kernel, shape.kernel)
        with FlopCounterMode(display=False) as counter:
            y = torch.conv2d(x, weight, None, shape.stride, shape.padding)
    assert y.shape == (2, shape.channels_out, shape.height_out, shape.width_out)
    assert counter.get_total_flops() == 2 * shape.flops
    assert x.numel() + y.numel() == 2 * shape.numbers


def test_the_search_takes_every_shape_once_and_both_workloads_by_turns() -> None:
    order = search_order(densest_first=False)
    assert set(order) == set(resnet50()) | set(extreme_weather())
    assert len(order) == len(set(order))
    first = order[:6]
    assert {shape.part.split(".")[0] for shape in first} == {"resnet50", "weather"}
    assert {shape.kernel for shape in first} == {1, 3, 7}
    assert order[0].flops == min(shape.flops for shape in order)


def test_a_setting_tells_shapes_apart() -> None:
    settings = {tuple(shape.setting(1).items()) for shape in search_order(densest_first=False)}
    assert len(settings) == len(search_order(densest_first=False))
