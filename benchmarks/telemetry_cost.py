"""The cost of telemetry: the speed of a training loop with and without it.

The launcher alternates many times between sampling once a second and pausing; the loop runs in a
separate process and counts its steps in shared memory. Both are bound to one CPU, which is the
worst case: what the sampler takes, the loop loses. The output is the loss of speed by wall time
and by the loop's CPU time (which other users of the machine disturb less, and which includes
effects on caches but no stolen time), with 95 % confidence intervals; the CPU time of the sampler;
and the time to read the telemetry of a day.

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
from dataclasses import dataclass
from pathlib import Path

from vflops.machine.telemetry.sampling import Sampler
from vflops.metrics.statistics import confidence_interval
from vflops.record.formats.telemetry import Header
from vflops.record.log.telemetry_log import header_line, read, sample_line

STEPS = struct.Struct("qdd")  # steps done, when the last one ended, the CPU time they took
SETTLE_S = 0.5
SAMPLES = 100_000


def train(path: str) -> None:
    """Train a small convolutional network on one CPU until it is stopped."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
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
            STEPS.pack_into(shared, 0, steps, time.monotonic(), time.process_time())


@dataclass(frozen=True)
class Speed:
    """Steps per second of wall time, and of the process's CPU time."""

    wall: float
    cpu: float


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

    def _steps(self) -> tuple[int, float, float]:
        steps, at_s, cpu_s = STEPS.unpack_from(self._shared)
        return int(steps), float(at_s), float(cpu_s)

    def speed(self, seconds: float) -> Speed:
        """Return its speed over the next seconds."""
        first, first_s, first_cpu_s = self._steps()
        time.sleep(seconds)
        last, last_s, last_cpu_s = self._steps()
        steps = last - first
        return Speed(steps / (last_s - first_s), steps / (last_cpu_s - first_cpu_s))


class Cost:
    """Speeds with and without the sampler, and what the sampler used."""

    def __init__(self, folder: Path, loop: Loop, seconds: float) -> None:
        self._folder, self._loop, self._seconds = folder, loop, seconds
        self._files = 0
        self.cpu_s = self.sampled_s = 0.0

    def without(self) -> Speed:
        time.sleep(SETTLE_S)
        return self._loop.speed(self._seconds)

    def sampled(self) -> Speed:
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
        speed_pairs = []
        for number in range(pairs):
            # Without, with, with, without: a drift affects both equally.
            turns = (cost.without, cost.sampled) if number % 2 else (cost.sampled, cost.without)
            speeds = {turn: turn() for turn in turns}
            speed_pairs.append((speeds[cost.without], speeds[cost.sampled]))
    finally:
        loop.process.kill()
        loop.process.wait()
    print(f"{pairs} pairs of {seconds:g} s, all on one CPU, one sample a second")
    show("speed", [(without.wall, sampled.wall) for without, sampled in speed_pairs])
    show("speed by CPU", [(without.cpu, sampled.cpu) for without, sampled in speed_pairs])
    share = cost.cpu_s / cost.sampled_s
    print(f"CPU time taken  {1e3 * share:8.2f} ms a second: {100 * share:.2f} % of the one CPU")


def show(what: str, pairs: list[tuple[float, float]]) -> None:
    losses = [100 * (1 - sampled / without) for without, sampled in pairs]
    interval = confidence_interval(losses)
    low, middle, high = statistics.quantiles(losses, n=4)
    speed = statistics.median(without for without, _ in pairs)
    print(
        f"cost of {what:12}{middle:+8.2f} % median, quartiles {low:+.2f} to {high:+.2f}; mean "
        f"{statistics.mean(losses):+.2f} % (95 %: {interval.low:+.2f} to {interval.high:+.2f}) "
        f"of {speed:.0f} steps/s"
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
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the loop inherits it
    with tempfile.TemporaryDirectory() as folder:
        measure(pairs, seconds, Path(folder))
        measure_reading(Path(folder))
    return None


if __name__ == "__main__":
    main()
