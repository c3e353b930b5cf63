"""Seconds from start to end of the commands that must start quickly.

python benchmarks/start_time.py RUN
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 11


def main() -> None:
    run = sys.argv[1]
    print(f"{'command':12} {'median':>8} {'least':>8}   of {ROUNDS}")
    for command in (["--help"], ["list"], ["score", run], ["check", run]):
        arguments = [sys.executable, "-m", "vflops", *command]
        times_s = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            subprocess.run(arguments, capture_output=True, check=False)
            times_s.append(time.perf_counter() - started)
        print(f"{command[0]:12} {statistics.median(times_s):7.3f}s {min(times_s):7.3f}s")


if __name__ == "__main__":
    main()
