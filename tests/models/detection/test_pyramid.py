"""The feature pyramid agrees with its definition, for levels that halve and for odd ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.detection.pyramid import Pyramid

WIDE = (5, 6, 7)
SHAPES = [
    pytest.param(((16, 24), (8, 12), (4, 6)), id="each twice the next"),
    pytest.param(((15, 23), (8, 12), (4, 6)), id="odd below"),
    pytest.param(((14, 22), (7, 11), (4, 6)), id="odd above"),
    pytest.param(((16, 23), (8, 12), (4, 6)), id="odd columns"),
    pytest.param(((7, 12), (4, 6), (2, 3)), id="odd rows"),
    pytest.param(((8, 2), (4, 1), (2, 1)), id="one column"),
]
Shapes = tuple[tuple[int, int], ...]


def made(*, pooled: bool) -> Pyramid:
    torch.manual_seed(1)
    pyramid = Pyramid(WIDE, 4, pooled=pooled).double()
    for name, parameter in pyramid.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return pyramid


def stages(shapes: Shapes) -> list[Tensor]:
    chance = torch.Generator().manual_seed(2)
    return [
        torch.randn(2, wide, *shape, generator=chance, dtype=torch.float64).requires_grad_()
        for wide, shape in zip(WIDE, shapes, strict=True)
    ]


def by_definition(pyramid: Pyramid, inputs: list[Tensor], pooled: bool) -> list[Tensor]:
    """Add the nearest values of the coarser sum to each level, then convolve 3 × 3."""
    weights = dict(pyramid.named_parameters())
    sums = [
        functional.conv2d(x, weights[f"lateral.{at}.weight"], weights[f"lateral.{at}.bias"])
        for at, x in enumerate(inputs)
    ]
    for at in reversed(range(len(sums) - 1)):
        size = sums[at].shape[-2:]
        sums[at] = sums[at] + functional.interpolate(sums[at + 1], size=size, mode="nearest")
    levels = [
        functional.conv2d(
            x, weights[f"output.{at}.weight"], weights[f"output.{at}.bias"], padding=1
        )
        for at, x in enumerate(sums)
    ]
    return [*levels, levels[-1][..., ::2, ::2]] if pooled else levels


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("shapes", SHAPES)
def test_values_and_gradients_are_those_of_the_definition(shapes: Shapes, pooled: bool) -> None:
    pyramid, inputs = made(pooled=pooled), stages(shapes)
    actual, expected = pyramid(inputs), by_definition(pyramid, inputs, pooled)
    torch.testing.assert_close(actual, expected)
    chance = torch.Generator().manual_seed(3)
    towards = [torch.randn(x.shape, generator=chance, dtype=x.dtype) for x in expected]
    of = [*inputs, *pyramid.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(actual, of, towards), torch.autograd.grad(expected, of, towards)
    )


@pytest.mark.parametrize("shapes", SHAPES)
def test_the_finest_level_is_told_what_the_coarsest_has_seen(shapes: Shapes) -> None:
    pyramid, inputs = made(pooled=False), stages(shapes)
    (gradient,) = torch.autograd.grad(pyramid(inputs)[0].sum(), inputs[-1])
    assert (gradient != 0).all()
