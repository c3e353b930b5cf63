"""The parts that run folders in tests are made of: a few ceilings, and a small system."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from vflops.record.folder import RunFolder
from vflops.record.formats.measurement import Measurement, Trial
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def measured(
    benchmark: str, case: str, precision: str | None, value: float, **facts: object
) -> Measurement:
    """A measurement with three samples around ``value``."""
    unit = "FLOPS" if benchmark in ("gemm", "convolution") else "B/s"
    arithmetic = {"error": 1e-7, "tolerance": 1e-5} if unit == "FLOPS" else {}
    return Measurement.model_validate(
        {
            "benchmark": benchmark,
            "case": case,
            "precision": precision,
            "device": "cpu",
            "unit": unit,
            "value": value,
            "samples": (0.9 * value, value, 1.1 * value),
            "spread": 0.1,
            **arithmetic,
            **facts,
        }
    )


MEASUREMENTS = (
    measured(
        "gemm",
        "peak",
        "fp32",
        2e11,
        setting={"m": 1024, "n": 1024, "k": 1024},
        tried=(Trial(setting={"m": 512, "n": 512, "k": 512}, value=1e11),),
    ),
    measured("convolution", "forward", "fp32", 1.5e11),
    measured("memory", "copy", None, 2e10),
    measured(
        "all-reduce",
        "gloo-2-ranks",
        None,
        1e9,
        setting={"ranks": 2, "size_bytes": 1 << 20},
        tried=(Trial(setting={"size_bytes": 1 << 20, "ranks": 2}, value=1e9),),
    ),
    Measurement(
        benchmark="gemm",
        case="peak",
        precision="fp8",
        device="cpu",
        unit="FLOPS",
        value=None,
        reason="this device has none",
    ),
)


def write_system(folder: RunFolder) -> None:
    """A small ``system.json``: a processor, and nothing else known."""
    known = (
        Fact(name="cpu model", value="Test CPU <1>", source="test"),
        Fact(name="usable cpus", value=2, source="test"),
    )
    unknown = Fact(name="nothing", value=None, source="test", reason="not looked for")
    layers = tuple(
        Layer(name=name, facts=known if name == "hardware" else (unknown,)) for name in LAYERS
    )
    system = SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=layers)
    system.write(folder.system_file)
