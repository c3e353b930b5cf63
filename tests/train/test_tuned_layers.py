"""Linear layers and MLPs with tuned products against plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.train.test_eight_bit import CUDA
from vflops.models.language.transformer import Mlp
from vflops.models.language.transformer_design import TransformerDesign
from vflops.train import eight_bit, tuned_layers
from vflops.train.tuned_layers import gelu_mlp, product

EPSILON = {torch.float64: 2.0**-53, torch.bfloat16: 2.0**-9}
"""The largest relative error of one rounding."""


def plain_mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return functional.gelu(x @ up.t(), approximate="tanh") @ down.t()


def gradients(y: Tensor, operands: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    slope = torch.randn(y.shape).to(y.device, y.dtype)
    return [y.detach(), *torch.autograd.grad(y, operands, slope)]


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("shape", [(64, 32, 128), (40, 8, 16), (200, 256, 64)])
@pytest.mark.parametrize("kind", ["product", "mlp"])
def test_results_and_gradients_are_those_of_plain_products(
    kind: str, shape: tuple[int, int, int], device: str
) -> None:
    rows, width, inner = shape
    dtype = torch.float64 if device == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    sizes = [(rows, width), (inner, width), (width, inner)][: 2 if kind == "product" else 3]
    drawn = [torch.randn(size).div(size[1] ** 0.5).to(device, dtype) for size in sizes]
    operands = [x.clone().requires_grad_() for x in drawn]
    exact_operands = [x.double().requires_grad_() for x in drawn]
    found = gradients((product if kind == "product" else gelu_mlp)(*operands), operands)
    plain = (lambda x, w: x @ w.t()) if kind == "product" else plain_mlp
    exact = gradients(plain(*exact_operands), exact_operands)
    # At most five tensors on the way are rounded; errors of single numbers partly cancel in norms.
    bound = 5 * EPSILON[dtype]
    for one, other in zip(found, exact, strict=True):
        assert (one.double() - other).norm() <= bound * other.norm()


def test_a_model_is_converted_with_its_names_and_numbers() -> None:
    torch.manual_seed(0)
    mlp = Mlp(TransformerDesign(width=32, mlp_width=64)).double()
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    exact, names = mlp(x).detach(), list(mlp.state_dict())
    tuned_layers.convert(mlp, torch.float64)
    assert type(mlp) is not Mlp and list(mlp.state_dict()) == names
    torch.testing.assert_close(mlp(x).detach(), exact, rtol=0, atol=1e-14)


def test_layers_with_a_bias_or_odd_sizes_stay_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 12, bias=False))
    tuned_layers.convert(model, torch.bfloat16)
    assert all(type(layer) is nn.Linear for layer in model)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_layers_with_hooks_are_called_as_ranks_communicate_there(precision: str) -> None:
    mlp = Mlp(TransformerDesign(width=32, mlp_width=64))
    calls = []
    mlp.down.register_forward_hook(lambda layer, inputs, output: calls.append(layer))
    if precision == "fp8":
        eight_bit.convert(mlp, "fp8")
    else:
        tuned_layers.convert(mlp, torch.float32)
    assert type(mlp) is Mlp
    if precision == "bf16":
        mlp(torch.randn(16, 32))
        assert calls == [mlp.down]
