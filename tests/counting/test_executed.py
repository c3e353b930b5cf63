"""``executed`` against an independent oracle: torch's FlopCounterMode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.support.networks import CASES
from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.models.resnet import resnet50, resnet50_v1


def oracle(
    build: Callable[[], nn.Module], spec: InputSpec, batch: int, *, loss: bool = False
) -> tuple[int, int]:
    """Return forward and backward FLOPs by FlopCounterMode on the meta device."""
    with torch.device("meta"):
        model = build().train()
        x = torch.empty((batch, *spec.shape), dtype=getattr(torch, spec.dtype))
    with FlopCounterMode(display=False) as forward:
        result = model(x)
        total: Tensor = cross_entropy(result) if loss else result.sum()
    with FlopCounterMode(display=False) as backward:
        total.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 3])
def test_forward_and_backward_equal_flop_counter_mode(name: str, batch: int) -> None:
    build, spec = CASES[name]
    graph = capture(build, [spec], name=name, batch=batch)
    total = count(graph, convention("executed-torch")).total
    assert (total.forward, total.backward) == oracle(build, spec, batch)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"depthwise", "grouped"}))
def test_without_groups_executed_is_what_flop_counter_mode_says(name: str) -> None:
    build, spec = CASES[name]
    graph = capture(build, [spec], name=name, batch=2)
    ours, torchs = (count(graph, convention(name)) for name in ("executed", "executed-torch"))
    assert ours.total == torchs.total


@pytest.mark.parametrize("build", [resnet50, resnet50_v1])
def test_resnet50_equals_flop_counter_mode(build: Callable[[], nn.Module]) -> None:
    spec = InputSpec((3, 224, 224))
    graph = capture(build, [spec], name="resnet", batch=2, loss=cross_entropy)
    total = count(graph, convention("executed")).total
    assert (total.forward, total.backward) == oracle(build, spec, 2, loss=True)


class _Split(nn.Module):
    """A grouped convolution as ``groups`` plain ones: the same function, no groups to miscount."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Conv2d(channels_in // groups, channels_out // groups, kernel) for _ in range(groups)
        )

    def forward(self, x: Tensor) -> Tensor:
        pieces = x.chunk(len(self.parts), dim=1)
        return torch.cat([part(p) for part, p in zip(self.parts, pieces, strict=True)], dim=1)


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_grouped_convolution_costs_what_its_groups_cost_apart(groups: int) -> None:
    spec = InputSpec((3, 10, 10))

    def as_groups() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 3, groups=groups))

    def apart() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), _Split(8, 16, 3, groups))

    graph = capture(as_groups, [spec], name="grouped")
    total = count(graph, convention("executed")).total
    assert (total.forward, total.backward) == oracle(apart, spec, 1)
    # and FlopCounterMode on the grouped one charges the weight gradient `groups` times
    weight_gradient = 2 * 8 * 8 * 16 * (8 // groups) * 9
    excess = oracle(as_groups, spec, 1)[1] - total.backward
    assert excess == (groups - 1) * weight_gradient


def test_nothing_behind_a_detach_or_without_gradients_is_charged_backward() -> None:
    build, spec = CASES["frozen"]
    counted = count(capture(build, [spec], name="frozen"), convention("executed"))
    backward = {row.name: row.ops.backward for row in counted.by_layer}
    assert backward == {"frozen": 0, "cut": 0, "unused": 0, "trained": 2 * 8 * 4}
