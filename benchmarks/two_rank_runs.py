"""How runs of two ranks end, for many of them: every run must be complete, with exit code 0 or 1.

    python -m benchmarks.two_rank_runs [RUNS] [--busy] [--more KEY=VALUE] [--source FOLDER]

Each run is the command as a user types it, with real processes; it trains one epoch, so that the
start and the end of its processes are most of it. Exit code 1 is a run that measured everything but
misses its target. ``--busy`` keeps every core busy with two other processes meanwhile. ``--source``
is the ``src`` folder of another version, to compare with. Prints each run that failed, then a table
of outcomes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from vflops.machine.system.cpu_share import usable_cores
from vflops.record.folder import RunFolder, latest

RUN = ["run", "image-classification", "--profile", "tiny", "--ranks", "2", "--quiet"]
SHORT = ("micro.budget_s=1", "train.epochs=1", "train.warmup_epochs=0")
FINE = (0, 1)
_BUSY_PROCESSES = 2
"""The other processes on each core of a busy machine."""


def outcome(number: int, folder: Path, arguments: argparse.Namespace) -> str:
    """Start one run, wait for it, and return how it ended."""
    out = folder / str(number)
    settings = [part for item in (*SHORT, *arguments.more) for part in ("--set", item)]
    variables = dict(os.environ)
    if arguments.source:
        variables["PYTHONPATH"] = str(arguments.source)
    command = [sys.executable, "-m", "vflops", *RUN, "--out", str(out), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    path = latest(out)
    ended = path is not None and RunFolder.open(path).ended(1)
    aborts = sum("terminate called" in log.read_text() for log in out.rglob("rank-*.log"))
    attempts = len(list(out.glob("*/jobs/1/[0-9]*")))
    parts = [f"exit code {done.returncode}", "training ended" if ended else "training did not end"]
    parts += [f"{attempts} attempts"] if attempts != 1 else []
    parts += ["a rank aborted"] if aborts else []
    text = ", ".join(parts)
    if done.returncode not in FINE or attempts != 1 or aborts or not ended:
        print(f"run {number}: {text}\n{done.stderr.strip()}", flush=True)
    return text


def busy(stack: ExitStack) -> None:
    """Load every core until the end of ``stack``."""
    for core in usable_cores() * _BUSY_PROCESSES:
        command = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
        stack.callback(subprocess.Popen(command).kill)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=100)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--more", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--source", type=Path)
    arguments = parser.parse_args()
    start_s, outcomes = time.monotonic(), Counter[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arguments.busy:
            busy(stack)
        for number in range(arguments.runs):
            outcomes[outcome(number, folder, arguments)] += 1
    took_s = time.monotonic() - start_s
    load = "busy" if arguments.busy else "otherwise as it was"
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"{arguments.runs} runs in {took_s:.0f} s, Python {version}, machine {load}:")
    for text, count in outcomes.most_common():
        print(f"{count:5d}  {text}")


if __name__ == "__main__":
    main()
