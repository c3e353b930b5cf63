"""The bubble of pipelines of image classification: measured, and in theory.

    python benchmarks/bubble.py [--ranks 2] [--micro-batches 2 4 8 16] [--batch 128]

Trains for an epoch of the laptop profile with each schedule and number of micro-batches, and prints
a markdown table with one row per training. It needs an idle machine with one core per rank.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import StagesRun

SCHEDULES = ("gpipe", "1f1b", "interleaved")


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--batch", type=int, default=128)
    given = parser.parse_args()
    print("| schedule | micro-batches | operations of the stages | measured | theory |")
    print("|---|---|---|---|---|")
    for schedule in SCHEDULES:
        for parts in given.micro_batches:
            run = _trained(schedule, parts, given.ranks, given.batch)
            shares = [item / sum(run.operations) for item in run.operations]
            text = " / ".join(f"{share:.0%}" for share in shares).replace("%", " %")
            print(
                f"| {schedule} | {parts} | {text} | {100 * (run.bubble or 0):.1f} % | "
                f"{100 * run.bubble_theory:.1f} % |",
                flush=True,
            )


def _trained(schedule: str, parts: int, ranks: int, batch: int) -> StagesRun:
    settings = {
        "micro.benchmarks": "[]",
        "parallel.mode": "pipeline",
        "parallel.schedule": schedule,
        "train.accumulate": parts,
        "train.batch": batch,
        "train.epochs": 1,
        "train.warmup_epochs": 0,
    }
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "vflops", "run", "image-classification", "--quiet"]
        command += ["--profile", "laptop", "--ranks", str(ranks), "--out", directory]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        path = latest(Path(directory))
        assert path is not None
        (event,) = RunFolder.open(path).history().events("stages", job=1)
    return event.payload(StagesRun)


if __name__ == "__main__":
    main()
