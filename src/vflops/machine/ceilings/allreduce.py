"""Measures the all-reduce between local ranks: gloo on the CPU, NCCL between accelerators.

The ranks are separate processes, so that a rank that dies or hangs does not affect the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops import interruption
from vflops.config.parallel import NCCL_ALGORITHM, nccl_algorithm
from vflops.machine.ceilings.ceiling_plan import (
    Item,
    fixed_algorithm_of,
    has_equal_rows,
    mode_of,
)
from vflops.machine.ceilings.sample_statistics import median
from vflops.machine.ceilings.task import Task
from vflops.machine.devices import Device
from vflops.machine.system.cpu_share import available_cpus, cpu_threads
from vflops.python_start import module_command
from vflops.record.formats.measurement import Measurement, Trial

TOLERANCE = 1e-6
"""Tolerance for a sum of fp32 numbers over ranks."""

_PRODUCT_TOLERANCE = 1e-3
"""Tolerance for products of random fp32 matrices, which may be ill-conditioned."""

_MIN_SAMPLES = 3
"""A message size with fewer samples is the best only if all sizes have fewer."""
_MIN_START_SHARE = 0.5
"""Ranks are not started if less than this share of their start-up time is left."""
_KILL_AFTER_S = 1.5
"""Ranks that exceed their deadline by this much are killed."""


@dataclass(frozen=True)
class Size:
    """The result of the ranks for one message size."""

    size_bytes: int
    times_s: list[float]
    error: float
    sent_bytes: int | None = None
    """Bytes that all ranks sent for one operation; None for a plain all-reduce, where they are not
    counted."""

    def setting(self, ranks: int) -> dict[str, int | str]:
        """Return the setting as it is recorded."""
        if self.sent_bytes is None:
            return {"size_bytes": self.size_bytes, "ranks": ranks}
        return {"size_bytes": self.size_bytes, "sent_bytes": self.sent_bytes}


class RanksError(RuntimeError):
    """The ranks failed: one died, or they did not end in time."""


def unavailable_reason(device: Device, item: Item) -> str | None:
    """Return why the item cannot be measured on ``device``, or None."""
    if item.case.startswith("gloo") or device.accelerators > 1:
        return None
    if device.is_cpu:
        return "the device is the CPU: NCCL reduces between accelerators"
    return "one accelerator: nothing to reduce between"


def measure(task: Task) -> Measurement:
    """Measure the bus bandwidth, 2(n−1)/n · bytes / time, at the best message size.

    ``tried`` of the result has all sizes; the time of one all-reduce is 2(n−1)/n · bytes / value.
    """
    backend = task.item.case.partition("-")[0]
    ranks = task.ranks if backend == "gloo" else task.device.accelerators
    return _measure(task, backend, ranks, TOLERANCE)


def measure_mode(task: Task) -> Measurement:
    """Measure an average over ranks with a communication mode and precision.

    The value is the bandwidth that an fp32 all-reduce would need to be as fast. The allowed error
    is that of rounding, see ``tolerances``.
    """
    mode, ranks = mode_of(task.item.case)
    precision = task.item.precision or "fp32"
    backend = "nccl" if task.device.accelerators > 1 else "gloo"
    if mode != "all-reduce" and not has_equal_rows(ranks):
        return task.absent_measurement(
            f"{ranks} ranks have no rows of equal length: {mode} needs 4, 6, 8 …"
        )
    caveat, cores = None, available_cpus()
    if backend == "gloo" and ranks > cores:
        shared = "1 core" if cores == 1 else f"{cores} cores"
        caveat = f"{shared}: {ranks} ranks share them, and wait for these, not for a link"
    return _measure(
        task, backend, ranks, tolerances(ranks)[precision], (mode, precision), caveat=caveat
    )


def tolerances(ranks: int) -> dict[str, float]:
    """Return the largest relative error of an average over ``ranks`` due to rounding, by precision.

    A floating-point format rounds the messages and every sum. int8 rounds up to three times, by at
    most 1/254 of the largest number, which is 1.44 times the mean of the numbers (uniform between
    0.5 and 1.5). PowerSGD computes products and orthogonalises columns in fp32; the matrices have a
    rank that it represents exactly.
    """
    sums = ranks + 2
    return {
        "fp32": TOLERANCE,
        "fp16": sums * 2.0**-11,
        "bf16": sums * 2.0**-8,
        "int8": 3 * 1.44 / 254,
        "powersgd": _PRODUCT_TOLERANCE,
    }


def _measure(
    task: Task,
    backend: str,
    ranks: int,
    tolerance: float,
    mode: tuple[str, ...] = (),
    *,
    caveat: str | None = None,
) -> Measurement:
    device = task.device.name if backend == "nccl" else "cpu"
    if task.deadline.left_s() < _MIN_START_SHARE * task.item.start_s:
        return task.out_of_time(device)
    try:
        sizes = _run(task, backend, ranks, mode)
    except (RanksError, OSError) as failure:
        return task.item.absent_measurement(device, str(failure))
    return summarise(
        task.item,
        device,
        sizes,
        ranks,
        bus_share=2 * (ranks - 1) / ranks,
        tolerance=tolerance,
        out_of_time_reason=task.out_of_time_reason,
        on_trial=task.on_trial,
        caveat=caveat,
    )


def summarise(
    item: Item,
    device: str,
    sizes: Sequence[Size],
    ranks: int,
    *,
    bus_share: float,
    tolerance: float,
    out_of_time_reason: str,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    caveat: str | None = None,
) -> Measurement:
    """Return the measurement at the best message size: ``bus_share`` · bytes / time."""
    error = max((size.error for size in sizes), default=0.0)
    if error > tolerance:
        reason = f"wrong result: relative error {error:.2g}, tolerance {tolerance:g}"
        return item.absent_measurement(device, reason)
    if not any(len(size.times_s) >= _MIN_SAMPLES for size in sizes):
        return item.absent_measurement(device, out_of_time_reason, ran_out_of_time=True)
    speeds = [[bus_share * size.size_bytes / time_s for time_s in size.times_s] for size in sizes]
    tried = [
        Trial(setting=size.setting(ranks), value=median(samples))
        for size, samples in zip(sizes, speeds, strict=True)
    ]
    for trial in tried:
        on_trial(trial)
    best = max(
        range(len(sizes)),
        key=lambda index: (len(speeds[index]) >= _MIN_SAMPLES, tried[index].value),
    )
    return item.measurement(
        device,
        speeds[best],
        setting=tried[best].setting,
        tried=tuple(tried),
        error=error,
        tolerance=tolerance,
        caveat=caveat,
    )


def command(
    backend: str, ranks: int, folder: Path, limit_s: float, seed: int, *mode: str
) -> list[str]:
    """Return the command that starts the ranks: a process that forks ``ranks`` processes."""
    module = "vflops.machine.ceilings.allreduce_rank"
    arguments = (os.getpid(), backend, ranks, folder, limit_s, seed, *mode)
    return module_command(module, *arguments)


def _run(task: Task, backend: str, ranks: int, mode: tuple[str, ...]) -> list[Size]:
    with tempfile.TemporaryDirectory(prefix="vflops-all-reduce-") as name:
        folder = Path(name)
        left_s = task.deadline.left_s()
        errors = folder / "stderr"
        with errors.open("wb") as stderr, interruption.protected():
            process = subprocess.Popen(
                command(backend, ranks, folder, left_s, task.item_seed, *mode),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
                env=_environment(backend, ranks) | _algorithm(task.item.case),
            )
        try:
            code = process.wait(timeout=left_s + _KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            raise RanksError(
                _with_last_line(f"the ranks did not end within {left_s:.0f} s", errors)
            ) from None
        finally:
            _kill(process)
        lines = _read_lines(folder / "result.jsonl")
        failures = [str(line["failed"]) for line in lines if "failed" in line]
        if failures or code != 0:
            message = failures[0] if failures else f"the ranks ended with exit code {code}"
            raise RanksError(_with_last_line(message, errors))
        return [Size(**line) for line in lines]


def _environment(backend: str, ranks: int) -> dict[str, str]:
    threads = str(cpu_threads(ranks).count)
    # OpenBLAS would start threads when numpy is imported, before the process forks.
    changes = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
    if backend == "gloo" and Path("/sys/class/net/lo").exists():
        changes["GLOO_SOCKET_IFNAME"] = "lo"
    return {**os.environ, **changes}


def _algorithm(case: str) -> dict[str, str]:
    """Return the variable that fixes NCCL's algorithm, if the case names one."""
    fixed = fixed_algorithm_of(case)
    return {} if fixed is None else {NCCL_ALGORITHM: nccl_algorithm(fixed)}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill all ranks that are still running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _with_last_line(message: str, errors: Path) -> str:
    lines = errors.read_text(errors="replace").strip().splitlines()
    return f"{message}: {lines[-1].strip()}" if lines else message
