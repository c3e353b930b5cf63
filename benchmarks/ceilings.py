"""Compare the ceilings of ``vflops micro`` with a plain loop over square sizes in the same run.

    python benchmarks/ceilings.py [--out FOLDER] [--budget SECONDS]

The plain loop is what people write by hand: bf16 (fp32 on a CPU), square sizes, three warm-up calls
and the mean of ten. It runs before and after, and the best of both counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from vflops.config.profiles import gpu, laptop
from vflops.record.readout.contents import Contents
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.units import quantity
from vflops.workloads.contract.run_settings import load

WARM_UP, CALLS = 3, 10


def plain_loop(device: torch.device) -> float:
    """Return the best FLOPS of square products, each the mean of ten calls."""
    accelerated = device.type != "cpu"
    dtype = torch.bfloat16 if accelerated else torch.float32
    best = 0.0
    for size in (4096, 8192, 16384) if accelerated else (512, 1024, 2048):
        a = torch.randn(size, size, device=device).to(dtype)
        b = torch.randn(size, size, device=device).to(dtype)
        for _ in range(WARM_UP):
            a @ b
        started = wall(device)
        for _ in range(CALLS):
            a @ b
        best = max(best, CALLS * 2 * size**3 / (wall(device) - started))
    return best


def plain_copy(device: torch.device) -> float:
    """Return the bytes per second read and written by copies of one large array."""
    size = 1 << (31 if device.type != "cpu" else 27)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    for _ in range(WARM_UP):
        target.copy_(source)
    started = wall(device)
    for _ in range(CALLS):
        target.copy_(source)
    return CALLS * 2 * size / (wall(device) - started)


def wall(device: torch.device) -> float:
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--budget", type=float)
    arguments = parser.parse_args()
    accelerated = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if accelerated else torch.device("cpu")
    assert device is not None
    settings = gpu() if accelerated else laptop()
    if arguments.budget:
        settings = load(settings, None, [f"micro.budget_s={arguments.budget}"])

    before = plain_loop(device), plain_copy(device)
    started = time.perf_counter()
    folder = pipeline.start(arguments.out, "suite", settings, RunObserver(step=print))
    took_s = time.perf_counter() - started
    after = plain_loop(device), plain_copy(device)

    results = Contents(folder).measurements
    for item in results:
        name = " ".join(part for part in item.key if part)
        spread = f"±{100 * item.spread:.1f} %" if item.spread is not None else ""
        print(f"{name:40} {quantity(item.value, item.unit):>14} {spread:8} {item.setting}")
        if item.reason or item.caveat:
            print(f"{'':40} {item.reason or item.caveat}")
    precision = "bf16" if accelerated else "fp32"
    peak = next(i.value for i in results if i.key == ("gemm", "peak", precision))
    copy = next(i.value for i in results if i.key == ("memory", "copy", None))
    loop, plain = max(before[0], after[0]), max(before[1], after[1])
    print(f"\nrun of {took_s:.1f} s in {folder.path}")
    print(
        f"{precision} product: found {quantity(peak, 'FLOPS')},"
        f" plain loop {quantity(loop, 'FLOPS')}"
        f" (before {quantity(before[0], 'FLOPS')}, after {quantity(after[0], 'FLOPS')}),"
        f" ratio {(peak or 0) / loop:.4f}"
    )
    print(
        f"copy: found {quantity(copy, 'B/s')}, plain {quantity(plain, 'B/s')},"
        f" ratio {(copy or 0) / plain:.4f}"
    )


if __name__ == "__main__":
    main()
