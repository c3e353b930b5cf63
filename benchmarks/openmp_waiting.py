"""Speed of training and of products on a CPU by how idle OpenMP threads wait.

    python -m benchmarks.openmp_waiting [--profile tiny] [--rounds 5] [--busy 2] [--alone]
                                        [--policies default,passive,2000]

A fresh process measures each policy once per round, in turns: GNU's OpenMP library reads its
variables when it is loaded. "default" is its own choice, numbers are values of ``GOMP_SPINCOUNT``.
``--busy`` processes compute beside them. ``--alone`` needs root: the process preempts all others
for seconds, as if the machine were quiet, and trains on one batch.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
TRAIN_S, PRODUCT_S = 2.0, 0.4


def measure(profile: str, *, alone: bool) -> dict[str, float]:
    """Return samples/s of the engine and GFLOPS of a small and a large product."""
    import torch

    from benchmarks import train_speed

    arguments = argparse.Namespace(profile=profile, workload="image-classification", set=[])
    with tempfile.TemporaryDirectory() as folder:
        made = train_speed.engine(arguments, Path(folder))
        with made.precision.settings():
            source = train_speed.batches(made)
            incoming = iter(source)
            kept = [next(incoming)]
            if alone:
                source.close()  # a thread of its own, which would share the cores
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
                steps = rate(lambda: made.state.take_step(kept, 0.01), TRAIN_S)
            else:
                steps = rate(lambda: made.state.take_step([next(incoming)], 0.01), TRAIN_S)
                source.close()
    rates = {"samples/s": steps * made.settings.batch}
    for size in (128, 1024):
        a, b = torch.randn(size, size), torch.randn(size, size)
        rates[f"GFLOPS {size}"] = rate(lambda: a @ b, PRODUCT_S) * 2e-9 * size**3  # noqa: B023
    return rates


def rate(call: Callable[[], object], seconds: float) -> float:
    """Return calls per second, after a warm-up of a third of the time."""
    for limit_s in (seconds / 3, seconds):
        count, started_s = 0, time.perf_counter()
        while (took_s := time.perf_counter() - started_s) < limit_s:
            call()
            count += 1
    return count / took_s


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep ``processes`` cores busy during a block."""
    command = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.wait()


def environment(policy: str) -> dict[str, str]:
    """Return this environment with the variables of a policy only."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if policy == "default":
        return kept
    name = "GOMP_SPINCOUNT" if policy.isdecimal() else "OMP_WAIT_POLICY"
    return {**kept, name: policy}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--policies", default="default,passive,1000,2000,5000")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.profile, alone=arguments.alone)))
        return
    command = [sys.executable, "-m", "benchmarks.openmp_waiting", "--child"]
    command += ["--profile", arguments.profile]
    command += ["--alone"] * arguments.alone
    measured: dict[str, list[dict[str, float]]] = {}
    with busy(arguments.busy):
        for _ in range(arguments.rounds):
            for policy in arguments.policies.split(","):
                out = subprocess.check_output(command, env=environment(policy))
                measured.setdefault(policy, []).append(json.loads(out.splitlines()[-1]))
    print(f"{os.cpu_count()} CPUs, {arguments.busy} busy processes, load {os.getloadavg()[0]:.1f}")
    for policy, rates in measured.items():
        middles = {name: statistics.median(rate[name] for rate in rates) for name in rates[0]}
        lowest = min(rate["samples/s"] for rate in rates)
        columns = "  ".join(f"{name} {value:9.1f}" for name, value in middles.items())
        print(f"{policy:10} {columns}  lowest samples/s {lowest:.1f}")


if __name__ == "__main__":
    main()
