"""What telemetry takes from a run: a training loop in a process of its own, with and without it.

The launcher samples once a second, or rests, by turns, many times; the loop runs on and notes its
steps in shared memory. Printed are the difference of its speed, with the interval that holds the
true mean at 95 %, the CPU time that the sampler used, and the time to read a day of samples.

python benchmarks/telemetry_cost.py [PAIRS] [SECONDS]
"""

from __future__ import annotations

import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vflops.metrics.statistics import confidence_interval
from vflops.telemetry.record import header_line, read, sample_line
from vflops.telemetry.sampler import Sampler
from vflops.telemetry.series import Header

STEPS = struct.Struct("qd")  # steps done, and when the last one ended
SETTLE_S = 0.5
SAMPLES = 100_000


def train(path: str) -> None:
    """The training process: a small convolutional network on all CPUs, until it is stopped."""
    import torch
    from torch import nn

    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), STEPS.size) as shared:
        steps = 0
        while True:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
            steps += 1
            STEPS.pack_into(shared, 0, steps, time.monotonic())


class Loop:
    """The training process as the launcher sees it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "steps"
        path.write_bytes(bytes(STEPS.size))
        self._file = path.open("r+b")
        self._shared = mmap.mmap(self._file.fileno(), STEPS.size)
        self.process = subprocess.Popen([sys.executable, __file__, "--train", str(path)])
        while self._steps()[0] < 50:  # warm
            time.sleep(0.1)

    def _steps(self) -> tuple[int, float]:
        steps, at_s = STEPS.unpack_from(self._shared)
        return int(steps), float(at_s)

    def speed(self, seconds: float) -> float:
        """Steps a second over the next seconds."""
        first, first_s = self._steps()
        time.sleep(seconds)
        last, last_s = self._steps()
        return (last - first) / (last_s - first_s)


class Cost:
    """Speeds with and without the sampler, and what the sampler used."""

    def __init__(self, folder: Path, loop: Loop, seconds: float) -> None:
        self._folder, self._loop, self._seconds = folder, loop, seconds
        self._files = 0
        self.cpu_s = self.sampled_s = 0.0

    def without(self) -> float:
        time.sleep(SETTLE_S)
        return self._loop.speed(self._seconds)

    def sampled(self) -> float:
        self._files += 1
        path = self._folder / f"{self._files}.jsonl"
        with Sampler(path, self._folder) as sampler:
            time.sleep(SETTLE_S)
            before_s, cpu_s = time.monotonic(), time.process_time()
            speed = self._loop.speed(self._seconds)
            self.cpu_s += time.process_time() - cpu_s
            self.sampled_s += time.monotonic() - before_s
        if sampler.fault:
            raise SystemExit(sampler.fault)
        return speed


def measure(pairs: int, seconds: float, folder: Path) -> None:
    loop = Loop(folder)
    try:
        cost = Cost(folder, loop, seconds)
        losses, rests = [], []
        for number in range(pairs):
            # Without, with, with, without: what drifts meets both alike.
            turns = (cost.without, cost.sampled) if number % 2 else (cost.sampled, cost.without)
            speeds = {turn: turn() for turn in turns}
            losses.append(100 * (1 - speeds[cost.sampled] / speeds[cost.without]))
            rests.append(speeds[cost.without])
    finally:
        loop.process.kill()
        loop.process.wait()
    show(losses, rests, cost, seconds)


def show(losses: list[float], rests: list[float], cost: Cost, seconds: float) -> None:
    interval = confidence_interval(losses)
    low, _, high = statistics.quantiles(losses, n=4)
    spread = statistics.quantiles(rests, n=4)
    cpus = len(os.sched_getaffinity(0))
    print(f"{len(losses)} pairs of {seconds:g} s, {cpus} CPUs, one sample a second")
    print(
        f"speed without   {statistics.median(rests):8.1f} steps/s, IQR {spread[2] - spread[0]:.1f}"
    )
    print(
        f"cost of speed   {statistics.median(losses):+8.2f} % median, quartiles {low:+.2f} {high:+.2f}; "
        f"mean {statistics.mean(losses):+.2f} % (95 %: {interval.low:+.2f} to {interval.high:+.2f})"
    )
    share = cost.cpu_s / cost.sampled_s
    print(
        f"CPU time        {1e3 * share:8.2f} ms a second: "
        f"{100 * share:.2f} % of one CPU, {100 * share / cpus:.2f} % of all"
    )


def measure_reading(folder: Path) -> None:
    header = read(folder / "1.jsonl").header
    line = sample_line(1.25, 1.8e9, [312.5] * len(header.series)).replace("1.25", "%d.25")
    path = folder / "day.jsonl"
    body = "".join(line % second for second in range(SAMPLES))
    path.write_text(header_line(Header(interval_s=1, series=header.series)) + body)
    started_s = time.perf_counter()
    read(path)
    print(
        f"reading         {time.perf_counter() - started_s:8.2f} s "
        f"for {SAMPLES:,} samples of {len(header.series)} series"
    )


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        return train(sys.argv[2])
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    with tempfile.TemporaryDirectory() as folder:
        measure(pairs, seconds, Path(folder))
        measure_reading(Path(folder))
    return None


if __name__ == "__main__":
    main()
