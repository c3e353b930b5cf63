from __future__ import annotations

import pytest
import torch

from tests.support.micro_tasks import CPU
from vflops.config import names
from vflops.machine.ceilings.precisions import (
    PRECISIONS,
    fp32_arithmetic,
    product_unavailable_reason,
)


def test_every_named_precision_is_known() -> None:
    assert list(PRECISIONS) == list(names.PRECISIONS)


def test_fp32_mode_is_set_everywhere_and_comes_back() -> None:
    before = (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="stop"), fp32_arithmetic("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        with fp32_arithmetic("ieee"):
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"  # type: ignore[attr-defined]
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
        raise ValueError("stop")
    after = (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)  # type: ignore[attr-defined]
    assert after == before


@pytest.mark.parametrize("name", ["fp64", "fp32", "bf16", "fp16"])
def test_a_cpu_has_the_precisions_that_torch_computes_there(name: str) -> None:
    assert product_unavailable_reason(CPU, PRECISIONS[name]) is None


def test_tf32_that_rounds_nothing_is_not_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.copy_((a.double() @ b.double()).float())

    monkeypatch.setattr(torch, "mm", exact)
    assert "as exact as fp32" in (product_unavailable_reason(CPU, PRECISIONS["tf32"]) or "")


def test_tf32_is_found_by_its_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.copy_((a.half().double() @ b.half().double()).float())

    monkeypatch.setattr(torch, "mm", rounded)
    assert product_unavailable_reason(CPU, PRECISIONS["tf32"]) is None


def test_a_refusal_of_torch_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("needs compute capability 8.9\nand a paragraph of advice")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    assert product_unavailable_reason(CPU, PRECISIONS["fp8"]) == (
        "torch has no fp8 product on cpu: needs compute capability 8.9"
    )


def test_tolerances_grow_with_coarser_operands() -> None:
    order = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
    tolerances = [PRECISIONS[name].tolerance for name in order]
    assert tolerances == sorted(tolerances)
