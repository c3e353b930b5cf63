"""The training engine's step in this checkout against another one, in turns.

    python -m benchmarks.backend_cost --against PATH [--rounds 7] [--steps 60]
                                      [--cases tiny,laptop,resnet-50]

Each measurement is a process of its own, which takes steps on one batch that stays on the device;
the two checkouts take turns. The other one needs ``benchmarks/train_speed.py`` and the packages of
this interpreter. The table has the median of the samples per second, and the median and the
quartiles of the ratio of neighbouring measurements: a busy machine slows both. The CPU time of a
step depends less on other programs than its duration; it says most with one thread (taskset).
``resnet-50`` (224 pixels, mixed-bf16, batch 512) needs an accelerator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

_HERE = Path(__file__).resolve().parents[1]
_RESNET_50 = (
    "size=224",
    "resize=224",
    "synthetic.size=224",
    "synthetic.train=1024",
    "synthetic.validation=512",
    "train.batch=512",
    "train.precision=mixed-bf16",
)
_CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tiny": ("tiny", ()),
    "laptop": ("laptop", ()),
    "resnet-50": ("gpu", _RESNET_50),
}
"""Profiles and settings of image classification."""
_WARM_STEPS = 8


def measure(case: str, steps: int) -> tuple[float, float]:
    """Return samples per second, in time and in CPU time, of the checkout that is imported."""
    from benchmarks.train_speed import batches, engine

    profile, changes = _CASES[case]
    arguments = argparse.Namespace(
        profile=profile, workload="image-classification", set=list(changes)
    )
    with tempfile.TemporaryDirectory() as folder:
        made = engine(arguments, Path(folder))
        with made.precision.settings():
            source = batches(made)
            kept = [next(iter(source))]
            source.close()
            for _ in range(_WARM_STEPS):
                float(made.state.take_step(kept, 0.01))
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            for _ in range(steps):
                loss = made.state.take_step(kept, 0.01)
            float(loss)  # waits for the device
            samples = steps * made.settings.batch
            took_s, took_cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
            return samples / took_s, samples / took_cpu_s


def measured_in(checkout: Path, case: str, steps: int) -> tuple[float, float]:
    """Return what ``measure`` returns in a new process of a checkout."""
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--child",
        case,
        "--steps",
        str(steps),
    ]
    others = [folder for folder in [os.environ.get("PYTHONPATH")] if folder]
    path = os.pathsep.join([str(checkout / "src"), str(checkout), *others])
    done = subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}, {case}: {done.stderr.strip()}")
    speed, cpu_speed = json.loads(done.stdout.splitlines()[-1])
    return speed, cpu_speed


def compare(case: str, other: Path, rounds: int, steps: int) -> None:
    """Measure both in turns, and print a row for the time and one for the CPU time."""
    here: list[tuple[float, float]] = []
    there: list[tuple[float, float]] = []
    for number in range(rounds):
        order = [(_HERE, here), (other, there)]
        for checkout, speeds in order if number % 2 else reversed(order):
            speeds.append(measured_in(checkout, case, steps))
    for index, kind in enumerate(("time", "CPU time")):
        ours, theirs = ([speeds[index] for speeds in both] for both in (here, there))
        ratios = [one / two for one, two in zip(ours, theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if rounds > 1 else 3 * ratios
        print(
            f"{case:10} {kind:9} {statistics.median(ours):11,.1f} "
            f"{statistics.median(theirs):11,.1f} {middle:8.4f}  {low:.4f} to {high:.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--cases", default=None)
    parser.add_argument("--child", default=None, help="measure here and print the speed")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.steps)))
        return
    if arguments.against is None:
        parser.error("--against PATH is missing: another checkout of vflops")
    default = "tiny,laptop,resnet-50" if torch.accelerator.is_available() else "tiny,laptop"
    print(f"{'samples/s':10} {'by':9} {'here':>11} {'there':>11} {'ratio':>8}  quartiles")
    for case in (arguments.cases or default).split(","):
        compare(case, arguments.against.resolve(), arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()
