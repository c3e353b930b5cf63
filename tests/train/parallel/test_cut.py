"""Cutting a model into stages: balanced, without a change of what it computes, or refused."""

from __future__ import annotations

import itertools
import random
from typing import Any, cast

import pytest
import torch
from torch import Tensor, fx, nn

from vflops.config.training import TrainSettings
from vflops.counting.capture import InputSpec
from vflops.errors import UsageError
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.faster_rcnn import FasterRCNN
from vflops.models.resnet import ResNet
from vflops.train.parallel.balance import balanced, max_parts
from vflops.train.parallel.cut import StageCut, cut
from vflops.train.parallel.message import Layout
from vflops.train.parallel.pipeline_parallel import bubble
from vflops.train.parallel.stages import keep_only
from vflops.workloads.contract.workload import Workload


class Given:
    """As much of a workload as a cut asks for."""

    def __init__(self, model: Any, *specs: InputSpec) -> None:
        self.model, self._specs, self.model_inputs = model, specs, len(specs)

    def input_specs(self) -> tuple[InputSpec, ...]:
        return self._specs


def stages(model: Any, number: int, *inputs: InputSpec, copies: int = 1) -> list[StageCut]:
    mesh = {"mode": "mixed", "mesh": [copies, number]} if copies > 1 else {"mode": "pipeline"}
    ranks = copies * number
    train = TrainSettings(ranks=ranks, batch=256 * ranks, accumulate=number, parallel=mesh)
    return cut(cast(Workload, Given(model, *inputs)), train)


def small() -> ResNet:
    return ResNet((1, 2), classes=5, width=8, stem="small")


IMAGE, VECTOR = InputSpec((3, 16, 16)), InputSpec((8,))


Passed = list[tuple[list[Tensor], list[Tensor]]]


def through(model: nn.Module, cuts: list[StageCut], *inputs: Tensor) -> Passed:
    """Return what each stage receives, as leaves of its graph, and its output."""
    passed: Passed = []
    for item in cuts:
        before = passed[-1][1] if passed else []
        received = [tensor.detach().clone().requires_grad_() for tensor in before]
        direct_inputs = [inputs[number] for number in item.inputs]
        made = fx.GraphModule(model, item.graph)(*received, *direct_inputs)
        passed.append((received, list(made) if isinstance(made, tuple) else [made]))
    return passed


@pytest.mark.parametrize("number", [2, 4, 11])
def test_stages_compute_what_the_model_does(number: int) -> None:
    """Also the gradients, with a cut at every place that a layer allows; in double precision."""
    torch.manual_seed(1)
    model, images = small().double(), torch.randn(4, *IMAGE.shape, dtype=torch.float64)
    cuts = stages(small, number, IMAGE)
    passed = through(model, cuts, images)
    gradients: list[Tensor | None] = [2 * passed[-1][1][0].detach()]
    for received, made in reversed(passed):
        torch.autograd.backward(made, gradients)
        gradients = [tensor.grad for tensor in received]
    chosen = {name: item.grad for name, item in model.named_parameters()}
    model.zero_grad()
    whole = model(images)
    assert torch.equal(passed[-1][1][0], whole)
    whole.square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(chosen[name], parameter.grad, rtol=1e-10, atol=1e-12, msg=name)
    assert sum(item.operations for item in cuts) > 0 and len(cuts) == number


def test_every_weight_is_on_one_stage_by_its_own_name() -> None:
    cuts = stages(small, 3, IMAGE)
    parts = [keep_only(small(), [item]) for item in cuts]
    names = [name for part in parts for name in part.state_dict()]
    assert sorted(names) == sorted(small().state_dict())
    sizes = [sum(item.numel() for item in part.parameters()) for part in parts]
    assert sum(sizes) == sum(item.numel() for item in small().parameters())
    both = keep_only(small(), [cuts[0], cuts[2]])
    assert set(both.state_dict()) == {*parts[0].state_dict(), *parts[2].state_dict()}


def test_the_largest_part_is_the_least_possible_and_then_the_least_is_sent() -> None:
    draw = random.Random(3)
    for _ in range(20):
        work = [draw.choice((0, 1, 2, 5, 9)) * 100 for _ in range(9)]
        layers = [bool(item) for item in work]
        cut_points = [*sorted(draw.sample(range(1, 9), 6)), 9]
        costs = [draw.randrange(1, 50) for _ in cut_points]
        parts = draw.randrange(2, 4)
        ways = [
            (*ends, 9)
            for ends in itertools.combinations(cut_points[:-1], parts - 1)
            if all(any(layers[a:b]) for a, b in itertools.pairwise((0, *ends, 9)))
        ]
        assert bool(ways) == (max_parts(cut_points, layers) >= parts)
        if not ways:
            continue

        def judged(
            ends: tuple[int, ...], work: Any = work, cost: Any = costs, at: Any = cut_points
        ) -> Any:
            sizes = [sum(work[a:b]) for a, b in itertools.pairwise((0, *ends))]
            return max(sizes), sum(cost[at.index(end)] for end in ends)

        chosen = tuple(balanced(cut_points, work, layers, costs, parts))
        assert judged(chosen) == min(judged(ends) for ends in ways)


def test_the_body_of_a_detector_is_cut_and_its_head_gets_the_truth_itself() -> None:
    design = DetectorDesign(
        blocks=(1, 1, 1, 1), width=8, channels=16, hidden=16, candidates=20, proposals=10
    )

    def detector() -> FasterRCNN:
        return FasterRCNN(design, classes=3, channels=4, height=64, width=96)

    shapes = InputSpec((4, 64, 96)), InputSpec((5, 4)), InputSpec((5,), "int64"), InputSpec(())
    cuts = stages(detector, 2, *shapes)
    assert [item.inputs for item in cuts] == [(0,), (1, 2, 3)]
    assert "head" in cuts[1].uses and "body.stem.0" in cuts[0].uses


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.first(self.again(x)))
        return cast(Tensor, self.last(x) + x)


def test_a_layer_that_is_called_twice_is_not_torn() -> None:
    first, second = stages(Tied, 2, VECTOR)
    assert first.uses == {"first", "again"} and second.uses == {"last"}


class TwoNames(nn.Module):
    """Its last layer has the weights of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.last(self.middle(self.first(x))))


def test_a_weight_with_two_names_may_be_on_two_stages() -> None:
    cuts = stages(TwoNames, 3, VECTOR)
    assert [sorted(item.uses) for item in cuts] == [["first"], ["middle"], ["last"]]
    assert [item.needs("last.weight") for item in cuts] == [False, False, True]
    parts = [keep_only(TwoNames(), [item]) for item in cuts]
    assert [list(part.state_dict()) for part in parts] == [
        ["first.weight"],
        ["middle.weight"],
        ["last.weight"],
    ]


class ByShape(nn.Linear):
    """Its forward pass branches on what fx does not know."""

    __module__ = "here"

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input if input.sum() else -input)


class Whole(ByShape):
    traced_whole = True

    def forward(self, input: Tensor) -> Tensor:
        return nn.Linear.forward(self, input * 2 if self.training else input)


class OnlyInTraining(nn.Linear):
    __module__ = "here"

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + 1 if self.training else input)


def pair(kind: type[nn.Module]) -> Any:
    return lambda: nn.Sequential(kind(8, 8), nn.Linear(8, 8))


@pytest.mark.parametrize(
    ("kind", "reason"), [(ByShape, "torch.fx cannot trace"), (OnlyInTraining, "in training")]
)
def test_a_model_that_cannot_be_traced_is_refused(kind: type[nn.Module], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        stages(pair(kind), 2, VECTOR)
    assert "traced_whole = True" in str(caught.value.hint)


def test_a_module_that_is_left_whole_may_do_what_it_likes() -> None:
    assert [item.uses for item in stages(pair(Whole), 2, VECTOR)] == [{"0"}, {"1"}]


@pytest.mark.parametrize(("copies", "ranks"), [(1, 2), (2, 4)])
def test_more_stages_than_layers_are_refused_with_what_fits(copies: int, ranks: int) -> None:
    with pytest.raises(UsageError, match="3 stages: it has layers for at most 2") as caught:
        stages(pair(nn.Linear), 3, VECTOR, copies=copies)
    assert caught.value.hint == f"use --ranks {ranks} or fewer"


def test_images_that_lie_channels_last_are_sent_as_they_lie() -> None:
    images = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    layout = Layout.of(images)
    sent = layout.packed(images)
    assert sent.is_contiguous() and sent.data_ptr() == images.data_ptr()
    assert torch.equal(layout.unpacked(sent), images)
    other = images.contiguous()
    assert torch.equal(layout.packed(other), sent)  # whatever its memory format


def test_the_bubble_of_theory() -> None:
    assert bubble(2, 4) == 1 / 5
    assert bubble(4, 8, 2) == 3 / 19
    assert bubble(4, 1) == 3 / 4  # no overlap: one rank of four computes
