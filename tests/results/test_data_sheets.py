"""Upper bounds of ceilings and lower bounds of power, from what is known about devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forged_times import H200, readings_times, renamed_device
from tests.support.forgeries import Break, GoodRun, good_runs, judged, measured, together
from tests.support.sample_parts import measured as ceiling
from vflops.record.formats.system import Value
from vflops.results.check.ceiling_limits import ceiling_limit
from vflops.results.data_sheets import DATA_SHEETS, data_sheet

TWO_CPUS: dict[str, Value | None] = {
    "logical cpus": 2,
    "instruction sets": "avx avx2 fma avx512f avx512_vnni",
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200 nvl"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100 pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100 40gb"),
        ("NVIDIA A100 80GB PCIe", "a100 80gb pcie"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx 4090"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Intel(R) Data Center GPU Max 1550", "max 1550"),
        ("TPU v5 lite", "tpu v5 lite"),
        ("Ascend910B3", "ascend910b"),
    ],
)
def test_a_device_is_found_by_the_name_that_libraries_report(device: str, words: str) -> None:
    sheet = data_sheet(device)
    assert sheet is not None
    assert " ".join(sheet.words) == words


@pytest.mark.parametrize("device", ["Test GPU", "", "NVIDIA A1000", "H"])
def test_an_unknown_device_has_no_data_sheet(device: str) -> None:
    assert data_sheet(device) is None


def test_every_row_is_dense_and_named_once() -> None:
    assert len({sheet.words for sheet in DATA_SHEETS}) == len(DATA_SHEETS)
    for sheet in DATA_SHEETS:
        assert sheet.source
        peaks = [sheet.flops[name] for name in ("tf32", "bf16", "fp8") if name in sheet.flops]
        assert peaks == sorted(peaks), sheet.words
        assert sheet.tdp_w is None or sheet.idle_w is None or sheet.idle_w < sheet.tdp_w / 8


@pytest.mark.parametrize(
    ("benchmark", "precision", "seen", "forged"),
    [
        ("gemm", "fp64", 63.0e12, 110e12),
        ("gemm", "fp32", 54.8e12, 200e12),
        ("gemm", "tf32", 428e12, 990e12),  # with structured sparsity
        ("gemm", "bf16", 843e12, 1979e12),
        ("gemm", "fp8", 1620e12, 3958e12),
        ("convolution", "fp32", 134e12, 300e12),
        ("convolution", "bf16", 834e12, 1979e12),
        ("memory", None, 4.40e12, 5.2e12),
    ],
)
def test_what_was_seen_on_an_h200_is_believed_and_sparsity_is_not(
    benchmark: str, precision: str | None, seen: float, forged: float
) -> None:
    item = ceiling(benchmark, "peak", precision, seen, device="cuda:0")
    limit = ceiling_limit(item, {"accelerator 0 model": H200})
    assert limit.basis == "data sheet"
    assert seen < limit.value < forged


@pytest.mark.parametrize(
    ("benchmark", "precision", "most"),
    [
        ("gemm", "fp32", 2 * 64 * 6.5e9),
        ("gemm", "bf16", 2 * 128 * 6.5e9),
        ("convolution", "fp32", 2 * 256 * 6.5e9),
    ],
)
def test_a_processor_is_bounded_by_its_cores(benchmark: str, precision: str, most: float) -> None:
    item = ceiling(benchmark, "peak", precision, 1e9)
    assert ceiling_limit(item, TWO_CPUS).value == pytest.approx(most)
    with_tiles = {**TWO_CPUS, "instruction sets": "avx512f amx_tile amx_bf16"}
    assert ceiling_limit(item, with_tiles).value == pytest.approx(
        most * (16 if precision == "bf16" else 1)
    )
    slower = {**TWO_CPUS, "cpu clock max": 2000.0}
    assert ceiling_limit(item, slower).value == pytest.approx(most * 3 / 6.5)
    assert ceiling_limit(item, {}).basis == "any device"


on_h200 = renamed_device(H200)


@pytest.mark.parametrize(
    ("rule", "harm", "words"),
    [
        (
            "data-sheets",
            together(measured("gemm", value=4.7e18), measured("convolution", value=4.7e18)),
            "gemm peak fp32 is 4.70 EFLOPS on cuda:0, but at most 173 TFLOPS can be believed: "
            "NVIDIA H200 data sheet",
        ),
        (
            "energy",
            readings_times(1e-3),
            "0.3 W on average while it trained, but such a device draws at least 35.0 W",
        ),
        ("energy", readings_times(4), "1.20 kW on average, but its limit is 700 W"),
    ],
)
def test_figures_that_the_data_sheet_excludes_are_found(
    good: GoodRun, tmp_path: Path, rule: str, harm: Break, words: str
) -> None:
    base = good("one model")
    findings = judged(base, tmp_path / "good", "practice", on_h200)
    assert findings.passed
    (sheets,) = [found for found in findings.findings if found.rule == "data-sheets"]
    assert "with a data sheet" in sheets.evidence and "processor" not in sheets.evidence
    (found,) = judged(base, tmp_path / "bad", "practice", together(on_h200, harm)).failures
    assert found.rule == rule
    assert words in found.text
