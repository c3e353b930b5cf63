"""Speed of the code path of several ranks, relative to that of a single rank, on one GPU.

    python -m benchmarks.rank_overhead [ROW,ROW ...] [--seconds 5] [--limit 300]

The path of several ranks runs with a process group of one rank: it has the buckets, the hooks and
the recorded collectives of data parallelism, but sends nothing. Each path trains on a batch that
stays on the device, in a process of its own. Rows joined by commas are compiled at the same time
and timed one after the other, so the device needs memory for all of them. The table has the median
of five windows and the extremes, in samples or tokens per second.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.language_speed import GPT2, LLAMA, TEXT, Turn, speeds
from benchmarks.train_speed import batches, engine
from vflops.python_start import module_command

PATHS = ("one rank", "several ranks")
_WARM_STEPS = 16
_TRAINING = ["train.warmup_epochs=0", "target=1e-9"]
ROWS: dict[str, tuple[str, list[str]]] = {
    "resnet-50": (
        "image-classification",
        ["train.batch=512", "synthetic.train=2048", "synthetic.validation=512"],
    ),
    "faster-rcnn": (
        "extreme-weather",
        ["train.batch=32", "synthetic.train=64", "synthetic.validation=32"],
    ),
    "gpt2-124m": ("language-model", [*TEXT, *GPT2, "train.optimizer=adamw"]),
    "llama-1b": (
        "language-model",
        [*TEXT, *LLAMA, "train.optimizer=adamw", "train.batch=16"],
    ),
}


def measure(row: str, path: str, seconds: float, ready: Callable[[], None]) -> dict[str, Any]:
    """Return the speeds of a path of a row in this process; ``ready`` waits for its turn."""
    workload, changes = ROWS[row]
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        arguments = argparse.Namespace(workload=workload, profile="gpu", set=[*_TRAINING, *changes])
        made = engine(arguments, Path(folder), connected=path != PATHS[0])
        with made.precision.settings():
            source = batches(made)
            kept = [next(iter(source))]
            for _ in range(_WARM_STEPS):
                loss = float(made.state.take_step(kept, 1e-4))
            samples = kept[0][0].numel() if workload == "language-model" else made.settings.batch
            ready_s = time.perf_counter() - began_s
            ready()
            rates = speeds(lambda: made.state.take_step(kept, 1e-4), samples, seconds)
            source.close()
    return {
        "rates": rates,
        "loss": loss,
        "ready_s": ready_s,
        "recorded": made.backend.recorded,
        "compiled": made.backend.compiled,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "rows", nargs="*", default=["resnet-50,faster-rcnn", "gpt2-124m", "llama-1b"]
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--inside", nargs=2, metavar=("FOLDER", "PATH"))
    arguments = parser.parse_args()
    if arguments.inside is not None:
        faulthandler.dump_traceback_later(arguments.limit, exit=True)
        (row,), (folder, path) = arguments.rows, arguments.inside
        with Turn(Path(folder), f"{row} {path}") as turn:
            found = measure(row, path, arguments.seconds, turn.wait)
        print(json.dumps(found), flush=True)
        os._exit(0)  # without waiting for the threads of the process group
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    print(
        "| row | path | per second | from, to | ratio | recorded | compiled | ready | GiB | loss |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for group in arguments.rows:
        _show(group.split(","), arguments)


def _show(rows: list[str], arguments: argparse.Namespace) -> None:
    cases = [(row, path) for row in rows for path in PATHS]
    with tempfile.TemporaryDirectory() as shared:
        Path(shared, "rows").write_text("\n".join(f"{row} {path}" for row, path in cases))
        options = ["--seconds", arguments.seconds, "--limit", arguments.limit, "--inside", shared]
        started = [
            subprocess.Popen(
                module_command("benchmarks.rank_overhead", row, *options, path),
                stdout=subprocess.PIPE,
                text=True,
            )
            for row, path in cases
        ]
        outputs = [process.communicate()[0] for process in started]
    base: dict[str, float] = {}
    for (row, path), output in zip(cases, outputs, strict=True):
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            print(f"| {row} | {path} | failed |", flush=True)
            continue
        found = json.loads(lines[-1])
        middle = statistics.median(found["rates"])
        print(
            f"| {row} | {path} | {middle:,.0f} | {min(found['rates']):,.0f} to "
            f"{max(found['rates']):,.0f} | {middle / base.setdefault(row, middle):.3f} | "
            f"{found['recorded']} | {found['compiled']} | {found['ready_s']:.0f} s | "
            f"{found['memory_gib']:.0f} | {found['loss']:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
