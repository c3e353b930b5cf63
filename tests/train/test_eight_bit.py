"""Products of 8 bits: near the exact ones, forward and backward, where the sizes fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.saturating_product import use_saturating_products
from tests.support.train_runs import planned
from vflops.errors import UsageError
from vflops.machine.ceilings.precisions import PRECISIONS
from vflops.machine.ceilings.product_support import product_unavailable_reason
from vflops.machine.devices import Device
from vflops.models.resnet import ResNet
from vflops.train.eight_bit import Kind, check_convertible, convert, converted_layers
from vflops.train.precision import Precision

ERROR = {"fp8": 0.08, "int8": 0.015}
"""Relative, of random numbers: 3 bits of mantissa (2 of a gradient), or 255 steps a row."""
CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ],
)


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Linear(48, 32),
        nn.Conv2d(32, 64, 1, bias=False),
        nn.Conv2d(32, 48, 1, stride=2),
    ]


def sample(layer: nn.Module) -> Tensor:
    shape = (64, 48) if isinstance(layer, nn.Linear) else (4, 32, 8, 8)
    torch.manual_seed(1)
    x = torch.randn(shape) * torch.rand(shape).exp()
    return x if x.dim() == 2 else x.to(memory_format=torch.channels_last)


def results(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, input gradient, weight gradient."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    torch.manual_seed(2)
    y.backward(torch.randn_like(y))
    weight = layer.weight
    assert isinstance(weight, Tensor) and x.grad is not None and weight.grad is not None
    return [y.detach(), x.grad, weight.grad.clone()]


def skip_if_refused(kind: Kind, device: str = "cpu") -> None:
    """Skip the test on a device with wrong products, which has to be refused for training."""
    reason = product_unavailable_reason(Device(torch.device(device)), PRECISIONS[kind])
    if reason is not None:
        with pytest.raises(UsageError, match=re.escape(reason)):
            Precision.named(f"mixed-{kind}", device)
        pytest.skip(reason)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("kind", ["fp8", "int8"])
@pytest.mark.parametrize("number", range(3))
def test_they_are_near_the_exact_ones_and_not_the_same(
    kind: Kind, number: int, device: str
) -> None:
    skip_if_refused(kind, device)
    layer = layers()[number].to(device)
    x = sample(layer).to(device)
    exact = results(layer, x)
    names = list(layer.state_dict())
    assert convert(layer, kind, torch.bfloat16 if device == "cuda" else None) == 1
    assert list(layer.state_dict()) == names
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        rounded = results(layer, x)
    for what, one, other in zip(("y", "dx", "dw"), exact, rounded, strict=True):
        error = float((one - other.float()).norm() / one.norm())
        assert error < ERROR[kind], what
        # Only linear layers in fp8 also round for the gradient of their weights.
        is_linear_fp8 = kind == "fp8" and isinstance(layer, nn.Linear)
        assert (error > 1e-3) == (what != "dw" or device == "cuda" or is_linear_fp8), what


def test_rows_of_any_size_are_worth_the_same_in_int8() -> None:
    """One large sample does not take the others' digits."""
    skip_if_refused("int8")
    layer = nn.Linear(32, 32, bias=False)
    x = torch.randn(16, 32)
    x[0] *= 1e4
    exact = layer(x)[1:].detach()
    convert(layer, "int8")
    assert float((layer(x)[1:] - exact).detach().norm() / exact.norm()) < ERROR["int8"]


def test_a_tensor_of_zeros_stays_one() -> None:
    for kind in ("fp8", "int8"):
        layer = nn.Linear(16, 16, bias=False)
        convert(layer, kind)
        assert not layer(torch.zeros(16, 16)).any()


def test_the_1x1_convolutions_of_a_resnet_and_no_others() -> None:
    model = ResNet((1, 1), classes=10, width=16, stem="small")
    # two blocks: 1×1 down, 1×1 up and a projection each; the classifier has 10 columns
    assert convert(model, "fp8") == 6 == converted_layers(model)
    assert type(model.classifier) is nn.Linear
    model(torch.randn(4, 3, 32, 32)).sum().backward()


def test_a_batch_that_does_not_fit_is_multiplied_as_before() -> None:
    layer = nn.Linear(16, 16)
    x = torch.randn(3, 16)
    exact = layer(x)
    convert(layer, "int8")
    assert torch.equal(layer(x), exact)


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="multiples of 16"):
        check_convertible(nn.Sequential(nn.Linear(10, 10), nn.Conv2d(16, 16, 3)), "mixed-fp8")


def test_a_run_of_such_a_model_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflops.train.precision._unavailable_reason", lambda device, policy: None)
    with pytest.raises(UsageError, match="mixed-int8 would have no effect: this model"):
        planned(tmp_path, "train.precision=mixed-int8", "network.width=1")
    planned(tmp_path, "train.precision=mixed-int8")


@pytest.mark.parametrize("name", ["mixed-fp8", "mixed-int8"])
def test_a_processor_without_the_instructions_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    with pytest.raises(UsageError, match=f"precision {name} is not available here"):
        Precision.named(name, "cpu")


def test_a_run_on_a_cpu_whose_products_saturate_is_refused_before_data_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_saturating_products(monkeypatch)
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match="torch computes wrong int8 products on cpu") as error:
        planned(tmp_path, "train.precision=mixed-int8", "train.device=cpu")
    assert "use precision fp32" in (error.value.hint or "")
    assert not (tmp_path / "cache").exists()


def test_the_hint_is_to_lift_the_limit_of_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    use_saturating_products(monkeypatch)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx_vnni": True}, raising=False)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    with pytest.raises(UsageError, match="DNNL_MAX_CPU_ISA=AVX2 keeps") as error:
        Precision.named("mixed-int8", "cpu")
    assert (error.value.hint or "").startswith("unset DNNL_MAX_CPU_ISA, or use precision fp32")
