"""No product is used or measured unless its results are right over the whole range of operands."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.micro_tasks import CPU, make_task
from tests.support.programs import start
from tests.support.saturating_product import (
    LACKS_VNNI,
    saturating_product,
)
from vflops.machine.ceilings import gemm, product_support
from vflops.machine.ceilings.precisions import PRECISIONS
from vflops.machine.ceilings.product_support import product_unavailable_reason
from vflops.machine.devices import Device

INT8 = PRECISIONS["int8"]
HAS_VNNI = {"architecture": "x86_64", "avx2": True, "avx512_vnni": True}


def exact_product(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_((a.double() @ b.double()).int())


def with_products(
    monkeypatch: pytest.MonkeyPatch,
    product: Callable[..., Tensor],
    capabilities: dict[str, object] = HAS_VNNI,
) -> None:
    monkeypatch.setattr(torch, "_int_mm", product)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    for variable in ("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _probe_again() -> Iterator[None]:
    product_support._full_range_error.cache_clear()
    yield
    product_support._full_range_error.cache_clear()


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


def test_the_saturating_product_is_right_for_small_operands_only() -> None:
    small = torch.full((2, 6), 60, dtype=torch.int8)
    assert torch.equal(saturating_product(small, small.t()), torch.full((2, 2), 6 * 60 * 60))
    large = torch.full((2, 6), 127, dtype=torch.int8)
    assert not torch.equal(saturating_product(large, large.t()), torch.full((2, 2), 6 * 127**2))


def test_a_cpu_whose_sums_saturate_is_refused_with_the_missing_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_products(monkeypatch, saturating_product, LACKS_VNNI)
    reason = product_unavailable_reason(CPU, INT8) or ""
    assert reason.startswith("torch computes wrong int8 products on cpu: relative error 0.")
    assert "no int8 instructions (avx512_vnni, avx_vnni, amx_int8 or i8mm)" in reason
    item = make_task("gemm", "square", "int8").item
    assert gemm.unavailable_reason(CPU, item) == reason


@pytest.mark.parametrize("variable", ["DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"])
def test_a_variable_that_forbids_the_instructions_is_named(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_products(monkeypatch, saturating_product)
    monkeypatch.setenv(variable, "AVX2")
    reason = product_unavailable_reason(CPU, INT8) or ""
    assert reason.endswith(f"{variable}=AVX2 keeps torch from using avx512_vnni")


def test_exact_products_are_accepted_if_the_cpu_has_the_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_products(monkeypatch, exact_product)
    assert product_unavailable_reason(CPU, INT8) is None
    with_products(monkeypatch, exact_product, LACKS_VNNI)
    assert "torch would emulate" in (product_unavailable_reason(CPU, INT8) or "")


@pytest.mark.parametrize(
    "is_wrong",
    [
        lambda a, b: a.shape[1] % 4 != 0,
        lambda a, b: a.shape[1] > 1024,
        lambda a, b: len(a) == 1,
        lambda a, b: b.is_contiguous(),
        lambda a, b: not a.is_contiguous(),
        lambda a, b: bool((a == -128).any() and (b == -128).any()),
    ],
    ids=["depth", "long", "one row", "row-major", "column-major", "-128"],
)
def test_a_single_unit_of_error_in_one_kind_of_product_is_found(
    is_wrong: Callable[[Tensor, Tensor], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearly_exact(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        exact_product(a, b, out=out)
        if is_wrong(a, b):
            out[0, 0] += 1
        return out

    with_products(monkeypatch, nearly_exact)
    assert "wrong int8 products" in (product_unavailable_reason(CPU, INT8) or "")


def test_shapes_that_a_device_does_not_support_are_not_held_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def multiples_of_8(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        if len(a) <= 16 or a.shape[1] % 8 or b.shape[1] % 8:
            raise RuntimeError("self.size(0) needs to be greater than 16")
        return exact_product(a, b, out=out)

    with_products(monkeypatch, multiples_of_8)
    assert product_unavailable_reason(CPU, INT8) is None


def test_the_whole_range_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return exact_product(a, b, out=out)

    with_products(monkeypatch, counted)
    product_unavailable_reason(CPU, INT8)
    first = calls
    product_unavailable_reason(CPU, INT8)
    assert first > 10 and calls == first + 1


@pytest.mark.parametrize("value", [math.nan, 2.0])
def test_fp8_products_are_probed_with_their_largest_operands(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflowing(a: Tensor, b: Tensor, *, out: Tensor, **_: object) -> Tensor:
        out.copy_(a.double() @ b.double())
        return out.mul_(value) if (a.float() == 448).any() else out

    monkeypatch.setattr(torch, "_scaled_mm", overflowing)
    reason = product_unavailable_reason(CPU, PRECISIONS["fp8"]) or ""
    assert reason.startswith("torch computes wrong fp8 products on cpu")


PROBE = """
import json, torch
torch.set_num_threads(1)
from vflops.machine.ceilings.precisions import PRECISIONS
from vflops.machine.ceilings.product_support import product_unavailable_reason
from vflops.machine.devices import Device
from vflops.machine.devices import Device
a = torch.full((64, 128), 127, dtype=torch.int8)
exact = torch.equal(torch._int_mm(a, a.t()), torch.full((64, 64), 127 * 127 * 128).int())
reason = product_unavailable_reason(Device(torch.device("cpu")), PRECISIONS["int8"])
print(json.dumps({"exact": exact, "reason": reason}))
"""


@pytest.mark.parametrize("isa", ["", "AVX2", "AVX512_CORE", "SSE41"])
def test_the_answer_agrees_with_this_cpu_under_any_limit_of_its_instructions(
    isa: str, tmp_path: Path
) -> None:
    """A forked process will do: oneDNN reads the limit at its first product."""
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    environment = {**os.environ, "DNNL_MAX_CPU_ISA": isa}
    process = start([str(script)], tmp_path, environment)
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    found = json.loads(output)
    if found["exact"]:
        assert "wrong" not in (found["reason"] or "")
    else:
        assert found["reason"].startswith("torch computes wrong int8 products on cpu")
        assert "int8 instructions" in found["reason"] or f"ISA={isa}" in found["reason"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_an_nvidia_gpu_has_right_8_bit_products_or_none(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = Device(torch.device("cuda:0"))
    reason = product_unavailable_reason(device, PRECISIONS[name])
    if torch.cuda.get_device_capability() >= (8, 9):
        assert reason is None
    else:
        assert reason is None or reason.startswith(f"torch has no {name} product")
