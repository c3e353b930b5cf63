"""The cost of comparing samples with their digests when they are first read.

    python -m benchmarks.content_check [--profile laptop] [--rounds 7]

For images and frames of a profile: the speed of hashing on one core, the time to read one epoch
without and with the comparison, in turns (medians), and the time of a training epoch on this
machine, from a few steps. All times are CPU times of this process, so that other programs do not
matter; a step and a reader may use several cores at a time. The data comes from the cache, where it
is drawn if it is missing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vflops.data.batch_memory import BatchMemory
from vflops.data.content_hash import values_digest
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.workload import Workload

WORKLOADS = ("image-classification", "extreme-weather")
STEPS = 6


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds that ``work`` takes."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def read_epoch(task: Workload, batch: int, *, compare: bool) -> None:
    """Read the training split once; the first read of every sample, if it is compared."""
    samples = task.samples("train")
    (split,) = (split for name, split in task.read_splits().items() if name == "train")
    check = split.check
    assert check is not None
    check.compared[:] = not compare
    for start in range(0, len(samples) - batch + 1, batch):
        samples.read(np.arange(start, start + batch, dtype=np.int64), BatchMemory())


def step_s(task: Workload, batch: int) -> float:
    """Return the seconds of a training step of a plain torch model."""
    model = task.model()
    draws = torch.rand(batch, task.draws) if task.draws else None
    data = task.samples("train").read(np.arange(batch, dtype=np.int64), BatchMemory())

    def step() -> None:
        inputs = task.inputs(data, draws, torch.float32)
        model.zero_grad()
        task.loss(model(*inputs[: task.model_inputs]), inputs).backward()

    step()
    return statistics.median(timed(step) for _ in range(STEPS))


def measure(name: str, profile: str, rounds: int) -> None:
    """Print the figures of a workload."""
    spec = workload(name)
    settings = spec.profile(profile)
    code: Any = spec.load_code()
    facts: DataFacts = code.prepare_data(settings, lambda *state: None)
    task: Workload = code.create(settings, facts)
    batch = settings.train.rank_batch
    read_epoch(task, batch, compare=False)  # so that the files are in memory
    plain, compared = [], []
    for _ in range(rounds):
        plain.append(timed(lambda: read_epoch(task, batch, compare=False)))
        compared.append(timed(lambda: read_epoch(task, batch, compare=True)))
    block = bytes(1 << 26)
    rate = len(block) / timed(lambda: values_digest(b"", block))
    added_s = statistics.median(compared) - statistics.median(plain)
    epoch_s = facts.train / batch * step_s(task, batch)
    print(
        f"{name} {profile}: {facts.train} samples, SHA-256 {rate / 1e9:.2f} GB/s on one core; "
        f"reading an epoch {1e3 * statistics.median(plain):.1f} ms, compared "
        f"{1e3 * statistics.median(compared):.1f} ms ({1e6 * added_s / facts.train:.1f} µs more a "
        f"sample); {added_s / epoch_s:.2%} of a training epoch of {epoch_s:.1f} s"
    )


def main() -> None:
    """Measure all workloads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for name in WORKLOADS:
        measure(name, options.profile, options.rounds)


if __name__ == "__main__":
    main()
