"""Formulas of operators with products inside: against equal models, FlopCounterMode and users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

from vflops.counting.aten import TORCH_HAS_A_FORMULA
from vflops.counting.conventions import convention
from vflops.counting.count import Count, count
from vflops.counting.example_inputs import graph_on_inputs
from vflops.counting.meta_shapes import WITHOUT_META_KERNEL
from vflops.counting.products import FORMULAS, operations
from vflops.errors import UsageError
from vflops.record.formats.graph import FLOP_COUNTER, OPERATIONS

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_every_formula_is_for_an_operator_of_torch() -> None:
    assert [name for name in FORMULAS if not hasattr(aten, name)] == []


def test_torch_has_the_formulas_that_executed_torch_assumes() -> None:
    packets = {str(packet).removeprefix("aten.") for packet in flop_registry}
    ours = {str(packet) for packet in flop_registry if str(packet).startswith("flex")}
    assert packets - ours - _foreign() == TORCH_HAS_A_FORMULA


def _foreign() -> set[str]:
    return {str(packet) for packet in flop_registry if "." in str(packet)} - {
        str(packet) for packet in flop_registry if str(packet).startswith("aten.")
    }


def test_attention_kernels_cost_what_flop_counter_mode_says_without_recomputation() -> None:
    query, key, value = meta(2, 4, 6, 8), meta(2, 4, 5, 8), meta(2, 4, 5, 3)
    call = {"query": query, "key": key, "value": value}
    name = "_scaled_dot_product_flash_attention"
    theirs = flop_registry[aten._scaled_dot_product_flash_attention](query, key, value)
    assert operations(name, call) == {OPERATIONS: theirs}
    gradients = operations(f"{name}_backward", call)
    backward = flop_registry[aten._scaled_dot_product_flash_attention_backward]
    assert gradients[OPERATIONS] == 2 * theirs
    assert gradients[FLOP_COUNTER] == backward(meta(2, 4, 6, 3), query, key, value)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", [(True, True, False), (True, False, False), (False, True, False)])
def test_gradients_of_a_convolution(groups: int, transposed: bool, mask: Any) -> None:
    image, weight = meta(2, 4, 8, 8), meta(4, 4 // groups, 3, 3)
    settings = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
    result = aten.convolution(image, weight, None, *settings)
    with FlopCounterMode(display=False) as theirs:
        aten.convolution_backward(result, image, weight, None, *settings, list(mask))
    call = {
        "grad_output": result,
        "input": image,
        "weight": weight,
        "transposed": transposed,
        "groups": groups,
        "output_mask": mask,
    }
    ours = operations("convolution_backward", call)
    assert ours.get(FLOP_COUNTER, ours[OPERATIONS]) == theirs.get_total_flops()
    pixels = 8 * 8 if transposed else 6 * 6
    assert ours[OPERATIONS] == 2 * 2 * pixels * weight.numel() * sum(mask[:2])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((8, 5), (3, 5, 4), 8 * 5 * 4),
        ((6, 8), (8, 4), 6 * 8 * 4),
        ((3, 6, 5), (5, 8), 6 * 5 * 8),
        ((3, 6, 5), (3, 5, 4), 3 * 6 * 5 * 4),
    ],
)
def test_grouped_products_multiply_every_row_once(
    left: tuple[int, ...], right: tuple[int, ...], expected: int
) -> None:
    assert FORMULAS["_grouped_mm"]({"self": meta(*left), "mat2": meta(*right)}) == expected


def test_products_of_integers_count() -> None:
    packed = FORMULAS["_weight_int8pack_mm"]
    call = {"self": meta(3, 8), "mat2": meta(5, 8, dtype=torch.int8)}
    assert packed(call) == 3 * 8 * 5


@pytest.mark.parametrize("op", WITHOUT_META_KERNEL)
def test_shapes_that_torch_does_not_infer_are_those_on_the_cpu(op: str) -> None:
    scale, zero = torch.ones(3), torch.zeros(3, dtype=torch.int32)
    x = torch.randn(3, 4)
    arguments: dict[str, tuple[Any, ...]] = {
        "fake_quantize_per_tensor_affine_cachemask": (x, 0.1, 0, -8, 7),
        "fake_quantize_per_channel_affine_cachemask": (x, scale, zero, 0, -8, 7),
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
            x, scale[:1], zero[:1], torch.ones(1), -8, 7,
        ),
    }  # fmt: skip
    name = op.split(".")[1]
    theirs = getattr(aten, name).default(*arguments[name])
    ours = WITHOUT_META_KERNEL[op](*(arguments[name]))
    assert [(t.shape, t.dtype) for t in ours] == [(t.shape, t.dtype) for t in theirs]


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_a_graph_with_impossible_operations_is_refused(wrong: Any) -> None:
    graph = graph_on_inputs(lambda: nn.Bilinear(3, 3, 2), [torch.randn(4, 3), torch.randn(4, 3)])
    data = graph.model_dump(mode="json")
    (node,) = (node for node in data["nodes"] if OPERATIONS in node["attributes"])
    node["attributes"][OPERATIONS] = wrong
    with pytest.raises(ValueError, match=f"has operations {wrong}"):
        type(graph).model_validate(data)


@torch.library.custom_op("vflops_tests::product", mutates_args=())
def product(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


@product.register_fake
def _shape(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    return gradient @ weight.t(), product(x.t(), gradient)


product.register_autograd(_gradients, setup_context=_save)


class Custom(nn.Module):
    """A layer before an operator that another package defines."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.weight = nn.Parameter(torch.empty(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = product(self.layer(x), self.weight)
        return result


@pytest.fixture
def registered() -> Iterator[None]:
    packet = torch.ops.vflops_tests.product

    @register_flop_formula(packet)
    def flops(x_shape: Any, weight_shape: Any, *, out_shape: Any = None, **_: Any) -> int:
        return int(2 * x_shape[0] * x_shape[1] * weight_shape[1])

    yield
    del flop_registry[packet]


def counted(rules: str) -> Count:
    return count(graph_on_inputs(Custom, torch.randn(4, 6)), convention(rules))


def test_an_operator_without_a_formula_is_listed_as_unknown() -> None:
    result = counted("executed")
    assert result.total.forward == 2 * 4 * 6 * 5
    assert [entry.op for entry in result.uncounted if entry.is_unknown] == [
        "vflops_tests.product.default"
    ]
    assert result.notes == ()


@pytest.mark.parametrize("rules", ["executed", "executed-torch"])
def test_a_registered_formula_counts_forward_and_backward(rules: str, registered: None) -> None:
    model = Custom()
    with FlopCounterMode(display=False) as forward:
        result = model(torch.randn(4, 6))
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    ours = counted(rules)
    assert ours.total.forward == forward.get_total_flops() == 2 * 4 * (30 + 15)
    assert ours.total.backward == backward.get_total_flops() == 2 * 4 * (30 + 2 * 15)
    assert not any(entry.is_unknown for entry in ours.uncounted)
    (note,) = ours.notes
    assert "vflops_tests.product.default" in note
    assert "registered with torch" in note


class InHook(Custom):
    """Calls the operator of another package for a gradient of the layer."""

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x)
        hidden.register_hook(lambda gradient: product(gradient, self.weight) @ self.weight.t())
        return hidden * 2


def test_an_operator_in_a_hook_counts_by_its_formula(registered: None) -> None:
    ours = count(graph_on_inputs(InHook, torch.randn(4, 6)), convention("executed"))
    assert ours.total.backward == 2 * 4 * (30 + 2 * 15)


def test_an_operator_in_a_hook_is_listed_without_a_formula() -> None:
    ours = count(graph_on_inputs(InHook, torch.randn(4, 6)), convention("executed"))
    assert [entry.op for entry in ours.uncounted if entry.is_unknown] == [
        "vflops_tests.product.default"
    ]


@pytest.mark.parametrize("wrong", [-1, 2.5, "many"])
def test_a_formula_must_give_a_number_of_operations(wrong: Any) -> None:
    packet = torch.ops.vflops_tests.product
    flop_registry[packet] = lambda *args, **kwargs: wrong
    try:
        with pytest.raises(UsageError, match="expected a number of operations"):
            counted("executed")
    finally:
        del flop_registry[packet]
