"""Capture: what the graph contains, which models are refused, and that it needs no memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.networks import CASES
from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.counting.meta_shapes import INITIALISATIONS, SHORTCUTS, ShapeInference
from vflops.counting.recorder import Call, without_unused
from vflops.errors import FolderError, UsageError
from vflops.models.resnet import ResNet
from vflops.record.formats.graph import Graph


class _Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # the line that the error must name
            return x
        return -x


class _Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


class _Loop(nn.Module):
    """A model with control flow over shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.shape[1]):
            x = self.layer(x)
        return x


def test_data_dependent_control_flow_is_refused_at_its_line_with_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        capture(_Branching, [InputSpec((3,))], name="branching")
    assert "test_capture.py:" in caught.value.message
    assert "if x.sum() > 0" in caught.value.message
    assert caught.value.hint is not None
    assert "torch.where" in caught.value.hint


def test_data_dependent_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="depends on the values"):
        capture(_Masked, [InputSpec((3,))], name="masked")


def test_control_flow_over_shapes_is_captured() -> None:
    graph = capture(_Loop, [InputSpec((3, 4))], name="loop")
    assert sum(node.kind == "dense" for node in graph.nodes) == 3


def test_wrong_shape_is_one_clear_line() -> None:
    with pytest.raises(UsageError) as caught:
        capture(lambda: nn.Conv2d(3, 8, 3), [InputSpec((4, 8, 8))], name="conv")
    assert "4x8x8" in caught.value.message
    assert "\n" not in caught.value.message


def test_not_a_module_is_refused() -> None:
    with pytest.raises(UsageError, match=r"returned dict, expected a torch\.nn\.Module"):
        capture(dict, [InputSpec((3,))], name="dict")  # type: ignore[arg-type]


def test_a_model_that_cannot_be_built_is_refused_at_its_line() -> None:
    def build() -> nn.Module:
        raise FileNotFoundError("weights.pt")

    with pytest.raises(UsageError, match=r"cannot be built.*FileNotFoundError: weights.pt at .*py"):
        capture(build, [InputSpec((3,))], name="weights")


def test_unknown_input_type_is_refused() -> None:
    with pytest.raises(UsageError, match="float31"):
        capture(lambda: nn.Linear(3, 3), [InputSpec((3,), "float31")], name="linear")


def test_a_hundred_terabyte_model_takes_no_memory() -> None:
    graph = capture(
        lambda: nn.Linear(5_000_000, 5_000_000, bias=False), [InputSpec((5_000_000,))], name="huge"
    )
    assert graph.parameter_count == 25 * 10**12


def test_scopes_are_module_paths() -> None:
    graph = capture(
        lambda: ResNet((1,), classes=2, width=8), [InputSpec((3, 32, 32))], name="small"
    )
    scopes = [node.scope for node in graph.nodes if node.kind == "convolution"]
    assert scopes == [
        "stem.0",
        "stages.0.0.projection.0",
        "stages.0.0.conv1",
        "stages.0.0.conv2",
        "stages.0.0.conv3",
    ]


def test_edges_lead_from_the_input_to_the_output() -> None:
    build, spec = CASES["written into"]
    graph = capture(build, [spec], name="written into")
    reached = set(graph.inputs)
    for node in graph.nodes:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
    assert set(graph.outputs) <= reached
    trained = {graph.nodes[index].scope for index in graph.backward_nodes}
    assert {"left", "right", "both"} <= trained


@pytest.mark.parametrize("name", CASES)
def test_a_graph_survives_its_file(name: str, tmp_path: Path) -> None:
    build, spec = CASES[name]
    graph = capture(build, [spec], name=name)
    graph.write(tmp_path / "graph.json")
    again = Graph.read(tmp_path / "graph.json")
    assert again == graph
    assert again.to_json() == graph.to_json()


def test_a_graph_with_a_dangling_edge_is_refused(tmp_path: Path) -> None:
    build, spec = CASES["shared"]
    data = json.loads(capture(build, [spec], name="shared").to_json())
    data["nodes"][0]["inputs"] = [10**6]
    (tmp_path / "graph.json").write_text(json.dumps(data))
    with pytest.raises(FolderError, match="no earlier node produced"):
        Graph.read(tmp_path / "graph.json")


class Chooses(nn.Module):
    """A model that selects by untrained arithmetic and has a frozen convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.trained = nn.Conv2d(3, 4, 1)
        self.frozen = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = ((x * 2 + 1).sum() > 0).float() * self.frozen(x).sum()
        product: Tensor = self.trained(x) * wanted
        return product


def test_arithmetic_that_only_chooses_is_bookkeeping_but_a_convolution_counts() -> None:
    graph = capture(Chooses, [InputSpec((3, 8, 8))], name="chooses")
    kinds = [node.kind for node in graph.nodes]
    assert kinds.count("convolution") == 2
    assert kinds.count("elementwise") == 1  # the product with what was chosen
    assert "reduction" not in kinds


class _Steps(nn.Module):
    """A recurrent cell in a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4), x.new_zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state[0]


def _python_calls(steps: int) -> int:
    """Return how many functions capture and count call for a loop of ``steps``."""
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        graph = capture(_Steps, [InputSpec((steps, 4))], name="steps", run_backward=True)
        assert count(graph, convention("executed")).total.backward > 0
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_grows_linearly_with_the_steps_of_a_recurrent_network() -> None:
    _python_calls(2)  # imports
    few, many, most = (_python_calls(steps) for steps in (10, 20, 40))
    assert most - many < 2.2 * (many - few)


def test_unused_nodes_are_dropped_in_linear_time() -> None:
    def seconds(length: int) -> float:
        calls = [Call("layout", "view", "", (i,), (i + 1,)) for i in range(length)]
        started = time.process_time()
        assert len(without_unused(calls, [length])) == length
        return time.process_time() - started

    short = min(seconds(2_000) for _ in range(5))
    assert seconds(64_000) < 8 * 32 * short  # quadratic would be 32 times 32


def test_a_repeated_operator_gives_the_layout_that_torch_gives() -> None:
    operators: dict[Any, ShapeInference] = {}

    def infer(func: Any, args: tuple[Any, ...]) -> Any:
        return operators.setdefault(func, ShapeInference(func))(args, {})

    x = torch.empty(4, 6, device="meta").t()
    aten = torch.ops.aten
    for _ in range(3):
        for func, args in (
            (aten.sigmoid.default, (x,)),
            (aten.add.Tensor, (x, 2)),
            (aten.add.Tensor, (x, 2.5)),
            (aten.sum.dim_IntList, (x, [0], True)),
            (aten.max.dim, (x, 1)),
            (aten.cat.default, ([x, x], 1)),
        ):
            ours, theirs = infer(func, args), func(*args)
            pairs = zip(
                *((r if isinstance(r, tuple) else (r,)) for r in (ours, theirs)), strict=True
            )
            for mine, other in pairs:
                assert (mine.shape, mine.stride(), mine.dtype) == (
                    other.shape,
                    other.stride(),
                    other.dtype,
                )
        assert infer(aten.tanh_.default, (x,)) is x
        integers = torch.empty(4, 6, device="meta", dtype=torch.int64)
        assert infer(aten.add.Tensor, (integers, 2)).dtype == torch.int64
        assert infer(aten.add.Tensor, (integers, 2.5)).dtype == torch.float32
        assert infer(aten.add.Tensor, (integers, True)).dtype == torch.int64


def test_capture_leaves_no_hook_behind() -> None:
    hooks = torch.nn.modules.module._global_forward_hooks
    before = len(hooks)
    with pytest.raises(UsageError):
        capture(_Branching, [InputSpec((3,))], name="branching")
    assert len(hooks) == before


_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "aten.native_batch_norm.default": ("4x6x5x5", "6", "6", "6", "6", True, 0.1, 1e-5),
    "aten.mm.default": ("4x6", "6x3"),
    "aten.addmm.default": ("3", "4x6", "6x3"),
    "aten.mean.dim": ("4x6x5x5", [-1, -2], True),
    "aten._softmax.default": ("4x6", 1, False),
    "aten._log_softmax.default": ("4x6", 1, False),
    "aten.nll_loss_forward.default": ("4x6", "4:int64", None, 1, -100),
}


@pytest.mark.parametrize("op", SHORTCUTS)
def test_shortcuts_give_what_torch_gives(op: str) -> None:
    def argument(value: object) -> object:
        if not isinstance(value, str):
            return value
        shape, _, dtype = value.partition(":")
        sizes = [int(size) for size in shape.split("x")]
        return torch.empty(sizes, dtype=getattr(torch, dtype or "float32"), device="meta")

    packet, overload = op.removeprefix("aten.").split(".")
    function = getattr(getattr(torch.ops.aten, packet), overload)
    arguments = [argument(value) for value in _ARGUMENTS[op]]
    ours, theirs = SHORTCUTS[op](*arguments), function(*arguments)
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in (ours, theirs))
    described = [[(t.shape, t.stride(), t.dtype, t.device) for t in r] for r in (ours, theirs)]
    assert described[0] == described[1]


def test_mean_shortcut_without_keepdim() -> None:
    x = torch.empty(2, 3, 4, device="meta")
    assert SHORTCUTS["aten.mean.dim"](x, [1]).shape == x.mean(1).shape
    assert SHORTCUTS["aten.mean.dim"](x, []).shape == torch.Size([])


def test_fills_exist_in_torch() -> None:
    for op in INITIALISATIONS:
        packet, overload = op.removeprefix("aten.").split(".")
        assert hasattr(getattr(torch.ops.aten, packet), overload)


def test_rules_and_graphs_need_no_torch() -> None:
    code = (
        "import sys, vflops.counting.conventions, vflops.counting.count, "
        "vflops.results.score.scoring, "
        "vflops.results.check.checking, vflops.results.roofline.analysis, "
        "vflops.models.model_registry; "
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
