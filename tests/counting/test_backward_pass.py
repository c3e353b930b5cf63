"""What only the backward pass shows, against FlopCounterMode: custom functions, recomputation."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import vflops
from tests.support.networks import CASES
from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.errors import FolderError
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.faster_rcnn import FasterRCNN
from vflops.models.resnet import resnet50
from vflops.record.formats.graph import Graph


class StraightThrough(torch.autograd.Function):
    """Rounds by several operators; the gradient passes unchanged."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Product(torch.autograd.Function):
    """A dense layer with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


class NoGradient(torch.autograd.Function):
    """Ends the backward pass without a word in the forward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        return None


class Reversible(torch.autograd.Function):
    """Saves only its input and runs the layer again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module, *weights: Tensor) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        result: Tensor = layer(x)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        torch.autograd.backward(y, gradient)
        return x.grad, *[None] * (1 + len(list(ctx.layer.parameters())))


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.middle = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        self.last = nn.Linear(16, 4)

    def between(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.between(self.first(x)))
        return result


class FakeQuantised(_Layers):
    def between(self, x: Tensor) -> Tensor:
        x = StraightThrough.apply(x)  # type: ignore[no-untyped-call]
        result: Tensor = StraightThrough.apply(self.middle(x))  # type: ignore[no-untyped-call]
        return result


class OwnProduct(_Layers):
    def between(self, x: Tensor) -> Tensor:
        for layer in (self.middle[0], self.middle[2]):
            x = Product.apply(x, layer.weight)  # type: ignore[no-untyped-call]
        return x


class Ended(_Layers):
    def between(self, x: Tensor) -> Tensor:
        result: Tensor = NoGradient.apply(self.middle(x))  # type: ignore[no-untyped-call]
        return result


class Checkpointed(_Layers):
    def between(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.middle, x, use_reentrant=True)
        return result


class CheckpointedByHooks(_Layers):
    def between(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.middle, x, use_reentrant=False)
        return result


class Reversed(_Layers):
    def between(self, x: Tensor) -> Tensor:
        result: Tensor = Reversible.apply(x, self.middle, *self.middle.parameters())  # type: ignore[no-untyped-call]
        return result


class CheckpointedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.second = nn.Conv2d(8, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.second, self.first(x), use_reentrant=True)
        return result


def oracle(model: nn.Module, x: Tensor) -> tuple[int, int]:
    """Return FLOPs of forward and backward by FlopCounterMode, on the CPU with real values."""
    model = copy.deepcopy(model)
    with FlopCounterMode(display=False) as forward:
        result = model(x)
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


_MIDDLE = 2 * 2 * (16 * 32 + 32 * 16)
"""Forward operations of the layers in the middle, for two samples."""


@pytest.mark.parametrize(
    ("build", "recompute"),
    [
        (FakeQuantised, 0),
        (OwnProduct, 0),
        (Ended, 0),
        (Checkpointed, _MIDDLE),
        (CheckpointedByHooks, _MIDDLE // 2),  # torch stops before the last product
        (Reversed, _MIDDLE),
    ],
)
def test_nothing_of_the_backward_pass_is_missing(build: type[nn.Module], recompute: int) -> None:
    model, x = build(), torch.ones(2, 8)
    counted = vflops.count(model, x)
    forward, backward = oracle(model, x)
    assert counted.recompute == recompute
    assert (counted.forward, counted.backward + counted.recompute) == (forward, backward)
    assert sum(row["total"] or 0 for row in counted.by_layer()) == counted.total
    assert sum(row["recompute"] or 0 for row in counted.by_layer()) == recompute


def test_a_checkpointed_convolution_is_counted_once_forward_and_its_gradients_once() -> None:
    model, x = CheckpointedConvolution(), torch.ones(2, 3, 8, 8)
    counted = vflops.count(model, x)
    assert counted.recompute == 2 * 2 * 4 * 4 * 8 * 8 * 9
    assert (counted.forward, counted.backward + counted.recompute) == oracle(model, x)


def test_recomputation_has_the_scope_of_its_module() -> None:
    counted = vflops.count(Checkpointed(), torch.ones(2, 8))
    recomputed = {row["name"]: row["recompute"] for row in counted.by_layer() if row["recompute"]}
    assert recomputed == {"middle.0": _MIDDLE // 2, "middle.2": _MIDDLE // 2}


def test_rules_with_a_fixed_backward_factor_count_a_checkpointed_layer_once() -> None:
    class Plain(_Layers):
        def between(self, x: Tensor) -> Tensor:
            result: Tensor = self.middle(x)
            return result

    x = torch.ones(2, 8)
    plain, checkpointed = (
        vflops.count(model, x, rules="hpcai500") for model in (Plain(), Checkpointed())
    )
    assert (checkpointed.forward, checkpointed.backward) == (plain.forward, plain.backward)
    assert (plain.recompute, checkpointed.recompute) == (0, _MIDDLE // 2)


@pytest.mark.parametrize("name", CASES)
def test_the_derived_backward_pass_is_the_one_that_runs(name: str) -> None:
    build, spec = CASES[name]
    derived = capture(build, [spec], name=name, batch=2)
    run = capture(build, [spec], name=name, batch=2, run_backward=True)
    assert run == derived
    assert run.backward is None


def test_the_derived_backward_pass_of_resnet50_is_the_one_that_runs() -> None:
    specs = [InputSpec((3, 64, 64))]
    derived = capture(resnet50, specs, name="resnet50", loss=cross_entropy)
    run = capture(resnet50, specs, name="resnet50", loss=cross_entropy, run_backward=True)
    assert run.to_json() == derived.to_json()


def test_the_derived_backward_pass_of_the_detector_is_the_one_that_runs() -> None:
    size = 128
    inputs = (
        InputSpec((16, size, size)),
        InputSpec((15, 4)),
        InputSpec((15,), "int64"),
        InputSpec(()),
    )
    derived, run = (
        capture(
            lambda: FasterRCNN(DetectorDesign(), classes=4, channels=16, height=size, width=size),
            inputs,
            name="detector",
            loss=lambda losses: losses.sum(),
            run_backward=run_backward,
        )
        for run_backward in (False, True)
    )
    assert derived.nodes == run.nodes
    assert count(derived, convention("executed")).total == count(run, convention("executed")).total


def test_a_graph_with_a_backward_pass_survives_its_file(tmp_path: Path) -> None:
    specs = [InputSpec((8,))]
    graph = capture(Checkpointed, specs, name="checkpointed", run_backward=True)
    graph.write(tmp_path / "graph.json")
    again = Graph.read(tmp_path / "graph.json")
    assert again == graph
    executed = convention("executed")
    assert count(again, executed).total == count(graph, executed).total
    assert count(again, executed).total.recompute > 0
    data = json.loads(graph.to_json())
    data["backward"]["nodes"][0]["inputs"] = [10**6, 10**6]
    (tmp_path / "graph.json").write_text(json.dumps(data))
    with pytest.raises(FolderError, match="backward pass uses a value that the graph lacks"):
        Graph.read(tmp_path / "graph.json")


class Fails(torch.autograd.Function):
    """Reads a value in its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * gradient.sum().item()


class Failing(_Layers):
    def between(self, x: Tensor) -> Tensor:
        result: Tensor = Fails.apply(self.middle(x))  # type: ignore[no-untyped-call]
        return result


def test_a_backward_pass_that_cannot_run_is_said_with_the_functions_name() -> None:
    with pytest.warns(UserWarning, match=r"does not run on the meta device.*it calls Fails"):
        counted = vflops.count(Failing(), torch.ones(2, 8))
    assert counted.backward == oracle(Failing(), torch.ones(2, 8))[1]
    (note,) = counted.notes
    assert "missing" in note


def test_parameters_keep_their_gradients() -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    gradient = model.weight.grad = torch.empty_like(model.weight)
    capture(lambda: model, [InputSpec((3,))], name="linear", run_backward=True)
    assert model.weight.grad is gradient
    assert model.bias.grad is None
